"""Real clients as processes. Each subscribes to one channel and publishes what the test sends it.

A client process prints {"ready": true} once it has subscribed and {"received": …} for each message, and publishes each JSON
line from its stdin. redis-cli and curl cannot do that; classes here drive them. Must hold: `received` is in the order of arrival.
"""
import json
import os
import pathlib
import subprocess
import sys
import threading

from support.process import until
from support.tavern import program

HERE = pathlib.Path(__file__).resolve().parent
MODULES = HERE.parents[1] / "target" / "node"
WAIT = 20.0


class ClientProcess:
    """A client process that reads and prints JSON lines."""

    def __init__(self, name, command):
        self.name = name
        self.received = []
        self.errors = []
        self.changed = threading.Condition()
        self.ready = False
        self.over = False
        environment = os.environ | {"PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            [str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environment,
        )
        self.threads = [threading.Thread(target=t, daemon=True) for t in (self._read_stdout, self._read_stderr)]
        for thread in self.threads:
            thread.start()

    def _read_stdout(self):
        for line in self.process.stdout:
            with self.changed:
                self.take(line)
                self.changed.notify_all()
        with self.changed:
            self.over = True
            self.changed.notify_all()

    def _read_stderr(self):
        for line in self.process.stderr:
            self.errors.append(line.rstrip())

    def take(self, line):
        message = json.loads(line)
        self.ready |= message.get("ready", False)
        if "received" in message:
            self.received.append(message["received"])
        if "error" in message:
            self.errors.append(str(message["error"]))

    def until(self, fact, what):
        with self.changed:
            if not self.changed.wait_for(lambda: fact(self) or self.over, WAIT) or not fact(self):
                raise AssertionError(f"{self.name}: {what}; received {self.received}; errors {self.errors[-10:]}")

    def send(self, data):
        self.process.stdin.write(json.dumps(data, separators=(",", ":")) + "\n")
        self.process.stdin.flush()

    def stop(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self.process.wait(0.5 if self.name.startswith("Chromium") else 0)
        except subprocess.TimeoutExpired:
            self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for thread in self.threads:
            thread.join(5)


class RedisCli(ClientProcess):
    """redis-cli prints three lines per message: the kind, the channel, the payload."""

    def __init__(self, name, port, channel, *options):
        self.port, self.channel, self.options, self.lines = port, channel, options, []
        super().__init__(name, ["redis-cli", "-p", port, "--raw", *options, "SUBSCRIBE", channel])

    def take(self, line):
        self.lines.append(line.rstrip("\n"))
        if self.lines[0] not in ("subscribe", "message"):
            self.lines.clear()
        elif len(self.lines) == 3:
            kind, channel, last = self.lines
            assert channel == self.channel
            if kind == "subscribe":
                self.ready = True
            else:
                self.received.append(json.loads(last))
            self.lines.clear()

    def send(self, data):
        text = json.dumps(data, separators=(",", ":"))
        subprocess.run(
            ["redis-cli", "-p", str(self.port), *self.options, "PUBLISH", self.channel, text], check=True, timeout=10,
            stdout=subprocess.DEVNULL,
        )


class Folder(ClientProcess):
    """A client without a server connection: `tavern subscribe --data` and `tavern publish --data` on the server's folder."""

    def __init__(self, name, data, channel):
        self.data, self.channel = data, channel
        super().__init__(name, [program(), "subscribe", "--data", data, channel])
        until(self.listens, f"{name} to listen")
        self.ready = True

    def listens(self):
        done = self.tavern("local", "stat", "--data", self.data, "--json")
        return any(one["pid"] == self.process.pid and one["channels"] for one in json.loads(done)["processes"])

    def take(self, line):
        self.received.append(json.loads(line)["data"])

    def send(self, data):
        self.tavern("publish", "--data", self.data, self.channel, json.dumps(data, separators=(",", ":")))

    def tavern(self, *arguments):
        return subprocess.run([program(), *arguments], check=True, timeout=10, capture_output=True, text=True).stdout


def curl(url, body, seconds=30):
    command = ["curl", "-sS", "--fail-with-body", "--max-time", str(seconds), "-H", "content-type: application/json"]
    done = subprocess.run([*command, "--data", json.dumps(body), url], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"curl {url} ended with {done.returncode}: {done.stdout} {done.stderr}")
    return json.loads(done.stdout)


class CurlStream(ClientProcess):
    """`curl -N` on the event stream; commands are separate curl requests with the session."""

    def __init__(self, name, url, channel):
        self.url, self.channel, self.session = url, channel, None
        super().__init__(name, ["curl", "-sSN", f"{url}/v1/stream?user=curl-stream"])

    def take(self, line):
        if not line.startswith("data:"):
            return
        frame = json.loads(line[5:])
        if "ok" in frame and self.session is None:
            self.session = frame["ok"]["session"]
            self.command({"op": "subscribe", "channel": self.channel})
            self.ready = True
        elif frame.get("event") == "message":
            self.received.append(frame["data"])

    def command(self, fields):
        return curl(f"{self.url}/v1/command?user=curl-stream", {"session": self.session} | fields)

    def send(self, data):
        assert "ok" in self.command({"op": "publish", "channel": self.channel, "data": data})


class CurlPoll:
    """Long-polls in a loop: a new curl process per poll, with the cursor of the last."""

    def __init__(self, name, url, channel):
        self.name, self.url, self.channel = name, url, channel
        self.received, self.errors, self.ready, self.over = [], [], False, False
        self.session = curl(f"{url}/v1/command?user=curl-poll", {"op": "hello"})["ok"]["session"]
        self.command({"op": "subscribe", "channel": channel})
        self.ready = True
        self.changed = threading.Condition()
        self.thread = threading.Thread(target=self._poll, daemon=True)
        self.thread.start()

    until = ClientProcess.until

    def command(self, fields):
        return curl(f"{self.url}/v1/command?user=curl-poll", {"session": self.session} | fields)

    def _poll(self):
        cursor = 0
        try:
            while not self.over:
                body = {"session": self.session, "cursor": cursor, "timeout_ms": 2000}
                answer = curl(f"{self.url}/v1/poll?user=curl-poll", body)
                cursor = answer["cursor"]
                with self.changed:
                    self.received += [event["data"] for event in answer["events"] if event["event"] == "message"]
                    self.changed.notify_all()
        except (RuntimeError, KeyError, ValueError) as error:
            with self.changed:
                self.errors.append(repr(error))
                self.over = True
                self.changed.notify_all()

    def send(self, data):
        assert "ok" in self.command({"op": "publish", "channel": self.channel, "data": data})

    def stop(self):
        self.over = True
        self.thread.join(WAIT)


def python(script, *arguments):
    return [sys.executable, HERE / "python" / script, *arguments]


def node(script, *arguments):
    return ["node", HERE / "node" / script, MODULES, *arguments]


def client_processes(server, channel):
    """All clients by name, as functions that start them."""
    port = server.resp_port
    return {
        "redis-cli RESP2": lambda n: RedisCli(n, port, channel),
        "redis-cli RESP3": lambda n: RedisCli(n, port, channel, "-3"),
        "redis-py default": lambda n: ClientProcess(n, python("redis_py_client.py", port, channel, "default")),
        "redis-py RESP2": lambda n: ClientProcess(n, python("redis_py_client.py", port, channel, 2)),
        "redis-py RESP3": lambda n: ClientProcess(n, python("redis_py_client.py", port, channel, 3)),
        "ioredis default": lambda n: ClientProcess(n, node("ioredis_client.mjs", port, channel, "default")),
        "ioredis RESP2": lambda n: ClientProcess(n, node("ioredis_client.mjs", port, channel, 2)),
        "ioredis RESP3": lambda n: ClientProcess(n, node("ioredis_client.mjs", port, channel, 3)),
        "Node ws": lambda n: ClientProcess(n, node("ws_client.mjs", f"{server.ws_url}?user=node-ws", channel)),
        "Python websockets": lambda n: ClientProcess(n, python("websockets_client.py", f"{server.ws_url}?user=py-ws", channel)),
        "curl long-poll": lambda n: CurlPoll(n, server.url, channel),
        "curl event stream": lambda n: CurlStream(n, server.url, channel),
        "Chromium WebSocket": lambda n: ClientProcess(n, node("browser_client.mjs", server.url, channel, "websocket")),
        "Chromium EventSource": lambda n: ClientProcess(n, node("browser_client.mjs", server.url, channel, "eventsource")),
        "tavern on the folder": lambda n: Folder(n, server.data, channel),
    }
