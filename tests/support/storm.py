"""Many clients that connect to one server at once, and obey `retry_after_ms`, while others exchange messages.

Each client is one asyncio connection with the little of WebSocket that it needs, so that thousands fit into one process.
"""
import asyncio
import base64
import dataclasses
import json
import os
import random
import struct
import time

from . import tokens

WAIT = 60
# Of the backoff that every client has besides `retry_after_ms`: the first wait, and the longest.
BACKOFF, BACKOFF_MAX = 0.25, 15.0


@dataclasses.dataclass
class StormResult:
    clients: int
    # Seconds from the beginning of the storm until each client had its session.
    waits: list[float] = dataclasses.field(default_factory=list)
    attempts: int = 0
    # Refusals, by code and message.
    refusals: dict[str, int] = dataclasses.field(default_factory=dict)
    # Seconds that messages of the users took who were there before: at rest, and during the storm.
    quiet: list[float] = dataclasses.field(default_factory=list)
    stormy: list[float] = dataclasses.field(default_factory=list)


class Connection:
    """A WebSocket that reads JSON frames."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, server, user):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        key = base64.b64encode(os.urandom(16)).decode()
        writer.write(
            f"GET /v1/connect?token={tokens.token(user)} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nConnection: Upgrade\r\n"
            f"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 101 " not in head.split(b"\r\n")[0]:
            writer.close()
            raise OSError(head.split(b"\r\n")[0].decode())
        return cls(reader, writer)

    async def frame(self):
        while True:
            first, length = await self.reader.readexactly(2)
            if length == 126:
                length, = struct.unpack(">H", await self.reader.readexactly(2))
            elif length == 127:
                length, = struct.unpack(">Q", await self.reader.readexactly(8))
            payload = await self.reader.readexactly(length)
            if first & 15 == 1:
                return json.loads(payload)
            if first & 15 == 9:
                self._write(10, payload)
            if first & 15 == 8:
                raise ConnectionError("closed by the server")

    def send(self, **command):
        self._write(1, json.dumps(command).encode())

    def _write(self, opcode, payload):
        length = bytes([len(payload) | 128]) if len(payload) < 126 else bytes([126 | 128]) + struct.pack(">H", len(payload))
        # A mask of zeros leaves the payload as it is.
        self.writer.write(bytes([opcode | 128]) + length + b"\0\0\0\0" + payload)

    def close(self):
        self.writer.close()


async def arrive(server, user, result, began):
    """Connects until there is a session, as every client does. Returns the connection."""
    for attempt in range(100):
        result.attempts += 1
        wait = 0
        try:
            connection = await asyncio.wait_for(Connection.open(server, user), WAIT)
            hello = await asyncio.wait_for(connection.frame(), WAIT)
            if "ok" in hello:
                result.waits.append(time.monotonic() - began)
                return connection
            connection.close()
            error = hello["error"]
            wait = error.get("retry_after_ms", 0) / 1000
            refusal = f"{error['code']}: {error['message']}"
        except (OSError, EOFError) as lost:
            refusal = f"{type(lost).__name__}: {lost}"
        result.refusals[refusal] = result.refusals.get(refusal, 0) + 1
        await asyncio.sleep(wait + random.random() * min(BACKOFF_MAX, BACKOFF * 2 ** attempt))
    raise TimeoutError(f"{user} was never admitted")


async def exchange(server, users, latencies, stop):
    """Users who are connected: one publishes 50 times a second, the others note how long each message took."""
    spare = StormResult(0)
    listeners = [await arrive(server, f"listener-{number}", spare, time.monotonic()) for number in range(users)]
    for listener in listeners:
        listener.send(id=1, op="subscribe", channel="chat#storm")
        while (await listener.frame()).get("id") != 1:
            pass
    publisher = await arrive(server, "publisher", spare, time.monotonic())

    async def listen(listener):
        while True:
            frame = await listener.frame()
            if frame.get("event") == "message":
                latencies().append(time.monotonic() - frame["data"])

    tasks = [asyncio.create_task(listen(one)) for one in listeners]
    number = 0
    while not stop.is_set():
        number += 1
        publisher.send(id=number, op="publish", channel="chat#storm", data=time.monotonic())
        await asyncio.sleep(0.02)
    for task in tasks:
        task.cancel()
    for connection in [*listeners, publisher]:
        connection.close()


async def storm(server, clients, established=20, quiet_seconds=3.0):
    """All of these clients connect at once. Returns when each has a session."""
    result = StormResult(clients)
    stop, current = asyncio.Event(), [result.quiet]
    exchanging = asyncio.create_task(exchange(server, established, lambda: current[0], stop))
    await asyncio.sleep(quiet_seconds)
    current[0] = result.stormy
    began = time.monotonic()
    arrived = await asyncio.gather(*(arrive(server, f"user-{number}", result, began) for number in range(clients)))
    await asyncio.sleep(0.5)
    stop.set()
    await exchanging
    for connection in arrived:
        connection.close()
    return result


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else float("nan")
