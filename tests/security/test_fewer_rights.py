"""A fresh token of fewer rights ends what the former one allowed, and the client is told."""
import pytest

from support import tokens
from support.json_client import Poller, Socket, Stream
from support.process import until
from support.resp import RespConnection, pack, parse
from support.tavern import Tavern

ALL = {"room#*": ["subscribe", "publish", "join", "presence"]}


def fewer(*verbs, pattern="room#*"):
    return tokens.token("ann", {pattern: list(verbs)} if verbs else {})


def revoked(events):
    return [(event["verb"], event.get("channel") or event.get("pattern")) for event in events if event["event"] == "revoked"]


@pytest.fixture
def observer(serve, channel):
    with Socket(serve, token=tokens.token("observer")) as socket:
        socket.ok("subscribe", channel=channel, presence=True)
        yield socket


def use_everything(socket, channel):
    socket.ok("subscribe", channel=channel, presence=True)
    socket.ok("subscribe", pattern="room#*")
    socket.ok("join", channel=channel)


def users_in(observer, channel):
    return [user["user"] for user in observer.ok("who", channel=channel)["users"]]


def test_hello_ends_subscriptions_and_presences(serve, channel, observer):
    with Socket(serve, token=tokens.token("ann", ALL)) as ann:
        use_everything(ann, channel)
        ann.events_so_far()
        ann.ok("hello", token=fewer("publish"))
        ended = set(revoked(ann.events_so_far()))
        assert ended == {("subscribe", channel), ("subscribe", "room#*"), ("presence", channel), ("join", channel)}
        until(lambda: users_in(observer, channel) == [], "ann to be gone")
        observer.ok("publish", channel=channel, data=1)
        assert [event for event in ann.events_so_far() if event["event"] != "revoked"] == []
        assert ann.call("subscribe", channel=channel)["error"]["code"] == "not_allowed"
        assert "ok" in ann.call("publish", channel=channel, data=2), "what is still allowed stays"


def test_only_what_is_lost_ends(serve, channel, observer):
    with Socket(serve, token=tokens.token("ann", ALL)) as ann:
        use_everything(ann, channel)
        ann.events_so_far()
        ann.ok("hello", token=fewer("subscribe", "join"))
        assert revoked(ann.events_so_far()) == [("presence", channel)]
        observer.ok("publish", channel=channel, data=1)
        assert [event["data"] for event in ann.events_so_far() if event["event"] == "message"] == [1]
        ann.ok("hello", token=fewer("subscribe", "join", pattern=channel))
        assert revoked(ann.events_so_far()) == [("subscribe", "room#*")]
        assert users_in(observer, channel) == ["ann"]


def test_more_rights_end_nothing(serve, channel):
    with Socket(serve, token=tokens.token("ann", {channel: ["subscribe", "presence", "join"]})) as ann:
        ann.ok("subscribe", channel=channel, presence=True)
        ann.ok("join", channel=channel)
        ann.ok("hello", token=tokens.token("ann"))
        ann.ok("hello", token=tokens.token("ann", ALL))
        assert revoked(ann.events_so_far()) == []


def test_what_the_configuration_allows_stays(channel):
    with Tavern.serve('[kinds.room]\nallow = ["subscribe", "presence", "join"]\n') as server:
        with Socket(server, token=tokens.token("ann", ALL)) as ann:
            use_everything(ann, channel)
            ann.ok("hello", token=fewer())
            assert revoked(ann.events_so_far()) == []


def test_a_resumed_session_has_the_rights_of_the_fresh_token(serve, channel, observer):
    with Socket(serve, token=tokens.token("ann", ALL)) as ann:
        use_everything(ann, channel)
        ann.events_so_far()
        session = ann.hello["session"]
        ann.drop()
        with Socket(serve, headers={"authorization": f"Bearer {fewer('publish', pattern=channel)}"}) as back:
            assert back.ok("hello", session=session, seq=0)["resumed"] is True
            assert len(revoked(back.events_so_far())) == 4
        until(lambda: users_in(observer, channel) == [], "ann to be gone")


def test_a_poll_with_a_fresh_token_of_fewer_rights(serve, channel, observer):
    with Poller(serve, token=tokens.token("ann", ALL)) as ann:
        ann.ok("hello")
        ann.ok("subscribe", channel=channel)
        ann.ok("join", channel=channel)
        ann.http.headers["authorization"] = f"Bearer {fewer('publish')}"
        ended = set()
        def all_ended():
            ended.update(revoked(ann.take(1000)))
            return ended == {("subscribe", channel), ("join", channel)}
        until(all_ended, "the events")
        until(lambda: users_in(observer, channel) == [], "ann to be gone")


def test_a_command_with_a_fresh_token_of_fewer_rights(serve, channel):
    with Poller(serve, token=tokens.token("ann", ALL)) as ann:
        ann.ok("hello")
        ann.ok("subscribe", channel=channel)
        ann.ok("hello", session=ann.session, token=fewer("publish"))
        assert revoked(ann.take(1000)) == [("subscribe", channel)]


def test_a_stream_with_a_fresh_token_of_fewer_rights(serve, channel):
    with Poller(serve, token=tokens.token("ann", ALL)) as ann:
        session = ann.ok("hello")["session"]
        ann.ok("subscribe", channel=channel)
        with Stream(serve, headers={"authorization": f"Bearer {fewer('publish')}"}, session=session, seq=0) as stream:
            assert stream.greeting()["resumed"] is True
            _, event = stream.event()
            assert event["event"] == "revoked" and event["channel"] == channel


def test_a_redis_connection_that_logs_in_again(serve, channel):
    redis = RespConnection(serve.resp_port)
    assert redis.call("HELLO", "3", "AUTH", "default", tokens.token("ann", ALL))
    assert redis.call("SUBSCRIBE", channel)
    assert redis.call("PSUBSCRIBE", "room#*")
    redis.send(pack("AUTH", fewer("publish")))
    replies = [parse(redis.frame(5))[0] for _ in range(3)]
    kinds = [reply if reply == "OK" else reply[0] for reply in replies]
    assert kinds == [b"unsubscribe", b"punsubscribe", "OK"], replies
    assert redis.call("PUBLISH", channel, "x") == 0
    redis.close()
