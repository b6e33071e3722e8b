"""A channel as an app sees it: messages, who is there, and being there oneself; and a pattern of channels.

Must hold: what was asked for and granted is asked for again when the session is another; nothing else is.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, AsyncIterator, Callable

from .command import Wanted
from .emitter import Emitter, Stream
from .errors import TavernError
from .presence import Presence
from .session import Session

Frame = dict[str, Any]
UNSET: Any = object()


@dataclass(frozen=True)
class Message:
    channel: str
    data: Any
    # Who published it; None: a service, or somebody without a name.
    user: str | None
    client: str | None
    seq: int | None
    # "base64" when `data` is that of bytes which are no text.
    encoding: str | None = None

    @classmethod
    def from_wire(cls, frame: Frame) -> Message:
        sender = frame.get("from") or {}
        return cls(frame["channel"], frame.get("data"), sender.get("user"), sender.get("client"), frame.get("seq"), frame.get("encoding"))


class Ear(Emitter):
    """What can be subscribed to. Emits `message` and `gap`."""

    def __init__(self, session: Session, target: Frame) -> None:
        super().__init__()
        self._session = session
        self._target = target
        self.subscribed = False

    async def subscribe(self, listener: Callable[[Message], Any] | None = None) -> None:
        """Hears messages from the return of this call on; `listener` is called with each."""
        if listener is not None:
            self.on("message", listener)
        await self._subscribe()

    async def _subscribe(self) -> None:
        await self._session.ask("subscribe", self._target, on_ok=self._granted)

    def _granted(self, ok: Frame) -> None:
        self.subscribed = True

    def restoring(self) -> list[Wanted]:
        """What a new session must be told so that all is as before."""
        return [("subscribe", self._target, self._granted)] if self.subscribed else []

    async def unsubscribe(self) -> None:
        def done(ok: Frame) -> None:
            self.subscribed = False

        await self._session.ask("unsubscribe", self._target, on_ok=done)

    def messages(self) -> Stream[Message]:
        """The messages from now on, to be read with `async for`. Does not subscribe by itself."""
        return self.stream("message")

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Subscribes if need be, and gives each message."""
        async with self.messages() as messages:
            if not self.subscribed:
                await self._subscribe()
            async for message in messages:
                yield message


class Pattern(Ear):
    def __init__(self, session: Session, glob: str) -> None:
        super().__init__(session, {"pattern": glob})
        self.glob = glob


class Channel(Ear):
    """Emits `message`, `gap`, and `presence` when the live map has changed."""

    def __init__(self, session: Session, name: str, redirected: Callable[[str, Channel], None], failed: Callable[[TavernError], None]) -> None:
        super().__init__(session, {"channel": name})
        self.name = name
        # Where the app's hook put us, when it chose another channel.
        self.actual = name
        self.watching = False
        self.joined = False
        self.state: Any = UNSET
        self._redirected, self._failed = redirected, failed
        self._presence = Presence(name, self._read_again)
        self._presence.on("change", lambda event: self.emit("presence", event))

    def _granted(self, ok: Frame) -> None:
        self.subscribed = True
        if isinstance(ok.get("channel"), str) and ok["channel"] != self.actual:
            self.actual = ok["channel"]
            self._redirected(self.actual, self)

    async def _subscribe(self) -> None:
        if self.watching:
            # To ask without `presence` would say nothing new.
            self.subscribed = True
            return
        await super()._subscribe()

    async def unsubscribe(self) -> None:
        await super().unsubscribe()
        self.watching = False
        self._presence.synced = False

    async def publish(self, data: Any) -> int:
        """How many subscriptions on the server's node got it. `unknown_outcome` when the link was lost before the answer: it is not repeated."""
        ok = await self._session.ask("publish", {"channel": self.name, "data": data}, repeatable=False)
        return int(ok.get("receivers", 0))

    async def join(self, state: Any = UNSET) -> None:
        """Present in the channel, with a small JSON state."""
        members = {"channel": self.name} if state is UNSET else {"channel": self.name, "state": state}

        def done(ok: Frame) -> None:
            self.joined = True
            self.state = self.state if state is UNSET else state

        await self._session.ask("join", members, on_ok=done)

    async def update(self, state: Any) -> None:
        def done(ok: Frame) -> None:
            self.state = state

        await self._session.ask("update", {"channel": self.name, "state": state}, on_ok=done)

    async def leave(self) -> None:
        def done(ok: Frame) -> None:
            self.joined, self.state = False, UNSET

        await self._session.ask("leave", {"channel": self.name}, on_ok=done)

    async def who(self, *, counts_only: bool = False, after: str | None = None, limit: int | None = None) -> Frame:
        """A snapshot from the server, one page of it."""
        given = {"counts_only": counts_only or None, "after": after, "limit": limit}
        members = {name: value for name, value in given.items() if value is not None}
        return await self._session.ask("who", {"channel": self.name, **members})

    async def presence(self) -> Presence:
        """The live map of who is here; watching begins with the first call."""
        if not self.watching:
            await self._session.ask("subscribe", {"channel": self.name, "presence": True}, on_ok=self._shown)
        return self._presence

    def _shown(self, ok: Frame) -> None:
        self._granted(ok)
        self.watching = True
        if isinstance(ok.get("members"), dict):
            self._presence.restore(ok["members"])

    def _read_again(self) -> None:
        """The map has a hole. Asking to watch again gives the whole of it."""
        if self._session.ended is not None or not self.watching:
            return
        asked = self._session.begin("subscribe", {"channel": self.name, "presence": True}, on_ok=self._shown)
        asked.answer.add_done_callback(self._asked)

    def _asked(self, answer: Any) -> None:
        if not answer.cancelled() and isinstance(refused := answer.exception(), TavernError):
            self._failed(refused)

    # ---- what the client tells it

    def take_presence(self, event: Frame) -> None:
        # Where events and answers come by different connections a change may overtake the snapshot: the map holds it back.
        self._presence.apply(event)

    def take_gap(self, event: Frame) -> None:
        self.emit("gap", event)
        self._presence.lose()

    def restoring(self) -> list[Wanted]:
        asked = super().restoring()
        if self.watching:
            self._presence.synced = False
            asked = [("subscribe", {"channel": self.name, "presence": True}, self._shown)]
        if self.joined:
            state = {} if self.state is UNSET else {"state": self.state}
            asked.append(("join", {"channel": self.name, **state}, None))
        return asked
