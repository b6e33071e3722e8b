"""A `tavern` process on free loopback ports, as `dev` or as `serve` with a given configuration."""
import http.client
import os
import pathlib
import subprocess

from . import tokens
from .process import Server, free_port

ADMIN_KEY = "test-admin-key-6b0f3a9c51d24e7f8a"


def program():
    """The program under test: TAVERN_BIN, or else the newest build in target/."""
    root = pathlib.Path(__file__).resolve().parents[2]
    if named := os.environ.get("TAVERN_BIN"):
        path = pathlib.Path(named)
        path = path if path.is_absolute() else root / path
        if not path.exists():
            raise FileNotFoundError(f"TAVERN_BIN names {path}, which does not exist")
        return path
    built = [root / "target" / profile / "tavern" for profile in ("debug", "release")]
    built = [path for path in built if path.exists()]
    if not built:
        raise FileNotFoundError("no tavern program; build it with: cargo build -p tavern")
    return max(built, key=lambda path: path.stat().st_mtime)


def environment():
    """The caller's environment without TAVERN_… variables, which would configure the program under test."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TAVERN_")}


class Tavern(Server):
    name = "tavern"
    # SSL context for clients, when the server uses TLS.
    trust = None

    def __init__(self, mode, config="", options=(), data=None):
        super().__init__()
        # Servers that share a folder form a cluster.
        self.data = data or self.folder / "data"
        self.mode = mode
        self.port = free_port()
        self.resp_port = free_port()
        self.key = ADMIN_KEY
        self.options = options
        self.config = self.folder / "tavern.toml"
        self.config.write_text(config)

    @classmethod
    def dev(cls, config="", options=(), data=None):
        return cls("dev", config, options, data)

    @classmethod
    def serve(cls, config="", options=(), data=None):
        return cls("serve", config, options, data)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def ws_url(self):
        return f"ws://127.0.0.1:{self.port}/v1/connect"

    def terminate(self, timeout=20.0):
        """Stops it as an operator does, and checks that it ends without an error."""
        code = super().terminate(timeout)
        assert code == 0, f"tavern exited with {code}:\n{self.log()}"
        return code

    def resident_bytes(self):
        """Resident memory of the server."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) * 1024

    def metric(self, name):
        """The value of one metric; of one with labels the sum."""
        values = [number(line.split()[-1]) for line in self.metrics().splitlines() if line.startswith((name + " ", name + "{"))]
        assert values, f"there is no metric {name}"
        return sum(values)

    def metrics(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/metrics", headers={"authorization": f"Bearer {self.key}"})
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    @property
    def token(self):
        """A token for user `tester` with every right."""
        return tokens.token("tester")

    def command(self):
        return [
            program(), self.mode,
            "--config", self.config,
            "--listen", f"127.0.0.1:{self.port}",
            "--resp", f"127.0.0.1:{self.resp_port}",
            "--data", self.data,
            "--secret", tokens.SECRET,
            "--admin-key", self.key,
            *self.options,
        ]

    def environment(self):
        return environment()

    def run(self, *arguments, **options):
        """Runs a tavern command in the server's folder; returns the finished process."""
        return subprocess.run(
            [program(), *arguments], cwd=self.folder, env=self.environment(), capture_output=True, text=True,
            timeout=20, **options,
        )

    def store(self):
        """The option for its store, unless that is the folder."""
        at = self.options.index("--store") if "--store" in self.options else len(self.options)
        return self.options[at:at + 2]

    def api_key(self, *scopes):
        """Creates an API key with these scopes while the server runs."""
        made = self.run(
            "key", "create", "--config", self.config, "--data", self.data, *self.store(),
            "--name", "-".join(scopes) or "none", "--scopes", ",".join(scopes),
        )
        assert made.returncode == 0, f"tavern key create failed: {made.stderr}"
        return made.stdout.strip()

    def ready(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()


def number(text):
    """A number of the metrics page; counts are whole."""
    return int(text) if text.isdigit() else float(text)
