"""An endpoint that webhooks are posted to: keeps what came, answers as it is told."""
import http.server
import json
import threading


class Endpoint:
    def __init__(self, status=200):
        self.status = status
        self.posts = []
        self.more = threading.Condition()
        endpoint = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                with endpoint.more:
                    status = endpoint.status(json.loads(body)) if callable(endpoint.status) else endpoint.status
                    endpoint.posts.append((status, dict(self.headers), json.loads(body)))
                    endpoint.more.notify_all()
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *words):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_port}/hook"

    def taken(self):
        """The events of what was answered with success, in the order of their coming."""
        with self.more:
            return [event for status, _, body in self.posts if status < 300 for event in body["events"]]

    def until(self, fact, timeout=20):
        with self.more:
            assert self.more.wait_for(lambda: fact(self), timeout), f"only {len(self.posts)} posts came: {self.posts[-3:]}"

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *failure):
        self.server.shutdown()
        self.server.server_close()
