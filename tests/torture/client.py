"""A WebSocket client that reconnects to any server, resumes its session, and records everything it receives, in order.

The history is a list of tuples (when, kind, …):
  session  client, node, process number of the node, fresh, seq      reply to hello; fresh: a new session
  down     why                                                       the connection is lost
  message  seq, channel, of, number                                  one numbered message of a publisher
  stored   seq, channel, of, number, position                        the same of a channel with history; position: epoch, offset
  position channel, since, position, recovered                       reply to a subscribe to such a channel
  gap      seq, channel, pattern, first                              an announced loss
  event    seq, event                                                any other event
  subscribed  channel, members                                       a reply, recorded in order with the events
  who      channel, answer, asked                                    the same; asked: the version known when who was sent
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

OPEN_TIMEOUT, HELLO_TIMEOUT, TIMEOUT = 4.0, 8.0, 25.0
TOKEN_TTL = 7200
BROKEN = (OSError, asyncio.TimeoutError, websockets.exceptions.WebSocketException, EOFError)


def members(snapshot):
    """The state of each client of each user."""
    return {user["user"]: {client["client"]: client["state"] for client in user["clients"]} for user in snapshot["users"]}


class Disconnected(Exception):
    """Not connected, or disconnected before the reply: the command may have been executed."""


class Refused(Exception):
    def __init__(self, error):
        super().__init__(error.get("code"))
        self.code, self.retry_after_ms = error["code"], error.get("retry_after_ms")


class Client:
    def __init__(self, cluster, name, user, seed, pinned=None, status=False):
        self.cluster, self.name, self.user = cluster, name, user
        self.rng = random.Random(f"{name} {seed}")
        self.pinned, self.status = pinned, status
        self.token = tokens.token(user, ttl=TOKEN_TTL)
        self.log = []
        self.ids = itertools.count(1)
        self.socket, self.waiting = None, {}
        self.session, self.client, self.seq = None, None, 0
        self.node = None
        # Commands that got any reply.
        self.answered = 0
        self.resumes = True
        self.connected = asyncio.Event()
        # When set, the client stops its own actions but stays connected.
        self.quiet = False
        self.returns_after = (0.0, 0.6)

    def note(self, kind, *detail):
        self.log.append((time.monotonic(), kind, *detail))

    async def live(self):
        """Connects and reads until cancelled."""
        while True:
            if await self._connect():
                await self._read()
            self._down()
            await asyncio.sleep(self.rng.uniform(*self.returns_after))

    async def _connect(self):
        node = self.pinned or self.rng.choice(self.cluster.nodes)
        try:
            self.socket = await websockets.asyncio.client.connect(
                node.ws_url, compression=None, ping_interval=None, open_timeout=OPEN_TIMEOUT, close_timeout=0.2, proxy=None,
                max_queue=None, max_size=None,
            )
            hello = {"id": 0, "op": "hello", "token": self.token}
            if self.status:
                hello["status"] = True
            if self.session is not None and self.resumes:
                hello |= {"session": self.session, "seq": self.seq}
            await self.socket.send(json.dumps(hello))
            reply = json.loads(await asyncio.wait_for(self.socket.recv(), HELLO_TIMEOUT))
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
            self.on_new_session()
        elif answer.get("reset"):
            self.note("gap", None, None, None, None)
            self.seq = answer["seq"]
        self.session, self.client, self.node = answer["session"], answer["client"], node
        self.note("session", self.client, node.name, node.process_number, fresh, self.seq)
        self.connected.set()
        return True

    def on_new_session(self):
        """A new session started: all state of the old one is invalid."""

    async def _read(self):
        try:
            async for text in self.socket:
                frame = json.loads(text)
                if "id" in frame:
                    self._answered(frame)
                else:
                    self._on_event_frame(frame)
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

    def _on_event_frame(self, frame):
        event, seq = frame.get("event"), frame.get("seq")
        if seq is not None:
            self.seq = seq
        if event == "message":
            if "offset" in frame:
                self.note("stored", seq, frame["channel"], *frame["data"], (frame["epoch"], frame["offset"]))
                self.on_event(frame)
            else:
                self.note("message", seq, frame["channel"], *frame["data"])
        elif event == "gap":
            self.note("gap", seq, frame.get("channel"), frame.get("pattern"), frame.get("from"))
            self.on_gap(frame.get("channel"))
        elif event in ("superseded", "closing"):
            self.note(event)
        else:
            self.note("event", seq, frame)
            self.on_event(frame)

    def on_event(self, frame):
        """An event that is not a message."""

    def on_gap(self, channel):
        """A gap was announced, for one channel or for all."""

    def _down(self):
        if self.connected.is_set():
            self.note("down")
        self.connected.clear()
        socket, self.socket = self.socket, None
        if socket is not None:
            socket.transport.abort()
        for future, _ in self.waiting.values():
            if not future.done():
                future.set_exception(Disconnected())
        self.waiting.clear()

    def drop(self):
        """Drops the connection without a close frame."""
        if self.socket is not None:
            self.socket.transport.abort()

    async def ask(self, op, keep=None, **fields):
        """Sends a command. `keep` gets the reply in order with the events."""
        if not self.connected.is_set() or self.socket is None:
            raise Disconnected
        number, began, node = next(self.ids), time.monotonic(), self.node
        future = asyncio.get_running_loop().create_future()
        self.waiting[number] = future, keep
        try:
            await self.socket.send(json.dumps({"id": number, "op": op} | fields))
            answer = await asyncio.wait_for(future, TIMEOUT)
            self.answered += 1
            return answer
        except asyncio.TimeoutError:
            self.note("hang", op, node.name, time.monotonic() - began, began)
            self.drop()
            raise Disconnected from None
        except Refused as refused:
            self.answered += 1
            self.note("refused", op, refused.code, refused.retry_after_ms)
            raise
        except BROKEN:
            raise Disconnected from None
        finally:
            self.waiting.pop(number, None)
            if future.done() and not future.cancelled():
                future.exception()
