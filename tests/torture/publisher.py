"""Publishers of numbered messages, which record the acknowledged ones.

One connection is one run: the messages of a run are ordered. A message without a reply may or may not have been published.
"""
import asyncio
import dataclasses
import json
import random
import time

import websockets.asyncio.client

from support import tokens

from .client import BROKEN, HELLO_TIMEOUT, OPEN_TIMEOUT, TIMEOUT


@dataclasses.dataclass
class PublisherRun:
    of: str
    channel: str
    node: str
    process: int
    # (number, when it was sent, when it was acknowledged or None)
    messages: list = dataclasses.field(default_factory=list)
    # By number: epoch and offset in the history of the channel.
    positions: dict = dataclasses.field(default_factory=dict)


class Publisher:
    def __init__(self, cluster, name, channel, seed, pause=0.1):
        self.cluster, self.name, self.channel, self.pause = cluster, name, channel, pause
        self.rng = random.Random(f"{name} {seed}")
        self.token = tokens.token(name, ttl=7200)
        self.runs, self.hangs, self.refused = [], [], []
        self.answered = 0
        self.quiet = False

    async def live(self):
        while not self.quiet:
            await self.publish(self.rng.choice(self.cluster.nodes))
            await asyncio.sleep(self.rng.uniform(0.05, 0.5))

    async def publish(self, node, most=None):
        """Publishes on one server until the connection breaks, or up to `most` messages."""
        socket = None
        try:
            socket = await websockets.asyncio.client.connect(
                node.ws_url, compression=None, ping_interval=None, open_timeout=OPEN_TIMEOUT, close_timeout=0.2, proxy=None)
            await socket.send(json.dumps({"id": 0, "op": "hello", "token": self.token}))
            hello = json.loads(await asyncio.wait_for(socket.recv(), HELLO_TIMEOUT))
            if "ok" not in hello:
                return
            run = PublisherRun(f"{self.name}.{len(self.runs)}", self.channel, node.name, node.process_number)
            self.runs.append(run)
            while len(run.messages) < most if most else not self.quiet:
                await self._publish_one(socket, node, run)
                await asyncio.sleep(self.rng.uniform(0.5, 1.5) * self.pause)
                if most is None and self.rng.random() < 0.003:
                    return
        except BROKEN:
            pass
        finally:
            if socket is not None:
                socket.transport.abort()

    async def _publish_one(self, socket, node, run):
        number, sent = len(run.messages), time.monotonic()
        run.messages.append((number, sent, None))
        command = {"id": number, "op": "publish", "channel": self.channel, "data": [run.of, number]}
        await socket.send(json.dumps(command))
        try:
            while True:
                reply = json.loads(await asyncio.wait_for(socket.recv(), TIMEOUT))
                if reply.get("id") == number:
                    break
        except asyncio.TimeoutError:
            self.hangs.append(("publish", node.name, time.monotonic() - sent, sent))
            raise
        self.answered += 1
        if "ok" in reply:
            run.messages[-1] = (number, sent, time.monotonic())
            if "offset" in reply["ok"]:
                run.positions[number] = reply["ok"]["epoch"], reply["ok"]["offset"]
        else:
            self.refused.append((reply["error"]["code"], reply["error"].get("retry_after_ms")))
            await asyncio.sleep(0.25)
