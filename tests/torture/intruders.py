"""Clients without a valid credential, beside the load: expired tokens, tokens that expire and keys that are revoked while connected,
floods before login.
"""
import asyncio
import json
import random
import time

import httpx
import websockets.asyncio.client

from support import tokens
from support.tavern import ADMIN_KEY

from .client import BROKEN, HELLO_TIMEOUT, OPEN_TIMEOUT

SHORT_TTL = 4
# Longer ago than any clock jumps back: a token is judged by the wall clock of its server.
EXPIRED_TTL = -100 * 86_400
FLOOD = b"GET /v1/nodes HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 200
HALF_A_REQUEST = b"POST /v1/poll HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 60000\r\n\r\n" + b" " * 59_000


class Intruders:
    def __init__(self, cluster, seed):
        self.cluster = cluster
        self.rng = random.Random(f"intruders {seed}")
        self.quiet = False
        # Replies to a hello with an expired token: (node, reply).
        self.greetings = []
        # (node, when the token expired, when the last command was answered).
        self.lifetimes = []
        # (node, when the revocation was acknowledged, when the last command was answered).
        self.revoked = []
        self.floods = 0

    def tasks(self):
        return [self.use_expired_tokens(), self.outlive_tokens(), self.outlive_tokens(), self.outlive_keys(), self.flood()]

    async def _hello(self, node, token=None, headers=None):
        socket = await websockets.asyncio.client.connect(
            node.ws_url, additional_headers=headers, compression=None, ping_interval=None, open_timeout=OPEN_TIMEOUT, close_timeout=0.2,
            proxy=None)
        await socket.send(json.dumps({"id": 0, "op": "hello", **({"token": token} if token else {})}))
        return socket, json.loads(await asyncio.wait_for(socket.recv(), HELLO_TIMEOUT))

    async def _ping(self, socket):
        """Sends a ping after a moment; returns its reply."""
        await asyncio.sleep(0.25)
        await socket.send('{"id":1,"op":"ping"}')
        reply = json.loads(await asyncio.wait_for(socket.recv(), HELLO_TIMEOUT))
        while "id" not in reply:
            reply = json.loads(await asyncio.wait_for(socket.recv(), HELLO_TIMEOUT))
        return reply

    async def use_expired_tokens(self):
        while not self.quiet:
            await asyncio.sleep(self.rng.uniform(0.3, 1.0))
            node = self.rng.choice(self.cluster.nodes)
            try:
                socket, reply = await self._hello(node, tokens.token("intruder", ttl=EXPIRED_TTL))
                self.greetings.append((node.name, reply))
                socket.transport.abort()
            except BROKEN:
                pass

    async def outlive_tokens(self):
        """Pings until the server closes the connection."""
        while not self.quiet:
            await asyncio.sleep(self.rng.uniform(0.3, 1.0))
            node, expires = self.rng.choice(self.cluster.nodes), time.monotonic() + SHORT_TTL
            answered, socket = None, None
            try:
                socket, reply = await self._hello(node, tokens.token("visitor", ttl=SHORT_TTL))
                while "ok" in reply and not self.quiet:
                    answered = time.monotonic()
                    reply = await self._ping(socket)
            except BROKEN:
                pass
            if socket is not None:
                socket.transport.abort()
            if answered is not None:
                self.lifetimes.append((node.name, expires, answered))

    async def outlive_keys(self):
        """Creates an API key, connects with it, revokes it on another server, and pings until the connection is closed."""
        async with httpx.AsyncClient(headers={"authorization": f"Bearer {ADMIN_KEY}"}, timeout=HELLO_TIMEOUT, trust_env=False) as http:
            while not self.quiet:
                await asyncio.sleep(self.rng.uniform(0.3, 1.0))
                node, other = self.rng.sample(self.cluster.nodes, 2)
                revoked, answered, socket = None, None, None
                try:
                    made = (await http.post(f"{other.url}/v1/keys", json={"name": "torture-intruder", "scopes": ["presence"]})).json()
                    socket, reply = await self._hello(node, headers={"authorization": f"Bearer {made['key']}"})
                    if "ok" in reply and (await http.delete(f"{other.url}/v1/keys/{made['id']}")).status_code == 200:
                        revoked = time.monotonic()
                    while revoked and "ok" in reply and not self.quiet:
                        reply = await self._ping(socket)
                        answered = time.monotonic()
                except (*BROKEN, httpx.HTTPError, KeyError, ValueError):
                    pass
                if socket is not None:
                    socket.transport.abort()
                if answered is not None:
                    self.revoked.append((node.name, revoked, answered))

    async def flood(self):
        """Connections that send much, read nothing and never log in."""
        while not self.quiet:
            writers = []
            for _ in range(20):
                node = self.rng.choice(self.cluster.nodes)
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", node.server.port)
                    writer.write(self.rng.choice((FLOOD, HALF_A_REQUEST, b"\xff" * 30_000)))
                    writers.append(writer)
                except OSError:
                    pass
            self.floods += len(writers)
            await asyncio.sleep(self.rng.uniform(1.0, 3.0))
            for writer in writers:
                writer.transport.abort()
