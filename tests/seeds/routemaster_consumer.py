"""A consumer of event batches, written from the description of Routemaster's internals alone: a subscriber has a `callback` URL, a
`uuid` as the credential of deliveries, a `timeout` that defers delivery for batching, and `max_events` in a batch. A batch is delivered
over HTTP, is delivered again with a delay if that fails, and is removed when it succeeds. Timestamps are integers, milliseconds since
the Unix epoch. Each event belongs to a topic.
"""
import base64
import http.server
import json
import threading


class Consumer:
    def __init__(self, uuid):
        self.uuid = uuid
        self.batches = []
        # Deliveries that fail before the next one succeeds.
        self.failing = 0
        self.failed = []
        self.changed = threading.Condition()
        consumer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                self.send_response(consumer.deliver(self.headers, body))
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def callback(self):
        return f"http://127.0.0.1:{self.server.server_port}/events"

    def deliver(self, headers, body):
        """The status of the answer to a delivery."""
        scheme, _, credential = headers.get("authorization", "").partition(" ")
        known = scheme == "Basic" and self.uuid in base64.b64decode(credential).decode().split(":")
        if not known:
            return 401
        events = json.loads(body)
        assert isinstance(events, list) and all(isinstance(event["t"], int) for event in events), events
        with self.changed:
            if self.failing > 0:
                self.failing -= 1
                self.failed.append(events)
                self.changed.notify_all()
                return 500
            self.batches.append(events)
            self.changed.notify_all()
        return 200

    def wait_for(self, count, timeout=20):
        """Waits for so many events; returns all of them in order."""
        with self.changed:
            got = lambda: [event for batch in self.batches for event in batch]
            assert self.changed.wait_for(lambda: len(got()) >= count, timeout), f"only {len(got())} of {count} events came"
            return got()

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.server.shutdown()
        self.server.server_close()
