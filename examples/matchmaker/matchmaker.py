#!/usr/bin/env python3
"""A small matchmaker: pairs parties of the same size, first come first served, and reports the results to Tavern.

It uses only the Python standard library. Tavern posts the events of the topic `tavern.parties` to it; it answers with
`POST /v1/parties/{id}/go/{go_id}`. Start the matchmaker, then a server that is configured for it:

    python3 examples/matchmaker/matchmaker.py --tavern http://127.0.0.1:7400 --key KEY
    TAVERN_PARTIES_MATCHMAKER_URL=http://127.0.0.1:7410/ tavern dev

It keeps tickets in memory only. A real matchmaker stores its tickets, or replays its subscription after a restart.
"""
import argparse
import base64
import hashlib
import hmac
import http.server
import itertools
import json
import threading
import time
import urllib.error
import urllib.request


class Tickets:
    """Waiting parties by size, oldest first."""

    def __init__(self, tavern, key, wait, practice=None):
        self.tavern, self.key, self.wait, self.practice = tavern, key, wait, practice
        self.waiting = {}
        self.seen = set()
        self.matches = itertools.count(1)
        self.lock = threading.Lock()

    def handle(self, event):
        """Handles one event. Delivery is at least once, so known tickets are ignored."""
        data = event["data"]
        ticket = (data["party_id"], data.get("go_id"))
        with self.lock:
            if event["type"] == "party.go" and ticket not in self.seen:
                self.seen.add(ticket)
                same = self.waiting.setdefault(len(data["members"]), [])
                same.append((ticket, data["members"], time.monotonic()))
                if len(same) >= 2:
                    self.match(same.pop(0), same.pop(0))
            elif event["type"] == "party.go_cancelled":
                for same in self.waiting.values():
                    same[:] = [waiting for waiting in same if waiting[0] != ticket]

    def match(self, left, right):
        name = f"match-{next(self.matches)}"
        print(f"{name}: {', '.join(left[1])} against {', '.join(right[1])}", flush=True)
        for own, other in ((left, right), (right, left)):
            self.answer(own[0], {"result": "matched", "match": name, "against": other[1]})

    def expire(self):
        """Fails tickets that have waited too long, or starts a practice match."""
        wait = self.wait if self.practice is None else self.practice
        while True:
            time.sleep(min(wait, 1))
            with self.lock:
                for same in self.waiting.values():
                    old = [one for one in same if time.monotonic() - one[2] >= wait]
                    same[:] = [one for one in same if one not in old]
                    for ticket, members, _ in old:
                        if self.practice is not None:
                            name = f"practice-{next(self.matches)}"
                            print(f"{name}: {', '.join(members)}", flush=True)
                            self.answer(ticket, {"result": "matched", "match": name, "against": []})
                            continue
                        print(f"no opponent for {', '.join(members)}", flush=True)
                        self.answer(ticket, {"result": "failed", "reason": "no opponent of this party size"})

    def answer(self, ticket, body):
        party, go = ticket
        request = urllib.request.Request(
            f"{self.tavern}/v1/parties/{party}/go/{go}", json.dumps(body).encode(), method="POST",
            headers={"authorization": f"Bearer {self.key}", "content-type": "application/json"},
        )
        try:
            urllib.request.urlopen(request, timeout=5).read()
        except urllib.error.HTTPError as refused:
            # The party may have cancelled meanwhile: no_such_go is harmless.
            print(f"party {party}: {refused.read().decode()}", flush=True)


def is_signed(secret, headers, body):
    """Whether Tavern signed a request (Standard Webhooks)."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    right = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    given = [one.partition(",")[2] for one in (headers["webhook-signature"] or "").split()]
    fresh = abs(time.time() - int(headers["webhook-timestamp"] or 0)) < 300
    return fresh and any(hmac.compare_digest(right, one) for one in given)


def handler(tickets, secret):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"] or 0))
            good = secret is None or is_signed(secret, self.headers, body)
            if good:
                for event in json.loads(body).get("events", []):
                    tickets.handle(event)
            self.send_response(204 if good else 401)
            self.end_headers()

        def log_message(self, *arguments):
            pass

    return Handler


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--tavern", default="http://127.0.0.1:7400", help="address of the server")
    options.add_argument("--key", required=True, help="an API key with the scope parties")
    options.add_argument("--listen", type=int, default=7410, metavar="PORT")
    options.add_argument("--wait", type=float, default=60, metavar="SECONDS", help="how long a party waits for an opponent")
    options.add_argument("--practice", type=float, metavar="SECONDS", help="start a match without an opponent after this time")
    options.add_argument("--secret", help="whsec_…: reject requests that are not signed with it (parties.matchmaker_secret)")
    given = options.parse_args()
    tickets = Tickets(given.tavern.rstrip("/"), given.key, given.wait, given.practice)
    threading.Thread(target=tickets.expire, daemon=True).start()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", given.listen), handler(tickets, given.secret))
    print(f"matchmaker on http://127.0.0.1:{server.server_port}/", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
