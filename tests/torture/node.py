"""One server under test: started, killed, suspended and restarted by its pid, and monitored continuously.

Acts as a supervisor: a server that cannot start because its engine is down is started again. Must hold: an unexpected exit of a
server that was ready is recorded as a crash.
"""
import asyncio
import pathlib
import signal
import subprocess
import time

import httpx

from support.clock import JumpingClock


class Node:
    def __init__(self, name, config, options, data):
        self.name = name
        self.server = JumpingClock("dev", config, [*options, "--node", name], data=data)
        # The number of processes this node has had.
        self.process_number = 0
        self.wanted = False
        self.ready = False
        # (began, ended or None) of each suspension; (process number, when) of each kill.
        self.pauses, self.kills, self.crashes, self.failed_starts = [], [], [], 0
        # (when, ready?, status) of every check of /readyz, and resident bytes.
        self.looks, self.memory = [], []
        self.http = httpx.AsyncClient(base_url=self.server.url, timeout=2.0, trust_env=False)

    @property
    def ws_url(self):
        return self.server.ws_url

    @property
    def url(self):
        return self.server.url

    def is_asleep(self):
        return bool(self.pauses) and self.pauses[-1][1] is None

    def slept_during(self, began, ended):
        return any(start < ended and (end is None or end > began) for start, end in self.pauses)

    def spawn(self):
        self.process_number += 1
        self.ready = False
        with open(self.server.log_path, "ab") as log:
            self.server.process = subprocess.Popen(
                self.server.command(), cwd=self.server.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=self.server.environment(),
            )

    async def start(self, timeout=60.0):
        """Starts it and waits until it is ready; retries if it exits."""
        self.wanted = True
        end = time.monotonic() + timeout
        if self.server.process is None or self.server.process.poll() is not None:
            self.spawn()
        while not self.ready:
            if time.monotonic() > end:
                raise TimeoutError(f"{self.name} is not ready after {timeout} s:\n{self.server.log(3_000)}")
            await asyncio.sleep(0.05)

    async def watch(self):
        """Monitors the process and its readiness until cancelled."""
        turn = 0
        while True:
            turn += 1
            if self.wanted and self.server.process.poll() is not None:
                if self.ready:
                    self.crashes.append((time.monotonic(), self.server.process.returncode, self.server.log(3_000)))
                else:
                    self.failed_starts += 1
                self.ready = False
                await asyncio.sleep(0.5)
                if self.wanted:
                    self.spawn()
            if self.wanted and not self.is_asleep():
                status = await self._ask()
                self.looks.append((time.monotonic(), status))
                self.ready = self.ready or status == 200
                if turn % 20 == 0:
                    self.memory.append(self._resident())
            await asyncio.sleep(0.1 if not self.ready else 0.3)

    async def _ask(self):
        try:
            return (await self.http.get("/readyz")).status_code
        except httpx.HTTPError:
            return 0

    def _resident(self):
        try:
            return self.server.resident_bytes()
        except (OSError, IndexError):
            return 0

    def kill(self):
        self.wanted = self.ready = False
        self.kills.append((self.process_number, time.monotonic()))
        self.wake()
        self.server.process.send_signal(signal.SIGKILL)
        self.server.process.wait()

    async def restart(self, timeout=30.0):
        """A graceful stop and a start, as in a rolling restart. Returns the exit code."""
        self.wanted = self.ready = False
        self.server.process.send_signal(signal.SIGTERM)
        try:
            code = await asyncio.wait_for(asyncio.to_thread(self.server.process.wait), timeout)
        except asyncio.TimeoutError:
            code = None
            self.kill()
        self.wanted = True
        self.spawn()
        return code

    def pause(self):
        if self.server.process.poll() is None:
            self.pauses.append((time.monotonic(), None))
            self.server.process.send_signal(signal.SIGSTOP)

    def wake(self):
        if self.is_asleep():
            if self.server.process.poll() is None:
                self.server.process.send_signal(signal.SIGCONT)
            self.pauses[-1] = (self.pauses[-1][0], time.monotonic())

    def panics(self):
        return [line for line in self.server.log(50_000_000).splitlines() if "panicked" in line]

    async def stop(self):
        self.wanted = False
        self.wake()
        if self.server.process is not None and self.server.process.poll() is None:
            self.server.process.kill()
            self.server.process.wait()
        await self.http.aclose()

    def keep_log(self, folder):
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.name}.log.txt").write_text(self.server.log(50_000_000))
