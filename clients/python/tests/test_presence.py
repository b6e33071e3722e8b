"""The presence map: snapshots, changes, coalesced events, counts, missing versions."""
import random

import pytest

from tavern_client.presence import Presence


def shown(room):
    named = {user.user: (user.leaving, {c.client: c.state for c in user.clients.values()}) for user in room.users.values()}
    return named, {c.client: c.state for c in room.anonymous.values()}, room.count


def room_at(version=0, users=(), count=None):
    asked = []
    room = Presence("game#1", lambda: asked.append(True))
    room.restore({"version": version, "users": list(users), "count": len(users) if count is None else count})
    return room, asked


ANN = {"user": "ann", "name": "Ann", "clients": [{"client": "a1", "state": 1, "since": 5}], "since": 5}


def event(kind, version, user, **members):
    return {"event": kind, "channel": "game#1", "version": version, "user": user, **members}


def test_join_update_and_leave_change_the_map():
    room, asked = room_at(7, [ANN])
    room.apply(event("user_online", 8, "bob", name="Bob"))
    room.apply(event("client_online", 9, "bob", client="b1", state={"seat": 2}))
    room.apply(event("client_updated", 10, "bob", client="b1", state={"seat": 3}))
    assert shown(room) == ({"ann": (False, {"a1": 1}), "bob": (False, {"b1": {"seat": 3}})}, {}, 2)
    assert room.users["bob"].name == "Bob" and room.users["ann"].since == 5
    room.apply(event("client_offline", 11, "bob", client="b1", explicit=False, reason="lost"))
    assert room.users["bob"].leaving, "in the grace period the user is present and leaving"
    room.apply(event("client_online", 12, "bob", client="b2", state=None))
    assert shown(room)[0]["bob"] == (False, {"b2": None})
    room.apply(event("client_offline", 13, "bob", client="b2", explicit=True, reason="left"))
    room.apply(event("user_offline", 14, "bob", last_seen=1, reason="left"))
    assert shown(room) == ({"ann": (False, {"a1": 1})}, {}, 1) and room.version == 14 and not asked


def test_an_event_older_than_the_snapshot_is_ignored():
    room, asked = room_at(7, [ANN])
    room.apply(event("user_offline", 7, "ann", last_seen=1, reason="left"))
    assert shown(room)[2] == 1 and not asked


def test_a_missing_version_requests_one_snapshot_and_buffers_later_changes():
    room, asked = room_at(7, [ANN])
    room.apply(event("client_online", 10, "ann", client="a3", state=3))
    room.apply(event("client_online", 11, "ann", client="a4", state=4))
    assert asked == [True] and room.version == 7
    room.restore({"version": 10, "users": [{**ANN, "clients": [{"client": "a3", "state": 3, "since": 1}]}], "count": 1})
    assert shown(room)[0] == {"ann": (False, {"a3": 3, "a4": 4})} and room.version == 11 and asked == [True]


def test_the_version_of_an_empty_channel_may_jump():
    room, asked = room_at(0)
    room.apply(event("user_online", 1_000, "ann", name=None))
    room.apply(event("client_online", 1_001, "ann", client="a1", state=1))
    assert shown(room) == ({"ann": (False, {"a1": 1})}, {}, 1) and not asked


def test_changes_before_the_first_snapshot_are_buffered():
    room = Presence("game#1")
    room.apply(event("user_online", 8, "bob", name=None))
    room.apply(event("client_online", 9, "bob", client="b1", state=0))
    assert room.count == 0
    room.restore({"version": 8, "users": [ANN, {"user": "bob", "name": None, "clients": [], "since": 1}], "count": 2})
    assert shown(room) == ({"ann": (False, {"a1": 1}), "bob": (False, {"b1": 0})}, {}, 2)


def test_coalesced_events_apply_all_their_changes():
    room, asked = room_at(7, [ANN])
    room.apply({
        "event": "presence", "channel": "game#1", "from_version": 7, "version": 30, "count": 2,
        "joined": [{"user": "bob", "client": "b1", "state": 1}, {"user": "bob", "client": "b2", "state": 2}, {"user": "cid"}],
        "updated": [], "left": [{"user": "ann"}],
    })
    assert shown(room) == ({"bob": (False, {"b1": 1, "b2": 2}), "cid": (True, {})}, {}, 2)
    room.apply({
        "event": "presence", "channel": "game#1", "from_version": 30, "version": 31, "count": 2,
        "joined": [], "updated": [{"user": "bob", "client": "b1", "state": 9}], "left": [{"user": "bob", "client": "b2"}],
    })
    assert shown(room)[0]["bob"] == (False, {"b1": 9}) and not asked
    room.apply({"event": "presence", "channel": "game#1", "from_version": 40, "version": 41, "count": 2, "joined": [], "updated": [], "left": []})
    assert asked == [True]


def test_anonymous_users_are_counted_and_known_by_client():
    room, _ = room_at(1, [{"user": None, "name": None, "clients": [{"client": "x1", "state": 0, "since": 1}], "since": 1}])
    room.apply(event("user_online", 2, None, name=None))
    room.apply(event("client_online", 3, None, client="x2", state=5))
    room.apply(event("user_online", 4, None, name=None))
    room.apply(event("client_online", 5, None, client=None, state=None))
    assert shown(room) == ({}, {"x1": 0, "x2": 5}, 3), "a hidden user is only counted"
    room.apply(event("client_offline", 6, None, client="x2", explicit=True, reason="left"))
    room.apply(event("user_offline", 7, None, last_seen=1, reason="left"))
    assert shown(room) == ({}, {"x1": 0}, 2)


def test_counts_mode_keeps_the_number_and_leaving_it_reloads_the_names():
    room, asked = room_at(7, [ANN])
    room.apply({"event": "presence_mode", "channel": "game#1", "mode": "counts", "version": 7})
    assert room.users == {} and room.count == 1 and room.mode == "counts"
    room.apply({"event": "presence", "channel": "game#1", "from_version": 7, "version": 9, "count": 6_000})
    room.apply({
        "event": "presence", "channel": "game#1", "from_version": 9, "version": 12, "count": 6_001,
        "joined": [{"user": "friend", "client": "f1", "state": 1}], "updated": [], "left": [],
    })
    assert room.count == 6_001 and set(room.users) == {"friend"} and not asked
    room.apply({"event": "presence_mode", "channel": "game#1", "mode": "coalesced", "version": 12})
    assert asked == [True], "a snapshot is requested"
    room.restore({"version": 12, "users": [ANN], "count": 1})
    assert set(room.users) == {"ann"} and room.mode == "coalesced"


def test_a_snapshot_without_users_means_counts_mode():
    room = Presence("game#1")
    room.restore({"version": 3, "count": 9_000})
    assert (room.mode, room.count, room.users) == ("counts", 9_000, {})


def test_every_change_is_emitted_once():
    room, _ = room_at(7, [ANN])
    received = []
    room.on("change", received.append)
    room.apply(event("client_updated", 8, "ann", client="a1", state=2))
    room.apply(event("client_updated", 8, "ann", client="a1", state=2))
    assert [change["version"] for change in received] == [8]


class Model:
    """A model of a channel on the server; produces events and snapshots."""

    def __init__(self, rand):
        self.rand, self.version, self.users, self.events = rand, 100, {}, []

    def tell(self, kind, user, **members):
        self.version += 1
        self.events.append(event(kind, self.version, user, **members))

    def step(self):
        user, client = self.rand.choice("abcd"), self.rand.choice("123")
        client = user + client
        clients = self.users.get(user)
        what = self.rand.choice(["join", "join", "update", "leave", "lose", "expire"])
        if what == "join" and not (clients and client in clients):
            if clients is None:
                clients = self.users[user] = {}
                self.tell("user_online", user, name=user.upper())
            clients[client] = self.version
            self.tell("client_online", user, client=client, state=clients[client])
        elif what == "update" and clients and client in clients:
            clients[client] = self.version
            self.tell("client_updated", user, client=client, state=clients[client])
        elif what in ("leave", "lose") and clients and client in clients:
            del clients[client]
            self.tell("client_offline", user, client=client, explicit=what == "leave", reason="left")
            if what == "leave" and not clients:
                del self.users[user]
                self.tell("user_offline", user, last_seen=1, reason="left")
        elif what == "expire" and clients == {}:
            del self.users[user]
            self.tell("user_offline", user, last_seen=1, reason="lost")

    def members(self):
        users = [
            {"user": user, "name": user.upper(), "clients": [{"client": c, "state": s, "since": 1} for c, s in clients.items()], "since": 1}
            | ({} if clients else {"leaving": True})
            for user, clients in self.users.items()
        ]
        return {"version": self.version, "users": users, "count": len(users)}


@pytest.mark.parametrize("seed", range(50))
def test_the_map_equals_the_model_despite_lost_events(seed):
    rand = random.Random(seed)
    model = Model(rand)
    room = Presence("game#1", lambda: late.append(model.members()))
    late = []
    room.restore(model.members())
    for _ in range(300):
        before = len(model.events)
        model.step()
        for change in model.events[before:]:
            if rand.random() < 0.05:
                continue
            room.apply(change)
        if late and rand.random() < 0.5:
            room.restore(late.pop())
    room.lose()
    late = [model.members()]
    room.restore(late.pop())
    expected, _ = room_at(model.version, model.members()["users"])
    assert shown(room) == shown(expected)


@pytest.mark.parametrize("seed", range(20))
def test_without_loss_no_snapshot_is_requested(seed):
    model = Model(random.Random(seed))
    for _ in range(20):
        model.step()
    model.events.clear()
    room, asked = room_at(model.version, model.members()["users"])
    for _ in range(300):
        model.step()
    for change in model.events:
        room.apply(change)
    expected, _ = room_at(model.version, model.members()["users"])
    assert shown(room) == shown(expected) and room.version == model.version and not asked
