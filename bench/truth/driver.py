"""A process with clients of one system (`driver.mjs`), which can be killed like a browser, or run behind a cable."""
import asyncio
import json
import pathlib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MODULES = ROOT / "target" / "truth"


class Driver:
    def __init__(self, system, record, log, line=None):
        self.system, self.record, self.log, self.line = system, record, log, line
        self.runs, self.cable = False, True
        self.host = "localhost" if line else "127.0.0.1"

    async def start(self):
        command = ["node", HERE / "driver.mjs", self.system.client, MODULES, ROOT / "clients" / "js" / "src" / "index.js"]
        self.process = await asyncio.create_subprocess_exec(
            *map(str, self.line.command(command) if self.line else command), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=self.log, limit=1 << 24)
        self.runs = True
        self.reading = asyncio.create_task(self._read())
        return self

    async def _read(self):
        async for line in self.process.stdout:
            self.record.heard(json.loads(line))

    def _say(self, **line):
        self.process.stdin.write((json.dumps(line) + "\n").encode())

    def open(self, client, port):
        self._say(open=client.id, host=self.host, port=port, user=client.user, room=client.room, watch=client.watch)

    def close(self, client):
        self._say(close=client.id)
        client.closed = True
        self.record.look(client, "lost")

    def set_cable(self, passes):
        (self.line.mend if passes else self.line.cut)()
        self.cable = passes
        self.record.look_at(self.record.of_driver(self), "cut")

    def kill(self):
        """All its tabs close."""
        if self.runs:
            self.process.kill()
            self.runs = False
            self.record.look_at(self.record.of_driver(self), "lost")

    async def stop(self):
        self.kill()
        await self.process.wait()
        self.reading.cancel()
