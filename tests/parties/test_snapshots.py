"""What clients know of their party: snapshots in hello, polls and errors, events, versions, repeated requests, several sessions; and
what other services receive."""
import itertools
import random
import time

from events.conftest import client as api_client
from events.topics_api import pull, put
from parties.fold import fold
from parties.party_user import CLIENTS, plain
from support.json_client import Poller, Socket
from support.process import until


def test_hello_contains_the_party(users):
    ann, bob = users.party("ann bob")
    party = ann.get()
    for server, kind in itertools.product(users.servers, CLIENTS):
        with CLIENTS[kind](server, bob.user) as again:
            assert again.hello["party"] == party
    assert users.connect("eve").hello["party"] is None


def test_every_poll_contains_the_current_party(combination, calm_nodes):
    user = f"poll-{combination.name}"
    with CLIENTS["socket"](calm_nodes[1], f"host-{user}") as ann, Poller(calm_nodes[0], user=user) as bob:
        assert bob.ok("hello")["party"] is None
        bob.poll(10)
        number = ann.ok("invite", user=user)["party_id"]
        assert [event["cmd"] for event in bob.take()] == ["invite"]
        assert bob.poll(0)["party"] is None
        bob.ok("party.accept", party_id=number)
        until(lambda: bob.poll(10)["party"] == ann.get(), "the poll to show the party")
        ann.ok("set_data", data={"a": 1})
        [event] = bob.take()
        assert event["cmd"] == "data"
        until(lambda: bob.poll(10)["party"] == ann.get(), "the poll to show the data")
        ann.ok("kick", user=user)
        assert [event["cmd"] for event in bob.take()] == ["kick"]
        until(lambda: bob.poll(10)["party"] is None, "the poll to show no party")


def test_snapshot_in_a_poll_is_never_older_than_an_answered_command_or_its_events(combination, calm_nodes):
    user = f"fresh-{combination.name}"
    with CLIENTS["socket"](calm_nodes[1], f"host-{user}") as ann, Poller(calm_nodes[0], user=user) as bob:
        bob.ok("hello")
        number = ann.ok("invite", user=user)["party_id"]
        bob.ok("party.accept", party_id=number)
        for n in range(30):
            ann.ok("set_data", data={"n": n})
            answer = bob.poll(0 if n % 2 else 2_000)
            assert answer["party"]["data"] == {"n": n}


def test_user_is_found_as_soon_as_their_hello_is_answered(combination, calm_nodes):
    with CLIENTS["socket"](calm_nodes[1], f"host-{combination.name}") as ann:
        for n in range(10):
            user = f"found-{n}-{combination.name}"
            with CLIENTS["socket"](calm_nodes[0], user):
                ann.ok("block", user=user)


def test_an_old_snapshot_plus_events_equals_the_new_snapshot(users):
    """One member only reads events while the others send random commands."""
    ann, watcher = users.party("ann watcher")
    others = users.connect_all("bob cid dan")
    party, rng = watcher.get(), random.Random(7)
    leader = ann
    for _ in range(25):
        members = [member for member in (ann, *others) if member.get() and member.get()["party_id"] == party["party_id"]]
        current = watcher.get()
        leader = next((member for member in members if member.user == current["members"][0]["user"]), None)
        if leader is None:
            break
        member = rng.choice(others)
        choice = rng.randrange(7)
        if choice == 0:
            leader.party("invite", user=member.user)
        elif choice == 1:
            member.party("accept", party_id=party["party_id"])
        elif choice == 2:
            leader.party("set_data", data={"n": rng.randrange(1000)})
        elif choice == 3 and leader is not member:
            leader.party("promote", user=member.user)
        elif choice == 4:
            leader.party("go", params=[1])
        elif choice == 5:
            leader.party("cancel_go")
        elif member is not leader:
            leader.party("kick", user=member.user)
    final = watcher.get()
    while party != final:
        party = fold(party, watcher.next_event())
    watcher.expect_nothing()
    assert party["version"] > 6


def test_if_version_is_checked_and_no_change_keeps_the_version(users):
    ann, bob = users.connect_all("ann bob")
    ann.ok("invite", user=bob.user, if_version=0)
    bob.ok("accept", party_id=ann.get()["party_id"])
    version = ann.get()["version"]
    assert ann.refused("set_data", data={"a": 1}, if_version=version - 1) == "version_conflict"
    ann.ok("set_data", data={"a": 1}, if_version=version)
    assert ann.get()["version"] == version + 1
    ann.ok("set_data", data={"a": 1})
    ann.ok("get")
    assert ann.get()["version"] == version + 1


def test_a_repeated_request_is_executed_once_on_any_server(combination, calm_nodes):
    ann, bob, cid = (f"{name}-rid-{combination.name}" for name in ("ann", "bob", "cid"))
    with CLIENTS["socket"](calm_nodes[0], ann) as one, CLIENTS["socket"](calm_nodes[1], ann) as two, \
            CLIENTS["socket"](calm_nodes[0], bob) as member, CLIENTS["socket"](calm_nodes[1], cid) as third:
        one.wait_online(), member.wait_online(), third.wait_online()
        reply = one.ok("invite", user=bob, rid="r1")
        assert two.ok("invite", user=bob, rid="r1") == reply
        # The same request again, although it would be refused by now.
        member.ok("accept", party_id=reply["party_id"], rid="r1")
        assert one.ok("invite", user=bob, rid="r1") == reply
        assert member.ok("accept", party_id=reply["party_id"], rid="r1")["party"] == one.get()
        go = one.ok("go", rid="g")
        assert two.ok("go", rid="g") == go
        two.ok("cancel_go", rid="c")
        one.ok("cancel_go", rid="c")
        one.ok("kick", user=bob, rid="k")
        two.ok("kick", user=bob, rid="k")
        assert one.refused("kick", user=bob, rid="k2") == "not_member"
        cmds = [member.next_event()["cmd"] for _ in range(4)]
        assert cmds == ["invite", "party_go", "go_cancel", "kick"]
        member.expect_nothing()


def test_every_session_gets_an_event_until_one_has_acknowledged_it(users):
    ann = users.connect("ann")
    one = users.connect("bob", kind="socket")
    two = users.connect("bob", server=users.servers[-1], kind="socket")
    ann.invite(one)
    first, [second] = one.expect("ann invite")[0], two.expect("ann invite")
    assert first["message_id"] == second["message_id"]
    one.socket.ok("ack", seq=first["seq"])

    def unacknowledged():
        with Socket(users.servers[0], user=one.user) as third:
            return [event for event in third.events_so_far() if event["event"] == "party"]

    until(lambda: unacknowledged() == [], "the message to be removed")
    assert two.ok("get") == {"party": None}


def test_members_are_present_in_the_channel_of_their_party(users):
    eve = users.connect("eve", kind="socket")
    eve.socket.ok("follow", user=users.name("ann"))
    ann, bob = users.party("ann bob")
    number = ann.get()["party_id"]

    def wait_for(fact, what):
        until(lambda: any(fact(event) for event in eve.socket.events_so_far()), what)

    def in_party(event):
        return event["event"] == "status" and [one["activity"] for one in event["status"]["activities"]] == ["in_party"]

    wait_for(in_party, "a status event")
    with api_client(users.servers[-1], users.servers[-1].key) as api:
        def there():
            found = api.get(f"/v1/channels/party%23{number}/presence").json()
            return sorted(plain(one["user"]) for one in found["users"])
        until(lambda: there() == ["ann", "bob"], "both to be present")
        bob.ok("leave")
        until(lambda: there() == [], "the channel to be empty")


def test_services_receive_party_events(combination, calm_nodes):
    names = [f"{name}-services-{combination.name}" for name in ("ann", "bob")]
    with api_client(calm_nodes[0], calm_nodes[0].key) as api, CLIENTS["socket"](calm_nodes[0], names[0]) as ann, \
            CLIENTS["socket"](calm_nodes[1], names[1]) as bob:
        put(api, "parties", topics=["tavern.parties"], pull=True)
        ann.wait_online(), bob.wait_online()

        def publishes(user, other):
            """Whether the server of a user publishes party events. It learns of the subscription over the bus."""
            party = user.invite(other)
            user.ok("cancel_invite", user=other.user)
            time.sleep(0.1)
            return any(event["data"]["party_id"] == party for event in pull(api, "parties", after=0)["events"])

        until(lambda: publishes(ann, bob) and publishes(bob, ann), "both servers to publish")
        number = ann.invite_and_accept(bob)
        go = ann.ok("go", params={"m": 1})["go_id"]
        bob.ok("leave")

        def received():
            events = pull(api, "parties", after=0)["events"]
            return [(event["type"], event["data"]) for event in events if event["data"]["party_id"] == number]

        until(lambda: len(received()) >= 6, "all party events")
        assert received() == [
            ("party.created", {"party_id": number, "leader": ann.user}),
            ("party.joined", {"party_id": number, "user": bob.user}),
            ("party.go", {"party_id": number, "go_id": go, "members": [ann.user, bob.user], "params": {"m": 1}}),
            ("party.left", {"party_id": number, "user": bob.user, "reason": "left"}),
            ("party.go_cancelled", {"party_id": number, "go_id": go}),
            ("party.disbanded", {"party_id": number, "reason": "empty"}),
        ]
