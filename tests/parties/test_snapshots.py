"""What clients know of their party: the snapshot in greetings, polls and refusals, letters that can be folded, versions,
requests that are repeated, more than one window, and what other services are told."""
import itertools
import random

from events.conftest import client as api_client
from events.office import pull, put
from parties.fold import fold
from parties.guest import CLIENTS, plain
from support.json_client import Poller, Socket
from support.process import until


def test_every_greeting_holds_the_party(table):
    ann, bob = table.party("ann bob")
    party = ann.get()
    for server, kind in itertools.product(table.servers, CLIENTS):
        with CLIENTS[kind](server, bob.user) as again:
            assert again.hello["party"] == party
    assert table.seat("eve").hello["party"] is None


def test_every_poll_holds_the_party_as_it_is(combination, calm_nodes):
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
        [letter] = bob.take()
        assert letter["cmd"] == "data"
        until(lambda: bob.poll(10)["party"] == ann.get(), "the poll to show the data")
        ann.ok("kick", user=user)
        assert [event["cmd"] for event in bob.take()] == ["kick"]
        until(lambda: bob.poll(10)["party"] is None, "the poll to show no party")


def test_letters_folded_over_an_old_snapshot_are_the_new_one(table):
    """One member only listens, while the others do whatever comes to their mind."""
    ann, watcher = table.party("ann watcher")
    others = table.seats("bob cid dan")
    party, dice = watcher.get(), random.Random(7)
    leader = ann
    for _ in range(25):
        members = [guest for guest in (ann, *others) if guest.get() and guest.get()["party_id"] == party["party_id"]]
        current = watcher.get()
        leader = next((guest for guest in members if guest.user == current["members"][0]["user"]), None)
        if leader is None:
            break
        guest = dice.choice(others)
        choice = dice.randrange(7)
        if choice == 0:
            leader.party("invite", user=guest.user)
        elif choice == 1:
            guest.party("accept", party_id=party["party_id"])
        elif choice == 2:
            leader.party("set_data", data={"n": dice.randrange(1000)})
        elif choice == 3 and leader is not guest:
            leader.party("promote", user=guest.user)
        elif choice == 4:
            leader.party("go", params=[1])
        elif choice == 5:
            leader.party("cancel_go")
        elif guest is not leader:
            leader.party("kick", user=guest.user)
    final = watcher.get()
    while party != final:
        party = fold(party, watcher.letter())
    watcher.hears_nothing_more()
    assert party["version"] > 6


def test_a_command_for_another_version_is_refused_and_no_change_has_no_version(table):
    ann, bob = table.seats("ann bob")
    ann.ok("invite", user=bob.user, if_version=0)
    bob.ok("accept", party_id=ann.get()["party_id"])
    version = ann.get()["version"]
    assert ann.refused("set_data", data={"a": 1}, if_version=version - 1) == "version_conflict"
    ann.ok("set_data", data={"a": 1}, if_version=version)
    assert ann.get()["version"] == version + 1
    ann.ok("set_data", data={"a": 1})
    ann.ok("get")
    assert ann.get()["version"] == version + 1


def test_a_repeated_request_is_done_once_wherever_it_is_repeated(combination, calm_nodes):
    ann, bob, cid = (f"{name}-rid-{combination.name}" for name in ("ann", "bob", "cid"))
    with CLIENTS["socket"](calm_nodes[0], ann) as one, CLIENTS["socket"](calm_nodes[1], ann) as two, \
            CLIENTS["socket"](calm_nodes[0], bob) as guest, CLIENTS["socket"](calm_nodes[1], cid) as third:
        one.arrive(), guest.arrive(), third.arrive()
        reply = one.ok("invite", user=bob, rid="r1")
        assert two.ok("invite", user=bob, rid="r1") == reply
        # The same request again, though it would not be allowed by now.
        guest.ok("accept", party_id=reply["party_id"], rid="r1")
        assert one.ok("invite", user=bob, rid="r1") == reply
        assert guest.ok("accept", party_id=reply["party_id"], rid="r1")["party"] == one.get()
        go = one.ok("go", rid="g")
        assert two.ok("go", rid="g") == go
        two.ok("cancel_go", rid="c")
        one.ok("cancel_go", rid="c")
        one.ok("kick", user=bob, rid="k")
        two.ok("kick", user=bob, rid="k")
        assert one.refused("kick", user=bob, rid="k2") == "not_member"
        cmds = [guest.letter()["cmd"] for _ in range(4)]
        assert cmds == ["invite", "party_go", "go_cancel", "kick"]
        guest.hears_nothing_more()


def test_every_window_of_a_user_is_told_until_one_of_them_has_it_for_good(table):
    ann = table.seat("ann")
    one = table.seat("bob", kind="socket")
    two = table.seat("bob", server=table.servers[-1], kind="socket")
    ann.invite(one)
    first, [second] = one.letters("ann invite")[0], two.letters("ann invite")
    assert first["letter"] == second["letter"]
    one.socket.ok("ack", seq=first["seq"])

    def news():
        with Socket(table.servers[0], user=one.user) as third:
            return [event for event in third.events_so_far() if event["event"] == "party"]

    until(lambda: news() == [], "the letter to be freed")
    assert two.ok("get") == {"party": None}


def test_members_are_present_in_the_channel_of_their_party(table):
    eve = table.seat("eve", kind="socket")
    eve.socket.ok("follow", user=table.name("ann"))
    ann, bob = table.party("ann bob")
    number = ann.get()["party_id"]

    def told(fact, what):
        until(lambda: any(fact(event) for event in eve.socket.events_so_far()), what)

    def in_party(event):
        return event["event"] == "status" and [one["activity"] for one in event["status"]["activities"]] == ["in_party"]

    told(in_party, "the follower to be told")
    with api_client(table.servers[-1], table.servers[-1].key) as api:
        def there():
            found = api.get(f"/v1/channels/party%23{number}/presence").json()
            return sorted(plain(one["user"]) for one in found["users"])
        until(lambda: there() == ["ann", "bob"], "both to be present")
        bob.ok("leave")
        until(lambda: there() == [], "the channel to be empty when the party is over")


def test_services_are_told_of_parties(combination, calm_nodes):
    names = [f"{name}-told-{combination.name}" for name in ("ann", "bob")]
    with api_client(calm_nodes[0], calm_nodes[0].key) as api, CLIENTS["socket"](calm_nodes[0], names[0]) as ann, \
            CLIENTS["socket"](calm_nodes[1], names[1]) as bob:
        put(api, "parties", topics=["tavern.parties"], pull=True)
        ann.arrive(), bob.arrive()
        number = ann.brings(bob)
        go = ann.ok("go", params={"m": 1})["go_id"]
        bob.ok("leave")

        def told():
            events = pull(api, "parties", after=0)["events"]
            return [(event["type"], event["data"]) for event in events if event["data"]["party_id"] == number]

        until(lambda: len(told()) >= 6, "the services to be told")
        assert told() == [
            ("party.created", {"party_id": number, "leader": ann.user}),
            ("party.joined", {"party_id": number, "user": bob.user}),
            ("party.go", {"party_id": number, "go_id": go, "members": [ann.user, bob.user], "params": {"m": 1}}),
            ("party.left", {"party_id": number, "user": bob.user, "reason": "left"}),
            ("party.go_cancelled", {"party_id": number, "go_id": go}),
            ("party.disbanded", {"party_id": number, "reason": "empty"}),
        ]
