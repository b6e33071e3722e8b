#!/usr/bin/env python3
"""A small matchmaker: pairs parties of the same size, first come, first served, and reports the match to Tavern.

It needs only the Python standard library. Tavern posts the events of the topic `tavern.parties` to it; it answers with
`POST /v1/parties/{id}/go/{go_id}`. Start it, then a server that knows its address:

    python3 examples/matchmaker/matchmaker.py --tavern http://127.0.0.1:7400 --key KEY
    TAVERN_PARTIES_MATCHMAKER_URL=http://127.0.0.1:7410/ tavern dev

Tickets are kept in memory. When events were dropped before they reached it (a `tavern.gap` entry), it reads the parties
that are queued from the server.
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
import urllib.parse
import urllib.request


class Tickets:
    """Parties in the queue, by size, oldest first."""

    def __init__(self, tavern, key, wait, practice=None):
        self.tavern, self.key, self.wait, self.practice = tavern, key, wait, practice
        self.queues = {}
        self.seen = set()
        self.matches = itertools.count(1)
        self.lock = threading.Lock()

    def handle(self, event):
        """Handles one entry of a batch. The same event may arrive twice; a ticket is queued once."""
        if event["type"] == "party.go":
            data = event["data"]
            self.add(data["party_id"], data["go_id"], data["members"])
        elif event["type"] == "party.go_cancelled":
            self.remove(event["data"]["party_id"], event["data"].get("go_id"))
        elif event["type"] == "tavern.gap":
            print(f"events {event['data']['first_seq']} to {event['data']['last_seq']} were dropped", flush=True)
            self.reload()

    def add(self, party, go, members):
        ticket = (party, go)
        with self.lock:
            if ticket in self.seen:
                return
            self.seen.add(ticket)
            queue = self.queues.setdefault(len(members), [])
            queue.append((ticket, members, time.monotonic()))
            if len(queue) >= 2:
                self.match(queue.pop(0), queue.pop(0))

    def remove(self, party, go):
        with self.lock:
            for queue in self.queues.values():
                queue[:] = [entry for entry in queue if entry[0] != (party, go)]

    def reload(self):
        """Replaces the queues by the parties that are queued now."""
        parties = [party for party in self.parties() if party["state"] == "queued"]
        queued = {(party["party_id"], party["go_id"]) for party in parties}
        with self.lock:
            for queue in self.queues.values():
                queue[:] = [entry for entry in queue if entry[0] in queued]
        for party in parties:
            self.add(party["party_id"], party["go_id"], [member["user"] for member in party["members"]])

    def match(self, left, right):
        name = f"match-{next(self.matches)}"
        print(f"{name}: {', '.join(left[1])} against {', '.join(right[1])}", flush=True)
        for own, other in ((left, right), (right, left)):
            self.answer(own[0], {"result": "matched", "match": name, "against": other[1]})

    def expire(self):
        """Ends tickets that have waited too long: with a failure, or with a match against no one in practice mode."""
        wait = self.wait if self.practice is None else self.practice
        while True:
            time.sleep(min(wait, 1))
            with self.lock:
                for queue in self.queues.values():
                    expired = [entry for entry in queue if time.monotonic() - entry[2] >= wait]
                    queue[:] = [entry for entry in queue if entry not in expired]
                    for ticket, members, _ in expired:
                        if self.practice is not None:
                            name = f"practice-{next(self.matches)}"
                            print(f"{name}: {', '.join(members)}", flush=True)
                            self.answer(ticket, {"result": "matched", "match": name, "against": []})
                            continue
                        print(f"no opponent for {', '.join(members)}", flush=True)
                        self.answer(ticket, {"result": "failed", "reason": "no other party of your size is waiting"})

    def answer(self, ticket, body):
        party, go = ticket
        try:
            self.request("POST", f"/v1/parties/{party}/go/{go}", body)
        except urllib.error.HTTPError as refused:
            # no_such_go: the party has cancelled since. That is normal.
            print(f"party {party}: {refused.read().decode()}", flush=True)
        except OSError as error:
            print(f"party {party}: cannot reach {self.tavern}: {error}", flush=True)

    def parties(self):
        """Every party, all pages."""
        after = None
        while True:
            query = f"?after={urllib.parse.quote(after)}" if after else ""
            page = self.request("GET", f"/v1/parties{query}")
            yield from page["parties"]
            after = page["next"]
            if after is None:
                return

    def request(self, method, path, body=None):
        request = urllib.request.Request(
            self.tavern + path, None if body is None else json.dumps(body).encode(), method=method,
            headers={"authorization": f"Bearer {self.key}", "content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=5) as answer:
            return json.loads(answer.read() or b"null")


def is_signed(secret, headers, body):
    """Whether Tavern signed the request, as Standard Webhooks defines it."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    given = [one.partition(",")[2] for one in (headers["webhook-signature"] or "").split()]
    fresh = abs(time.time() - int(headers["webhook-timestamp"] or 0)) < 300
    return fresh and any(hmac.compare_digest(expected, one) for one in given)


def handler(tickets, secret):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"] or 0))
            accepted = secret is None or is_signed(secret, self.headers, body)
            if accepted:
                for event in json.loads(body).get("events", []):
                    tickets.handle(event)
            self.send_response(204 if accepted else 401)
            self.end_headers()

        def log_message(self, *_):
            pass

    return Handler


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--tavern", default="http://127.0.0.1:7400", help="the address of the server")
    options.add_argument("--key", required=True, help="an API key with the scope parties")
    options.add_argument("--listen", type=int, default=7410, metavar="PORT")
    options.add_argument("--wait", type=float, default=60, metavar="SECONDS", help="how long a party waits for another")
    options.add_argument("--practice", type=float, metavar="SECONDS", help="a party that has waited this long plays alone")
    options.add_argument("--secret", help="whsec_…: refuse requests not signed with it (parties.matchmaker_secret)")
    given = options.parse_args()
    tickets = Tickets(given.tavern.rstrip("/"), given.key, given.wait, given.practice)
    threading.Thread(target=tickets.expire, daemon=True).start()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", given.listen), handler(tickets, given.secret))
    print(f"matchmaker on http://127.0.0.1:{server.server_port}/", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
