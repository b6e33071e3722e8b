"""The inbox: durable messages from services reach every session of a user until one session has acknowledged them."""
import itertools
import time

import httpx
import pytest

from support.json_client import Poller, Socket, Stream
from support.process import until
from support.tavern import Tavern
from support.tokens import token

CONFIG = """
[sessions]
resume_ms = 200
[kinds.user]
grace_ms = 200
[nodes]
heartbeat_ms = 300
lease_ms = 1500
[inbox]
messages = 20
bytes = 2000
keep_ms = 3000
"""
COUNT = itertools.count(1)


@pytest.fixture(scope="module")
def server():
    with Tavern.dev(CONFIG) as server:
        yield server


@pytest.fixture
def ann():
    return f"ann-{next(COUNT)}"


def client(server):
    headers = {"authorization": f"Bearer {server.api_key('publish')}"}
    return httpx.Client(base_url=server.url, headers=headers, timeout=5, trust_env=False)


@pytest.fixture(scope="module")
def api(server):
    with client(server) as api:
        yield api


def send(api, user, data, **headers):
    response = api.post(f"/v1/users/{user}/messages", json={"data": data}, headers=headers)
    assert response.status_code == 200, response.text
    return response.json()["message_id"]


def inbox_messages(events):
    return [(event["message_id"], event["data"]) for event in events if event["event"] == "inbox"]


def received(socket, count):
    return inbox_messages(socket.event() for _ in range(count))


def test_an_inbox_message_reaches_every_session_on_every_transport(server, api, ann):
    with Socket(server, user=ann) as one, Stream(server, user=ann) as two, Poller(server, user=ann) as three:
        two.greeting()
        three.poll(0)
        number = send(api, ann, {"gold": 5})
        assert received(one, 1) == [(number, {"gold": 5})]
        _, event = two.event()
        assert inbox_messages([event]) == [(number, {"gold": 5})]
        assert inbox_messages(three.poll()["events"]) == [(number, {"gold": 5})]


def test_inbox_messages_wait_for_offline_users_and_are_numbered_in_order(server, api, ann):
    numbers = [send(api, ann, at) for at in range(5)]
    assert numbers == list(range(numbers[0], numbers[0] + 5))
    with Socket(server, user=ann) as socket:
        assert received(socket, 5) == list(zip(numbers, range(5)))


def test_a_message_acknowledged_by_one_session_is_not_delivered_again(server, api, ann):
    numbers = [send(api, ann, at) for at in range(3)]
    with Socket(server, user=ann) as socket:
        events = [socket.event() for _ in range(3)]
        socket.ok("ack", seq=events[1]["seq"])
        with Socket(server, user=ann) as later:
            until(lambda: pending(server, ann) == numbers[2:], "the messages to be removed")
        with Socket(server, user=ann) as later:
            assert received(later, 1) == [(numbers[2], 2)]
            assert later.events_so_far() == []


def pending(server, user):
    """The ids of the messages that a new session receives."""
    with Poller(server, user=user) as poller:
        found = []
        for _ in range(2):
            answer = poller.poll(100)
            found += [event["message_id"] for event in answer["events"] if "message_id" in event]
            if answer["events"]:
                break
        return found


def test_the_cursor_of_a_poll_acknowledges(server, api, ann):
    with Poller(server, user=ann) as poller:
        poller.poll(0)
        number = send(api, ann, "a")
        answer = poller.poll()
        assert inbox_messages(answer["events"]) == [(number, "a")]
        assert pending(server, ann) == [number], "not acknowledged yet"
        poller.cursor = answer["cursor"]
        poller.poll(0)
        until(lambda: pending(server, ann) == [], "the message to be removed")


def test_messages_beyond_the_limit_are_dropped_with_a_gap(server, api, ann):
    numbers = [send(api, ann, at) for at in range(25)]
    with Socket(server, user=ann) as socket:
        gap = socket.event()
        assert (gap["event"], gap["channel"], gap["message_id"]) == ("gap", f"user#{ann}", numbers[4])
        assert received(socket, 20) == list(zip(numbers[5:], range(5, 25)))
        socket.ok("ack", seq=21)
    until(lambda: pending(server, ann) == [], "the messages to be removed")
    with Socket(server, user=ann) as socket:
        assert socket.events_so_far() == [], "the gap was acknowledged too"


def test_a_message_larger_than_the_inbox_is_refused(server, api, ann):
    response = api.post(f"/v1/users/{ann}/messages", json={"data": "x" * 2000})
    assert (response.status_code, response.json()["error"]["code"]) == (413, "too_large")
    response = api.post(f"/v1/users/{'x' * 200}/messages", json={"data": 1})
    assert (response.status_code, response.json()["error"]["code"]) == (400, "bad_request")


def test_messages_of_offline_users_expire_with_a_gap(server, api, ann):
    with Socket(server, user=ann):
        pass
    number = send(api, ann, "late")
    # keep_ms, plus the heartbeats until the expiry is noticed.
    time.sleep(3 + 1 + 2)
    with Socket(server, user=ann) as socket:
        event = socket.event()
        assert (event["event"], event["message_id"]) == ("gap", number)
        assert socket.events_so_far() == []


def test_messages_do_not_expire_while_the_user_is_online(server, api, ann):
    with Socket(server, user=ann) as socket:
        number = send(api, ann, "kept")
        assert received(socket, 1) == [(number, "kept")]
        time.sleep(5)
        assert pending(server, ann) == [number]


def test_an_idempotency_key_dedupes_messages(server, api, ann):
    first_time = send(api, ann, 1, **{"idempotency-key": "k1"})
    assert send(api, ann, 1, **{"idempotency-key": "k1"}) == first_time
    assert pending(server, ann) == [first_time]


def test_an_idempotency_key_dedupes_messages_across_a_restart():
    key = {"idempotency-key": "k1"}
    with Tavern.dev(CONFIG) as server:
        with client(server) as api:
            number = send(api, "ann", 1, **key)
            server.kill()
            server.start()
            again = api.post("/v1/users/ann/messages", json={"data": 1}, headers=key)
            assert (again.status_code, again.json()) == (200, {"message_id": None, "duplicate": True})
            assert send(api, "ann", 2, **{"idempotency-key": "k2"}) == number + 1
        assert pending(server, "ann") == [number, number + 1]


def test_messages_survive_a_crash_and_a_resumed_session_gets_each_once():
    with Tavern.dev(CONFIG) as server:
        with client(server) as api:
            numbers = [send(api, "ann", at) for at in range(4)]
            with Socket(server, user="ann") as socket:
                assert received(socket, 4) == list(zip(numbers, range(4)))
            server.kill()
            server.start()
            assert pending(server, "ann") == numbers
            with Socket(server, user="ann") as socket:
                last = [socket.event() for _ in range(4)][-1]["seq"]
                session = socket.hello["session"]
                socket.drop()
                more = send(api, "ann", "more")
                # Without an implicit session, which would receive all messages again.
                with Socket(server) as again:
                    assert again.ok("hello", token=token("ann"), session=session, seq=last)["resumed"] is True
                    assert received(again, 1) == [(more, "more")]
                    assert again.events_so_far() == []
