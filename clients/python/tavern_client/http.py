"""A minimal HTTP/1.1 client: POST over a keep-alive connection, and streaming GET.

Must hold: every wait has a timeout, here or with the caller; response size is bounded; one request at a time per connection.
"""
from __future__ import annotations

import asyncio
import ssl as tls
from typing import AsyncIterator

from .address import Address
from .errors import LinkLost

HEAD_BYTES = 64 * 1024
# The largest configurable message size plus its envelope.
BODY_BYTES = 66 << 20


class Connection:
    def __init__(self, address: Address, context: tls.SSLContext | None) -> None:
        self._address = address
        self._context = context
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def _begin(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._reader is not None and self._writer is not None:
            # Detects a keep-alive connection that the server has closed before sending on it.
            if not self._reader.at_eof() and not self._writer.is_closing() and self._reader.exception() is None:
                return self._reader, self._writer
            self.close()
        context = (self._context or tls.create_default_context()) if self._address.secure else None
        try:
            reader, writer = await asyncio.open_connection(self._address.host, self._address.port, ssl=context, limit=HEAD_BYTES)
        except OSError as failure:
            raise LinkLost(f"cannot reach {self._address.authority}: {failure}", unsent=True) from failure
        self._reader, self._writer = reader, writer
        return reader, writer

    async def post(self, target: str, body: bytes, headers: dict[str, str], timeout: float) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}
        try:
            async with asyncio.timeout(timeout):
                status, fields = await self._ask("POST", target, headers, body)
                body_pieces, size = [], 0
                async for piece in self._body(fields):
                    size += len(piece)
                    if size > BODY_BYTES:
                        raise ValueError("the response is too large")
                    body_pieces.append(piece)
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as failure:
            self.close()
            if isinstance(failure, TimeoutError):
                raise LinkLost("no response in time") from failure
            raise LinkLost(f"the connection ended: {failure}") from failure
        except BaseException:
            # Cancelled: the pending response would be read as that of the next request.
            self.close()
            raise
        if fields.get("connection", "").lower() == "close":
            self.close()
        return status, b"".join(body_pieces)

    async def get_stream(self, target: str, headers: dict[str, str]) -> tuple[int, AsyncIterator[bytes]]:
        """The status, and the body as an iterator of chunks. The caller limits the time."""
        try:
            status, fields = await self._ask("GET", target, headers, b"")
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as failure:
            self.close()
            raise LinkLost(f"the connection ended: {failure}") from failure
        return status, self._body(fields)

    async def _ask(self, method: str, target: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str]]:
        reader, writer = await self._begin()
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self._address.authority}"]
        for name, value in headers.items():
            if "\r" in value or "\n" in value:
                raise ValueError(f"header {name} must not contain a line break")
            lines.append(f"{name}: {value}")
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        await writer.drain()
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            status = int(head[0].split(" ", 2)[1])
            if status >= 200:
                break
        pairs = (line.partition(":") for line in head[1:] if line)
        return status, {name.strip().lower(): value.strip() for name, _, value in pairs}

    async def _body(self, fields: dict[str, str]) -> AsyncIterator[bytes]:
        reader = self._reader
        assert reader is not None, "called after the head was read"
        if fields.get("transfer-encoding", "").lower() == "chunked":
            while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
                if size > BODY_BYTES:
                    raise ValueError("the response is too large")
                yield await reader.readexactly(size)
                await reader.readexactly(2)
            while await reader.readuntil(b"\r\n") != b"\r\n":
                pass
            return
        size = int(fields.get("content-length", "0"))
        if size > BODY_BYTES:
            raise ValueError("the response is too large")
        if size:
            yield await reader.readexactly(size)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None
