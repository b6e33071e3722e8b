"""A WebSocket client that comes back: to any server, with its session, and writes down everything it is told, in order.

The history is a list of tuples (when, kind, …):
  session  client, node, life of that node's process, fresh, seq     hello was answered; fresh: a new session, all else is over
  down     why                                                       the transport is gone
  message  seq, channel, of, number                                  one numbered word of a speaker
  gap      seq, channel, pattern, first                              what was announced as lost
  told     seq, event                                                any other event
  subscribed  channel, members                                       the reply stands where it came between events
  who      channel, answer, asked                                    the same; asked: the version known when it was sent
  refused  op, code, retry_after_ms      hang  op, node, seconds, began      superseded      closing
"""
import asyncio
import itertools
import json
import random
import time

import websockets.asyncio.client
import websockets.exceptions

from support import tokens

OPEN_PATIENCE, HELLO_PATIENCE, PATIENCE = 4.0, 8.0, 25.0
BROKEN = (OSError, asyncio.TimeoutError, websockets.exceptions.WebSocketException, EOFError)


class Away(Exception):
    """No transport, or it was lost before the answer: what was asked may have happened or not."""


class Refused(Exception):
    def __init__(self, error):
        super().__init__(error.get("code"))
        self.code, self.retry_after_ms = error["code"], error.get("retry_after_ms")


class Client:
    def __init__(self, world, name, user, seed, pinned=None, status=False):
        self.world, self.name, self.user = world, name, user
        self.dice = random.Random(f"{name} {seed}")
        self.pinned, self.status = pinned, status
        self.token = tokens.token(user, ttl=7200)
        self.log = []
        self.ids = itertools.count(1)
        self.socket, self.waiting = None, {}
        self.session, self.client, self.seq = None, None, 0
        self.node = None
        # Commands that had an answer, whatever it said.
        self.answered = 0
        self.resumes = True
        self.connected = asyncio.Event()
        # Actions of its own end when this is set; it stays connected.
        self.quiet = False
        self.returns_after = (0.0, 0.6)

    def note(self, kind, *detail):
        self.log.append((time.monotonic(), kind, *detail))

    async def live(self):
        """Connects and reads, for ever."""
        while True:
            if await self._connect():
                await self._read()
            self._down()
            await asyncio.sleep(self.dice.uniform(*self.returns_after))

    async def _connect(self):
        node = self.pinned or self.dice.choice(self.world.nodes)
        try:
            self.socket = await websockets.asyncio.client.connect(
                node.ws_url, compression=None, ping_interval=None, open_timeout=OPEN_PATIENCE, close_timeout=0.2, proxy=None,
                max_queue=None, max_size=None,
            )
            hello = {"id": 0, "op": "hello", "token": self.token}
            if self.status:
                hello["status"] = True
            if self.session is not None and self.resumes:
                hello |= {"session": self.session, "seq": self.seq}
            await self.socket.send(json.dumps(hello))
            reply = json.loads(await asyncio.wait_for(self.socket.recv(), HELLO_PATIENCE))
        except BROKEN:
            return False
        if reply.get("event") == "closing":
            return False
        if "ok" not in reply:
            error = reply.get("error", {"code": "no hello"})
            self.note("refused", "hello", error["code"], error.get("retry_after_ms"))
            return False
        answer = reply["ok"]
        fresh = not answer["resumed"]
        if fresh:
            self.seq = 0
            self.begun_anew()
        elif answer.get("reset"):
            self.note("gap", None, None, None, None)
            self.seq = answer["seq"]
        self.session, self.client, self.node = answer["session"], answer["client"], node
        self.note("session", self.client, node.name, node.life, fresh, self.seq)
        self.connected.set()
        return True

    def begun_anew(self):
        """A new session: nothing of the old one holds any more."""

    async def _read(self):
        try:
            async for text in self.socket:
                frame = json.loads(text)
                if "id" in frame:
                    self._answered(frame)
                else:
                    self._told(frame)
        except BROKEN:
            pass

    def _answered(self, frame):
        future, keep = self.waiting.pop(frame["id"], (None, None))
        if future is None or future.done():
            return
        if "ok" in frame:
            if keep is not None:
                keep(frame["ok"])
            future.set_result(frame["ok"])
        else:
            future.set_exception(Refused(frame["error"]))

    def _told(self, frame):
        event, seq = frame.get("event"), frame.get("seq")
        if seq is not None:
            self.seq = seq
        if event == "message":
            self.note("message", seq, frame["channel"], *frame["data"])
        elif event == "gap":
            self.note("gap", seq, frame.get("channel"), frame.get("pattern"), frame.get("from"))
            self.missed(frame.get("channel"))
        elif event in ("superseded", "closing"):
            self.note(event)
        else:
            self.note("told", seq, frame)
            self.heard(frame)

    def heard(self, frame):
        """An event that is not a message."""

    def missed(self, channel):
        """Something was lost and said so: about one channel, or anything."""

    def _down(self):
        if self.connected.is_set():
            self.note("down")
        self.connected.clear()
        socket, self.socket = self.socket, None
        if socket is not None:
            socket.transport.abort()
        for future, _ in self.waiting.values():
            if not future.done():
                future.set_exception(Away())
        self.waiting.clear()

    def drop(self):
        """The network is lost without a word."""
        if self.socket is not None:
            self.socket.transport.abort()

    async def ask(self, op, keep=None, **fields):
        """One command. `keep` sees the answer at its place between the events."""
        if not self.connected.is_set() or self.socket is None:
            raise Away
        number, began, node = next(self.ids), time.monotonic(), self.node
        future = asyncio.get_running_loop().create_future()
        self.waiting[number] = future, keep
        try:
            await self.socket.send(json.dumps({"id": number, "op": op} | fields))
            answer = await asyncio.wait_for(future, PATIENCE)
            self.answered += 1
            return answer
        except asyncio.TimeoutError:
            self.note("hang", op, node.name, time.monotonic() - began, began)
            self.drop()
            raise Away from None
        except Refused as refused:
            self.answered += 1
            self.note("refused", op, refused.code, refused.retry_after_ms)
            raise
        except BROKEN:
            raise Away from None
        finally:
            self.waiting.pop(number, None)
            if future.done() and not future.cancelled():
                future.exception()
