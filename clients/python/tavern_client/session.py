"""One session over however many lines: opens them, resumes, repeats what may be repeated, drops what came twice.

Knows nothing of channels or parties: its owner takes events and says what to restore.
Must hold: an event is delivered once; a command is answered once, by the server or by the reason why nobody knows; a session that was
superseded never comes back.
"""
from __future__ import annotations

import asyncio
import collections
import inspect
import time
from typing import Callable

from .command import Command, Wanted
from .errors import CLOSED, SUPERSEDED, TIMEOUT, UNKNOWN_OUTCOME, LinkLost, LinkRefused, TavernError
from .lines import LINES, SUPERSEDED_CODE, Credential, Frame, Line, Ticket
from .settings import Settings, remaining

# Commands that wait for a line or an answer.
WAITING = 16_384
COMMAND_S = 30.0
# How often a command is asked again when the server says that it could not, and how long to wait the first time.
TRIES, AGAIN_MS = 5, 125
BYE_S = 2.0
# Refusals of a way before the next is tried: of one that never worked, and of one that did.
REFUSALS, REFUSALS_WORKED = 2, 5
# A line that lived so long ends the backing off.
STEADY_S = 5.0
# Hello refused with one of these: asking again may help. Anything else ends the client.
RETRY = frozenset(["rate_limited", "busy", "unavailable", "internal", "gone", "conflict", "blocked"])
TOKEN_EXPIRED, STOP_FROM, STOP_TO = 4001, 4000, 4499


class Session:
    def __init__(self, settings: Settings, on_event: Callable[[Frame], None], on_turn: Callable[[str, Frame], None], restore: Callable[[], None]) -> None:
        self.settings = settings
        self.credential = Credential(settings.token, settings.user)
        self.ticket = Ticket()
        self.state = "closed"
        self.transport: str | None = None
        self.hello: Frame = {}
        self.ended: TavernError | None = TavernError(CLOSED, "not connected")
        self._on_event, self._on_turn, self._restore = on_event, on_turn, restore
        self._line: Line | None = None
        self._run: asyncio.Task[None] | None = None
        self._first: asyncio.Future[None] | None = None
        self._known = False
        self._ids = 0
        self._outbox: collections.deque[Command] = collections.deque()
        self._pending: dict[int, Command] = {}
        self._wake = asyncio.Event()
        self._acked = 0
        self._heard = 0.0
        self._stale = False
        self._fresh = False
        self._at = 0
        self._way = 0
        self._refusals = 0
        self._worked: set[str] = set()
        self._closing_ms: int | None = None
        self._leaving = False
        self._restoring: set[asyncio.Future[Frame]] = set()

    # ---- from outside

    async def start(self) -> None:
        """Connects; returns when the session is there."""
        if self._run is None or self._run.done():
            self.ended, self._leaving = None, False
            self.state = "connecting"
            self._first = asyncio.get_running_loop().create_future()
            self._run = asyncio.create_task(self._live())
        assert self._first is not None, "set beside the task"
        await asyncio.shield(self._first)

    async def stop(self, goodbye: bool, reason: TavernError | None = None) -> None:
        """Ends the line; with a goodbye the session too."""
        self._leaving = True
        if goodbye and self.state == "open":
            try:
                await self.ask("bye", {}, timeout=BYE_S)
            except TavernError:
                # The server notices by itself.
                pass
        if self._run is not None and not self._run.done():
            self._run.cancel()
            await asyncio.gather(self._run, return_exceptions=True)
        if goodbye:
            self.ticket.session, self.ticket.seq, self._known = None, 0, False
        self._end(reason or TavernError(CLOSED, "this client was closed"), keep=not goodbye)

    async def drop(self) -> None:
        """Ends the transport as the network would."""
        if self._line is not None:
            await self._line.close()

    async def ask(
        self, op: str, members: Frame, repeatable: bool = True, on_ok: Callable[[Frame], None] | None = None, timeout: float | None = COMMAND_S
    ) -> Frame:
        command = self.begin(op, members, repeatable, on_ok)
        try:
            async with asyncio.timeout(timeout):
                return await command.answer
        except TimeoutError:
            raise TavernError(TIMEOUT, f"no answer to {op} within {timeout} s") from None
        finally:
            self._pending.pop(command.id, None)
            if not command.sent and command in self._outbox:
                self._outbox.remove(command)

    def begin(self, op: str, members: Frame, repeatable: bool = True, on_ok: Callable[[Frame], None] | None = None) -> Command:
        if self.ended is not None:
            raise self.ended
        if len(self._outbox) + len(self._pending) >= WAITING:
            raise TavernError("busy", f"{WAITING} commands wait already")
        self._ids += 1
        frame = {"id": self._ids, "op": op, **members}
        command = Command(self._ids, frame, asyncio.get_running_loop().create_future(), repeatable, on_ok)
        self._outbox.append(command)
        self._wake.set()
        return command

    def restore_with(self, restored: list[Wanted], failed: Callable[[TavernError], None]) -> None:
        """What the new session must be told before anything that waits. With the last answer the session is told to be another one."""
        waiting, self._outbox = self._outbox, collections.deque()
        restoring = self._restoring = {self.begin(op, members, True, on_ok).answer for op, members, on_ok in restored}

        def done(answer: asyncio.Future[Frame]) -> None:
            if not answer.cancelled() and isinstance(refused := answer.exception(), TavernError):
                failed(refused)
            restoring.discard(answer)
            # Another may have been begun since, and tells it then.
            if not restoring and restoring is self._restoring and self.ended is None:
                self._on_turn("reset", self.hello)

        for answer in restoring:
            answer.add_done_callback(done)
        self._outbox.extend(waiting)
        if not restoring:
            self._on_turn("reset", self.hello)

    # ---- the life of it

    async def _live(self) -> None:
        try:
            while True:
                line = await self._connect()
                began = time.monotonic()
                why: Exception
                try:
                    await self._serve(line)
                except (LinkLost, LinkRefused) as failure:
                    why = failure
                finally:
                    self._line, self.transport = None, None
                    await self._close(line)
                if time.monotonic() - began > STEADY_S:
                    self.settings.backoff.reset()
                if self._leaving:
                    # Nobody is to come back: what is still unanswered never will be.
                    return self._fail(TavernError(CLOSED, "this client was closed"))
                self._after(why)
                if self.settings.transports[0] in self._worked:
                    # Another stood in for it: the best is the next.
                    self._way = self._refusals = 0
                self.state = "connecting"
                self._requeue()
                self._on_turn("reconnecting", {"why": str(why)})
                wait = self._closing_ms
                self._closing_ms = None
                await asyncio.sleep(self.settings.backoff.next() if wait is None else wait / 1000)
        except TavernError as final:
            if final.code == SUPERSEDED:
                self._on_turn("superseded", {})
            self._end(final)

    @staticmethod
    async def _close(line: Line) -> None:
        try:
            async with asyncio.timeout(2):
                await line.close()
        except (TimeoutError, OSError):
            pass

    def _after(self, why: Exception) -> None:
        """Raises if this end is the last."""
        code = why.code if isinstance(why, LinkLost) else None
        if code == SUPERSEDED_CODE:
            raise TavernError(SUPERSEDED, "the session goes on elsewhere")
        if code == TOKEN_EXPIRED:
            if self.settings.get_token is None:
                raise TavernError("unauthenticated", "the token has ended, and nothing gives another")
            self._stale = True
        elif code is not None and STOP_FROM <= code <= STOP_TO:
            raise TavernError("gone", f"the server does not want this client back: {why}")

    async def _connect(self) -> Line:
        """Tries until a line is open; each failure may choose another way or address, or end it all."""
        while True:
            at_least: int | None = None
            at_once = False
            line: Line | None = None
            try:
                await self._provide_token()
                name = self.settings.transports[self._way % len(self.settings.transports)]
                address = self.settings.addresses[self._at % len(self.settings.addresses)]
                line = LINES[name](address, self.settings.context, self.credential, self.ticket, self.settings.statuses)
                hello = await line.open()
                self._welcome(line, hello)
                return line
            except LinkRefused as refused:
                self._refusals += 1
                most = REFUSALS_WORKED if name in self._worked else REFUSALS
                if self._refusals >= most:
                    self._way, self._refusals = self._way + 1, 0
                why = str(refused)
            except LinkLost as lost:
                self._at += 1
                if self.settings.transports[0] in self._worked:
                    # Nobody answered at all: no way is to blame, and the best is the next.
                    self._way = self._refusals = 0
                why = str(lost)
            except TavernError as error:
                at_least, why = self._refused(error), str(error)
                if self._stale:
                    # With another token, and at once; a new one that is refused is the end.
                    at_once = True
            except BaseException:
                if line is not None:
                    await self._close(line)
                raise
            if line is not None:
                await self._close(line)
            self._on_turn("trying", {"why": why})
            if not at_once:
                await asyncio.sleep(self.settings.backoff.next(at_least))

    def _refused(self, error: TavernError) -> int | None:
        if error.code == "unauthenticated" and self.settings.get_token is not None and not self._fresh:
            self._stale = True
            return None
        if error.code not in RETRY:
            raise error
        return error.retry_after_ms

    def _welcome(self, line: Line, hello: Frame) -> None:
        """The line is open: the old session goes on, or another has begun."""
        resumed = bool(hello.get("resumed")) and not hello.get("reset")
        before, first = self._known, self._first is not None and not self._first.done()
        self.ticket.session = hello["session"]
        if not resumed:
            self.ticket.seq = self._acked = 0
        self._known, self._fresh, self._refusals = True, False, 0
        self._worked.add(line.name)
        self.hello, self._line, self.state, self.transport = hello, line, "open", line.name
        line.deliver = self._take
        self._heard = time.monotonic()
        self._wake.set()
        another = before and not resumed
        self._on_turn("another" if another else "resumed" if resumed else "open", hello)
        if another:
            self._restore()
        if first and self._first is not None:
            self._first.set_result(None)

    def claim(self, session: str, seq: int) -> None:
        """Goes on with a session that was begun elsewhere."""
        self.ticket.session, self.ticket.seq, self._known = session, seq, True

    async def _serve(self, line: Line) -> None:
        parts = [self._read(line), self._write(line), self._beat(line), self._renew()]
        tasks = [asyncio.create_task(part) for part in parts]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            # What was read tells more than what could not be written.
            for task in tasks:
                if task in done:
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, line: Line) -> None:
        while True:
            frames = await line.receive()
            self._heard = time.monotonic()
            for frame in frames:
                self._take(frame)

    async def _write(self, line: Line) -> None:
        while True:
            while self._outbox:
                command = self._outbox.popleft()
                command.sent = True
                self._pending[command.id] = command
                try:
                    await line.send(command.frame)
                except LinkLost as failure:
                    command.sent = not failure.unsent
                    if line.name == "websocket":
                        # The reader knows why, and what came before the end.
                        await asyncio.sleep(1)
                    raise
            self._wake.clear()
            await self._wake.wait()

    async def _beat(self, line: Line) -> None:
        """Acknowledges at each heartbeat, and gives up a line that was silent for two of them."""
        period = max(0.1, self.hello.get("heartbeat_ms", 15_000) / 1000)
        if line.name == "poll":
            # Each poll acknowledges, and has its own time.
            await asyncio.get_running_loop().create_future()
        while True:
            await asyncio.sleep(period)
            if time.monotonic() - self._heard > 2 * period:
                raise LinkLost("the line is silent")
            if self._outbox:
                # Others are waiting to be sent: these will be a sign of life too.
                continue
            if self.ticket.seq > self._acked:
                self._acked = self.ticket.seq
                self.begin("ack", {"seq": self._acked})
            elif line.name == "websocket" and time.monotonic() - self._heard > period * 0.9:
                self.begin("ping", {})

    async def _renew(self) -> None:
        """Gets another token before this one ends, and tells the server."""
        while True:
            left = remaining(self.credential.token)
            if left is None or self.settings.get_token is None:
                await asyncio.get_running_loop().create_future()
                return
            await asyncio.sleep(max(0.05, left - min(60.0, left * 0.25)))
            self._stale = True
            await self._provide_token()
            try:
                await self.ask("hello", {"token": self.credential.token})
            except TavernError as refused:
                raise LinkLost(f"the new token was not taken: {refused}") from refused

    async def _provide_token(self) -> None:
        source = self.settings.get_token
        if source is None:
            return
        left = remaining(self.credential.token)
        if self.credential.token is not None and not self._stale and (left is None or left > 0):
            return
        try:
            given = source()
            self.credential.token = await given if inspect.isawaitable(given) else given
        except Exception as failure:
            # Whoever gives tokens may be away for a while, as a server may.
            raise LinkLost(f"get_token failed: {failure!r}") from failure
        self._stale, self._fresh = False, True

    # ---- frames

    def _take(self, frame: Frame) -> None:
        if "event" in frame:
            self._take_event(frame)
        elif "id" in frame:
            command = self._pending.pop(frame["id"], None) if isinstance(frame["id"], int) else None
            if command is not None and not command.answer.done():
                self._answer(command, frame)
        elif "party" in frame:
            self._on_event({"event": "snapshot", "party": frame["party"]})

    def _take_event(self, frame: Frame) -> None:
        seq = frame.get("seq")
        if isinstance(seq, int):
            if seq <= self.ticket.seq:
                return
            self.ticket.seq = seq
        if frame["event"] == "closing":
            self._closing_ms = int(frame.get("reconnect_after_ms", 0))
            self._on_turn("closing", frame)
            raise LinkLost("the server stops")
        if frame["event"] == "superseded":
            raise LinkLost("superseded", SUPERSEDED_CODE)
        self._on_event(frame)

    def _answer(self, command: Command, frame: Frame) -> None:
        if isinstance(frame.get("ok"), dict):
            if command.on_ok is not None:
                command.on_ok(frame["ok"])
            command.answer.set_result(frame["ok"])
            return
        refused = TavernError.from_wire(frame.get("error"))
        if not self._once_more(command, refused):
            command.fail(refused)

    def _once_more(self, command: Command, refused: TavernError) -> bool:
        """Whether a refusal is not the answer: the command was not carried out and may be, later or in another session."""
        command.tries += 1
        if command.tries > TRIES or command.frame["op"] == "bye":
            return False
        if refused.code == "gone":
            command.sent = False
            self._pending[command.id] = command
            raise LinkLost("the session is gone", unsent=True)
        # A party says itself how often it wants to be asked.
        limited = refused.code == "rate_limited" and not command.frame["op"].startswith("party.")
        if not command.repeatable or not (limited or refused.code == "unavailable"):
            return False
        wait = refused.retry_after_ms if refused.retry_after_ms is not None else AGAIN_MS * 2**command.tries
        asyncio.get_running_loop().call_later(wait / 1000, self._again, command)
        return True

    def _again(self, command: Command) -> None:
        if self.ended is not None:
            command.fail(self.ended)
        elif not command.answer.done():
            command.sent = False
            self._outbox.append(command)
            self._wake.set()

    def _requeue(self) -> None:
        """After a line: what was not answered is asked again, or nobody knows."""
        again = []
        for command in sorted(self._pending.values(), key=lambda command: command.id):
            if command.frame["op"] in ("ack", "ping"):
                continue
            if command.repeatable or not command.sent:
                command.sent = False
                again.append(command)
            else:
                command.fail(TavernError(UNKNOWN_OUTCOME, f"the line was lost before the answer to {command.frame['op']}: it may have happened"))
        self._pending.clear()
        self._outbox.extendleft(reversed(again))

    def _end(self, final: TavernError, keep: bool = False) -> None:
        """Everybody who waits hears why. Kept: the commands wait for the next start."""
        self.state, self.ended = "closed", final
        if self._first is not None and not self._first.done():
            self._first.set_exception(final)
            self._first.exception()
        if keep:
            self._requeue()
        else:
            self._fail(final)
            self._on_turn("closed", {"code": final.code, "message": final.message})

    def _fail(self, why: TavernError) -> None:
        for command in [*self._pending.values(), *self._outbox]:
            command.fail(why)
        self._pending.clear()
        self._outbox.clear()
