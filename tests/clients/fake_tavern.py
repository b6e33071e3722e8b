"""A server that answers hello and commands as a test says, for what a real server does not do: refuse everybody, and send nonsense.

It speaks only WebSocket. Must hold: its threads end with it.
"""
import json
import threading
import time

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import serve

GREETING = {"session": "s1", "client": "c1", "user": "ann", "node": "n1", "resumed": False, "heartbeat_ms": 15_000, "frame_bytes": 1_000_000}


class FakeTavern:
    """`refusals` are the errors of the first hellos; `surprises` are sent as they are, one before the reply to each new command; the commands `silent` get no reply."""

    def __init__(self, refusals=(), surprises=(), silent=()):
        self.refusals, self.surprises, self.silent = list(refusals), list(surprises), silent
        self.hellos, self.answered = [], set()
        self.lock = threading.Lock()
        self.server = serve(self.talk, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self.server.socket.getsockname()[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *failure):
        self.server.shutdown()
        self.thread.join(5)

    def talk(self, socket):
        try:
            for text in socket:
                command = json.loads(text)
                if command["op"] in self.silent:
                    continue
                reply = self.reply(socket, command)
                socket.send(json.dumps({"id": command.get("id")} | reply))
                if "error" in reply:
                    return
        except ConnectionClosed:
            pass

    def reply(self, socket, command):
        with self.lock:
            if command["op"] == "hello" and "token" not in command and "status" not in command:
                self.hellos.append(time.monotonic())
                return {"error": self.refusals.pop(0)} if self.refusals else {"ok": GREETING}
            key = command.get("user")
            surprise = self.surprises.pop(0) if key and key not in self.answered and self.surprises else None
            self.answered.add(key)
        if surprise is not None:
            socket.send(surprise)
        return {"ok": {}}
