"""The client object that apps use. Routes the events of its session to channels, party and user.

Must hold: one `Channel` per name; an inbox message is emitted once, even if it is delivered again.
"""
from __future__ import annotations

import asyncio
import ssl as tls
from typing import Any, Sequence, TypedDict, Unpack

from .address import Address
from .channel import Channel, Subscribable, Message, Pattern
from .command import RestoreCommand
from .emitter import Emitter
from .errors import TIMEOUT, UNREACHABLE, TavernError
from .glob import matches
from .transports import TRANSPORTS
from .me import Me
from .party import Party
from .presence import EVENTS
from .session import Session
from .settings import COMMAND_S, CONNECT_S, Settings, TokenSource

Frame = dict[str, Any]


class Options(TypedDict, total=False):
    """The options of a client."""

    token: str | None
    # A function or coroutine function that returns a new token when one is needed.
    get_token: TokenSource | None
    # Dev mode only: a name instead of a token.
    user: str | None
    # In the order in which they are tried.
    transports: Sequence[str]
    # Each new session starts with the statuses of all followed users.
    statuses: bool
    # The `ticket` of a session that was started elsewhere.
    resume: tuple[str, int] | None
    ssl: tls.SSLContext | None
    # How long a command may take, reconnects included, and an attempt to connect: seconds.
    command_timeout: float
    connect_timeout: float


class Tavern(Emitter):
    """A client of the server at `url`. With several URLs, the next one is tried when a server does not answer.

    Authenticate with `token`, `get_token` or, in dev mode, `user`; see `Options`.
    Emits `open`, `reconnecting`, `resumed`, `reset`, `gap`, `revoked`, `closing`, `superseded`, `closed`, `error`, and each server event as `event`.
    """

    EVENTS = frozenset(["open", "reconnecting", "resumed", "reset", "gap", "revoked", "closing", "superseded", "closed", "error", "event"])

    def __init__(self, url: str | Sequence[str], **options: Unpack[Options]) -> None:
        super().__init__()
        urls = [url] if isinstance(url, str) else list(url)
        if not urls:
            raise ValueError("pass at least one URL")
        if unknown := options.keys() - Options.__optional_keys__:
            raise TypeError(f"unknown options {', '.join(sorted(unknown))}; choose from {', '.join(sorted(Options.__optional_keys__))}")
        token, get_token, user = options.get("token"), options.get("get_token"), options.get("user")
        if sum(given is not None for given in (token, get_token, user)) > 1:
            raise ValueError("pass only one of token, get_token and user")
        transports = list(options.get("transports", TRANSPORTS))
        wrong = [name for name in transports if name not in TRANSPORTS]
        if wrong or not transports:
            raise ValueError(f"unknown transports {wrong}; choose from {', '.join(TRANSPORTS)}")
        settings = Settings(
            [Address.parse(given) for given in urls], transports, token, get_token, user, options.get("statuses", False), options.get("ssl"),
            options.get("command_timeout", COMMAND_S), options.get("connect_timeout", CONNECT_S),
        )
        self._session = Session(settings, self._take, self._on_state, self._restore)
        if (resume := options.get("resume")) is not None:
            self._session.claim(*resume)
        self._channels: dict[str, Channel] = {}
        self._aliases: dict[str, Channel] = {}
        self._patterns: dict[str, Pattern] = {}
        self._last_message_id = 0
        self.me = Me(self._session)
        self.party = Party(self._session)

    # ---- connecting

    async def connect(self, timeout: float | None = 30.0) -> Tavern:
        """Returns when the session is open. Raises when the server refuses; retries an unreachable server until `timeout`."""
        for emitter in self._emitters():
            emitter.open_streams()
        try:
            async with asyncio.timeout(timeout):
                await self._session.start()
        except TimeoutError:
            await self._session.stop(end_session=False)
            raise TavernError(TIMEOUT, f"not connected within {timeout} s: {self._session.last_failure}") from None
        return self

    async def close(self) -> None:
        """Ends the session. The user leaves all channels at once, without a grace period."""
        await self._session.stop(end_session=True)

    async def suspend(self) -> None:
        """Closes the connection but keeps the session; `connect` resumes it while the server keeps it."""
        await self._session.stop(end_session=False)

    async def __aenter__(self) -> Tavern:
        return await self.connect()

    async def __aexit__(self, *failure: object) -> None:
        await self.close()

    @property
    def state(self) -> str:
        """`idle`, `connecting`, `open`, `suspended` or `closed`."""
        return self._session.state

    @property
    def transport(self) -> str | None:
        """The transport in use, while open: `websocket`, `sse` or `poll`."""
        return self._session.transport

    @property
    def node(self) -> str | None:
        """The server that has the session."""
        return self._session.hello.get("node")

    @property
    def ticket(self) -> tuple[str, int] | None:
        """The session secret and the last event number. Pass it as `resume` to continue this session elsewhere."""
        ticket = self._session.ticket
        return (ticket.session, ticket.seq) if ticket.session is not None else None

    # ---- channels and commands

    def channel(self, name: str) -> Channel:
        """The same object for the same name."""
        if name not in self._channels:
            self._channels[name] = Channel(self._session, name, self._aliases.__setitem__, self._failed)
        return self._channels[name]

    def pattern(self, glob: str) -> Pattern:
        """All channels that match a Redis glob."""
        return self._patterns.setdefault(glob, Pattern(self._session, glob))

    async def command(self, op: str, *, repeatable: bool = False, timeout: float | None = None, **members: Any) -> Frame:
        """Sends any command of the protocol. With `repeatable` it is retried after a lost connection; use it only for idempotent commands.
        By default it may take as long as the option `command_timeout` says."""
        return await self._session.ask(op, members, repeatable, timeout=timeout)

    # ---- called by the session

    def _on_state(self, what: str, frame: Frame) -> None:
        if what == "trying":
            self._failed(TavernError(UNREACHABLE, frame["why"]))
            return
        if what == "error":
            self._failed(frame["error"])
            return
        if what in ("open", "resumed", "another"):
            self.party.set_snapshot(frame.get("party"))
        if what == "another":
            # Emitted as `reset` once subscriptions and presence are restored.
            return
        self.emit(what, frame)
        if what == "closed":
            reason = None if frame["code"] == "closed" else self._session.ended
            for emitter in self._emitters():
                emitter.end_streams(reason)

    def _emitters(self) -> list[Emitter]:
        maps = [channel._presence for channel in self._channels.values()]
        return [self, self.me, self.party, *self._channels.values(), *self._patterns.values(), *maps]

    def _restore(self) -> None:
        restored: list[RestoreCommand] = []
        subscribables: list[Subscribable] = [*self._channels.values(), *self._patterns.values()]
        for subscribable in subscribables:
            restored.extend(subscribable.restoring())
        self._session.restore_with(restored, self._failed)

    def _failed(self, refused: TavernError) -> None:
        """The server refused what the client sent on its own, or an attempt to connect or to renew the token failed."""
        self.emit("error", refused)

    def _take(self, frame: Frame) -> None:
        kind = frame["event"]
        if kind == "snapshot":
            self.party.set_snapshot(frame["party"])
            return
        if isinstance(message_id := frame.get("message_id"), int):
            if message_id <= self._last_message_id:
                return
            self._last_message_id = message_id
        self.emit("event", frame)
        if kind == "message":
            self._message(frame)
        elif kind in EVENTS:
            if (channel := self._named(frame["channel"])) is not None:
                channel.take_presence(frame)
        elif kind == "party":
            self.party.apply_event(frame, self.me.user)
        elif kind in ("status", "statuses", "inbox"):
            self.me.take(frame)
        elif kind == "gap":
            self._gap(frame)
        elif kind == "revoked":
            self._revoked(frame)

    def _message(self, frame: Frame) -> None:
        message = Message.from_wire(frame)
        if message.channel.startswith("party#"):
            # Members receive it without subscribing.
            self.party.emit("say", message)
        if (channel := self._named(message.channel)) is not None and (channel.subscribed or channel.subscribing):
            channel.take_message(message)
        for pattern in list(self._patterns.values()):
            if pattern.subscribed and matches(pattern.glob, message.channel):
                pattern.deliver(message)

    def _gap(self, frame: Frame) -> None:
        """A gap in one channel or pattern, or in the whole mailbox."""
        if "channel" in frame:
            channel = self._named(frame["channel"])
            concerned: list[Channel] = [channel] if channel is not None else []
        else:
            concerned = [] if "pattern" in frame else list(self._channels.values())
        for channel in concerned:
            channel.take_gap(frame)
        for pattern in list(self._patterns.values()):
            if "channel" not in frame and frame.get("pattern", pattern.glob) == pattern.glob:
                pattern.emit("gap", frame)
        self.emit("gap", frame)
        if "channel" not in frame and "pattern" not in frame:
            if self.party.current is not None:
                self.party.refresh()
            self._session.load_statuses()

    def _revoked(self, frame: Frame) -> None:
        concerned: Subscribable | None = self._patterns.get(frame["pattern"]) if "pattern" in frame else self._named(frame.get("channel", ""))
        if concerned is not None:
            concerned.take_revoked(frame)
        self.emit("revoked", frame)

    def _named(self, name: str) -> Channel | None:
        return self._aliases.get(name) or self._channels.get(name)
