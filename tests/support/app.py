"""An HTTP server that plays the customer's app: it answers the authorize hook, correctly or not.

`set_answer(answer, channel)` fixes the answer for a channel: a dict is sent as JSON, bytes as they are, an int is a status,
`app.never` sends no answer. Every request is kept in `asked`.
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
                    # A body after 204 would be read as the next answer on the same connection.
                    status, body = answer, b"" if answer == 204 else {"allow": True}
                body = body if isinstance(body, bytes) else json.dumps(body).encode()
                try:
                    self.send_response(status)
                    self.send_header("content-length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    self.close_connection = True  # The server has timed out.

            def log_message(self, *line):
                pass

        class Listener(http.server.ThreadingHTTPServer):
            request_queue_size = 256
            daemon_threads = True
            block_on_close = False

            def handle_error(self, request, client_address):
                pass  # The server has closed the connection.

        self.listener = Listener(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.listener.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.listener.server_port}/may"

    def set_answer(self, answer, channel, gate=None):
        """The answer for a channel; with a gate it is sent when the gate opens."""
        with self.lock:
            self.answers[channel] = answer
            self.delays[channel] = gate

    def requests_for(self, channel):
        with self.lock:
            return [question for question in self.asked if question["channel"] == channel]

    def wait_for(self, channel, count=1, timeout=5.0):
        """Waits until this many requests for a channel have arrived."""
        with self.lock:
            come = lambda: sum(question["channel"] == channel for question in self.asked) >= count
            assert self.lock.wait_for(come, timeout), f"expected {count} requests for {channel}"

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *failure):
        self.released.set()
        self.listener.shutdown()
        self.listener.server_close()
        self.thread.join(5)
