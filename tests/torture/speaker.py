"""Speakers say numbered words on a channel and write down which of them were acknowledged.

One connection is one life: words of one life have one order. A word without an answer may have been said or not.
"""
import asyncio
import dataclasses
import json
import random
import time

import websockets.asyncio.client

from support import tokens

from .client import BROKEN, HELLO_PATIENCE, OPEN_PATIENCE, PATIENCE


@dataclasses.dataclass
class Life:
    of: str
    channel: str
    node: str
    process: int
    # (number, when it was sent, when it was acknowledged or None)
    words: list = dataclasses.field(default_factory=list)


class Speaker:
    def __init__(self, world, name, channel, seed, pause=0.1):
        self.world, self.name, self.channel, self.pause = world, name, channel, pause
        self.dice = random.Random(f"{name} {seed}")
        self.token = tokens.token(name, ttl=7200)
        self.lives, self.hangs, self.refused = [], [], []
        self.answered = 0
        self.quiet = False

    async def live(self):
        while not self.quiet:
            await self.speak(self.dice.choice(self.world.nodes))
            await asyncio.sleep(self.dice.uniform(0.05, 0.5))

    async def speak(self, node, most=None):
        """Says words at one server until the line breaks, or so many."""
        socket = None
        try:
            socket = await websockets.asyncio.client.connect(
                node.ws_url, compression=None, ping_interval=None, open_timeout=OPEN_PATIENCE, close_timeout=0.2, proxy=None)
            await socket.send(json.dumps({"id": 0, "op": "hello", "token": self.token}))
            hello = json.loads(await asyncio.wait_for(socket.recv(), HELLO_PATIENCE))
            if "ok" not in hello:
                return
            life = Life(f"{self.name}.{len(self.lives)}", self.channel, node.name, node.life)
            self.lives.append(life)
            while len(life.words) < most if most else not self.quiet:
                await self._say(socket, node, life)
                await asyncio.sleep(self.dice.uniform(0.5, 1.5) * self.pause)
                if most is None and self.dice.random() < 0.003:
                    return
        except BROKEN:
            pass
        finally:
            if socket is not None:
                socket.transport.abort()

    async def _say(self, socket, node, life):
        number, sent = len(life.words), time.monotonic()
        life.words.append((number, sent, None))
        word = {"id": number, "op": "publish", "channel": self.channel, "data": [life.of, number]}
        await socket.send(json.dumps(word))
        try:
            while True:
                reply = json.loads(await asyncio.wait_for(socket.recv(), PATIENCE))
                if reply.get("id") == number:
                    break
        except asyncio.TimeoutError:
            self.hangs.append(("publish", node.name, time.monotonic() - sent, sent))
            raise
        self.answered += 1
        if "ok" in reply:
            life.words[-1] = (number, sent, time.monotonic())
        else:
            self.refused.append((reply["error"]["code"], reply["error"].get("retry_after_ms")))
            await asyncio.sleep(0.25)
