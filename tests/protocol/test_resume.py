"""Resume: a session outlives its connection and resumes on any transport without loss within its window."""
import pytest

from support import tokens
from support.json_client import Poller, Socket, Stream


class Room:
    """A subscriber that has received two messages, and a publisher."""

    def __init__(self, server, user, channel):
        self.server, self.user, self.channel = server, user, channel
        self.publisher = Socket(server, user=f"{user}-publisher")
        self.listener = Socket(server, user=user)
        self.session = self.listener.hello["session"]
        self.listener.ok("subscribe", channel=channel)
        self.count = 0
        self.publish(2)
        assert [self.listener.event()["data"] for _ in range(2)] == [1, 2]

    def publish(self, times=1):
        for _ in range(times):
            self.count += 1
            self.publisher.ok("publish", channel=self.channel, data=self.count)

    def close(self):
        self.publisher.close()
        self.listener.close()


@pytest.fixture
def room(dev, user, channel):
    room = Room(dev, user, channel)
    yield room
    room.close()


def numbers(events):
    return [(event["seq"], event["data"]) for event in events]


def test_resume_from_websocket_to_websocket(room):
    room.listener.drop()
    room.publish(3)
    with Socket(room.server, user=room.user) as back:
        answer = back.ok("hello", session=room.session, seq=2)
        assert answer["resumed"] is True
        assert answer["session"] == room.session
        assert answer["client"] == room.listener.hello["client"]
        assert numbers(back.event() for _ in range(3)) == [(3, 3), (4, 4), (5, 5)]
        room.publish()
        assert numbers([back.event()]) == [(6, 6)]


def test_sent_but_unseen_events_are_sent_again(room):
    room.listener.drop()
    with Socket(room.server, user=room.user) as back:
        assert back.ok("hello", session=room.session, seq=0)["resumed"] is True
        assert numbers(back.event() for _ in range(2)) == [(1, 1), (2, 2)]


def test_resume_from_websocket_to_poll(room):
    room.listener.drop()
    room.publish(3)
    with Poller(room.server, user=room.user, session=room.session, cursor=2) as back:
        assert numbers(back.take()) == [(3, 3), (4, 4), (5, 5)]
        room.publish()
        assert numbers(back.take()) == [(6, 6)]


def test_resume_from_websocket_to_stream(room):
    room.listener.drop()
    room.publish(2)
    with Stream(room.server, user=room.user, session=room.session, seq=2) as back:
        assert back.greeting()["resumed"] is True
        assert [back.event()[0] for _ in range(2)] == [3, 4]
        room.publish()
        number, event = back.event()
        assert number == 5 and event["seq"] == 5 and event["data"] == 5


def test_a_stream_resumes_by_last_event_id(room):
    room.listener.drop()
    room.publish(2)
    headers = {"last-event-id": "3"}
    with Stream(room.server, user=room.user, session=room.session, headers=headers) as back:
        assert back.greeting()["resumed"] is True
        assert back.event()[1]["data"] == 4


def test_resume_from_poll_to_websocket(room):
    room.listener.drop()
    with Poller(room.server, user=room.user, session=room.session, cursor=2) as poller:
        room.publish()
        assert numbers(poller.poll()["events"]) == [(3, 3)]
    with Socket(room.server, user=room.user) as back:
        assert back.ok("hello", session=room.session, seq=2)["resumed"] is True
        assert numbers([back.event()]) == [(3, 3)]


def test_an_open_websocket_is_superseded(room):
    with Socket(room.server, user=room.user) as newer:
        assert newer.ok("hello", session=room.session, seq=2)["resumed"] is True
        frames, code = room.listener.closing()
        assert frames[-1]["event"] == "superseded"
        assert "seq" not in frames[-1]
        assert code is not None, "closed with a code"
        room.publish()
        assert numbers([newer.event()]) == [(3, 3)]


def test_an_open_stream_is_superseded(dev, user):
    with Stream(dev, user=user) as older, Socket(dev, user=user) as newer:
        session = older.greeting()["session"]
        assert newer.ok("hello", session=session, seq=0)["resumed"] is True
        _, frame = older.event()
        assert frame["event"] == "superseded"
        assert older.event() is None, "the stream ends"


def test_another_user_cannot_resume_the_session(room):
    with Socket(room.server, user=f"{room.user}-attacker") as attacker:
        answer = attacker.ok("hello", session=room.session, seq=0)
        assert answer["resumed"] is False
        assert answer["session"] != room.session
        room.publish()
        assert numbers([room.listener.event()]) == [(3, 3)], "the original connection is unaffected"
        assert attacker.events_so_far() == []


def test_the_public_client_id_does_not_resume(room):
    with Socket(room.server, user=room.user) as other:
        assert other.ok("hello", session=room.listener.hello["client"], seq=0)["resumed"] is False


@pytest.mark.parametrize("session", ["nonsense", "x" * 300, "ü", ""])
def test_an_unknown_session_starts_a_new_one(dev, user, session):
    with Socket(dev, user=user) as socket:
        answer = socket.ok("hello", session=session, seq=7)
        assert answer["resumed"] is False
        assert answer["session"] != session


def test_a_session_cannot_be_resumed_after_bye(room):
    room.listener.ok("bye")
    with Socket(room.server, user=room.user) as back:
        assert back.ok("hello", session=room.session, seq=2)["resumed"] is False
        room.publish()
        assert back.events_so_far() == [], "a new session has no subscriptions"


def test_bye_by_command_ends_a_polling_session(dev, user, channel):
    with Poller(dev, user=user) as poller:
        session = poller.ok("hello")["session"]
        poller.ok("subscribe", channel=channel)
        poller.ok("bye")
        with Socket(dev, user=user) as back:
            assert back.ok("hello", session=session, seq=0)["resumed"] is False


def test_acknowledged_events_are_not_sent_again(room):
    room.listener.ok("ack", seq=1)
    room.listener.drop()
    with Socket(room.server, user=room.user) as back:
        assert back.ok("hello", session=room.session, seq=1)["resumed"] is True
        assert numbers([back.event()]) == [(2, 2)]


def test_resuming_below_the_acknowledged_seq_is_a_gap(room):
    room.listener.ok("ack", seq=2)
    room.publish()
    assert numbers([room.listener.event()]) == [(3, 3)]
    room.listener.drop()
    with Socket(room.server, user=room.user) as back:
        assert back.ok("hello", session=room.session, seq=0)["resumed"] is True
        first = back.event()
        assert first["event"] == "gap" and first["to"] == 2 and first["seq"] == 2
        assert numbers([back.event()]) == [(3, 3)]


def test_ten_resumes_keep_subscriptions_and_order(room):
    seq = 2
    room.listener.drop()
    for _ in range(10):
        room.publish(2)
        with Socket(room.server, user=room.user) as back:
            assert back.ok("hello", session=room.session, seq=seq)["resumed"] is True
            assert numbers(back.event() for _ in range(2)) == [(seq + 1, seq + 1), (seq + 2, seq + 2)]
            back.drop()
        seq += 2


def test_resume_with_a_token_in_hello(serve, channel):
    with Socket(serve, token=tokens.token("ann")) as first:
        first.ok("subscribe", channel=channel)
        session = first.hello["session"]
        first.drop()
        with Socket(serve, token=tokens.token("bob")) as bob:
            bob.ok("publish", channel=channel, data="missed")
        with Socket(serve) as back:
            assert back.ok("hello", token=tokens.token("ann"), session=session, seq=0)["resumed"] is True
            assert back.event()["data"] == "missed"
