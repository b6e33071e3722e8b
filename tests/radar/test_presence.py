"""Presence: what Radar's clients hear and are answered, by the original and by Tavern."""
from radar.world import client_offline, client_online, offline, online, scope
from support.process import until


def test_a_subscriber_hears_every_change_once(join, room):
    ann, bob = join("ann"), join("bob", user=7)
    ann.presence(room, "subscribe")
    bob.online(room, {"tab": 1})
    ann.hears(online(room, bob), client_online(room, bob, {"tab": 1}))
    bob.online(room, {"tab": 2})
    ann.hears(client_online(room, bob, {"tab": 2}, op="client_updated"))
    bob.online(room, {"tab": 2})
    bob.online(room)
    ann.hears_nothing_until(bob)
    bob.offline(room)
    ann.hears(client_offline(room, bob, True), offline(room, bob))
    bob.offline(room)
    ann.hears_nothing_until(bob)


def test_a_client_hears_of_itself_but_not_of_its_own_departure(join, room):
    ann = join("ann")
    ann.presence(room, "subscribe")
    ann.online(room)
    ann.hears(online(room, ann), client_online(room, ann))
    ann.offline(room)
    ann.hears(offline(room, ann))


def test_get_answers_in_both_versions(join, room):
    ann, bob, cat = join("ann"), join("bob", user=7), join("cat")
    bob.online(room, {"tab": 1})
    cat.online(room)
    ann.presence(room, "get", answer=True)
    one = ann.presence(room, "get")
    assert one["op"] == "get" and one["value"] == {"7": 2, "cat": 2}
    two = ann.presence(room, "get", {"version": 2})
    assert ann._names_of(two["value"]) == {
        "7": {"clients": {bob.key: {"name": "bob", "tab": 1}}, "userType": 2},
        "cat": {"clients": {cat.key: {"name": "cat"}}, "userType": 2},
    }
    assert ann.presence("empty", "get")["value"] == {}


def test_sync_answers_and_listens(join, room):
    ann, bob = join("ann"), join("bob")
    bob.online(room, {"tab": 1})
    one = ann.presence(room, "sync")
    assert (one["op"], one["value"]) == ("online", {"bob": 2}), "the client makes version 1 of the answer"
    two = ann.presence(room, "sync", {"version": 2})
    assert ann._names_of(two["value"]) == {"bob": {"clients": {bob.key: {"name": "bob", "tab": 1}}, "userType": 2}}
    ann.seen = len(ann.events()) + ann.seen
    bob.offline(room)
    ann.hears(client_offline(room, bob, True), offline(room, bob))


def test_a_client_that_stops_listening_is_lost(join, room):
    ann, bob = join("ann"), join("bob", user=7)
    ann.presence(room, "subscribe")
    bob.online(room)
    ann.hears(online(room, bob), client_online(room, bob))
    bob.presence(room, "unsubscribe")
    ann.hears(client_offline(room, bob, False))
    assert ann.presence(room, "get")["value"] == {"7": 2}, "the user still counts"
    assert ann.presence(room, "get", {"version": 2})["value"] == {}
    bob.online(room)
    ann.hears(client_online(room, bob))
    bob.offline(room)
    ann.hears(client_offline(room, bob, True), offline(room, bob))


def test_a_closed_connection_is_lost_at_once_and_its_user_after_the_grace(join, room):
    ann, bob = join("ann"), join("bob")
    ann.presence(room, "subscribe")
    bob.online(room)
    ann.hears(online(room, bob), client_online(room, bob))
    bob.close()
    ann.hears(client_offline(room, bob, False))
    ann.hears(offline(room, bob))
    assert ann.presence(room, "get")["value"] == {}


def test_a_user_who_returns_in_time_was_never_offline(join, room):
    ann, bob = join("ann"), join("bob")
    ann.presence(room, "subscribe")
    bob.online(room)
    ann.hears(online(room, bob), client_online(room, bob))
    bob.close()
    ann.hears(client_offline(room, bob, False))
    again = join("bob")
    again.online(room)
    ann.hears(client_online(room, again))
    again.offline(room)
    ann.hears(client_offline(room, again, True), offline(room, bob))


def test_two_clients_are_one_user(join, room):
    ann, first, second = join("ann"), join("bob"), join("bob")
    ann.presence(room, "subscribe")
    first.online(room)
    ann.hears(online(room, first), client_online(room, first))
    second.online(room)
    ann.hears(client_online(room, second))
    first.close()
    ann.hears(client_offline(room, first, False))
    # The lost client may still come back, so the user goes later.
    second.offline(room)
    ann.hears(client_offline(room, second, True))
    ann.hears(offline(room, first))


def test_sync_announces_who_is_there_before_its_answer(join, room):
    far, bob = join("far", at=1), join("bob", user=7)
    bob.online(room, {"tab": 1})
    until(lambda: bob.presence(room, "get")["value"], "bob to be there")
    far.presence(room, "sync", {"version": 2})
    frames = [frame for frame in far.frames() if frame.get("to") == scope(room)]
    assert frames[:2] == [online(room, bob), client_online(room, bob, {"tab": 1})]
    assert [frame["op"] for frame in frames] == ["online", "client_online", "get"]


def test_presence_is_the_same_on_both_servers(join, room):
    far, bob = join("far", at=1), join("bob")
    far.presence(room, "subscribe")
    bob.online(room, {"tab": 1})
    far.hears(online(room, bob), client_online(room, bob, {"tab": 1}))
    bob.online(room, {"tab": 2})
    far.hears(client_online(room, bob, {"tab": 2}, op="client_updated"))
    bob.close()
    far.hears(client_offline(room, bob, False))
    far.hears(offline(room, bob))


def test_accounts_are_separate(join, room):
    ann, bob, own = join("ann"), join("bob", account="other"), join("own")
    ann.presence(room, "subscribe")
    bob.online(room)
    own.online(room)
    ann.hears(online(room, own), client_online(room, own))
    assert bob.presence(room, "get")["value"] == {"bob": 2}
