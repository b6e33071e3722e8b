"""The customer's app as the server sees it: an HTTP server that answers the authorize hook, well or badly.

`say(answer, channel=…)` fixes the answer for a channel: a dict is sent as JSON, bytes as they are, an int is a status,
`app.never` is no answer at all. Every question is kept in `asked`.
"""
import http.server
import json
import threading


class App:
    def __init__(self):
        self.asked = []
        self.answers = {}
        self.delays = {}
        self.lock = threading.Condition()
        self.released = threading.Event()
        self.never = object()
        app = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self):
                question = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with app.lock:
                    app.asked.append(question)
                    app.lock.notify_all()
                    answer = app.answers.get(question["channel"], {"allow": False})
                    gate = app.delays.get(question["channel"])
                if gate is not None:
                    gate.wait(10)
                if answer is app.never:
                    app.released.wait(20)
                    self.close_connection = True
                    return
                status, body = 200, answer
                if isinstance(answer, int):
                    status, body = answer, {"allow": True}
                body = body if isinstance(body, bytes) else json.dumps(body).encode()
                try:
                    self.send_response(status)
                    self.send_header("content-length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    self.close_connection = True  # The server has stopped waiting.

            def log_message(self, *line):
                pass

        class Listener(http.server.ThreadingHTTPServer):
            request_queue_size = 256
            daemon_threads = True
            block_on_close = False

            def handle_error(self, request, client_address):
                pass  # A connection that the server gave up on.

        self.listener = Listener(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.listener.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.listener.server_port}/may"

    def say(self, answer, channel, gate=None):
        """The answer for a channel; with a gate it is given when the gate opens."""
        with self.lock:
            self.answers[channel] = answer
            self.delays[channel] = gate

    def questions(self, channel):
        with self.lock:
            return [question for question in self.asked if question["channel"] == channel]

    def wait_for(self, channel, count=1, timeout=5.0):
        """Waits until that many questions about a channel have come."""
        with self.lock:
            come = lambda: sum(question["channel"] == channel for question in self.asked) >= count
            assert self.lock.wait_for(come, timeout), f"{count} questions about {channel} did not come"

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *failure):
        self.released.set()
        self.listener.shutdown()
        self.listener.server_close()
        self.thread.join(5)
