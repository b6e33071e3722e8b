"""Channels over all transports: shared subscriptions, one event per session, receiver counts."""
import base64
import json

import pytest

from support import tokens
from support.json_client import Poller, Socket, Stream
from support.resp import RespConnection, pack


@pytest.fixture
def redis(dev):
    connection = RespConnection(dev.resp_port)
    yield connection
    connection.close()


def test_receivers_count_matching_subscriptions_on_all_transports(dev, user, channel, redis):
    with Socket(dev, user=user) as one, Socket(dev, user=user) as two, Poller(dev, user=user) as three:
        assert one.ok("publish", channel=channel, data=1)["receivers"] == 0
        one.ok("subscribe", channel=channel)
        two.ok("subscribe", channel=channel)
        three.ok("hello")
        three.ok("subscribe", channel=channel)
        redis.call("SUBSCRIBE", channel)
        assert one.ok("publish", channel=channel, data=1)["receivers"] == 4


def test_a_double_subscription_delivers_once(dev, user, channel):
    with Socket(dev, user=user) as socket:
        socket.ok("subscribe", channel=channel)
        socket.ok("subscribe", channel=channel)
        socket.ok("publish", channel=channel, data=1)
        assert [event["data"] for event in socket.events_so_far()] == [1]
        socket.ok("unsubscribe", channel=channel)
        socket.ok("unsubscribe", channel=channel)
        socket.ok("publish", channel=channel, data=2)
        assert socket.events_so_far() == []


def test_channel_and_pattern_together_deliver_one_event(dev, user, channel):
    with Socket(dev, user=user) as socket:
        socket.ok("subscribe", channel=channel)
        socket.ok("subscribe", pattern=channel[:-1] + "*")
        socket.ok("subscribe", pattern=f"{channel}*")
        socket.ok("publish", channel=channel, data=1)
        assert [(event["channel"], event["data"]) for event in socket.events_so_far()] == [(channel, 1)]


def test_a_pattern_subscription_receives(dev, user, channel):
    with Socket(dev, user=user) as socket:
        socket.ok("subscribe", pattern=f"{channel}?")
        socket.ok("publish", channel=channel, data="no")
        socket.ok("publish", channel=f"{channel}x", data="yes")
        assert [event["data"] for event in socket.events_so_far()] == ["yes"]
        socket.ok("unsubscribe", pattern=f"{channel}?")
        socket.ok("publish", channel=f"{channel}x", data="no")
        assert socket.events_so_far() == []


def test_from_names_user_and_client(dev, user, channel):
    with Socket(dev, user=user) as socket:
        socket.ok("subscribe", channel=channel)
        socket.ok("publish", channel=channel, data=1)
        assert socket.events_so_far()[0]["from"] == {"user": user, "client": socket.hello["client"]}


def test_a_redis_message_by_the_holder_of_a_user_token_has_from(serve, user, channel):
    with Socket(serve, token=tokens.token("watcher")) as socket:
        socket.ok("subscribe", channel=channel)
        connection = RespConnection(serve.resp_port)
        assert connection.call("AUTH", tokens.token(user)) == "OK"
        assert connection.call("PUBLISH", channel, "first") == 1
        sender = socket.event()["from"]
        assert sender["user"] == user and len(sender["client"]) == 16
        assert connection.call("AUTH", tokens.token(user)) == "OK"
        connection.send(pack("MULTI") + pack("PUBLISH", channel, "second") + pack("EXEC"))
        assert socket.event()["from"] == sender, "a fresh token keeps the client"
        connection.send(pack("RESET") + pack("AUTH", serve.key) + pack("PUBLISH", channel, "third"))
        assert "from" not in socket.event(), "a service has none"
        connection.close()


@pytest.mark.parametrize(
    "payload, data, encoding",
    [
        (b'{"a": 1}', {"a": 1}, None),
        (b"17", 17, None),
        (b'"text"', "text", None),
        (b"plain text", "plain text", None),
        ("grüß".encode(), "grüß", None),
        (b"", "", None),
        (b'{"a":', '{"a":', None),
        (b"[" * 65 + b"]" * 65, "[" * 65 + "]" * 65, None),
        (b"line\nbreak \"quoted\" \x07", "line\nbreak \"quoted\" \x07", None),
        (b"\xff\x00\x01", base64.b64encode(b"\xff\x00\x01").decode(), "base64"),
    ],
)
def test_redis_payloads_arrive_as_json(dev, user, channel, redis, payload, data, encoding):
    with Socket(dev, user=user) as socket:
        socket.ok("subscribe", channel=channel)
        assert redis.call("PUBLISH", channel, payload) == 1
        event = socket.event()
        assert event["data"] == data and event.get("encoding") == encoding


@pytest.mark.parametrize("data", ['"text"', '{"a": [1,2 ]}', "null", "1.50", '"gr\\u00fc\\u00df"', '{\n"a":1}'])
def test_json_data_arrives_at_redis_unchanged(dev, user, channel, redis, data):
    redis.call("SUBSCRIBE", channel)
    with Socket(dev, user=user) as socket:
        socket.send('{"id":1,"op":"publish","channel":"%s","data":%s}' % (channel, data))
        assert redis.read() == [b"message", channel.encode(), data.encode()]


def test_names_outside_the_grammar_work_only_between_redis_connections(dev, user, redis):
    with Socket(dev, user=user) as socket:
        socket.ok("subscribe", pattern="*")
        redis.call("PUBLISH", "News.Sport", "x")
        redis.call("PUBLISH", b"\xff", "x")
        assert [e for e in socket.events_so_far() if not e["channel"].startswith("room#")] == []


def test_a_redis_channel_name_is_limited_to_512_bytes(dev, redis):
    assert redis.call("PUBLISH", "n" * 512, "x") == 0
    assert redis.call("PUBLISH", "n" * 513, "x").startswith("ERR")
    assert redis.call("SUBSCRIBE", "n" * 513).startswith("ERR")
    assert redis.call("PING") == "PONG"


@pytest.mark.parametrize("kind", ["user", "party", "tavern"])
def test_publishing_to_reserved_kinds_is_refused(dev, user, redis, kind):
    with Socket(dev, user=user) as socket:
        for name in (kind, f"{kind}#x"):
            assert socket.call("publish", channel=name, data=1)["error"]["code"] == "not_allowed"
            assert redis.call("PUBLISH", name, "x").startswith("NOPERM")


def test_messages_of_one_publisher_arrive_in_order_on_all_transports(dev, user, channel, redis):
    count = 500
    redis.call("SUBSCRIBE", channel)
    with Socket(dev, user=user) as listener, Socket(dev, user=user) as publisher, Stream(dev, user=user) as stream:
        listener.ok("subscribe", channel=channel)
        with Poller(dev, user=user, session=stream.greeting()["session"]) as commands:
            assert "ok" in commands.command("subscribe", channel=channel)
        publisher.send("\n".join(json.dumps({"op": "publish", "channel": channel, "data": n}) for n in range(count)))
        assert [listener.event()["data"] for _ in range(count)] == list(range(count))
        assert [int(redis.read()[2]) for _ in range(count)] == list(range(count))
        assert [stream.event()[1]["data"] for _ in range(count)] == list(range(count))


def test_redis_connections_can_poll(dev, channel, redis):
    listener = RespConnection(dev.resp_port)
    assert listener.call("TAVERN.MODE", "poll") == "OK"
    listener.call("SUBSCRIBE", channel)
    assert listener.call("TAVERN.POLL") == []
    for message in ("a", "b", "c"):
        assert redis.call("PUBLISH", channel, message) == 1
    shaped = [[b"message", channel.encode(), message] for message in (b"a", b"b", b"c")]
    assert listener.call("TAVERN.POLL", "2") == shaped[:2]
    assert listener.call("TAVERN.WAIT", "5000") == shaped[2:]
    assert listener.call("TAVERN.WAIT", "50") == []
    redis.call("PUBLISH", channel, "d")
    assert listener.call("TAVERN.MODE", "push") == "OK"
    assert listener.read() == [b"message", channel.encode(), b"d"]
    listener.close()


def test_wait_wakes_on_a_message(dev, channel, redis):
    listener = RespConnection(dev.resp_port)
    listener.call("TAVERN.MODE", "poll")
    listener.call("SUBSCRIBE", channel)
    listener.send(pack("TAVERN.WAIT", "0"))
    redis.call("PUBLISH", channel, "now")
    assert listener.read() == [[b"message", channel.encode(), b"now"]]
    listener.close()
