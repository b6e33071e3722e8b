"""Real proxies with the configurations of packaging/proxies: on loopback, without TLS, in front of servers of a test."""
import re
import socket

from install.files import PACKAGING
from support.process import Server, free_port

FILES = PACKAGING / "proxies"


class Proxy(Server):
    """Subclasses define `name`, `file`, `configure(text)` and `command()`."""

    def __init__(self, servers):
        super().__init__()
        self.port, self.servers = free_port(), servers
        self.config = self.folder / self.file
        self.config.write_text(self.configure((FILES / self.file).read_text()))

    @property
    def ws_url(self):
        return f"ws://127.0.0.1:{self.port}/v1/connect"

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    trust = None

    def ready(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


def replaced(text, pattern, by):
    text, times = re.subn(pattern, by, text, flags=re.M)
    assert times, f"{pattern} is not in the file"
    return text


class Nginx(Proxy):
    name, file = "nginx", "nginx.conf"

    def configure(self, text):
        text = replaced(text, r"^ +server 127\.0\.0\.1:7400(.*)$", "\n".join(rf"    server 127.0.0.1:{one.port}\1" for one in self.servers))
        text = replaced(text, r"listen 443 ssl;", f"listen 127.0.0.1:{self.port};")
        text = replaced(text, r"^ +ssl_certificate.*\n", "")
        # One worker with room for many connections; everything it writes is in its folder.
        head = f"pid '{self.folder}/pid';\nerror_log stderr;\nworker_rlimit_nofile 20000;\nworker_processes 1;\ndaemon off;\n"
        temporary = "".join(f"{kind}_temp_path '{self.folder}/{kind}';\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        return f"{head}events {{ worker_connections 8000; }}\nhttp {{\naccess_log off;\n{temporary}{text}}}\n"

    def command(self):
        return ["/usr/sbin/nginx", "-e", "stderr", "-p", self.folder, "-c", self.config]


class Caddy(Proxy):
    name, file = "caddy", "Caddyfile"

    def configure(self, text):
        text = replaced(text, r"^tavern\.example \{", f"http://127.0.0.1:{self.port} {{")
        text = replaced(text, r"127\.0\.0\.1:7400", " ".join(f"127.0.0.1:{one.port}" for one in self.servers))
        return "{\n\tadmin off\n\tauto_https off\n\tgrace_period 1s\n}\n" + text

    def command(self):
        return ["caddy", "run", "--adapter", "caddyfile", "--config", self.config]

    def environment(self):
        return {"PATH": "/usr/bin:/bin", "HOME": str(self.folder)}


class Haproxy(Proxy):
    name, file = "haproxy", "haproxy.cfg"

    def configure(self, text):
        text = replaced(text, r"bind :443 .*$", f"bind 127.0.0.1:{self.port}")
        # Within the file limit of a machine for tests.
        text = replaced(text, r"maxconn 100000", "maxconn 4000")
        for number, server in enumerate(self.servers, 1):
            text = replaced(text, rf"10\.0\.0\.{number}:7400", f"127.0.0.1:{server.port}")
        return text

    def command(self):
        return ["/usr/sbin/haproxy", "-db", "-f", self.config]
