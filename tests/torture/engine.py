"""Engines that can be killed, suspended and restarted on the same port with the same data.

Must hold: only the started process and its children are signalled.
"""
import asyncio
import os
import pathlib
import shutil
import signal
import socket
import subprocess

from support.process import free_port


class Engine:
    """Subclasses define `kind`, `prepare`, `command` and `answers`."""

    kind = "engine"

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.port = free_port()
        self.process = None
        self.starting = asyncio.Lock()
        self.log_path = self.folder / f"{self.kind}.log.txt"

    def prepare(self):
        pass

    def user(self):
        return None

    async def start(self, timeout=60.0):
        """Starts it unless it runs; retries until it answers."""
        async with self.starting:
            if not self.is_running():
                await self._start(timeout)

    async def _start(self, timeout):
        end = asyncio.get_running_loop().time() + timeout
        while True:
            self._spawn()
            while self.process.poll() is None:
                if await asyncio.to_thread(self.answers):
                    return
                if asyncio.get_running_loop().time() > end:
                    raise TimeoutError(f"{self.kind} does not answer:\n{self.log()}")
                await asyncio.sleep(0.05)
            if asyncio.get_running_loop().time() > end:
                raise TimeoutError(f"{self.kind} does not start:\n{self.log()}")
            await asyncio.sleep(0.5)

    def _spawn(self):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                self.command(), cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                user=self.user(), group=self.user(), extra_groups=[] if self.user() else None,
            )

    def log(self, most=4_000):
        return self.log_path.read_text(errors="replace")[-most:] if self.log_path.exists() else ""

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def signal(self, number):
        for process in self.processes():
            try:
                os.kill(process, number)
            except ProcessLookupError:
                pass

    def processes(self):
        """The process and its children; some lead their own process groups."""
        found = [self.process.pid] if self.is_running() else []
        for process in found:
            try:
                children = pathlib.Path(f"/proc/{process}/task/{process}/children").read_text()
            except OSError:
                continue
            found += map(int, children.split())
        return found

    def kill(self):
        self.signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()

    def sleep(self):
        self.signal(signal.SIGSTOP)

    def wake(self):
        self.signal(signal.SIGCONT)

    def replies_with(self, question, answer):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as probe:
                probe.settimeout(1)
                probe.sendall(question)
                return probe.recv(64).startswith(answer)
        except OSError:
            return False


class Nats(Engine):
    kind = "nats"

    def command(self):
        program = shutil.which("nats-server", path=os.environ["PATH"] + ":/usr/sbin")
        return [program, "-a", "127.0.0.1", "-p", str(self.port)]

    def answers(self):
        return self.replies_with(b"", b"INFO ")


class Redis(Engine):
    """With appendfsync everysec, the usual production setting."""

    kind = "redis"

    def command(self):
        return ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes",
                "--appendfsync", "everysec", "--dir", str(self.folder)]

    def answers(self):
        return self.replies_with(b"PING\r\n", b"+PONG")


class Postgres(Engine):
    kind = "postgres"

    def __init__(self, folder):
        super().__init__(folder)
        servers = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/postgres"))
        program = servers[-1] if servers else pathlib.Path(shutil.which("postgres")).resolve()
        self.programs = program.parent

    def user(self):
        # Postgres refuses to run as root.
        return "postgres" if os.geteuid() == 0 else None

    def prepare(self):
        if self.user():
            shutil.chown(self.folder, self.user(), self.user())
        subprocess.run(
            [self.programs / "initdb", "-D", "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"],
            cwd=self.folder, check=True, capture_output=True, user=self.user(), group=self.user(),
            extra_groups=[] if self.user() else None,
        )

    def command(self):
        settings = {"listen_addresses": "127.0.0.1", "max_connections": "200", "max_wal_size": "96MB", "min_wal_size": "32MB",
                    "synchronous_commit": "on", "shared_buffers": "32MB"}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [str(self.programs / "postgres"), "-D", "data", "-k", str(self.folder), "-p", str(self.port), *options]

    def answers(self):
        asked = subprocess.run(
            [self.programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)], capture_output=True)
        return asked.returncode == 0
