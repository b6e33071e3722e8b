"""Statuses and messages: the same requests to the original and to Tavern."""
import json

from radar.world import scope
from support.process import until


def set_event(room, client, value):
    return {
        "op": "set", "to": scope(room, kind="status"), "value": value, "key": client.user, "type": 2, "userData": {"name": client.name},
    }


def message(room, client, value):
    return {"op": "publish", "to": scope(room, kind="message"), "value": value, "userData": {"name": client.name}}


def test_a_status_is_kept_and_told(join, room):
    ann, bob, far = join("ann"), join("bob", user=7), join("far", at=1)
    assert ann.call("status", room, "get")["value"] == {}
    bob.call("status", room, "set", "away")
    assert far.call("status", room, "sync")["value"] == {"7": "away"}
    ann.call("status", room, "subscribe")
    bob.call("status", room, "set", {"at": [1, 2]})
    for one in (ann, far):
        one.hears(set_event(room, bob, {"at": [1, 2]}))
    ann.call("status", room, "set", "here")
    ann.hears(set_event(room, ann, "here"))
    assert far.call("status", room, "get")["value"] == {"7": {"at": [1, 2]}, "ann": "here"}
    bob.close()
    assert ann.call("status", room, "get")["value"] == {"7": {"at": [1, 2]}, "ann": "here"}, "a status outlives its client"
    ann.call("status", room, "unsubscribe")
    ann.call("status", room, "set", "gone")
    far.hears(set_event(room, ann, "here"), set_event(room, ann, "gone"))
    ann.hears_nothing_until(far)


def test_a_message_reaches_every_subscriber(join, room):
    ann, bob, far = join("ann"), join("bob"), join("far", at=1)
    for one in (ann, far):
        one.call("message", room, "subscribe")
    bob.call("message", room, "publish", {"hello": "ü"})
    ann.call("message", room, "publish", "text")
    for one in (ann, far):
        until(lambda one=one: len(one.events()) == 2, f"{one.name} to hear both")
        assert sorted(map(str, one.events())) == sorted(map(str, [message(room, bob, {"hello": "ü"}), message(room, ann, "text")]))
        one.seen += 2
    far.call("message", room, "unsubscribe")
    ann.call("message", room, "publish", None)
    ann.hears(message(room, ann, None))
    far.hears_nothing_until(ann)


def test_sync_brings_the_messages_that_are_kept(join, room):
    kept = f"kept/{room}"
    ann, far = join("ann"), join("far", at=1)
    for number in range(3):
        ann.call("message", kept, "publish", {"n": number})
    far.listen("message", kept)
    far.call("message", kept, "sync", answer=False)
    until(lambda: len(far.got()) == 3, "the kept messages")
    assert far.got() == [message(kept, ann, {"n": number}) for number in range(3)]
    ann.call("message", kept, "publish", {"n": 3})
    until(lambda: len(far.got()) == 4, "the next message")
    assert far.got()[3] == message(kept, ann, {"n": 3})
    sync = next(frame for frame in far.frames() if frame["op"] == "sync")
    assert all(isinstance(part, str) for part in sync["value"]) and isinstance(sync["time"], int)


def test_a_request_that_cannot_be_read_is_ignored_and_an_unknown_type_is_an_error(join, room):
    ann = join("ann")
    to = scope(room, kind="message")
    ann.send("nonsense")
    ann.send('{"to":"x"}')
    ann.send('{"op":"get","to":"nothing:/x/y"}')
    ann.send(json.dumps({"op": "frob", "to": scope(room), "ack": 901}))
    batch = [{"op": "subscribe", "to": to, "ack": 902}, {"op": "publish", "to": to, "value": 1, "ack": 903}]
    ann.send(json.dumps({"op": "batch", "length": 2, "value": batch}))
    acked = lambda: [frame["value"] for frame in ann.frames() if frame["op"] == "ack"]
    until(lambda: {902, 903} <= set(acked()), "the acknowledgements of the batch")
    until(lambda: any(event["op"] == "publish" for event in ann.events()), "the message of the batch")
    assert 901 not in acked()
    errors = [frame for frame in ann.frames() if frame["op"] == "err"]
    assert errors == [{"op": "err", "value": "unknown_type", "origin": {"op": "get", "to": "nothing:/x/y"}}]


def test_an_old_client_gets_version_one_of_sync(join, room):
    ann, bob = join("ann"), join("bob")
    bob.online(room)
    ann.send(json.dumps({"op": "sync", "to": scope(room), "ack": 904}))
    answers = lambda: [frame for frame in ann.frames() if frame.get("to") == scope(room) and frame["op"] == "online"]
    until(lambda: answers() and "userData" not in answers()[-1], "the answer")
    assert answers()[-1] == {"op": "online", "to": scope(room), "value": {"bob": 2}}
