"""Two parties, the example matchmaker, and its answers."""
import pathlib
import subprocess
import sys

import httpx

from support.json_client import Socket
from support.process import free_port, until
from support.tavern import Tavern

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "matchmaker" / "matchmaker.py"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class Matchmaker:
    def __init__(self, server, port, *options):
        command = [sys.executable, EXAMPLE, "--tavern", server.url, "--key", server.key, "--listen", str(port), *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline().startswith("matchmaker on")

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def party_event(socket, cmd):
    """The next party event with this command."""
    while True:
        event = socket.event()
        if event.get("cmd") == cmd:
            return event


def pair(server, ann, bob):
    party = ann.ok("party.invite", user=bob.hello["user"])["party_id"]
    party_event(bob, "invite")
    bob.ok("party.accept", party_id=party)
    party_event(ann, "accept")
    return party


def server(port, secret=SECRET):
    return Tavern.dev(f'[parties]\nmatchmaker_url = "http://127.0.0.1:{port}/"\nmatchmaker_secret = "{secret}"\n')


def test_two_parties_of_two_are_matched():
    port = free_port()
    with server(port) as tavern, Matchmaker(tavern, port, "--secret", SECRET):
        sockets = [Socket(tavern, user=name) for name in ("ann", "bob", "cid", "dan")]
        ann, bob, cid, dan = sockets
        pair(tavern, ann, bob)
        pair(tavern, cid, dan)
        subscribed(tavern)
        ann.ok("party.go", params={"mode": "duel"})
        assert ann.ok("party.get")["party"]["state"] == "queued"
        cid.ok("party.go")
        for own, other in ((ann, ["cid", "dan"]), (bob, ["cid", "dan"]), (cid, ["ann", "bob"]), (dan, ["ann", "bob"])):
            event = party_event(own, "party_matched")
            assert (event["match"], event["against"]) == ("match-1", other)
        assert ann.ok("party.get")["party"]["state"] == "idle"
        for socket in sockets:
            socket.close()


def subscribed(tavern):
    def is_subscribed():
        answer = httpx.get(f"{tavern.url}/v1/subscriptions/matchmaker", headers={"authorization": f"Bearer {tavern.key}"})
        return answer.status_code == 200

    until(is_subscribed, "the matchmaker to be subscribed")


def test_a_ticket_without_an_opponent_fails_after_the_wait():
    port = free_port()
    with server(port) as tavern, Matchmaker(tavern, port, "--secret", SECRET, "--wait", "1"):
        ann, bob = (Socket(tavern, user=name) for name in ("ann", "bob"))
        pair(tavern, ann, bob)
        subscribed(tavern)
        ann.ok("party.go")
        event = party_event(bob, "go_failed")
        assert event["reason"] == "no other party of your size is waiting" and "missing" not in event
        assert ann.ok("party.get")["party"]["state"] == "idle"
        ann.close()
        bob.close()


def test_tickets_reach_a_matchmaker_that_starts_later():
    port = free_port()
    with server(port) as tavern:
        ann, bob = (Socket(tavern, user=name) for name in ("ann", "bob"))
        pair(tavern, ann, bob)
        subscribed(tavern)
        ann.ok("party.go")
        with Matchmaker(tavern, port, "--secret", SECRET, "--wait", "0.2"):
            assert party_event(ann, "go_failed")["reason"] == "no other party of your size is waiting"
        ann.close()
        bob.close()


def test_the_subscription_is_removed_with_its_configuration():
    port = free_port()
    with server(port) as tavern:
        subscribed(tavern)
        tavern.terminate()
        tavern.config.write_text("")
        tavern.start()

        def gone():
            headers = {"authorization": f"Bearer {tavern.key}"}
            return httpx.get(f"{tavern.url}/v1/subscriptions/matchmaker", headers=headers).status_code == 404

        until(gone, "the subscription to be gone")


def test_a_gap_entry_is_answered_and_queued_parties_are_read_again():
    port = free_port()
    with Tavern.dev() as tavern, Matchmaker(tavern, port, "--wait", "0.2"):
        ann, bob = (Socket(tavern, user=name) for name in ("ann", "bob"))
        pair(tavern, ann, bob)
        ann.ok("party.go")
        # The ticket is among the events that were dropped.
        gap = {"seq": 1, "type": "tavern.gap", "data": {"first_seq": 1, "last_seq": 4}}
        answer = httpx.post(f"http://127.0.0.1:{port}/", json={"events": [gap]}, trust_env=False)
        assert answer.status_code == 204
        assert party_event(ann, "go_failed")["reason"] == "no other party of your size is waiting"
        ann.close()
        bob.close()
