"""The durable inbox: letters from services reach every session of a user, until one of them has acknowledged them."""
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


def write(api, user, data, **headers):
    response = api.post(f"/v1/users/{user}/messages", json={"data": data}, headers=headers)
    assert response.status_code == 200, response.text
    return response.json()["letter"]


def letters(events):
    return [(event["letter"], event["data"]) for event in events if event["event"] == "letter"]


def heard(socket, count):
    return letters(socket.event() for _ in range(count))


def test_a_letter_reaches_every_session_on_every_transport(server, api, ann):
    with Socket(server, user=ann) as one, Stream(server, user=ann) as two, Poller(server, user=ann) as three:
        two.greeting()
        three.poll(0)
        number = write(api, ann, {"gold": 5})
        assert heard(one, 1) == [(number, {"gold": 5})]
        _, event = two.event()
        assert letters([event]) == [(number, {"gold": 5})]
        assert letters(three.poll()["events"]) == [(number, {"gold": 5})]


def test_letters_wait_for_somebody_who_is_not_there_and_are_numbered_in_order(server, api, ann):
    numbers = [write(api, ann, at) for at in range(5)]
    assert numbers == list(range(numbers[0], numbers[0] + 5))
    with Socket(server, user=ann) as socket:
        assert heard(socket, 5) == list(zip(numbers, range(5)))


def test_what_one_session_acknowledged_no_later_one_gets(server, api, ann):
    numbers = [write(api, ann, at) for at in range(3)]
    with Socket(server, user=ann) as socket:
        events = [socket.event() for _ in range(3)]
        socket.ok("ack", seq=events[1]["seq"])
        with Socket(server, user=ann) as later:
            until(lambda: inbox(server, ann) == numbers[2:], "the letters to be freed")
        with Socket(server, user=ann) as later:
            assert heard(later, 1) == [(numbers[2], 2)]
            assert later.events_so_far() == []


def inbox(server, user):
    """The numbers of the letters that a new session is given."""
    with Poller(server, user=user) as poller:
        found = []
        for _ in range(2):
            answer = poller.poll(100)
            found += [event["letter"] for event in answer["events"] if "letter" in event]
            if answer["events"]:
                break
        return found


def test_the_cursor_of_a_poll_acknowledges(server, api, ann):
    with Poller(server, user=ann) as poller:
        poller.poll(0)
        number = write(api, ann, "a")
        answer = poller.poll()
        assert letters(answer["events"]) == [(number, "a")]
        assert inbox(server, ann) == [number], "it was not acknowledged"
        poller.cursor = answer["cursor"]
        poller.poll(0)
        until(lambda: inbox(server, ann) == [], "the letter to be freed")


def test_letters_that_do_not_fit_are_told_as_a_gap(server, api, ann):
    numbers = [write(api, ann, at) for at in range(25)]
    with Socket(server, user=ann) as socket:
        gap = socket.event()
        assert (gap["event"], gap["channel"], gap["letter"]) == ("gap", f"user#{ann}", numbers[4])
        assert heard(socket, 20) == list(zip(numbers[5:], range(5, 25)))
        socket.ok("ack", seq=21)
    until(lambda: inbox(server, ann) == [], "the letters to be freed")
    with Socket(server, user=ann) as socket:
        assert socket.events_so_far() == [], "the gap was acknowledged too"


def test_a_letter_that_can_never_fit_is_refused(server, api, ann):
    response = api.post(f"/v1/users/{ann}/messages", json={"data": "x" * 2000})
    assert (response.status_code, response.json()["error"]["code"]) == (413, "too_large")
    response = api.post(f"/v1/users/{'x' * 200}/messages", json={"data": 1})
    assert (response.status_code, response.json()["error"]["code"]) == (400, "bad_request")


def test_letters_are_forgotten_when_nobody_comes_for_long_and_that_is_told(server, api, ann):
    with Socket(server, user=ann):
        pass
    number = write(api, ann, "late")
    # Its time, and the heartbeats in which somebody notices.
    time.sleep(3 + 1 + 2)
    with Socket(server, user=ann) as socket:
        event = socket.event()
        assert (event["event"], event["letter"]) == ("gap", number)
        assert socket.events_so_far() == []


def test_letters_are_kept_as_long_as_somebody_is_there(server, api, ann):
    with Socket(server, user=ann) as socket:
        number = write(api, ann, "kept")
        assert heard(socket, 1) == [(number, "kept")]
        time.sleep(5)
        assert inbox(server, ann) == [number]


def test_a_request_with_a_key_is_carried_out_once(server, api, ann):
    first_time = write(api, ann, 1, **{"idempotency-key": "k1"})
    assert write(api, ann, 1, **{"idempotency-key": "k1"}) == first_time
    assert inbox(server, ann) == [first_time]


def test_a_request_with_a_key_is_carried_out_once_by_a_server_that_has_forgotten_it():
    key = {"idempotency-key": "k1"}
    with Tavern.dev(CONFIG) as server:
        with client(server) as api:
            number = write(api, "ann", 1, **key)
            server.kill()
            server.start()
            again = api.post("/v1/users/ann/messages", json={"data": 1}, headers=key)
            assert (again.status_code, again.json()) == (200, {"letter": None, "again": True})
            assert write(api, "ann", 2, **{"idempotency-key": "k2"}) == number + 1
        assert inbox(server, "ann") == [number, number + 1]


def test_letters_survive_a_crash_and_a_session_that_resumes_gets_each_once():
    with Tavern.dev(CONFIG) as server:
        with client(server) as api:
            numbers = [write(api, "ann", at) for at in range(4)]
            with Socket(server, user="ann") as socket:
                assert heard(socket, 4) == list(zip(numbers, range(4)))
            server.kill()
            server.start()
            assert inbox(server, "ann") == numbers
            with Socket(server, user="ann") as socket:
                last = [socket.event() for _ in range(4)][-1]["seq"]
                session = socket.hello["session"]
                socket.drop()
                more = write(api, "ann", "more")
                # Without a session of its own first: that one would be given all of them again.
                with Socket(server) as again:
                    assert again.ok("hello", token=token("ann"), session=session, seq=last)["resumed"] is True
                    assert heard(again, 1) == [(more, "more")]
                    assert again.events_so_far() == []
