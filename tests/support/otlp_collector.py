"""A small OTLP collector: takes traces over HTTP as protobuf and keeps their spans."""
import http.server
import threading

from support.process import until
from support.protobuf import fields


class Span:
    """One span; ids as hexadecimal text, attributes as a dictionary."""

    def __init__(self, data, resource):
        found = fields(data)
        one = lambda number, default=b"": found.get(number, [default])[0]
        self.trace, self.id, self.parent = one(1).hex(), one(2).hex(), one(4).hex()
        self.name, self.kind = one(5).decode(), one(6, 0)
        self.began, self.ended = one(7, 0), one(8, 0)
        self.attributes = attributes(found.get(9, []))
        self.links = [fields(link)[1][0].hex() for link in found.get(13, [])]
        self.error = fields(one(15)).get(2, [b""])[0].decode() if 15 in found else None
        self.resource = resource
        assert len(self.trace) == 32 and len(self.id) == 16 and len(self.parent) in (0, 16)
        assert 0 < self.began <= self.ended and self.kind in (1, 2, 3)

    def __repr__(self):
        return f"{self.name} {self.trace[-6:]} {self.parent[-4:]}>{self.id[-4:]} {self.attributes}"


def attributes(values):
    found = {}
    for value in values:
        pair = fields(value)
        content = fields(pair[2][0])
        found[pair[1][0].decode()] = content[1][0].decode() if 1 in content else content[3][0]
    return found


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        collector = self.server.collector
        collector.requests.append((self.path, self.headers["content-type"]))
        if collector.status == 200:
            collector.take(body)
        self.send_response(collector.status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *arguments):
        pass


class Collector:
    def __init__(self):
        self.spans, self.requests, self.status = [], [], 200
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.collector = self

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def take(self, body):
        for resource_spans in fields(body)[1]:
            parts = fields(resource_spans)
            resource = attributes(fields(parts[1][0])[1])
            for scope in parts[2]:
                self.spans += [Span(span, resource) for span in fields(scope)[2]]

    def named(self, name, count=1):
        """Waits for this many spans of a name."""
        find = lambda: [span for span in list(self.spans) if span.name == name]
        until(lambda: len(find()) >= count, f"{count} spans {name!r}", 20)
        return find()

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *failure):
        self.server.shutdown()
        self.server.server_close()
