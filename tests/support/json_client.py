"""Low-level clients of the JSON protocol, one per transport. They hide nothing of the protocol.

`Socket` is a WebSocket, `Poller` a long-poll client, `Stream` an SSE stream. A reply is a dict, an error reply too.
"""
import itertools
import json
import queue
import socket
import threading
import time
import urllib.parse

import httpx
import websockets.exceptions
import websockets.sync.client

from .process import until

WAIT = 5.0


def address(url, **query):
    query = {name: value for name, value in query.items() if value is not None}
    return f"{url}?{urllib.parse.urlencode(query)}" if query else url


class Socket:
    """A WebSocket. Its first frame is the reply to the implicit hello when the URL has a user or a token."""

    # How long a reply may take.
    patience = WAIT

    def __init__(self, server, *, user=None, token=None, headers=None, greet=True, origin=None, receive_bytes=None,
                 source=None):
        self.ids = itertools.count(1)
        self.waiting = []
        for attempt in range(3):
            try:
                self.socket = self._open(server, user, token, headers, origin, receive_bytes, source)
                break
            except TimeoutError:
                # Python's ssl is not thread-safe, and the library reads in one thread while it writes the request in
                # another: sometimes the request is never sent. Without TLS there is no retry.
                if server.trust is None or attempt == 2:
                    raise
        self.hello = self.frame()["ok"] if greet and (user or token or headers) else None

    @staticmethod
    def _open(server, user, token, headers, origin, receive_bytes, source):
        raw = socket.socket()
        if receive_bytes:
            # Before connecting: the TCP handshake announces the window.
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        if source:
            raw.bind((source, 0))
        raw.settimeout(WAIT)
        raw.connect(("127.0.0.1", server.port))
        return websockets.sync.client.connect(
            address(server.ws_url, user=user, token=token), additional_headers=headers, open_timeout=WAIT, sock=raw,
            compression=None, max_size=None, max_queue=4, ping_interval=None, close_timeout=1, origin=origin, proxy=None,
            ssl=server.trust,
        ).__enter__()

    def send(self, text):
        self.socket.send(text)

    def frame(self, timeout=WAIT):
        """The next frame, parsed."""
        return json.loads(self.socket.recv(timeout))

    def call(self, op, **fields):
        """Sends a command and returns its full reply; events before it are kept for `event`."""
        number = next(self.ids)
        self.send(json.dumps({"id": number, "op": op} | fields))
        end = time.monotonic() + self.patience
        while True:
            frame = self.frame(max(end - time.monotonic(), 0.01))
            if frame.get("id") == number:
                return frame
            self.waiting.append(frame)

    def ok(self, op, **fields):
        reply = self.call(op, **fields)
        assert "ok" in reply, f"{op} {fields} was refused: {reply}"
        return reply["ok"]

    def event(self, timeout=WAIT):
        return self.waiting.pop(0) if self.waiting else self.frame(timeout)

    def events_so_far(self):
        """All events that have arrived: everything before the reply to a ping."""
        assert "ok" in self.call("ping")
        events, self.waiting = self.waiting, []
        return events

    def drop(self):
        """Closes the TCP connection without a close frame, like a lost network."""
        self.socket.socket.close()

    def close(self):
        """Sends bye and closes: a session that only lost its socket would keep its subscriptions and be counted."""
        try:
            self.send('{"op":"bye"}')
        except Exception:
            pass  # Already dropped or closed.
        try:
            self.socket.close()
        except Exception:
            self.drop()

    def closing(self, timeout=WAIT):
        """Reads until the close: the frames before it and the close code."""
        frames = []
        try:
            while True:
                frames.append(self.frame(timeout))
        except websockets.exceptions.ConnectionClosed as closed:
            return frames, closed.rcvd.code if closed.rcvd else None

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.close()


def connect_online(server, user):
    """A socket whose user is already online: hello does not wait for the store."""
    socket = Socket(server, user=user)
    until(lambda: socket.ok("status", users=[user])["statuses"][0]["online"], f"{user} to be online")
    return socket


class Poller:
    """A long-poll client: `POST /v1/command` and `POST /v1/poll`."""

    def __init__(self, server, *, user=None, token=None, headers=None, session=None, cursor=0):
        self.query = address("", user=user) if token is None else ""
        headers = {"authorization": f"Bearer {token}"} if token is not None else headers
        self.http = httpx.Client(base_url=server.url, headers=headers, timeout=30, trust_env=False, verify=server.trust or False)
        self.session = session
        # A session passed in is not ended by this client.
        self.borrowed = session is not None
        self.cursor = cursor

    def command_response(self, op, **fields):
        body = {"op": op} | fields
        if self.session is not None:
            body.setdefault("session", self.session)
        return self.http.post(f"/v1/command{self.query}", json=body)

    def command(self, op, **fields):
        return self.command_response(op, **fields).json()

    def ok(self, op, **fields):
        reply = self.command(op, **fields)
        assert "ok" in reply, f"{op} {fields} was refused: {reply}"
        if op == "hello":
            self.session = reply["ok"]["session"]
        return reply["ok"]

    def poll_response(self, timeout_ms=5000, cursor=None, session=None, **more):
        body = {"timeout_ms": timeout_ms} | more
        session = session or self.session
        if session is not None:
            body |= {"session": session, "cursor": self.cursor if cursor is None else cursor}
        return self.http.post(f"/v1/poll{self.query}", json=body)

    def poll(self, timeout_ms=5000, cursor=None, session=None):
        """One poll. Does not move the cursor: receiving and acknowledging are separate."""
        response = self.poll_response(timeout_ms, cursor, session)
        answer = response.json()
        assert response.status_code == 200, f"poll answered {response.status_code}: {answer}"
        self.session = answer["session"]
        return answer

    def take(self, timeout_ms=5000):
        """Polls once and moves the cursor."""
        answer = self.poll(timeout_ms)
        self.cursor = answer["cursor"]
        return answer["events"]

    def close(self):
        if self.session is not None and not self.borrowed:
            try:
                self.command("bye")
            except (httpx.HTTPError, ValueError):
                pass  # The server is down, or the session does not exist.
        self.http.close()

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.close()


class Stream:
    """An SSE stream. Each event is (id, parsed data); `None` is the end."""

    def __init__(self, server, *, user=None, token=None, session=None, seq=None, headers=None):
        self.url = address(f"{server.url}/v1/stream", user=user, token=token, session=session, seq=seq)
        self.events = queue.Queue()
        self.http = httpx.Client(timeout=httpx.Timeout(WAIT, read=None), trust_env=False, verify=server.trust or False)
        self.opened = self.http.stream("GET", self.url, headers=headers)
        self.response = self.opened.__enter__()
        self.status = self.response.status_code
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        number, data = None, []
        try:
            for line in self.response.iter_lines():
                if line.startswith("id:"):
                    number = int(line[3:])
                elif line.startswith("data:"):
                    data.append(line[5:].removeprefix(" "))
                elif line == "" and data:
                    self.events.put((number, json.loads("\n".join(data))))
                    number, data = None, []
        except (httpx.HTTPError, httpx.StreamError, OSError):
            pass
        self.events.put(None)

    def event(self, timeout=WAIT):
        try:
            return self.events.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError(f"no event on the stream within {timeout} s") from None

    def greeting(self):
        """The reply to the implicit hello."""
        _, frame = self.event()
        return frame["ok"]

    def close(self):
        # The reader thread blocks in recv: shutdown wakes it, close alone would not.
        stream = self.response.extensions.get("network_stream")
        raw = stream.get_extra_info("socket") if stream else None
        if raw is not None:
            try:
                raw.shutdown(2)
            except OSError:
                pass
        self.reader.join(WAIT)
        self.http.close()

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.close()
