"""Event listeners, and streams of events for `async for`.

Must hold: a failing listener affects neither other listeners nor the connection; a stream is bounded and reports an overflow.
"""
from __future__ import annotations

import asyncio
import collections
import inspect
from typing import Any, AsyncIterator, Callable, Generic, TypeVar

from .errors import OVERFLOW, TavernError

T = TypeVar("T")
Listener = Callable[[Any], Any]

STREAM_ITEMS = 16_384


class Stream(Generic[T]):
    """Items in order, for one reader. After it is ended, buffered items can still be read."""

    def __init__(self, forget: Callable[[Stream[T]], None], limit: int = STREAM_ITEMS) -> None:
        self._items: collections.deque[T] = collections.deque()
        self._limit = limit
        self._forget = forget
        self._lost = 0
        self._over = False
        self._failure: TavernError | None = None
        self._change = asyncio.Event()

    def push(self, item: T) -> None:
        if self._over:
            return
        if len(self._items) >= self._limit:
            self._items.popleft()
            self._lost += 1
        self._items.append(item)
        self._change.set()

    def end(self, failure: TavernError | None = None) -> None:
        """No more items; `failure` is raised after the last one."""
        self._over, self._failure = True, self._failure or failure
        self._change.set()

    def close(self) -> None:
        self._forget(self)
        self._items.clear()
        self.end()

    async def next(self, timeout: float | None = None) -> T:
        """The next item. Raises `TimeoutError` when none arrives in time, `StopAsyncIteration` at the end."""
        async with asyncio.timeout(timeout):
            while True:
                if self._lost:
                    lost, self._lost = self._lost, 0
                    raise TavernError(OVERFLOW, f"read too slowly: {lost} items were dropped")
                if self._items:
                    return self._items.popleft()
                if self._over:
                    if self._failure is not None:
                        failure, self._failure = self._failure, None
                        raise failure
                    raise StopAsyncIteration
                self._change.clear()
                await self._change.wait()

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        return await self.next()

    async def __aenter__(self) -> Stream[T]:
        return self

    async def __aexit__(self, *failure: object) -> None:
        self.close()


class Emitter:
    """Named events. A listener is a function or a coroutine function."""

    # The names that exist; empty: any, because servers may add some.
    EVENTS: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self._listeners: dict[str, list[Listener]] = {}
        self._streams: dict[str, list[Stream[Any]]] = {}
        self._running: set[asyncio.Task[Any]] = set()
        self._ended: tuple[TavernError | None] | None = None

    def on(self, event: str, listener: Listener) -> Callable[[], None]:
        """Calls `listener` with each event from now on. Returns a function that removes it."""
        self._check(event)
        self._listeners.setdefault(event, []).append(listener)
        return lambda: self.off(event, listener)

    def once(self, event: str, listener: Listener) -> Callable[[], None]:
        def first(value: Any) -> Any:
            self.off(event, first)
            return listener(value)

        return self.on(event, first)

    def off(self, event: str, listener: Listener) -> None:
        listeners = self._listeners.get(event, [])
        if listener in listeners:
            listeners.remove(listener)

    def stream(self, event: str, limit: int = STREAM_ITEMS) -> Stream[Any]:
        """The events from now on, as an asynchronous iterator."""
        self._check(event)
        streams = self._streams.setdefault(event, [])
        stream: Stream[Any] = Stream(lambda gone: streams.remove(gone) if gone in streams else None, limit)
        streams.append(stream)
        if self._ended is not None:
            stream.end(*self._ended)
        return stream

    def emit(self, event: str, value: Any = None) -> None:
        for stream in list(self._streams.get(event, ())):
            stream.push(value)
        for listener in list(self._listeners.get(event, ())):
            try:
                result = listener(value)
                if inspect.iscoroutine(result):
                    task = asyncio.ensure_future(result)
                    self._running.add(task)
                    task.add_done_callback(self._done)
            except Exception as failure:
                report(f"a listener for {event!r} failed", failure)

    def end_streams(self, failure: TavernError | None = None) -> None:
        self._ended = (failure,)
        for streams in self._streams.values():
            for stream in list(streams):
                stream.end(failure)

    def open_streams(self) -> None:
        self._ended = None

    def _check(self, event: str) -> None:
        if self.EVENTS and event not in self.EVENTS:
            raise ValueError(f"no event {event!r}; choose from {', '.join(sorted(self.EVENTS))}")

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            report("a listener failed", failure)


def report(message: str, failure: BaseException) -> None:
    asyncio.get_running_loop().call_exception_handler({"message": f"tavern: {message}", "exception": failure})
