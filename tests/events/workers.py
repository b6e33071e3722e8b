"""Finds the server that sent a post, by the socket of its open connection; counts connections."""
import os


def inode(port):
    """The inode of the socket with this local port."""
    with open("/proc/net/tcp") as table:
        for line in table.readlines()[1:]:
            fields = line.split()
            if int(fields[1].split(":")[1], 16) == port and fields[9] != "0":
                return fields[9]
    raise LookupError(f"no connection from port {port}")


def worker(servers, post):
    """The server that sent a post."""
    wanted = f"socket:[{inode(post.peer)}]"
    for server in servers:
        folder = f"/proc/{server.process.pid}/fd"
        for name in os.listdir(folder):
            try:
                if os.readlink(f"{folder}/{name}") == wanted:
                    return server
            except FileNotFoundError:
                pass
    raise LookupError(f"no server has a connection from port {post.peer}")


def connections(port):
    """The number of open connections to this local port."""
    with open("/proc/net/tcp") as table:
        fields = [line.split() for line in table.readlines()[1:]]
    return sum(int(field[2].split(":")[1], 16) == port and field[3] == "01" for field in fields)
