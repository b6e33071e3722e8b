"""The client without asyncio: calls block, iterators block with a timeout. The asynchronous client runs in its own thread.

    with Tavern("http://127.0.0.1:7400", user="ann") as tavern:
        game = tavern.channel("game#1")
        with game.messages() as messages:
            game.subscribe()
            game.publish("hello")
            print(messages.next(timeout=5).data)

Must hold: only the client's own thread touches the asynchronous client; closing the client ends its thread.
Listeners run in the client's thread and must not call the client: use an iterator instead.
"""
from __future__ import annotations

import asyncio
import concurrent.futures
import copy
import threading
from typing import Any, Callable, Coroutine, Generic, Iterable, Iterator, Mapping, Sequence, TypeVar, Unpack

from . import channel as channels
from . import client as clients
from . import emitter, me, party
from . import presence as presences
from .channel import UNSET, Message, Published
from .errors import CLOSED, TavernError
from .history import Position

T = TypeVar("T")
Frame = dict[str, Any]


class Loop:
    """A thread that runs an event loop and executes work there."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tavern", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        if not self._thread.is_alive() or threading.current_thread() is self._thread:
            work.close()
            inside = self._thread.is_alive()
            raise TavernError(CLOSED, "called from a listener, which runs in the client's thread; use an iterator instead" if inside else "the client was closed")
        done: concurrent.futures.Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return done.result()
        except BaseException:
            # Interrupted: cancel the work, nothing waits for it any more.
            done.cancel()
            raise

    def call(self, work: Callable[[], T]) -> T:
        async def called() -> T:
            return work()

        return self.run(called())

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


class Items(Generic[T]):
    """A blocking iterator for one reader. A wait longer than `timeout` raises `TimeoutError`; closing the client ends the iteration."""

    def __init__(self, loop: Loop, stream: emitter.Stream[T], timeout: float | None = None) -> None:
        self._loop, self._stream, self.timeout = loop, stream, timeout

    def next(self, timeout: float | None = None) -> T:
        async def one() -> tuple[bool, T | None]:
            try:
                return True, await self._stream.next(timeout)
            except StopAsyncIteration:
                return False, None

        try:
            there, item = self._loop.run(one())
        except TavernError as failure:
            if failure.code != CLOSED:
                raise
            there, item = False, None
        if not there:
            raise StopIteration
        return item  # type: ignore[return-value]  # None is an item only when T says so

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return self.next(self.timeout)

    def close(self) -> None:
        try:
            self._loop.call(self._stream.close)
        except TavernError:
            pass

    def __enter__(self) -> Items[T]:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


class EmitterProxy:
    """Access to an emitter from another thread."""

    def __init__(self, loop: Loop, inner: emitter.Emitter) -> None:
        self._loop, self._emitter = loop, inner

    def on(self, event: str, listener: emitter.Listener) -> Callable[[], None]:
        remove = self._loop.call(lambda: self._emitter.on(event, listener))
        return lambda: self._loop.call(remove)

    def stream(self, event: str, timeout: float | None = None) -> Items[Any]:
        return Items(self._loop, self._loop.call(lambda: self._emitter.stream(event)), timeout)


class Presence(EmitterProxy):
    """The live presence map; each property returns a copy."""

    def __init__(self, loop: Loop, inner: presences.Presence) -> None:
        super().__init__(loop, inner)
        self._inner = inner

    @property
    def users(self) -> Mapping[str, presences.User]:
        return self._loop.call(lambda: copy.deepcopy(self._inner.users))

    @property
    def anonymous(self) -> Mapping[str, presences.Client]:
        return self._loop.call(lambda: copy.deepcopy(self._inner.anonymous))

    @property
    def count(self) -> int:
        return self._loop.call(lambda: self._inner.count)

    @property
    def mode(self) -> str:
        return self._loop.call(lambda: self._inner.mode)

    @property
    def version(self) -> int:
        return self._loop.call(lambda: self._inner.version)

    def changes(self, timeout: float | None = None) -> Items[Frame]:
        return self.stream("change", timeout)


class Subscribable(EmitterProxy):
    def __init__(self, loop: Loop, inner: channels.Subscribable) -> None:
        super().__init__(loop, inner)
        self._subscribable = inner

    def subscribe(self, listener: Callable[[Message], Any] | None = None, *, echo: bool | None = None) -> None:
        self._loop.run(self._subscribable.subscribe(listener, echo=echo))

    def unsubscribe(self) -> None:
        self._loop.run(self._subscribable.unsubscribe())

    def messages(self, timeout: float | None = None) -> Items[Message]:
        """Messages from now on. Does not subscribe."""
        return Items(self._loop, self._loop.call(self._subscribable.messages), timeout)

    def __iter__(self) -> Iterator[Message]:
        """Subscribes if necessary and yields each message."""
        with self.messages() as messages:
            if not self._loop.call(lambda: self._subscribable.subscribed):
                self.subscribe()
            yield from messages


class Pattern(Subscribable):
    pass


class Channel(Subscribable):
    def __init__(self, loop: Loop, inner: channels.Channel) -> None:
        super().__init__(loop, inner)
        self._inner = inner
        self.name = inner.name

    def subscribe(
        self, listener: Callable[[Message], Any] | None = None, *, last: int | None = None, since: Position | None = None, echo: bool | None = None
    ) -> None:
        self._loop.run(self._inner.subscribe(listener, last=last, since=since, echo=echo))

    def publish(self, data: Any, *, id: str | None = None, retain: bool = False) -> Published:
        return self._loop.run(self._inner.publish(data, id=id, retain=retain))

    @property
    def position(self) -> Position | None:
        return self._loop.call(lambda: self._inner.position)

    def history(self, *, after: int | None = None, before: int | None = None, limit: int | None = None) -> Frame:
        return self._loop.run(self._inner.history(after=after, before=before, limit=limit))

    def join(self, state: Any = UNSET) -> None:
        self._loop.run(self._inner.join(state))

    def update(self, state: Any) -> None:
        self._loop.run(self._inner.update(state))

    def leave(self) -> None:
        self._loop.run(self._inner.leave())

    def who(self, *, counts_only: bool = False, after: str | None = None, limit: int | None = None) -> Frame:
        return self._loop.run(self._inner.who(counts_only=counts_only, after=after, limit=limit))

    def presence(self) -> Presence:
        return Presence(self._loop, self._loop.run(self._inner.presence()))


class Me(EmitterProxy):
    def __init__(self, loop: Loop, inner: me.Me) -> None:
        super().__init__(loop, inner)
        self._inner = inner

    @property
    def user(self) -> str | None:
        return self._loop.call(lambda: self._inner.user)

    @property
    def client(self) -> str | None:
        return self._loop.call(lambda: self._inner.client)

    @property
    def statuses(self) -> Mapping[str, me.Status]:
        return self._loop.call(lambda: dict(self._inner.statuses))

    def status(self, users: Iterable[str]) -> list[me.Status]:
        return self._loop.run(self._inner.status(users))

    def follow(self, user: str) -> None:
        self._loop.run(self._inner.follow(user))

    def unfollow(self, user: str) -> None:
        self._loop.run(self._inner.unfollow(user))

    def following(self) -> list[str]:
        return self._loop.run(self._inner.following())

    def followers(self) -> list[str]:
        return self._loop.run(self._inner.followers())

    def visibility(self, value: str) -> None:
        self._loop.run(self._inner.visibility(value))


class Party(EmitterProxy):
    """Party commands as methods: `tavern.party.invite("bob")`."""

    def __init__(self, loop: Loop, inner: party.Party) -> None:
        super().__init__(loop, inner)
        self._inner = inner

    @property
    def current(self) -> party.Snapshot | None:
        return self._loop.call(lambda: copy.deepcopy(self._inner.current))

    def get(self) -> party.Snapshot | None:
        return self._loop.run(self._inner.get())

    def invite(self, user: str) -> dict[str, Any]:
        return self._loop.run(self._inner.invite(user))

    def cancel_invite(self, user: str) -> dict[str, Any]:
        return self._loop.run(self._inner.cancel_invite(user))

    def accept(self, party_id: int) -> dict[str, Any]:
        return self._loop.run(self._inner.accept(party_id))

    def decline(self, party_id: int, message: str | None = None) -> dict[str, Any]:
        return self._loop.run(self._inner.decline(party_id, message))

    def kick(self, user: str, message: str | None = None) -> dict[str, Any]:
        return self._loop.run(self._inner.kick(user, message))

    def leave(self, message: str | None = None) -> dict[str, Any]:
        return self._loop.run(self._inner.leave(message))

    def promote(self, user: str) -> dict[str, Any]:
        return self._loop.run(self._inner.promote(user))

    def disband(self, message: str | None = None) -> dict[str, Any]:
        return self._loop.run(self._inner.disband(message))

    def set_data(self, data: dict[str, Any], if_version: int | None = None) -> dict[str, Any]:
        return self._loop.run(self._inner.set_data(data, if_version))

    def go(self, params: Any = None, if_version: int | None = None) -> dict[str, Any]:
        return self._loop.run(self._inner.go(params, if_version))

    def cancel_go(self) -> dict[str, Any]:
        return self._loop.run(self._inner.cancel_go())

    def ready(self, go_id: int) -> dict[str, Any]:
        return self._loop.run(self._inner.ready(go_id))

    def block(self, user: str) -> dict[str, Any]:
        return self._loop.run(self._inner.block(user))

    def unblock(self, user: str) -> dict[str, Any]:
        return self._loop.run(self._inner.unblock(user))

    def say(self, data: Any) -> dict[str, Any]:
        return self._loop.run(self._inner.say(data))

    def command(self, cmd: str, **members: Any) -> dict[str, Any]:
        """Any `party.…` command by its name."""
        return self._loop.run(self._inner.command(cmd, **members))


class Tavern(EmitterProxy):
    """Like the asynchronous `Tavern`, with the same arguments. Connects in `with` or with `connect`."""

    def __init__(self, url: str | Sequence[str], **options: Unpack[clients.Options]) -> None:
        loop = Loop()
        try:
            self._inner = loop.call(lambda: clients.Tavern(url, **options))
        except BaseException:
            loop.stop()
            raise
        super().__init__(loop, self._inner)
        self.me = Me(loop, self._inner.me)
        self.party = Party(loop, self._inner.party)

    def connect(self, timeout: float | None = 30.0) -> Tavern:
        self._loop.run(self._inner.connect(timeout))
        return self

    def close(self) -> None:
        """Ends the session; the client cannot be used afterwards."""
        try:
            self._loop.run(self._inner.close())
        except TavernError as again:
            if again.code != CLOSED:
                raise
        finally:
            self._loop.stop()

    def suspend(self) -> None:
        self._loop.run(self._inner.suspend())

    def __enter__(self) -> Tavern:
        try:
            return self.connect()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *failure: object) -> None:
        self.close()

    @property
    def state(self) -> str:
        return self._inner.state

    @property
    def transport(self) -> str | None:
        return self._inner.transport

    @property
    def node(self) -> str | None:
        return self._loop.call(lambda: self._inner.node)

    @property
    def ticket(self) -> tuple[str, int] | None:
        return self._loop.call(lambda: self._inner.ticket)

    def channel(self, name: str) -> Channel:
        return Channel(self._loop, self._loop.call(lambda: self._inner.channel(name)))

    def pattern(self, glob: str) -> Pattern:
        return Pattern(self._loop, self._loop.call(lambda: self._inner.pattern(glob)))

    def command(self, op: str, *, repeatable: bool = False, timeout: float | None = None, **members: Any) -> Frame:
        return self._loop.run(self._inner.command(op, repeatable=repeatable, timeout=timeout, **members))
