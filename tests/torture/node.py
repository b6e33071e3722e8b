"""One server of the tortured cluster: started, killed, put to sleep and restarted by its process id, and looked at all the time.

A supervisor's part is played here: a server that cannot start because its engine is away is started again. Must hold: an end that
nobody asked for, after the server was ready, is noted as a crash.
"""
import asyncio
import pathlib
import signal
import subprocess
import time

import httpx

from support.tavern import Tavern


class Node:
    def __init__(self, name, config, options, data):
        self.name = name
        self.server = Tavern.dev(config, [*options, "--node", name], data=data)
        # How many processes this node has been: a publisher's words are numbered by each anew.
        self.life = 0
        self.wanted = False
        self.ready = False
        # (began, ended or None) of each time when the process was asleep; (life, when) of each kill.
        self.pauses, self.kills, self.crashes, self.failed_starts = [], [], [], 0
        # (when, ready?, status) of every look at /readyz, and resident bytes.
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
        self.life += 1
        self.ready = False
        with open(self.server.log_path, "ab") as log:
            self.server.process = subprocess.Popen(
                self.server.command(), cwd=self.server.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=self.server.environment(),
            )

    async def start(self, patience=60.0):
        """Starts it and waits until it is ready; again, if it gives up."""
        self.wanted = True
        end = time.monotonic() + patience
        if self.server.process is None or self.server.process.poll() is not None:
            self.spawn()
        while not self.ready:
            if time.monotonic() > end:
                raise TimeoutError(f"{self.name} is not ready after {patience} s:\n{self.server.log(3_000)}")
            await asyncio.sleep(0.05)

    async def watch(self):
        """Looks at the process and its readiness as long as the torture lasts."""
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
        self.kills.append((self.life, time.monotonic()))
        self.wake()
        self.server.process.send_signal(signal.SIGKILL)
        self.server.process.wait()

    async def restart(self, patience=30.0):
        """A clean stop, as in a rolling restart, and a start. Gives the exit code."""
        self.wanted = self.ready = False
        self.server.process.send_signal(signal.SIGTERM)
        try:
            code = await asyncio.wait_for(asyncio.to_thread(self.server.process.wait), patience)
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
