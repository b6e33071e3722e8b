"""Cables: network namespaces with one connection to this machine, which can drop every packet or be slow. They need root."""
import itertools
import os
import pathlib
import shutil
import subprocess

COUNT = itertools.count(1)
DROP = """table inet cable {
    chain in { type filter hook input priority 0; policy drop; }
    chain out { type filter hook output priority 0; policy drop; }
}
"""


def possible():
    return os.geteuid() == 0 and bool(shutil.which("ip") and shutil.which("nft") and shutil.which("tc"))


class Cable:
    def __init__(self):
        number = next(COUNT)
        self.name = f"truth{os.getpid()}-{number}"
        self.device = f"tr{os.getpid() % 100_000}x{number}"
        network = f"10.{200 + os.getpid() % 50}.{number}"
        self.host, self.client = f"{network}.1", f"{network}.2"
        # There, `localhost` is this machine: a development server accepts only that name.
        self.etc = pathlib.Path("/etc/netns") / self.name
        self.etc.mkdir(parents=True)
        (self.etc / "hosts").write_text(f"{self.host} localhost\n")
        run("ip", "netns", "add", self.name)
        run("ip", "link", "add", self.device, "type", "veth", "peer", "name", "cable0", "netns", self.name)
        run("ip", "addr", "add", f"{self.host}/24", "dev", self.device)
        run("ip", "link", "set", self.device, "up")
        self._inside("ip", "addr", "add", f"{self.client}/24", "dev", "cable0")
        self._inside("ip", "link", "set", "cable0", "up")
        self._inside("ip", "link", "set", "lo", "up")

    def _inside(self, *command, text=None):
        run("ip", "netns", "exec", self.name, *command, text=text)

    def command(self, command):
        """The same command with its connections over this cable."""
        return ["ip", "netns", "exec", self.name, *command]

    def cut(self):
        """Packets disappear; nobody is told."""
        self._inside("nft", "-f", "-", text=DROP)

    def mend(self):
        self._inside("nft", "flush", "ruleset")

    def lose(self, percent):
        """Every so many packets disappear, in both directions."""
        rule = f"numgen random mod 100 < {percent} drop;"
        self._inside("nft", "-f", "-", text=DROP.replace("policy drop;", f"policy accept; {rule}"))

    def slow(self, kilobits):
        for inside in (True, False):
            shape = ("tc", "qdisc", "replace", "dev", "cable0" if inside else self.device, "root", "tbf", "rate", f"{kilobits}kbit",
                     "burst", "1600", "latency", "2s")
            self._inside(*shape) if inside else run(*shape)

    def close(self):
        shutil.rmtree(self.etc, ignore_errors=True)
        subprocess.run(["ip", "netns", "del", self.name], check=False, capture_output=True)


def run(*command, text=None):
    done = subprocess.run(command, input=text, text=True, capture_output=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
