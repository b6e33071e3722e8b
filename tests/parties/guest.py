"""Somebody at the table: a user with one session, over a WebSocket or by polling, who gives commands and reads his letters.

Both kinds are used the same way. Users of a test have a number behind their name, so that tests can share a server; in what
`words` says of a letter they are called by the name alone.
"""
import contextlib
import itertools
import queue
import threading
import time

import httpx

from events.conftest import client as api_client
from support.json_client import WAIT, Poller, Socket
from support.process import until


class Guest:
    """What both kinds have in common. Subclasses give `command`, `receive` and `drop`."""

    def __init__(self, server, user):
        self.server, self.user = server, user
        self.posts = httpx.Client(base_url=server.url, timeout=10, trust_env=False)

    def party(self, op, **fields):
        """One command about parties, its whole reply."""
        return self.command(f"party.{op}", **fields)

    def ok(self, op, **fields):
        reply = self.party(op, **fields)
        assert "ok" in reply, f"{self.user}: {op} {fields} was refused: {reply}"
        return reply["ok"]

    def refused(self, op, **fields):
        """The code of a refusal; it holds the party as the caller's own question shows it."""
        reply = self.party(op, **fields)
        assert "error" in reply, f"{self.user}: {op} {fields} was done: {reply}"
        return reply["error"]["code"]

    def get(self):
        return self.ok("get")["party"]

    def members(self):
        party = self.get()
        return party and [plain(member["user"]) for member in party["members"]]

    def invite(self, other):
        return self.ok("invite", user=other.user)["party_id"]

    def brings(self, other):
        """Invites somebody who accepts."""
        number = self.invite(other)
        other.ok("accept", party_id=number)
        return number

    def letter(self, timeout=WAIT):
        """The next letter about parties; other events are dropped."""
        end = time.monotonic() + timeout
        while True:
            event = self.receive(max(end - time.monotonic(), 0.01))
            if event["event"] == "party":
                return event

    def letters(self, *expected, timeout=WAIT):
        """The next letters are these, in this order."""
        found = []
        for _ in expected:
            try:
                found.append(self.letter(timeout))
            except TimeoutError:
                break
        assert tuple(words(letter) for letter in found) == expected, f"{self.user} got {found}"
        return found

    def hears_nothing_more(self):
        """Nothing about parties is under way to him: a letter that is posted now is the next that he gets."""
        mark = self.post_mark()
        found = []
        while True:
            event = self.receive(WAIT)
            if event.get("data") == mark:
                break
            if event["event"] == "party":
                found.append(words(event))
        assert found == [], f"{self.user} got {found}"

    def post_mark(self):
        """A letter of an app to him, by the way that those about parties go: what was told before it arrives before it."""
        mark = f"mark-{next(MARKS)}"
        headers = {"authorization": f"Bearer {self.server.key}"}
        answer = self.posts.post(f"/v1/users/{self.user}/messages", json={"data": mark}, headers=headers)
        assert answer.status_code == 200, answer.text
        return mark

    def arrive(self):
        """Waits until he is known to be there: a hello does not wait for the store."""
        asks = lambda: self.command("status", users=[self.user])["ok"]["statuses"][0]["online"]
        until(asks, f"{self.user} to be there")
        return self

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.close()


MARKS = itertools.count(1)


class SocketGuest(Guest):
    def __init__(self, server, user, *, token=None):
        super().__init__(server, user)
        self.socket = Socket(server, user=user if token is None else None, token=token)
        self.hello = self.socket.hello

    def command(self, op, **fields):
        return self.socket.call(op, **fields)

    def receive(self, timeout):
        return self.socket.event(timeout)

    def drop(self):
        """Goes away without a word."""
        self.socket.drop()

    def bye(self):
        self.socket.ok("bye")

    def close(self):
        """Says bye, and does not wait until everything that was not read has been."""
        with contextlib.suppress(Exception):  # Dropped or closed before.
            self.socket.send('{"op":"bye"}')
        self.socket.drop()


class PollGuest(Guest):
    """Polls without a pause beside the commands, as a page does: a session that is not asked for is lost."""

    def __init__(self, server, user, *, token=None):
        super().__init__(server, user)
        self.poller = Poller(server, user=user if token is None else None, token=token)
        self.hello = self.poller.ok("hello")
        self.arrived = queue.Queue()
        self.snapshot = self.hello["party"]
        self.ended = False
        self.thread = threading.Thread(target=self._poll, daemon=True)
        self.thread.start()

    def _poll(self):
        while not self.ended:
            try:
                answer = self.poller.poll(2000)
            except (httpx.HTTPError, AssertionError, ValueError):
                if self.ended:
                    return
                time.sleep(0.05)
                continue
            self.poller.cursor = answer["cursor"]
            self.snapshot = answer["party"]
            for event in answer["events"]:
                self.arrived.put(event)

    def command(self, op, **fields):
        return self.poller.command(op, **fields)

    def receive(self, timeout):
        try:
            return self.arrived.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError(f"{self.user} got no event within {timeout} s") from None

    def drop(self):
        self.ended = True
        self.poller.http.close()

    def bye(self):
        self.ended = True
        assert "ok" in self.poller.command("bye")

    def close(self):
        self.ended = True
        self.poller.close()


CLIENTS = {"socket": SocketGuest, "poll": PollGuest}


def windows(server, user):
    """How many sessions of a user are there."""
    with api_client(server, server.key) as api:
        there = api.get(f"/v1/channels/user%23{user}/presence").json()
    return sum(len(one["clients"]) for one in there["users"])


def plain(user):
    """The name without the number of the test."""
    return user.rsplit("-", 1)[0]


def words(letter):
    """`bob leave kicked by ann: "go home"`"""
    text = f"{plain(letter['uid'])} {letter['cmd']}"
    if "invitee" in letter:
        text += f" {plain(letter['invitee'])}"
    if "reason" in letter:
        text += f" {letter['reason']}"
    if "by" in letter:
        text += f" by {plain(letter['by'])}"
    if "state" in letter:
        text += f" {letter['state']}"
    if "missing" in letter:
        text += " without " + ",".join(plain(user) for user in letter["missing"])
    if "message" in letter:
        text += f': "{letter["message"]}"'
    return text
