"""A party client written from the party server note alone: commands as `action=party&cmd=…` forms, and a ping that hangs until there is
something to tell. After each answer it pings again. An answer has `party` with the members, the leader first, and `party_events`, each
with `cmd` and `ts`.
"""
import queue
import threading

import httpx


class NoteClient:
    def __init__(self, server, user):
        self.user = user
        self.http = httpx.Client(base_url=server.url, params={"user": user}, timeout=30, trust_env=False)
        self.events = queue.Queue()
        self.party = None
        self.over = False
        self.first = threading.Event()
        self.pinging = threading.Thread(target=self._ping, daemon=True)
        self.pinging.start()

    def _ping(self):
        while not self.over:
            try:
                answer = self.http.post("/party/ping")
            except (httpx.HTTPError, RuntimeError):
                return
            if answer.status_code != 200:
                return
            body = answer.json()
            self.party = body.get("party")
            for event in body["party_events"]:
                assert isinstance(event["ts"], int), event
                self.events.put(event)
            self.first.set()

    def command(self, cmd, **more):
        answer = self.http.post("/party", data={"action": "party", "cmd": cmd} | more)
        return answer.json()

    def event(self, timeout=25):
        return self.events.get(timeout=timeout)

    def close(self):
        self.over = True
        self.http.close()

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.close()
