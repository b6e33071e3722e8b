"""One session over any number of connections: connects, resumes, retries idempotent commands, drops duplicate events.

Knows nothing about channels or parties: its owner handles events and decides what to restore.
Must hold: an event is delivered once; a command gets one result, a reply or an error, even when the client itself fails;
a superseded session never reconnects.
"""
from __future__ import annotations

import asyncio
import collections
import inspect
import random
import time
from typing import Callable

from . import rules
from .command import Command, RestoreCommand
from .emitter import report
from .errors import CLOSED, FAILED, SUPERSEDED, TIMEOUT, UNKNOWN_OUTCOME, LinkLost, LinkRefused, TavernError
from .log import LOGGER, trace
from .transports import TRANSPORTS, SUPERSEDED_CODE, Credential, Frame, Transport, Ticket, encode
from .settings import Settings, TokenSource, remaining

# Limit of commands waiting for a connection or a reply.
WAITING = 16_384
BYE_S = 2.0
# Half of the time in which calls must end when the client fails.
CLOSE_S = 1.0
# Failures of a transport before the next is tried: one that never worked, and one that did.
REFUSALS, REFUSALS_WORKED = 2, 5
# A connection that lasted this long resets the backoff.
STEADY_S = 5.0
TOKEN_S = 20.0
# How long a transport stands in for the preferred one, at least: up to twice as long.
STAND_IN_S = 30.0
# Public ids of this client's last sessions that are remembered.
OWN_IDS = 16


class Session:
    def __init__(self, settings: Settings, on_event: Callable[[Frame], None], on_change: Callable[[str, Frame], None], restore: Callable[[], None]) -> None:
        self.settings = settings
        self.credential = Credential(settings.token, settings.user)
        self.ticket = Ticket()
        self.state = "idle"
        self.last_failure = "no attempt has finished"
        self.transport: str | None = None
        self.hello: Frame = {}
        self.ended: TavernError | None = TavernError(CLOSED, "not connected")
        self._on_event, self._on_change, self._restore = on_event, on_change, restore
        self._link: Transport | None = None
        self._run: asyncio.Task[None] | None = None
        self._first: asyncio.Future[None] | None = None
        self._had_session = False
        self._ids = 0
        self._outbox: collections.deque[Command] = collections.deque()
        self._pending: dict[int, Command] = {}
        self._wake = asyncio.Event()
        self._acked = 0
        self._received_at = 0.0
        self._stale = False
        self._fresh = False
        self._address_at = 0
        self._transport_at = 0
        self._refusals = 0
        self._worked: set[str] = set()
        # The transport in use stands in for the first one, which has worked before.
        self._stands_in = False
        self._warned = False
        self._closing_ms: int | None = None
        self._leaving = False
        self._own: collections.deque[str] = collections.deque(maxlen=OWN_IDS)
        self._restoring: set[asyncio.Future[Frame]] = set()

    # ---- called by the client

    async def start(self) -> None:
        """Connects; returns when the session is open."""
        if self._run is None or self._run.done():
            self.ended, self._leaving = None, False
            self._become("connecting")
            self._first = asyncio.get_running_loop().create_future()
            self._run = asyncio.create_task(self._run_loop())
        assert self._first is not None, "set together with the task"
        await asyncio.shield(self._first)

    async def stop(self, end_session: bool, reason: TavernError | None = None) -> None:
        """Closes the connection; with `end_session` also ends the session."""
        self._leaving = True
        if end_session and self.state == "open":
            try:
                await self.ask("bye", {}, timeout=BYE_S)
            except TavernError:
                # The server notices the closed connection anyway.
                pass
        if self._run is not None and not self._run.done():
            self._run.cancel()
            await asyncio.gather(self._run, return_exceptions=True)
        self._end(reason or TavernError(CLOSED, "the client was closed"), keep=not end_session)

    async def drop(self) -> None:
        """Closes the connection like a network failure."""
        if self._link is not None:
            await self._link.close()

    async def ask(
        self, op: str, members: Frame, repeatable: bool = True, on_ok: Callable[[Frame], None] | None = None, timeout: float | None = None
    ) -> Frame:
        """Sends a command and waits for its reply, by default as long as the settings say."""
        command = self.begin(op, members, repeatable, on_ok)
        limit = self.settings.command_s if timeout is None else timeout
        try:
            async with asyncio.timeout(limit):
                return await command.answer
        except TimeoutError:
            if command.sent and not repeatable:
                raise TavernError(UNKNOWN_OUTCOME, f"no reply to {op} within {limit} s; it may have been executed") from None
            why = "" if self.state == "open" else f"; not connected: {self.last_failure}"
            raise TavernError(TIMEOUT, f"no reply to {op} within {limit} s{why}") from None
        finally:
            self._pending.pop(command.id, None)
            if not command.sent and command in self._outbox:
                self._outbox.remove(command)

    def begin(self, op: str, members: Frame, repeatable: bool = True, on_ok: Callable[[Frame], None] | None = None) -> Command:
        if self.ended is not None:
            raise self.ended
        if len(self._outbox) + len(self._pending) >= WAITING:
            raise TavernError("busy", f"{WAITING} commands are already waiting; try again later")
        self._ids += 1
        text = encode({"id": self._ids, "op": op, **members})
        command = Command(self._ids, op, text, asyncio.get_running_loop().create_future(), repeatable, on_ok)
        self._outbox.append(command)
        self._wake.set()
        return command

    def restore_with(self, restored: list[RestoreCommand], failed: Callable[[TavernError], None]) -> None:
        """Sends the restore commands before any waiting command. Emits `reset` after the last reply."""
        waiting, self._outbox = self._outbox, collections.deque()
        asked = {self.begin(op, members, True, on_ok).answer: (op, members) for op, members, on_ok in restored}
        restoring = self._restoring = set(asked)
        refusals: list[Frame] = []

        def done(answer: asyncio.Future[Frame]) -> None:
            if not answer.cancelled() and isinstance(refused := answer.exception(), TavernError):
                verb, members = asked[answer]
                target: Frame = {name: members[name] for name in ("channel", "pattern") if name in members}
                refusals.append({"verb": verb, **target, "error": refused})
                failed(refused)
            restoring.discard(answer)
            # A newer restore may have started; it emits `reset` then.
            if not restoring and restoring is self._restoring and self.ended is None:
                self._on_change("reset", {**self.hello, "failed": refusals})

        for answer in asked:
            answer.add_done_callback(done)
        self._outbox.extend(waiting)
        if not asked:
            self._on_change("reset", {**self.hello, "failed": []})

    # ---- connection loop

    async def _run_loop(self) -> None:
        try:
            while True:
                link = await self._connect()
                began = time.monotonic()
                why: Exception = LinkLost("the connection ended")
                try:
                    await self._serve(link)
                except (LinkLost, LinkRefused) as failure:
                    why = failure
                    trace("lost", str(why))
                finally:
                    self._link, self.transport = None, None
                    await self._close(link)
                if time.monotonic() - began > STEADY_S:
                    self.settings.backoff.reset()
                if self._leaving:
                    # No reconnect: pending commands get no reply any more.
                    return self._fail(TavernError(CLOSED, "the client was closed"))
                self._after(why)
                if self.settings.transports[0] in self._worked:
                    # Try the preferred transport again after a fallback.
                    self._transport_at = self._refusals = 0
                self._become("connecting")
                self._requeue()
                self._on_change("reconnecting", {"why": str(why)})
                wait = self._closing_ms
                self._closing_ms = None
                await asyncio.sleep(self.settings.backoff.next() if wait is None else wait / 1000)
        except TavernError as final:
            if final.code == SUPERSEDED:
                self._on_change("superseded", {})
            self._end(final)
        except asyncio.CancelledError:
            if not self._leaving:
                self._end(TavernError(CLOSED, "the task of the client was cancelled"))
            raise
        except Exception as failure:
            # Nothing runs this session any more: without this, every call would wait for ever.
            report("the client failed and is closed", failure)
            failed = TavernError(FAILED, f"the client failed: {failure!r}; create a new one")
            failed.__cause__ = failure
            self._end(failed)

    @staticmethod
    async def _close(link: Transport) -> None:
        try:
            async with asyncio.timeout(CLOSE_S):
                await link.close()
        except (TimeoutError, OSError):
            pass

    def _after(self, why: Exception) -> None:
        """Raises when the client must not reconnect."""
        code = why.code if isinstance(why, LinkLost) else None
        after = rules.after_close(code, renews=self._renews)
        if after.error == SUPERSEDED:
            raise TavernError(SUPERSEDED, "another connection took over this session")
        if after.error == "unauthenticated":
            raise TavernError("unauthenticated", "the token has expired; pass get_token to renew it")
        if after.error is not None:
            raise TavernError(after.error, f"the server closed the session for good: {why}")
        self._stale = self._stale or after.then == "new_token"

    @property
    def _renews(self) -> bool:
        return self.settings.get_token is not None

    def is_own(self, client: str | None) -> bool:
        """Whether this is the public id of one of this client's sessions."""
        return client is not None and client in self._own

    def load_statuses(self) -> None:
        """Asks for the statuses of all followed users, if the app wants them."""
        if self.settings.statuses and self.ended is None:
            self.begin("hello", {"status": True})

    async def _connect(self) -> Transport:
        """Tries until connected. A failure may switch transport or address, or end the client."""
        while True:
            min_wait_ms: int | None = None
            at_once = False
            link: Transport | None = None
            name = self.settings.transports[self._transport_at % len(self.settings.transports)]
            try:
                await self._provide_token()
                address = self.settings.addresses[self._address_at % len(self.settings.addresses)]
                trace("dial", f"{name} to {address.authority}")
                link = TRANSPORTS[name](address, self.settings.context, self.credential, self.ticket, self.settings.statuses)
                async with asyncio.timeout(self.settings.connect_s):
                    hello = await link.open()
                self._opened(link, hello)
                return link
            except (LinkRefused, TimeoutError) as refused:
                if isinstance(refused, TimeoutError):
                    # The server, or something before it that does not know this transport.
                    self._address_at += 1
                self._refusals += 1
                most = REFUSALS_WORKED if name in self._worked else REFUSALS
                if self._refusals >= most:
                    self._transport_at, self._refusals = self._transport_at + 1, 0
                why = str(refused) or f"{name}: no hello within {self.settings.connect_s} s"
            except LinkLost as lost:
                self._address_at += 1
                if self.settings.transports[0] in self._worked:
                    # No server answered, so the transport is not at fault: go back to the preferred one.
                    self._transport_at = self._refusals = 0
                why = str(lost)
            except TavernError as error:
                min_wait_ms, why = self._refused(error), str(error)
                if self._stale:
                    # Retry at once with a new token; if that is rejected too, give up.
                    at_once = True
            except BaseException:
                if link is not None:
                    await self._close(link)
                raise
            if link is not None:
                await self._close(link)
            if not self._warned:
                # Once until the next success: without it, nobody would see why nothing happens.
                LOGGER.warning("tavern: %s; the client keeps trying", why)
            self._warned = True
            trace("not connected", why)
            self.last_failure = why
            self._on_change("trying", {"why": why})
            if not at_once:
                await asyncio.sleep(self.settings.backoff.next(min_wait_ms))

    def _refused(self, error: TavernError) -> int | None:
        after = rules.after_hello(error.code, error.retry_after_ms, renews=self._renews, fresh=self._fresh)
        if after.then == "close":
            raise error
        self._stale = self._stale or after.then == "new_token"
        return after.wait_ms

    def _opened(self, link: Transport, hello: Frame) -> None:
        """Connected: the session was resumed, or a new one started."""
        resumed = bool(hello.get("resumed")) and not hello.get("reset")
        before, first = self._had_session, self._first is not None and not self._first.done()
        self.ticket.session = hello["session"]
        if not resumed:
            self.ticket.seq = self._acked = 0
        self._had_session, self._fresh, self._refusals, self._warned = True, False, 0, False
        preferred = self.settings.transports[0]
        self._stands_in = link.name not in self._worked and link.name != preferred and preferred in self._worked
        self._worked.add(link.name)
        self.hello, self._link, self.transport = hello, link, link.name
        trace("hello", hello)
        self._become("open")
        if hello.get("client") not in self._own:
            self._own.append(hello["client"])
        link.deliver = self._take
        self._received_at = time.monotonic()
        self._wake.set()
        another = before and not resumed
        self._on_change("another" if another else "resumed" if resumed else "open", hello)
        if another:
            self._restore()
        if first and self._first is not None:
            self._first.set_result(None)

    def claim(self, session: str, seq: int) -> None:
        """Continues a session that was started elsewhere."""
        self.ticket.session, self.ticket.seq, self._had_session = session, seq, True

    async def _serve(self, link: Transport) -> None:
        parts = [self._read(link), self._write(link), self._heartbeat(link), self._renew(), self._prefer()]
        tasks = [asyncio.create_task(part) for part in parts]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            # The reader comes first: its error says more than a failed write.
            for task in tasks:
                if task in done:
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, link: Transport) -> None:
        while True:
            frames = await link.receive()
            self._received_at = time.monotonic()
            for frame in frames:
                self._take(frame)

    async def _write(self, link: Transport) -> None:
        while True:
            while self._outbox:
                command = self._outbox.popleft()
                if self._is_too_large(command):
                    continue
                command.sent = True
                self._pending[command.id] = command
                trace("send", command.text)
                try:
                    await link.send(command.id, command.text)
                except LinkLost as failure:
                    command.sent = not failure.unsent
                    if link.name == "websocket":
                        # Let the reader finish: it knows the close code and may have more events.
                        await asyncio.sleep(1)
                    raise
            self._wake.clear()
            await self._wake.wait()

    def _is_too_large(self, command: Command) -> bool:
        """Fails a command that the server would refuse for its size."""
        most = self.hello.get("frame_bytes")
        if not isinstance(most, int) or len(command.text.encode()) <= most:
            return False
        command.fail(TavernError("too_large", f"{command.op} has more than {most} bytes"))
        return True

    async def _heartbeat(self, link: Transport) -> None:
        """Sends an ack per heartbeat; drops a connection without traffic for two heartbeats."""
        period = max(0.1, self.hello.get("heartbeat_ms", 15_000) / 1000)
        if link.name == "poll":
            # Each poll acknowledges and has its own timeout.
            await asyncio.get_running_loop().create_future()
        while True:
            await asyncio.sleep(period)
            if time.monotonic() - self._received_at > 2 * period:
                raise LinkLost("heartbeat timeout")
            if self._outbox:
                # Waiting commands will serve as the heartbeat.
                continue
            if self.ticket.seq > self._acked:
                self._acked = self.ticket.seq
                self.begin("ack", {"seq": self._acked})
            elif link.name == "websocket" and time.monotonic() - self._received_at > period * 0.9:
                self.begin("ping", {})

    async def _prefer(self) -> None:
        """Ends a connection over a stand-in after a while: then the preferred transport is tried again."""
        if not self._stands_in:
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(STAND_IN_S * (1 + random.random()))
        raise LinkLost("the preferred transport is tried again")

    async def _renew(self) -> None:
        """Renews the token before it expires and sends it to the server."""
        while True:
            left = remaining(self.credential.token)
            if left is None or self.settings.get_token is None:
                await asyncio.get_running_loop().create_future()
                return
            await asyncio.sleep(rules.renew_after_ms(left * 1000) / 1000)
            try:
                self.credential.token = await self._new_token(self.settings.get_token)
                await self.ask("hello", {"token": self.credential.token})
            except LinkLost as failure:
                # The old token may still be valid: asks again before it ends.
                self._on_change("error", {"error": TavernError("unavailable", str(failure))})
            except TavernError as refused:
                raise LinkLost(f"the new token was rejected: {refused}") from refused

    async def _provide_token(self) -> None:
        source = self.settings.get_token
        if source is None:
            return
        left = remaining(self.credential.token)
        if self.credential.token is not None and not self._stale and (left is None or left > 0):
            return
        self.credential.token = await self._new_token(source)
        self._stale, self._fresh = False, True

    @staticmethod
    async def _new_token(source: TokenSource) -> str:
        try:
            async with asyncio.timeout(TOKEN_S):
                given = source()
                token = await given if inspect.isawaitable(given) else given
            if not isinstance(token, str):
                raise TypeError(f"it must return a string, not {type(token).__name__}")
            return token
        except asyncio.CancelledError as failure:
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
            # Something that get_token waited for was cancelled, not this client.
            raise LinkLost("get_token was cancelled") from failure
        except Exception as failure:
            # The token source may be down for a while: retry like an unreachable server.
            raise LinkLost(f"get_token failed: {failure!r}") from failure

    # ---- frames

    def _take(self, frame: Frame) -> None:
        trace("receive", frame)
        if "event" in frame:
            self._on_event_frame(frame)
        elif "id" in frame:
            command = self._pending.pop(frame["id"], None) if isinstance(frame["id"], int) else None
            if command is not None and not command.answer.done():
                self._answer(command, frame)
        elif "party" in frame:
            self._on_event({"event": "snapshot", "party": frame["party"]})

    def _on_event_frame(self, frame: Frame) -> None:
        seq = frame.get("seq")
        if isinstance(seq, int):
            if seq <= self.ticket.seq:
                return
            self.ticket.seq = seq
        if frame["event"] == "closing":
            self._closing_ms = int(frame.get("reconnect_after_ms", 0))
            self._on_change("closing", frame)
            raise LinkLost("the server is stopping")
        if frame["event"] == "superseded":
            raise LinkLost("superseded", SUPERSEDED_CODE)
        self._on_event(frame)

    def _answer(self, command: Command, frame: Frame) -> None:
        if isinstance(frame.get("ok"), dict):
            try:
                if command.on_ok is not None:
                    command.on_ok(frame["ok"])
            except Exception:
                # It is not answered: it fails with the client.
                self._pending[command.id] = command
                raise
            command.answer.set_result(frame["ok"])
            return
        refused = TavernError.from_wire(frame.get("error"))
        if not self._retry(command, refused):
            command.fail(refused)

    def _retry(self, command: Command, refused: TavernError) -> bool:
        """Whether a refused command is retried, later or in a new session."""
        given = (command.op, refused.code, refused.retry_after_ms)
        after = rules.after_reply(*given, repeatable=command.repeatable, renews=self._renews, retries=command.tries)
        command.tries += 1
        if after.then == "reconnect":
            expired = refused.code == "unauthenticated"
            self._stale = self._stale or expired
            command.sent = False
            self._pending[command.id] = command
            raise LinkLost("the token has expired" if expired else "the session has ended", unsent=True)
        if after.wait_ms is None:
            return False
        asyncio.get_running_loop().call_later(after.wait_ms / 1000, self._again, command)
        return True

    def _again(self, command: Command) -> None:
        if self.ended is not None:
            command.fail(self.ended)
        elif not command.answer.done():
            command.sent = False
            self._outbox.append(command)
            self._wake.set()

    def _requeue(self) -> None:
        """After a lost connection: retries idempotent commands and fails the others with `unknown_outcome`."""
        again = []
        for command in sorted(self._pending.values(), key=lambda command: command.id):
            then = rules.after_loss(command.op, repeatable=command.repeatable, sent=command.sent)
            if then == "drop":
                continue
            if then != "unknown_outcome":
                command.sent = False
                again.append(command)
            else:
                command.fail(TavernError(UNKNOWN_OUTCOME, f"the connection was lost before the reply to {command.op}; it may have been executed"))
        self._pending.clear()
        self._outbox.extendleft(reversed(again))

    def _end(self, final: TavernError, keep: bool = False) -> None:
        """Fails all waiting commands; with `keep` they wait for the next start."""
        if self.state == "closed" or (keep and self.ended is not None):
            return
        self.ended = final
        self._become("suspended" if keep else "closed")
        if self._first is not None and not self._first.done():
            self._first.set_exception(final)
            self._first.exception()
        if keep:
            self._requeue()
        else:
            # What starts next is another session, which restores what the app had.
            self.ticket.session, self.ticket.seq = None, 0
            self._fail(final)
            self._on_change("closed", {"code": final.code, "message": final.message})

    def _become(self, state: str) -> None:
        trace("state", state)
        self.state = state

    def _fail(self, why: TavernError) -> None:
        for command in [*self._pending.values(), *self._outbox]:
            command.fail(why)
        self._pending.clear()
        self._outbox.clear()
