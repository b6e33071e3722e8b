"""Long-poll: parking, wake-up, repetition, acknowledgement."""
import json
import threading
import time

import pytest

from support.json_client import Poller, Socket

pytestmark = pytest.mark.alone


@pytest.fixture
def poller(dev, user, channel):
    with Poller(dev, user=user) as poller:
        poller.ok("hello")
        poller.ok("subscribe", channel=channel)
        yield poller


@pytest.fixture
def publisher(dev, user):
    with Socket(dev, user=f"{user}-publisher") as publisher:
        yield publisher


def data(answer):
    return [event["data"] for event in answer["events"] if event["event"] == "message"]


class PollThread:
    """A poll in its own thread."""

    def __init__(self, poller, **options):
        self.answer, self.took = None, None
        self.thread = threading.Thread(target=self._run, args=(poller, options), daemon=True)
        self.thread.start()

    def _run(self, poller, options):
        began = time.monotonic()
        self.answer = poller.poll(**options)
        self.took = time.monotonic() - began

    def result(self, within=10.0):
        self.thread.join(within)
        assert not self.thread.is_alive(), "the poll is still parked"
        return self.answer


def test_a_timeout_of_zero_returns_at_once(poller):
    began = time.monotonic()
    answer = poller.poll(timeout_ms=0)
    assert answer["events"] == [] and answer["more"] is False
    assert time.monotonic() - began < 1.0


def test_an_empty_response_is_200_and_not_cacheable(poller):
    response = poller.poll_response(timeout_ms=0)
    assert response.status_code == 200
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["content-type"].startswith("application/json")


def test_a_parked_poll_times_out(poller):
    began = time.monotonic()
    assert poller.poll(timeout_ms=500)["events"] == []
    assert 0.4 <= time.monotonic() - began < 2.0


def test_pending_events_are_returned_at_once(poller, publisher, channel):
    publisher.ok("publish", channel=channel, data="early")
    began = time.monotonic()
    answer = poller.poll(timeout_ms=20_000)
    assert data(answer) == ["early"]
    assert answer["cursor"] == answer["events"][-1]["seq"] == 1
    assert time.monotonic() - began < 2.0


def test_an_event_wakes_a_parked_poll(poller, publisher, channel):
    parked = PollThread(poller, timeout_ms=20_000)
    publisher.ok("publish", channel=channel, data="now")
    assert data(parked.result()) == ["now"]
    assert parked.took < 5.0


def test_a_lost_response_is_repeated_with_the_same_seqs(poller, publisher, channel):
    for message in "abc":
        publisher.ok("publish", channel=channel, data=message)
    first, again = poller.poll(), poller.poll()
    assert data(first) == ["a", "b", "c"]
    assert again["events"] == first["events"] and again["cursor"] == first["cursor"]
    poller.cursor = first["cursor"]
    assert poller.poll(timeout_ms=0)["events"] == []


def test_a_cursor_acknowledges_only_up_to_it(poller, publisher, channel):
    for message in "abc":
        publisher.ok("publish", channel=channel, data=message)
    assert data(poller.poll()) == ["a", "b", "c"]
    assert data(poller.poll(cursor=1)) == ["b", "c"]
    assert data(poller.poll(cursor=1)) == ["b", "c"]


def test_a_cursor_below_the_mailbox_is_a_gap(poller, publisher, channel):
    for message in "abc":
        publisher.ok("publish", channel=channel, data=message)
    poller.poll()
    poller.poll(cursor=2)
    answer = poller.poll(cursor=0)
    assert answer["gap"] is True
    assert data(answer)[-1] == "c"


def test_a_cursor_ahead_of_the_mailbox_is_a_reset(poller, publisher, channel):
    publisher.ok("publish", channel=channel, data="a")
    answer = poller.poll(cursor=1000, timeout_ms=0)
    assert answer["reset"] is True
    assert answer["cursor"] <= 1


def test_a_response_holds_at_most_100_events(poller, publisher, channel):
    for number in range(150):
        publisher.ok("publish", channel=channel, data=number)
    first = poller.poll()
    assert data(first) == list(range(100)) and first["more"] is True
    poller.cursor = first["cursor"]
    second = poller.poll()
    assert data(second) == list(range(100, 150)) and second["more"] is False


def test_a_response_holds_at_most_64_kib(poller, publisher, channel):
    for number in range(10):
        publisher.ok("publish", channel=channel, data=f"{number}" + "x" * 10_000)
    sizes, received = [], []
    while True:
        response = poller.poll_response()
        answer = response.json()
        sizes.append(len(response.content))
        received += [message[0] for message in data(answer)]
        poller.cursor = answer["cursor"]
        if not answer["more"]:
            break
    assert received == [str(number) for number in range(10)]
    assert len(sizes) > 1 and max(sizes) <= 65_536 + 1024


def test_one_event_larger_than_64_kib_still_arrives(dev, poller, publisher, channel):
    message = "x" * 65_500
    publisher.ok("publish", channel=channel, data=message)
    assert data(poller.poll()) == [message]


def test_a_newer_poll_supersedes_the_older(poller, dev, user):
    with Poller(dev, user=user, session=poller.session) as other:
        older = PollThread(poller, timeout_ms=20_000)
        # The older poll must park first: the newer one is repeated until the older one returns.
        end = time.monotonic() + 5
        while older.thread.is_alive() and time.monotonic() < end:
            other.poll(timeout_ms=0)
        assert older.result().get("superseded") is True


def test_a_websocket_supersedes_a_parked_poll(poller, dev, user):
    parked = PollThread(poller, timeout_ms=20_000)
    poller_session = poller.session
    end = time.monotonic() + 5
    while parked.thread.is_alive() and time.monotonic() < end:
        # The WebSocket may arrive before the poll; then it is dropped without bye, which would end the session, and retried.
        socket = Socket(dev, user=user)
        assert socket.ok("hello", session=poller_session, seq=0)["resumed"] is True
        parked.thread.join(0.2)
        socket.drop()
    assert parked.result().get("superseded") is True


def test_an_unknown_session_gets_a_new_one(dev, user):
    with Poller(dev, user=user, session="nonsense", cursor=3) as poller:
        response = poller.poll_response(timeout_ms=0)
        answer = response.json()
        # Either a new session marked as reset, or an error; never the mailbox of another session.
        if response.status_code == 200:
            assert answer["session"] != "nonsense" and answer["reset"] is True and answer["events"] == []
        else:
            assert answer["error"]["code"] in ("not_found", "gone", "bad_request")


@pytest.mark.parametrize("body", ["{", "[]", "7", '{"cursor":-1}', '{"cursor":"x"}', '{"timeout_ms":"soon"}', '{"session":7}'])
def test_a_malformed_poll_is_a_bad_request(dev, user, body):
    with Poller(dev, user=user) as poller:
        response = poller.http.post(f"/v1/poll?user={user}", content=body, headers={"content-type": "application/json"})
        assert response.status_code == 400
        assert response.json()["error"]["code"] == "bad_request"


def test_timeouts_are_clamped(poller, publisher, channel):
    publisher.ok("publish", channel=channel, data="a")
    assert data(poller.poll(timeout_ms=10**12)) == ["a"]


def test_no_wake_up_is_lost_while_a_poll_parks(poller, publisher, channel):
    """Event and poll start at the same moment, many times; a lost wake-up would park for 20 seconds."""
    began = time.monotonic()
    rounds = 300
    for number in range(rounds):
        parked = PollThread(poller, timeout_ms=20_000)
        publisher.send(json.dumps({"op": "publish", "channel": channel, "data": number}))
        answer = parked.result()
        assert data(answer) == [number]
        poller.cursor = answer["cursor"]
    assert time.monotonic() - began < 20.0
