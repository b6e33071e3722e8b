"""Channels of pusher-js: subscribing, events, signatures, client events, cache channels."""
import pytest

from pusher.world import App
from support.json_client import Socket
from support.process import until
from support import tokens


@pytest.mark.parametrize("prefix", ["", "private-", "presence-"])
def test_events_of_a_server_reach_subscribers_of_each_kind(clients, api, app, server, room, prefix):
    channel = prefix + room
    ann = clients.client(app, server, user={"user_id": "ann"}).connected().subscribe(channel)
    bob = clients.client(app, server, user={"user_id": "bob"}).connected().subscribe(channel)
    assert api.trigger(channel, "moved", {"x": 1, "text": "ü \"q\""}) == {}
    for client in (ann, bob):
        assert client.waits("moved", channel) == {"x": 1, "text": "ü \"q\""}


def test_the_socket_that_caused_an_event_does_not_get_it(clients, api, app, server, room):
    ann, bob = (clients.client(app, server).connected().subscribe(room) for _ in range(2))
    api.trigger([room], "first", "a", socket_id=ann.id)
    api.trigger([room], "second", "b")
    assert ann.waits("second", room) == "b" and bob.waits("second", room) == "b"
    assert ann.events("first") == [] and bob.waits("first", room) == "a"


def test_data_arrives_as_it_was_sent(clients, api, app, server, room):
    ann = clients.client(app, server).connected().subscribe(room)
    values = [{"a": [1, {"b": None}]}, [], [1, "two"], "text", "", 7, True, None, {"deep": [[[[]]]]}, "12", "\u2028\n\t"]
    for value in values:
        api.trigger(room, "value", value)
    until(lambda: len(ann.events("value")) == len(values), "all values")
    # pusher-js reads a text that is JSON as JSON, whatever server sent it.
    as_read = [12 if value == "12" else value for value in values]
    assert [event["data"] for event in ann.events("value")] == as_read


def test_an_event_too_large_for_one_read_arrives(clients, api, app, server, room):
    ann = clients.client(app, server).connected().subscribe(room)
    text = "ü" * 5_000
    assert api.trigger(room, "large", text) == {}
    assert ann.waits("large", room) == text


def test_a_batch_arrives_in_order(clients, api, app, server, room):
    ann = clients.client(app, server).connected().subscribe(room)
    batch = [{"channel": room, "name": "step", "data": {"n": number}} for number in range(10)]
    assert api.call("triggerBatch", batch)["status"] == 200
    until(lambda: len(ann.events("step")) == 10, "the batch")
    assert [event["data"]["n"] for event in ann.events("step")] == list(range(10))


def test_nothing_follows_an_unsubscription(clients, api, app, server, room):
    ann = clients.client(app, server).connected().subscribe(room).subscribe(f"{room}-b")
    ann.do("unsubscribe", channel=room)
    # The answer to a later frame comes after the unsubscription.
    ann.subscribe(f"{room}-c")
    api.trigger([room, f"{room}-c"], "after", "x")
    ann.waits("after", f"{room}-c")
    assert ann.events("after", room) == []


def test_a_forged_signature_fails_one_subscription_only(clients, api, app, server, room):
    ann = clients.client(app, server).connected()
    ann.do("forge", on=True)
    for channel in (f"private-{room}", f"presence-{room}"):
        ann.do("subscribe", channel=channel)
        assert ann.waits("pusher:subscription_error", channel)["status"] == 401
    ann.do("forge", on=False)
    ann.subscribe(f"private-{room}-b")
    api.trigger([f"private-{room}", f"private-{room}-b"], "secret", "x")
    ann.waits("secret", f"private-{room}-b")
    assert ann.events("secret", f"private-{room}") == []


def test_clients_send_events_to_each_other(clients, api, app, server, room):
    for channel in (f"private-{room}", f"presence-{room}"):
        ann = clients.client(app, server, user={"user_id": "ann"}).connected().subscribe(channel)
        bob = clients.client(app, server, user={"user_id": "bob"}).connected().subscribe(channel)
        bob.do("senders", channel=channel, event="client-typing")
        ann.trigger(channel, "client-typing", {"on": True})
        bob.trigger(channel, "client-done", "x")
        assert bob.waits("client-typing", channel) == {"on": True}
        assert ann.waits("client-done", channel) == "x"
        assert ann.events("client-typing") == [] and bob.events("client-done") == []
        sender = bob.waits("sender of client-typing", channel)
        assert sender == ({"user_id": "ann"} if channel.startswith("presence-") else {})


def test_refused_client_events_get_4301(clients, api, app, server, room):
    ann = clients.client(app, server).connected().subscribe(f"private-{room}").subscribe(room)
    def refused(count, frame):
        ann.do("send", frame=frame)
        until(lambda: len(ann.events("error")) == count, "an error")
        return ann.events("error")[-1]["data"]["code"]

    event = lambda channel, data="x", name="client-a": '{"event":"%s","channel":"%s","data":"%s"}' % (name, channel, data)
    assert refused(1, event(room)) == 4301, "a public channel"
    assert refused(2, event(f"private-{room}-other")) == 4301, "not subscribed"
    assert refused(3, event(f"private-{room}", "x" * 10241)) == 4301, "too large"
    assert refused(4, event(f"private-{room}", name="client-" + "a" * 200)) == 4301, "a long name"
    assert refused(5, '{"event":"other","data":{}}') is None, "an unknown event"
    assert refused(6, "nonsense") is None
    # The connection lives.
    api.trigger(room, "still", "here")
    ann.waits("still", room)


def test_client_events_are_off_unless_allowed(clients, other_app, server, room):
    clients.server(other_app, server)
    ann = clients.client(other_app, server).connected().subscribe(f"private-{room}")
    ann.do("trigger", channel=f"private-{room}", event="client-a", data={})
    assert ann.waits("error")["code"] == 4301


def test_too_many_client_events_are_refused(clients, api, app, server, room):
    channel = f"private-{room}"
    ann, bob = (clients.client(app, server).connected().subscribe(channel) for _ in range(2))
    for number in range(30):
        ann.do("trigger", channel=channel, event="client-n", data=number)
    until(lambda: len(ann.events("error")) + len(bob.events("client-n")) == 30, "all to be answered")
    assert {event["data"]["code"] for event in ann.events("error")} == {4301}
    assert 10 <= len(bob.events("client-n")) < 30
    numbers = [event["data"] for event in bob.events("client-n")]
    assert numbers == sorted(numbers)


@pytest.mark.parametrize("prefix", ["cache-", "private-cache-", "presence-cache-"])
def test_cache_channels_begin_with_the_last_event(clients, api, app, server, room, prefix):
    channel = prefix + room
    ann = clients.client(app, server, user={"user_id": "ann"}).connected().subscribe(channel)
    ann.waits("pusher:cache_miss", channel)
    for number in (1, 2):
        api.trigger(channel, "price", {"n": number})
    until(lambda: len(ann.events("price")) == 2, "the prices")
    bob = clients.client(app, server, user={"user_id": "bob"}).connected().subscribe(channel)
    assert bob.waits("price", channel) == {"n": 2}
    assert bob.events("pusher:cache_miss") == []
    assert api.get(f"/channels/{channel}", info="cache")["cache"]["data"] == '{"n":2}'


def test_encrypted_channels_are_opaque_to_the_server(clients, api, app, server, room):
    channel = f"private-encrypted-{room}"
    ann = clients.client(app, server).connected().subscribe(channel)
    with Socket(server, token=tokens.token("tina", allow={"pusher-1#*": ["subscribe"]})) as tina:
        tina.ok("subscribe", channel=app.channel(channel))
        api.trigger(channel, "secret", {"pin": 1234})
        assert ann.waits("secret", channel) == {"pin": 1234}
        message = tina.event()["data"]
        assert message["event"] == "secret" and set(message["data"]) == {"nonce", "ciphertext"}


def test_tavern_clients_and_pusher_clients_share_channels(clients, api, app, server, room):
    ann = clients.client(app, server).connected().subscribe(room)
    allow = {"pusher-1#*": ["subscribe", "publish"]}
    with Socket(server, token=tokens.token("tina", allow=allow)) as tina:
        tina.ok("subscribe", channel=app.channel(room))
        api.trigger(room, "moved", {"x": 1})
        assert tina.event()["data"] == {"event": "moved", "data": {"x": 1}}
        tina.ok("publish", channel=app.channel(room), data={"event": "hello", "data": {"from": "tina"}})
        assert ann.waits("hello", room) == {"from": "tina"}
        tina.ok("publish", channel=app.channel(room), data=[1, 2])
        assert ann.waits("message", room) == [1, 2]
        # Only the server itself sends events with such names.
        tina.ok("publish", channel=app.channel(room), data={"event": "pusher_internal:member_removed", "data": "{}"})
        until(lambda: len(ann.events("message", room)) == 2, "the message")


def test_an_unknown_key_is_answered_with_4001(clients, api, server):
    clients.server(App(9), server)
    ann = clients.client(App(9), server)
    until(lambda: ann.do("state")["state"] == "disconnected", "the client to stop")
    assert ann.error_codes() == {4001}
