"""A server process started by a test: on free loopback ports, in a temporary folder, stopped by its pid.

Must hold: no process outlives its `with` block, and a failing test can show the server's log.
"""
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time

RUNNING = []

# Below the ephemeral ports, one of which could take the port of a stopped server, and below the ports of the Rust tests.
FIRST_PORT, LAST_PORT, BLOCK = 10_000, 19_999, 50
HELD = []


def blocks_of_ports():
    """Port blocks that no other test process uses; each is locked until this process exits."""
    starts = range(FIRST_PORT, LAST_PORT, BLOCK)
    for start in random.sample(starts, len(starts)):
        held = socket.socket(socket.AF_UNIX)
        try:
            # An abstract socket: released with the process, however it exits.
            held.bind(f"\0tavern-test-ports-{start}")
        except OSError:
            held.close()
            continue
        HELD.append(held)
        yield range(start, start + BLOCK)


PORTS = (port for block in blocks_of_ports() for port in block)


def free_port():
    """A free loopback port that no other test process gets while this one runs."""
    for port in PORTS:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass
    raise RuntimeError(f"no free port between {FIRST_PORT} and {LAST_PORT}")


def until(fact, what, timeout=10.0):
    """Polls `fact` until it is true and returns its value."""
    end = time.monotonic() + timeout
    while True:
        answer = fact()
        if answer:
            return answer
        if time.monotonic() > end:
            raise TimeoutError(f"timed out after {timeout} s waiting for {what}")
        time.sleep(0.005)


class Server:
    """Subclasses define `name`, `command()` and `ready()`."""

    name = "server"

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"tavern-test-{self.name}-"))
        self.log_path = self.folder / "server.log.txt"
        self.process = None

    def start(self):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                self.command(), cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment()
            )
        RUNNING.append(self)
        try:
            until(self.answers, f"{self.name} to be ready", timeout=15)
        except BaseException:
            self.kill()
            print(self.log())
            raise
        return self

    def environment(self):
        return None

    def answers(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.name} exited with {self.process.returncode} before it was ready:\n{self.log()}")
        return self.ready()

    def log(self, most=20_000):
        text = self.log_path.read_text(errors="replace") if self.log_path.exists() else ""
        return text[-most:]

    def terminate(self, timeout=20.0):
        """Sends SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout)
        finally:
            self.kill()

    def suspend(self):
        """Like a machine that does not answer. On a busy machine a thread runs on for a while after the signal."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        if self.process is not None:
            if self.process.poll() is None:
                self.process.kill()
            self.process.wait()
        if self in RUNNING:
            RUNNING.remove(self)

    def __enter__(self):
        return self.start()

    def __exit__(self, *failure):
        # Not drained: how a server stops is the subject of tests of its own (`terminate`).
        try:
            self.kill()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
