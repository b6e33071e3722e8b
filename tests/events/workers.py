"""Which server posts, found by the socket that a post came from while its connection is open; and how many connections there are."""
import os


def inode(port):
    """Of the socket that is connected from this port."""
    with open("/proc/net/tcp") as table:
        for line in table.readlines()[1:]:
            fields = line.split()
            if int(fields[1].split(":")[1], 16) == port and fields[9] != "0":
                return fields[9]
    raise LookupError(f"nobody is connected from port {port}")


def worker(servers, post):
    """The server among these that has sent a post."""
    wanted = f"socket:[{inode(post.peer)}]"
    for server in servers:
        folder = f"/proc/{server.process.pid}/fd"
        for name in os.listdir(folder):
            try:
                if os.readlink(f"{folder}/{name}") == wanted:
                    return server
            except FileNotFoundError:
                pass
    raise LookupError(f"none of the servers is connected from port {post.peer}")


def connections(port):
    """How many are open to this port on this machine."""
    with open("/proc/net/tcp") as table:
        fields = [line.split() for line in table.readlines()[1:]]
    return sum(int(field[2].split(":")[1], 16) == port and field[3] == "01" for field in fields)
