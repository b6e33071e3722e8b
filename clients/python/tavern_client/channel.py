"""Channels and patterns: messages, who is present, own presence.

Must hold: a new session restores exactly the subscriptions and presence that the server had granted.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, AsyncIterator, Callable

from .command import RestoreCommand
from .emitter import Emitter, Stream
from .errors import TavernError
from .history import HistoryCursor, Position
from .presence import Presence
from .session import Session

Frame = dict[str, Any]
UNSET: Any = object()


@dataclass(frozen=True)
class Published:
    """The reply to a publish."""

    # How many subscriptions on the node received it.
    receivers: int
    # Its place, if the channel keeps history.
    position: Position | None = None
    # The id was published before: it is not delivered again.
    duplicate: bool = False


@dataclass(frozen=True)
class Message:
    channel: str
    data: Any
    # The publisher; None: a service or an anonymous user.
    user: str | None
    client: str | None
    seq: int | None
    # "base64" when the published bytes are not valid text.
    encoding: str | None = None
    # Its place in the history of the channel, if that keeps one, and when it was stored (milliseconds).
    position: Position | None = None
    at: int | None = None

    @classmethod
    def from_wire(cls, frame: Frame) -> Message:
        sender = frame.get("from") or {}
        place = Position.from_wire(frame)
        named = (frame["channel"], frame.get("data"), sender.get("user"), sender.get("client"))
        return cls(*named, frame.get("seq"), frame.get("encoding"), place, frame.get("at"))


class Subscribable(Emitter):
    """A channel or pattern. Emits `message`, `gap` and `revoked`."""

    EVENTS = frozenset(["message", "gap", "revoked"])

    def __init__(self, session: Session, target: Frame) -> None:
        super().__init__()
        self._session = session
        self._target = target
        self.subscribed = False
        # Messages that this client has published are given to the app.
        self._echo = True

    def deliver(self, message: Message) -> None:
        if self._echo or not self._session.is_own(message.client):
            self.emit("message", message)

    async def subscribe(self, listener: Callable[[Message], Any] | None = None, *, echo: bool | None = None) -> None:
        """Subscribes; messages arrive from the return of this call on. `listener` is called with each; with `echo=False` without own messages."""
        self._echo = self._echo if echo is None else echo
        if listener is not None:
            self.on("message", listener)
        await self._subscribe()

    async def _subscribe(self) -> None:
        await self._session.ask("subscribe", self._target, on_ok=self._granted)

    def _granted(self, ok: Frame) -> None:
        self.subscribed = True

    def restoring(self) -> list[RestoreCommand]:
        """The commands that restore this subscription in a new session."""
        return [("subscribe", self._target, self._granted)] if self.subscribed else []

    async def unsubscribe(self) -> None:
        def done(ok: Frame) -> None:
            self.subscribed = False

        await self._session.ask("unsubscribe", self._target, on_ok=done)

    def take_revoked(self, event: Frame) -> None:
        """A fresh token does not allow this any more; it is not restored in a new session."""
        if event.get("verb") == "subscribe":
            self.subscribed = False
        self.emit("revoked", event)

    def messages(self) -> Stream[Message]:
        """Messages from now on, for `async for`. Does not subscribe."""
        return self.stream("message")

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Subscribes if necessary and yields each message."""
        async with self.messages() as messages:
            if not self.subscribed:
                await self._subscribe()
            async for message in messages:
                yield message


class Pattern(Subscribable):
    def __init__(self, session: Session, glob: str) -> None:
        super().__init__(session, {"pattern": glob})
        self.glob = glob


class Channel(Subscribable):
    """Emits `message`, `gap`, `revoked`, `presence` when the presence map has changed, and `recovered` when missed messages were asked for."""

    EVENTS = Subscribable.EVENTS | {"presence", "recovered"}

    def __init__(self, session: Session, name: str, redirected: Callable[[str, Channel], None], failed: Callable[[TavernError], None]) -> None:
        super().__init__(session, {"channel": name})
        self.name = name
        # The channel that the authorize hook chose, if it redirected us.
        self.actual = name
        self.watching = False
        self.joined = False
        self._cursor = HistoryCursor()
        # Over HTTP the first messages may arrive before the reply to `subscribe`.
        self.subscribing = False
        self.state: Any = UNSET
        self._redirected, self._failed = redirected, failed
        self._presence = Presence(name, self._reload)
        self._presence.on("change", lambda event: self.emit("presence", event))

    @property
    def position(self) -> Position | None:
        """Where this client is in the history of the channel: the last message it got."""
        return self._cursor.position

    def _granted(self, ok: Frame) -> None:
        self.subscribed = True
        recovered = ok.get("recovered")
        self._cursor.replied(ok)
        if isinstance(ok.get("channel"), str) and ok["channel"] != self.actual:
            self.actual = ok["channel"]
            self._redirected(self.actual, self)
        if isinstance(recovered, bool):
            self.emit("recovered", recovered)
            if not recovered:
                self.emit("gap", {"event": "gap", "channel": self.name})

    async def subscribe(
        self, listener: Callable[[Message], Any] | None = None, *, last: int | None = None, since: Position | None = None, echo: bool | None = None
    ) -> None:
        """Subscribes; messages arrive from the return of this call on. `last`: so many of the last messages come first; `since`: those after a position; `echo=False`: without own messages."""
        self._echo = self._echo if echo is None else echo
        if listener is not None:
            self.on("message", listener)
        if last is None and since is None:
            await self._subscribe()
            return
        begin: Frame = {"last": last} if since is None else {"since": since.to_wire()}
        known, self.subscribing = self._cursor.restart(), True
        try:
            await self._session.ask("subscribe", {**self._target, **begin}, on_ok=self._granted)
        except TavernError:
            self._cursor.position = self._cursor.position or known
            raise
        finally:
            self.subscribing = False

    async def _subscribe(self) -> None:
        if self.watching:
            # Watching presence includes the subscription.
            self.subscribed = True
            return
        await super()._subscribe()

    async def unsubscribe(self) -> None:
        await super().unsubscribe()
        self.watching, self._cursor = False, HistoryCursor()
        self._presence.synced = False

    async def publish(self, data: Any, *, id: str | None = None, retain: bool = False) -> Published:
        """Publishes. Fails with `unknown_outcome` when the connection is lost before the reply. With an `id`, on a channel with history, it is retried and published once."""
        members = {"channel": self.name, "data": data}
        if id is not None:
            members["message_id"] = id
        if retain:
            members["retain"] = True
        ok = await self._session.ask("publish", members, repeatable=id is not None)
        return Published(int(ok.get("receivers", 0)), Position.from_wire(ok), bool(ok.get("duplicate")))

    async def history(self, *, after: int | None = None, before: int | None = None, limit: int | None = None) -> Frame:
        """A page of the history, the oldest message first: the last messages, or those after or before an offset."""
        given = {"after": after, "before": before, "limit": limit}
        members = {name: value for name, value in given.items() if value is not None}
        return await self._session.ask("history", {"channel": self.name, **members})

    async def join(self, state: Any = UNSET) -> None:
        """Joins the channel with a small JSON state."""
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
        """One page of a snapshot from the server."""
        given = {"counts_only": counts_only or None, "after": after, "limit": limit}
        members = {name: value for name, value in given.items() if value is not None}
        return await self._session.ask("who", {"channel": self.name, **members})

    async def presence(self) -> Presence:
        """The live presence map; the first call starts watching."""
        if not self.watching:
            await self._session.ask("subscribe", {"channel": self.name, "presence": True}, on_ok=self._watched)
        return self._presence

    def _watched(self, ok: Frame) -> None:
        self._granted(ok)
        self.watching = True
        if isinstance(ok.get("members"), dict):
            self._presence.restore(ok["members"])

    def _reload(self) -> None:
        """The map missed changes: subscribing again returns a full snapshot."""
        if self._session.ended is not None or not self.watching:
            return
        asked = self._session.begin("subscribe", {"channel": self.name, "presence": True}, on_ok=self._watched)
        asked.answer.add_done_callback(self._reload_done)

    def _reload_done(self, answer: Any) -> None:
        if not answer.cancelled() and isinstance(refused := answer.exception(), TavernError):
            self._failed(refused)

    # ---- called by the client

    def take_message(self, message: Message) -> None:
        known = self.position
        turn = self._cursor.take(message.position)
        if turn == "deliver":
            self.deliver(message)
        elif turn == "heal" and known is not None:
            self._heal(known)

    def _heal(self, known: Position) -> None:
        """Messages are missing: asks for them; those that arrive meanwhile come again."""
        if self._session.ended is not None:
            return
        asked = self._session.begin("subscribe", {**self._target, "since": known.to_wire()}, on_ok=self._granted)
        asked.answer.add_done_callback(self._healed)

    def _healed(self, answer: Any) -> None:
        self._cursor.failed()
        self._reload_done(answer)

    def take_presence(self, event: Frame) -> None:
        # Over HTTP a change can arrive before the snapshot it follows; the map buffers it.
        self._presence.apply(event)

    def take_gap(self, event: Frame) -> None:
        if "channel" in event:
            self._cursor.announce_gap()
        self.emit("gap", event)
        self._presence.lose()

    def take_revoked(self, event: Frame) -> None:
        if event.get("verb") == "join":
            self.joined, self.state = False, UNSET
        else:
            self.watching = self._presence.synced = False
        super().take_revoked(event)

    def restoring(self) -> list[RestoreCommand]:
        asked: list[RestoreCommand] = super().restoring()
        # Any message may follow until the reply.
        known = self._cursor.restart()
        since = {} if known is None else {"since": known.to_wire()}
        if self.subscribed:
            asked = [("subscribe", {**self._target, **since}, self._granted)]
        if self.watching:
            self._presence.synced = False
            asked = [("subscribe", {"channel": self.name, "presence": True, **since}, self._watched)]
        if self.joined:
            state = {} if self.state is UNSET else {"state": self.state}
            asked.append(("join", {"channel": self.name, **state}, None))
        return asked
