"""The transports: WebSocket, SSE and long-poll. Each opens with a hello, sends commands and receives frames.

Must hold: an object is used for one connection; it ends with `LinkLost`, `LinkRefused` (another transport may work) or an error of the server.
"""
from __future__ import annotations

import asyncio
import json
import ssl as tls
from dataclasses import dataclass
from typing import Any, AsyncIterator, Callable

import websockets.asyncio.client
import websockets.exceptions

from .address import Address
from .errors import LinkLost, LinkRefused, TavernError
from .http import BODY_BYTES, Connection

Frame = dict[str, Any]

ANSWER_S = 20.0
POLL_MS = 15_000
SUPERSEDED_CODE = 4000


@dataclass
class Ticket:
    """What resumes a session: its secret and the last event received."""

    session: str | None = None
    seq: int = 0


@dataclass
class Credential:
    token: str | None = None
    # Dev mode only: a name instead of a token.
    user: str | None = None

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token is not None else {}

    def query(self) -> dict[str, str]:
        return {"user": self.user} if self.user is not None and self.token is None else {}


class Transport:
    """One connection of a session. `deliver` receives frames that do not come through `receive`."""

    name = ""

    def __init__(self, address: Address, context: tls.SSLContext | None, credential: Credential, ticket: Ticket, status: bool) -> None:
        self.address, self.context, self.credential = address, context, credential
        self.ticket, self.status = ticket, status
        self.deliver: Callable[[Frame], None] = lambda frame: None

    async def open(self) -> Frame:
        """Sends hello and returns its ok. The caller limits the time."""
        raise NotImplementedError

    async def send(self, id: int, text: str) -> None:
        """Sends the frame with this id and text."""
        raise NotImplementedError

    async def receive(self) -> list[Frame]:
        """Waits for the next frames. An empty list still shows that the connection is alive."""
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    def resume_headers(self) -> dict[str, str]:
        """Names the session to resume. Never in the URL: URLs end up in proxy logs."""
        if self.ticket.session is None:
            return {}
        return {"Tavern-Session": self.ticket.session, "Last-Event-ID": str(self.ticket.seq)}


def encode(frame: Frame) -> str:
    """A frame as it is sent. Raises `TypeError` when it contains a value that is not JSON."""
    try:
        text = json.dumps(frame, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        # Text with half a surrogate pair has no UTF-8 form.
        text.encode()
    except (TypeError, ValueError, RecursionError) as failure:
        named = frame.get("op", "the request")
        raise TypeError(f"{named}: not JSON: {failure}; convert the value first, for example a date to a string") from failure
    return text


class WebSocketTransport(Transport):
    name = "websocket"
    _socket: websockets.asyncio.client.ClientConnection | None = None

    async def open(self) -> Frame:
        # Token and session secret are sent in hello, never in the URL: URLs end up in proxy logs.
        url = self.address.websocket(self.credential.query() | {"hello": "no"})
        try:
            self._socket = await websockets.asyncio.client.connect(
                url, ssl=self.context if self.address.secure else None, open_timeout=None, ping_interval=None, close_timeout=1,
                max_size=BODY_BYTES, max_queue=256, compression=None, proxy=None,
            )
        except websockets.exceptions.InvalidStatus as refused:
            raise self._refusal(refused) from refused
        except websockets.exceptions.InvalidHandshake as failure:
            raise LinkRefused(f"WebSocket handshake failed: {failure}") from failure
        except (OSError, EOFError) as failure:
            raise LinkLost(f"cannot reach {self.address.authority}: {failure}", unsent=True) from failure
        hello: Frame = {"op": "hello", "id": "hello", "token": self.credential.token, "session": self.ticket.session}
        hello |= {"seq": self.ticket.seq if self.ticket.session else None, "status": self.status or None}
        await self._send(encode({name: value for name, value in hello.items() if value is not None}))
        return checked((await self.receive())[0])

    @staticmethod
    def _refusal(refused: websockets.exceptions.InvalidStatus) -> Exception:
        status, body = refused.response.status_code, bytes(refused.response.body or b"")
        return refusal_of(status, body)

    async def send(self, id: int, text: str) -> None:
        await self._send(text)

    async def _send(self, text: str) -> None:
        assert self._socket is not None, "opened first"
        try:
            await self._socket.send(text)
        except websockets.exceptions.ConnectionClosed as failure:
            raise lost(failure) from failure

    async def receive(self) -> list[Frame]:
        assert self._socket is not None, "opened first"
        try:
            return [parsed(await self._socket.recv())]
        except websockets.exceptions.ConnectionClosed as failure:
            raise lost(failure) from failure

    async def close(self) -> None:
        if self._socket is not None:
            await self._socket.close()


class HttpTransport(Transport):
    """Shared by SSE and long-poll. Commands are sent one request at a time to keep their order."""

    def __init__(self, address: Address, context: tls.SSLContext | None, credential: Credential, ticket: Ticket, status: bool) -> None:
        super().__init__(address, context, credential, ticket, status)
        self._commands = Connection(address, context)
        self._events = Connection(address, context)

    async def send(self, id: int, text: str) -> None:
        session = encode({"session": self.ticket.session})
        answer = await self._post_text(self._commands, "/v1/command", f"{session[:-1]},{text[1:]}", ANSWER_S)
        self.deliver({"id": id, **answer})

    async def _post(self, connection: Connection, path: str, body: Frame, timeout: float) -> Frame:
        return await self._post_text(connection, path, encode(body), timeout)

    async def _post_text(self, connection: Connection, path: str, text: str, timeout: float) -> Frame:
        target = self.address.target(path, self.credential.query())
        status, answer = await connection.post(target, text.encode(), self.credential.headers(), timeout)
        try:
            return parsed(answer)
        except LinkLost:
            raise LinkLost(f"HTTP {status} from something that is not Tavern") if status >= 500 else LinkRefused(f"HTTP {status}") from None

    async def close(self) -> None:
        self._commands.close()
        self._events.close()


class SseTransport(HttpTransport):
    name = "sse"
    _pieces: AsyncIterator[bytes] | None = None

    async def open(self) -> Frame:
        target = self.address.target("/v1/stream", self.credential.query())
        headers = {"Accept": "text/event-stream", **self.credential.headers(), **self.resume_headers()}
        status, self._pieces = await self._events.get_stream(target, headers)
        self._rest, self._data = b"", b""
        if status != 200:
            body = b"".join([piece async for piece in self._pieces])
            raise refusal_of(status, body)
        frames = await self.receive()
        while not frames:
            frames = await self.receive()
        hello = checked(frames[0])
        # Events in the same chunk wait for the first `receive`.
        self._ahead = frames[1:]
        if self.status:
            await self._post(self._commands, "/v1/command", {"op": "hello", "session": hello["session"], "status": True}, ANSWER_S)
        return hello

    _ahead: list[Frame] = []

    async def receive(self) -> list[Frame]:
        if self._ahead:
            ahead, self._ahead = self._ahead, []
            return ahead
        assert self._pieces is not None, "opened first"
        try:
            piece = await anext(self._pieces)
        except StopAsyncIteration:
            raise LinkLost("the stream ended") from None
        except (OSError, EOFError, ValueError) as failure:
            raise LinkLost(f"the stream ended: {failure}") from failure
        return self._frames(piece)

    def _frames(self, piece: bytes) -> list[Frame]:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) + len(self._data) > BODY_BYTES:
            raise LinkLost("an event exceeds the size limit")
        frames = []
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                self._data += (b"\n" if self._data else b"") + line[5:].removeprefix(b" ")
            elif not line and self._data:
                frames.append(parsed(self._data))
                self._data = b""
        return frames


class PollTransport(HttpTransport):
    name = "poll"

    async def open(self) -> Frame:
        hello: Frame = {"op": "hello"}
        if self.ticket.session is not None:
            hello |= {"session": self.ticket.session, "seq": self.ticket.seq}
        if self.status:
            hello["status"] = True
        return checked(await self._post(self._commands, "/v1/command", hello, ANSWER_S))

    async def receive(self) -> list[Frame]:
        # The cursor acknowledges everything before it.
        asked = {"session": self.ticket.session, "cursor": self.ticket.seq, "timeout_ms": POLL_MS}
        answer = await self._post(self._events, "/v1/poll", asked, POLL_MS / 1000 * 1.1 + ANSWER_S)
        if "error" in answer:
            error = TavernError.from_wire(answer["error"])
            if error.code == "unauthenticated":
                raise LinkLost("the token has expired", 4001)
            raise LinkLost(str(error))
        if answer.get("superseded"):
            raise LinkLost("superseded", SUPERSEDED_CODE)
        if answer.get("reset"):
            raise LinkLost("the server has reset this session")
        frames: list[Frame] = list(answer.get("events", ()))
        if answer.get("gap") and not any(frame.get("event") == "gap" for frame in frames):
            frames.insert(0, {"event": "gap"})
        return [*frames, {"party": answer["party"]}] if "party" in answer else frames


TRANSPORTS: dict[str, type[Transport]] = {line.name: line for line in (WebSocketTransport, SseTransport, PollTransport)}


def checked(answer: Frame) -> Frame:
    """The ok of a reply, or its error."""
    if isinstance(answer.get("ok"), dict):
        ok: Frame = answer["ok"]
        return ok
    raise TavernError.from_wire(answer.get("error"))


def parsed(text: str | bytes) -> Frame:
    try:
        frame = json.loads(text)
    except ValueError as failure:
        raise LinkLost("the server sent invalid JSON") from failure
    if not isinstance(frame, dict):
        raise LinkLost("the server sent JSON that is not an object")
    return frame


def refusal_of(status: int, body: bytes) -> Exception:
    """Maps an unexpected HTTP response: an error of the server, or of a proxy in between."""
    try:
        error = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        return LinkLost(f"HTTP {status}") if status >= 500 else LinkRefused(f"HTTP {status}")
    return TavernError.from_wire(error)


def lost(failure: websockets.exceptions.ConnectionClosed) -> LinkLost:
    close = failure.rcvd
    return LinkLost(f"closed: {close.code} {close.reason}" if close else "the connection ended", close.code if close else None)
