"""A scripted server for situations that a real one rarely produces: it answers hello and then does what the test says."""
import asyncio
import contextlib
import json
import urllib.parse

import websockets.asyncio.server


class FakeServer:
    """`connections` are all connections so far; each records its commands and can send any frame."""

    def __init__(self, heartbeat_ms=15_000, hello=None):
        self.heartbeat_ms, self.connections, self.changed = heartbeat_ms, [], asyncio.Event()
        # The reply to the hello of each connection; by default the named session is resumed.
        self.hello = hello or (lambda number, asked: {"ok": self.welcome(asked)})
        self.replies = {}

    def welcome(self, asked, **members):
        resumed = asked.get("session") == "secret"
        return {
            "session": "secret", "client": "c1", "user": "ann", "node": "n1", "epoch": 1, "resumed": resumed, "seq": 0,
            "heartbeat_ms": self.heartbeat_ms, "party": None, **members,
        }

    async def __aenter__(self):
        self.server = await websockets.asyncio.server.serve(self.serve, "127.0.0.1", 0, compression=None)
        self.url = f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *failure):
        self.server.close()
        await self.server.wait_closed()

    async def serve(self, socket):
        connection = Connection(socket)
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(socket.request.path).query))
        assert query.pop("hello") == "no" and not query.keys() - {"user"}, "no secret in the URL"
        asked = json.loads(await socket.recv())
        connection.hello = query | asked
        self.connections.append(connection)
        answer = self.hello(len(self.connections), asked)
        await connection.send({"id": asked["id"], **answer} if "id" in asked else answer)
        self.changed.set()
        with contextlib.suppress(websockets.exceptions.ConnectionClosed):
            async for text in socket:
                command = json.loads(text)
                connection.commands.append(command)
                self.changed.set()
                reply = self.replies.get(command["op"], {"ok": {}})
                if reply is not None:
                    await connection.send({"id": command["id"], **(reply(command) if callable(reply) else reply)})

    async def until(self, fact, seconds=5):
        async with asyncio.timeout(seconds):
            while not fact():
                self.changed.clear()
                await self.changed.wait()

    async def connection(self, number):
        await self.until(lambda: len(self.connections) >= number)
        return self.connections[number - 1]


async def eventually(fact, seconds=5):
    """Polls until a fact about the client is true."""
    async with asyncio.timeout(seconds):
        while not fact():
            await asyncio.sleep(0.005)


class Connection:
    def __init__(self, socket):
        self.socket, self.commands, self.hello = socket, [], None

    async def send(self, frame):
        await self.socket.send(json.dumps(frame))

    async def message(self, seq, data, channel="game#1"):
        await self.send({"seq": seq, "event": "message", "channel": channel, "data": data, "from": None})

    async def close(self, code):
        await self.socket.close(code)

    def ops(self):
        return [command["op"] for command in self.commands]
