"""The client of one session: what an app holds. Takes events from the session and gives them to whom they concern.

Must hold: one `Channel` for each name; a letter is told once, however often it comes.
"""
from __future__ import annotations

import asyncio
import ssl as tls
from typing import Any, Sequence

from .address import Address
from .channel import Channel, Ear, Message, Pattern
from .command import Wanted
from .emitter import Emitter
from .errors import TIMEOUT, TavernError
from .glob import matches
from .lines import LINES
from .me import Me
from .party import Party
from .presence import EVENTS
from .session import Session
from .settings import Settings, TokenSource

Frame = dict[str, Any]


class Tavern(Emitter):
    """A client of the server at `url` (or one of several: the next is tried when one does not answer).

    Who it is: `token`, or `get_token`, a function or coroutine function that is asked for one whenever it is needed, or in dev mode `user`.
    With `statuses` each new session begins with the statuses of everybody the user follows.
    Emits `open`, `reconnecting`, `resumed`, `reset`, `gap`, `closing`, `superseded`, `closed`, `error`, and each event of the server as `event`.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        token: str | None = None,
        get_token: TokenSource | None = None,
        user: str | None = None,
        transports: Sequence[str] = ("websocket", "sse", "poll"),
        statuses: bool = False,
        resume: tuple[str, int] | None = None,
        ssl: tls.SSLContext | None = None,
    ) -> None:
        super().__init__()
        urls = [url] if isinstance(url, str) else list(url)
        if not urls:
            raise ValueError("at least one address is needed")
        if sum(given is not None for given in (token, get_token, user)) > 1:
            raise ValueError("give one of token, get_token and user")
        unknown = [name for name in transports if name not in LINES]
        if unknown or not transports:
            raise ValueError(f"transports are {', '.join(LINES)}; not {unknown}")
        addresses = [Address.parse(given) for given in urls]
        settings = Settings(addresses, list(transports), token, get_token, user, statuses, ssl)
        self._session = Session(settings, self._take, self._turn, self._restore)
        if resume is not None:
            self._session.claim(*resume)
        self._channels: dict[str, Channel] = {}
        self._aliases: dict[str, Channel] = {}
        self._patterns: dict[str, Pattern] = {}
        self._letter = 0
        self.me = Me(self._session)
        self.party = Party(self._session)

    # ---- connecting

    async def connect(self, timeout: float | None = 30.0) -> Tavern:
        """Returns when the session is there. A refusal is raised; a server that cannot be reached is tried until the time is over."""
        for emitter in self._emitters():
            emitter.open_streams()
        try:
            async with asyncio.timeout(timeout):
                await self._session.start()
        except TimeoutError:
            await self._session.stop(goodbye=False)
            raise TavernError(TIMEOUT, f"no server within {timeout} s: {self._why}") from None
        return self

    _why = "nobody answered"

    async def close(self) -> None:
        """Goodbye: present nowhere at once, the session ended."""
        await self._session.stop(goodbye=True)

    async def suspend(self) -> None:
        """Drops the transport and keeps the session: `connect` goes on with it while the server has it."""
        await self._session.stop(goodbye=False)

    async def __aenter__(self) -> Tavern:
        return await self.connect()

    async def __aexit__(self, *failure: object) -> None:
        await self.close()

    @property
    def state(self) -> str:
        """`open`, `connecting` or `closed`."""
        return self._session.state

    @property
    def transport(self) -> str | None:
        return self._session.transport

    @property
    def node(self) -> str | None:
        return self._session.hello.get("node")

    @property
    def ticket(self) -> tuple[str, int] | None:
        """What resumes this session from elsewhere: a secret, and the number of the last event. Give it as `resume`."""
        ticket = self._session.ticket
        return (ticket.session, ticket.seq) if ticket.session is not None else None

    # ---- what there is

    def channel(self, name: str) -> Channel:
        if name not in self._channels:
            self._channels[name] = Channel(self._session, name, self._aliases.__setitem__, self._failed)
        return self._channels[name]

    def pattern(self, glob: str) -> Pattern:
        """All channels that match, as Redis globs do."""
        return self._patterns.setdefault(glob, Pattern(self._session, glob))

    async def command(self, op: str, *, repeatable: bool = False, timeout: float | None = 30.0, **members: Any) -> Frame:
        """Any command of the protocol. Repeated after a lost link only if that does no harm: say so."""
        return await self._session.ask(op, members, repeatable, timeout=timeout)

    # ---- what the session tells

    def _turn(self, what: str, frame: Frame) -> None:
        if what == "trying":
            self._why = frame["why"]
            return
        if what in ("open", "resumed", "another"):
            self.party.take_snapshot(frame.get("party"))
        if what == "another":
            # Told as a reset when everything that was wanted is there again.
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
        restored: list[Wanted] = []
        ears: list[Ear] = [*self._channels.values(), *self._patterns.values()]
        for ear in ears:
            restored.extend(ear.restoring())
        self._session.restore_with(restored, self._failed)

    def _failed(self, refused: TavernError) -> None:
        """Something that the client does by itself was refused."""
        self.emit("error", refused)

    def _take(self, frame: Frame) -> None:
        kind = frame["event"]
        if kind == "snapshot":
            self.party.take_snapshot(frame["party"])
            return
        if isinstance(letter := frame.get("letter"), int):
            if letter <= self._letter:
                return
            self._letter = letter
        self.emit("event", frame)
        if kind == "message":
            self._message(frame)
        elif kind in EVENTS:
            if (channel := self._named(frame["channel"])) is not None:
                channel.take_presence(frame)
        elif kind == "party":
            self.party.take_letter(frame, self.me.user)
        elif kind in ("status", "statuses", "letter"):
            self.me.emit(kind, frame)
        elif kind == "gap":
            self._gap(frame)

    def _message(self, frame: Frame) -> None:
        message = Message.from_wire(frame)
        if message.channel.startswith("party#"):
            # Members listen to it by themselves.
            self.party.emit("say", message)
        if (channel := self._named(message.channel)) is not None and channel.subscribed:
            channel.emit("message", message)
        for pattern in list(self._patterns.values()):
            if pattern.subscribed and matches(pattern.glob, message.channel):
                pattern.emit("message", message)

    def _gap(self, frame: Frame) -> None:
        """Of one channel or pattern, or of the whole mailbox."""
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
        if "channel" not in frame and "pattern" not in frame and self.party.current is not None:
            self.party.refresh()

    def _named(self, name: str) -> Channel | None:
        return self._aliases.get(name) or self._channels.get(name)
