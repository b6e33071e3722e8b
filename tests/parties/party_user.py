"""A user with one session, over a WebSocket or long-poll, who sends party commands and reads party events.

Both kinds have the same interface. User names end with a number, so that tests can share a server; `summary` shows them without
it.
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


class PartyUser:
    """Shared by both kinds. Subclasses define `command`, `receive` and `drop`."""

    def __init__(self, server, user):
        self.server, self.user = server, user
        self.posts = httpx.Client(base_url=server.url, timeout=10, trust_env=False)

    def party(self, op, **fields):
        """Sends a party command; returns its full reply."""
        return self.command(f"party.{op}", **fields)

    def ok(self, op, **fields):
        reply = self.party(op, **fields)
        assert "ok" in reply, f"{self.user}: {op} {fields} was refused: {reply}"
        return reply["ok"]

    def refused(self, op, **fields):
        """The error code of a refused command."""
        reply = self.party(op, **fields)
        assert "error" in reply, f"{self.user}: {op} {fields} succeeded: {reply}"
        return reply["error"]["code"]

    def get(self):
        return self.ok("get")["party"]

    def members(self):
        party = self.get()
        return party and [plain(member["user"]) for member in party["members"]]

    def invite(self, other):
        return self.ok("invite", user=other.user)["party_id"]

    def invite_and_accept(self, other):
        """Invites a user, who accepts."""
        number = self.invite(other)
        other.ok("accept", party_id=number)
        return number

    def next_event(self, timeout=WAIT):
        """The next party event; other events are dropped."""
        end = time.monotonic() + timeout
        while True:
            event = self.receive(max(end - time.monotonic(), 0.01))
            if event["event"] == "party":
                return event

    def expect(self, *expected, timeout=WAIT):
        """The next party events are these, in this order."""
        found = []
        for _ in expected:
            try:
                found.append(self.next_event(timeout))
            except TimeoutError:
                break
        assert tuple(summary(event) for event in found) == expected, f"{self.user} got {found}"
        return found

    def expect_nothing(self):
        """No party event is pending: an inbox message sent now is the next to arrive."""
        mark = self.send_marker()
        found = []
        while True:
            event = self.receive(WAIT)
            if event.get("data") == mark:
                break
            if event["event"] == "party":
                found.append(summary(event))
        assert found == [], f"{self.user} got {found}"

    def send_marker(self):
        """Sends an inbox message, which takes the same path as party events: earlier events arrive before it."""
        mark = f"mark-{next(MARKS)}"
        headers = {"authorization": f"Bearer {self.server.key}"}
        answer = self.posts.post(f"/v1/users/{self.user}/messages", json={"data": mark}, headers=headers)
        assert answer.status_code == 200, answer.text
        return mark

    def wait_online(self):
        """Waits until the user is online: hello does not wait for the store."""
        asks = lambda: self.command("status", users=[self.user])["ok"]["statuses"][0]["online"]
        until(asks, f"{self.user} to be online")
        return self

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.close()


MARKS = itertools.count(1)


class SocketUser(PartyUser):
    def __init__(self, server, user, *, token=None):
        super().__init__(server, user)
        self.socket = Socket(server, user=user if token is None else None, token=token)
        self.hello = self.socket.hello

    def command(self, op, **fields):
        return self.socket.call(op, **fields)

    def receive(self, timeout):
        return self.socket.event(timeout)

    def drop(self):
        """Closes the connection without bye."""
        self.socket.drop()

    def bye(self):
        self.socket.ok("bye")

    def close(self):
        """Sends bye without waiting for unread events."""
        with contextlib.suppress(Exception):  # Already dropped or closed.
            self.socket.send('{"op":"bye"}')
        self.socket.drop()


class PollUser(PartyUser):
    """Polls continuously in a thread, as a page does: a session that is not polled is lost."""

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


CLIENTS = {"socket": SocketUser, "poll": PollUser}


def session_count(server, user):
    """The number of sessions of a user."""
    with api_client(server, server.key) as api:
        there = api.get(f"/v1/channels/user%23{user}/presence").json()
    return sum(len(one["clients"]) for one in there["users"])


def plain(user):
    """The name without its number."""
    return user.rsplit("-", 1)[0]


def summary(event):
    """`bob leave kicked by ann: "go home"`"""
    text = f"{plain(event['uid'])} {event['cmd']}"
    if "invitee" in event:
        text += f" {plain(event['invitee'])}"
    if "reason" in event:
        text += f" {event['reason']}"
    if "by" in event:
        text += f" by {plain(event['by'])}"
    if "state" in event:
        text += f" {event['state']}"
    if "missing" in event:
        text += " without " + ",".join(plain(user) for user in event["missing"])
    if "message" in event:
        text += f': "{event["message"]}"'
    return text
