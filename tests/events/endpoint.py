"""An endpoint that webhooks are posted to: keeps what came, answers as it is told.

An answer is a status or an `Answer`; or it is made of each body that comes. Where one endpoint serves many subscriptions, each
posts to a path of its own.
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
    # What it waits for before it says anything.
    gate: threading.Event | None = None
    # The body goes on until the other side has had enough.
    endless: bool = False


# Says nothing for as long as anybody waits.
HANG = Answer(gate=threading.Event())


def script(*answers, then=200):
    """These answers, one for each post, and then another one for all that follow."""
    left = collections.deque(answers)
    return lambda body: left.popleft() if left else then


class Post(collections.namedtuple("Post", "status headers body")):
    """One that came: how it was answered, its headers, its body as JSON; `raw` as bytes, its `path`, when it came
    (`at`), and the port that it was sent from (`peer`)."""

    @property
    def id(self):
        return self.headers.get("webhook-id")

    @property
    def seqs(self):
        return [event["seq"] for event in self.body["events"]]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # An answer leaves at once.
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

    def log_message(self, *words):
        pass


class Listener(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def handle_error(self, request, client_address):
        # Who posts may be killed at any moment.
        pass


class Endpoint:
    def __init__(self, status=200, port=0):
        self.status = status
        self.posts = []
        # Whatever came and was no POST.
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
            # Who is never answered has not been told that it was taken.
            post = Post(0 if answer is HANG else answer.status, headers, body)
            post.raw, post.path, post.peer, post.at = raw, path, peer, time.monotonic()
            self.posts.append(post)
            self.more.notify_all()
        return answer

    def taken(self):
        """The events of what was answered with success, in the order of their coming."""
        with self.more:
            return [event for status, _, body in self.posts if 200 <= status < 300 for event in body["events"]]

    def seqs(self):
        return [event["seq"] for event in self.taken()]

    def until(self, fact, timeout=20):
        with self.more:
            assert self.more.wait_for(lambda: fact(self), timeout), f"only {len(self.posts)} posts came: {self.posts[-3:]}"

    def posted(self, count, timeout=20):
        """The posts, once so many came."""
        self.until(lambda it: len(it.posts) >= count, timeout)
        return list(self.posts)

    def got(self, seqs, timeout=20):
        """Waits until these, and nothing else, were taken in this order."""
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


class Silence:
    """Takes connections, reads nothing and never says a word: costs nobody a thread."""

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
