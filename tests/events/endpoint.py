"""A webhook endpoint: keeps every post and answers as configured.

An answer is a status, an `Answer`, or a function of the body. Where one endpoint serves many subscriptions, each posts to its
own path.
"""
import collections
import dataclasses
import http.server
import json
import socket
import threading
import time


@dataclasses.dataclass(frozen=True)
class Answer:
    status: int = 200
    headers: dict = dataclasses.field(default_factory=dict)
    body: bytes = b""
    # Event to wait for before answering.
    gate: threading.Event | None = None
    # The body continues until the client closes the connection.
    endless: bool = False


# Never answers.
HANG = Answer(gate=threading.Event())


def script(*answers, then=200):
    """One answer per post, then the same answer for all further posts."""
    left = collections.deque(answers)
    return lambda body: left.popleft() if left else then


class Post(collections.namedtuple("Post", "status headers body")):
    """A received post: the status it was answered with, headers, body as JSON; `raw` bytes, `path`, time of arrival (`at`)
    and the sender's port (`peer`)."""

    @property
    def id(self):
        return self.headers.get("webhook-id")

    @property
    def seqs(self):
        return [event["seq"] for event in self.body["events"]]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Send answers without delay.
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_POST(self):
        raw = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = self.server.endpoint.take(raw, headers, self.path, self.client_address[1])
        while answer.gate is not None and not answer.gate.wait(0.1):
            if self.server.endpoint.closed:
                self.close_connection = True
                return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(1 << 40 if answer.endless else len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)
        self.wfile.flush()
        while answer.endless and not self.server.endpoint.closed:
            self.wfile.write(b"x" * 65_536)

    def do_GET(self):
        self.server.endpoint.strays.append(self.path)
        self.send_error(405)

    def log_message(self, *arguments):
        pass


class Listener(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def handle_error(self, request, client_address):
        # The sender may be killed at any moment.
        pass


class Endpoint:
    def __init__(self, status=200, port=0):
        self.status = status
        self.posts = []
        # Requests other than POST.
        self.strays = []
        self.closed = False
        self.more = threading.Condition()
        self.server = Listener(("127.0.0.1", port), Handler)
        self.server.endpoint = self
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)

    @property
    def port(self):
        return self.server.server_port

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/hook"

    def take(self, raw, headers, path, peer):
        with self.more:
            body = json.loads(raw)
            answer = self.status(body) if callable(self.status) else self.status
            answer = answer if isinstance(answer, Answer) else Answer(answer)
            # Without an answer the post does not count as accepted.
            post = Post(0 if answer is HANG else answer.status, headers, body)
            post.raw, post.path, post.peer, post.at = raw, path, peer, time.monotonic()
            self.posts.append(post)
            self.more.notify_all()
        return answer

    def taken(self):
        """The events of successful posts, in order of arrival."""
        with self.more:
            return [event for status, _, body in self.posts if 200 <= status < 300 for event in body["events"]]

    def seqs(self):
        return [event["seq"] for event in self.taken()]

    def until(self, fact, timeout=20):
        with self.more:
            assert self.more.wait_for(lambda: fact(self), timeout), f"got {len(self.posts)} posts: {self.posts[-3:]}"

    def posted(self, count, timeout=20):
        """The posts, once this many have arrived."""
        self.until(lambda it: len(it.posts) >= count, timeout)
        return list(self.posts)

    def got(self, seqs, timeout=20):
        """Waits until exactly these events were accepted, in this order."""
        seqs = list(seqs)
        self.until(lambda it: len(it.seqs()) >= len(seqs), timeout)
        assert self.seqs() == seqs

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *failure):
        self.closed = True
        self.server.shutdown()
        self.server.server_close()


class SilentEndpoint:
    """Accepts connections but never reads or answers; needs no threads."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=4_096)

    @property
    def port(self):
        return self.listener.getsockname()[1]

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/hook"

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.listener.close()
