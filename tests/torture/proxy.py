"""A TCP proxy between one server and one engine that can cut, blackhole, delay or slow down the connection.

Modes: `pass` forwards everything; `cut` resets open connections and refuses new ones; `hole` accepts bytes and forwards none; `delay`
forwards each chunk later; `slow` limits the bytes per second. Must hold: forwarded bytes keep their order; after `pass` new
connections work.
"""
import asyncio
import contextlib
import socket
import struct

PIECE = 16 * 1024


class Proxy:
    def __init__(self, target_port):
        self.target_port = target_port
        self.way, self.amount = "pass", 0.0
        self.changed = asyncio.Event()
        self.lines = set()
        self.port = None

    async def start(self):
        self.listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self.listener.sockets[0].getsockname()[1]
        return self

    def set_mode(self, way, amount=0.0):
        """Sets the mode; `amount` is seconds for `delay`, bytes per second for `slow`."""
        self.way, self.amount = way, amount
        self.changed.set()
        self.changed = asyncio.Event()
        if way == "cut":
            self.reset()

    def reset(self):
        """Resets open connections, like a broken network."""
        for writer in list(self.lines):
            with contextlib.suppress(OSError):
                raw = writer.get_extra_info("socket")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def _serve(self, reader, writer):
        if self.way == "cut":
            writer.transport.abort()
            return
        self.lines.add(writer)
        far = None
        try:
            if self.way == "hole":
                # Connected, but no answers.
                await self._wait_until_open()
            far_reader, far = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", self.target_port), 5)
            self.lines.add(far)
            await asyncio.gather(self._carry(reader, far), self._carry(far_reader, writer))
        except (OSError, asyncio.TimeoutError, asyncio.CancelledError):
            # Also cancelled at the end of the run.
            pass
        finally:
            for end in (writer, far):
                if end is not None:
                    self.lines.discard(end)
                    end.transport.abort()

    async def _wait_until_open(self):
        while self.way == "hole":
            await self.changed.wait()

    async def _carry(self, reader, writer):
        while piece := await reader.read(PIECE):
            if self.way == "delay":
                await asyncio.sleep(self.amount)
            elif self.way == "slow":
                await asyncio.sleep(len(piece) / self.amount)
            await self._wait_until_open()
            writer.write(piece)
            await writer.drain()
        writer.transport.abort()

    async def stop(self):
        self.set_mode("cut")
        self.listener.close()
        await self.listener.wait_closed()
