"""Commands that are given at the same moment on two servers: one winner, one set of letters, and never two truths.

TAVERN_PARTY_RACES says how often each race is run (`make torture-parties`: 1,000). Both sides are ready before either begins; who
is given a head start, and how long, changes from race to race.
"""
import contextlib
import os
import random
import threading
import time

import pytest

from parties.conftest import Table
from parties.guest import plain, words

RACES = int(os.environ.get("TAVERN_PARTY_RACES", "12"))

CONFIG = """
[nodes]
heartbeat_ms = 500
lease_ms = 5000
[parties]
invites_per_minute = 100000
reinvite_ms = 0
"""
# An invite that is over soon.
SHORT = CONFIG + "invite_ms = 40\n"


@pytest.fixture(scope="module")
def servers(combination):
    with combination.cluster(2, CONFIG) as servers:
        yield servers


@pytest.fixture(scope="module")
def short(combination):
    with combination.cluster(2, SHORT) as servers:
        yield servers


@pytest.fixture
def table(servers):
    with contextlib.ExitStack() as stack:
        yield Table(servers, stack)


def at_once(dice, *deeds, late_ms=4.0):
    """Does these at the same moment, one of them perhaps a little later; their replies."""
    gate, replies = threading.Barrier(len(deeds)), [None] * len(deeds)
    waits = [dice.choice((0, 0, dice.random() * late_ms / 1000)) for _ in deeds]

    def do(at):
        gate.wait(10)
        time.sleep(waits[at])
        try:
            replies[at] = deeds[at]()
        except Exception as failure:
            replies[at] = failure

    threads = [threading.Thread(target=do, args=(at,)) for at in range(len(deeds))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies


def code(reply):
    return reply.get("error", {}).get("code", "ok")


def letters(guest):
    """Everything that was told to somebody until now."""
    found = []
    mark = guest.post_mark()
    while (event := guest.receive(10)).get("data") != mark:
        if event["event"] == "party":
            found.append(words(event))
    return found


def agree(*guests):
    """All of them see the same party, as everybody who is said to be in it does; its members."""
    parties = [guest.get() for guest in guests]
    for guest, party in zip(guests, parties):
        if party is not None:
            members = [member["user"] for member in party["members"]]
            assert guest.user in members and len(set(members)) == len(members), party
            assert all(other == party for other, seat in zip(parties, guests) if seat.user in members), parties
            assert (len(members) > 1 or party["pending"]), party
    return [party and [plain(member["user"]) for member in party["members"]] for party in parties]


def tidy(*guests):
    """Nobody is in a party, and everybody has read his letters."""
    for guest in guests:
        guest.party("leave")
    for guest in guests:
        letters(guest)


def test_mutual_accepts_end_in_exactly_one_party_of_both(table):
    dice = random.Random(1)
    ann, bob = table.seats("ann bob")
    winners = set()
    for _ in range(RACES):
        hers, his = ann.invite(bob), bob.invite(ann)
        replies = at_once(dice, lambda: ann.party("accept", party_id=his), lambda: bob.party("accept", party_id=hers))
        codes = [code(reply) for reply in replies]
        assert codes.count("ok") == 1, replies
        winner = codes.index("ok")
        assert codes[1 - winner] in ("no_invite", "no_such_party", "already_member", "user_in_party"), replies
        lost = replies[1 - winner]["error"]["party"]
        won = replies[winner]["ok"]["party"]
        assert lost == won and {member["user"] for member in won["members"]} == {ann.user, bob.user}
        assert won["party_id"] == (his if winner == 0 else hers)
        agree(ann, bob)
        winners.add(winner)
        first, second = (ann, bob) if winner == 0 else (bob, ann)
        told = letters(first), letters(second)
        one, two = plain(first.user), plain(second.user)
        # Of the invite that was accepted, and of the one that ended with the acceptor's own party.
        assert sorted(told[0]) == sorted([f"{two} invite", f"{two} decline joined_other_party", f"{one} disband empty"]), told
        assert sorted(told[1]) == sorted([f"{one} invite", f"{one} invite_cancel joined_other_party", f"{one} accept"]), told
        tidy(ann, bob)
    assert RACES < 10 or winners == {0, 1}, "each of them wins sometimes"


def test_a_ticket_never_holds_somebody_who_has_left(table):
    dice = random.Random(2)
    ann, bob, cid = table.seats("ann bob cid")
    for _ in range(RACES):
        ann.brings(bob), ann.brings(cid)
        tidy_letters(ann, bob, cid)
        gone, left = at_once(dice, lambda: ann.party("go"), lambda: bob.party("leave"))
        assert (code(gone), code(left)) == ("ok", "ok"), (gone, left)
        party = ann.get()
        members = [plain(member["user"]) for member in party["members"]]
        assert members == ["ann", "cid"]
        told = letters(cid)
        if party["state"] == "queued":
            assert told == ["bob leave left", "ann party_go queued"]
        else:
            assert party["state"] == "idle" and told == ["ann party_go queued", "bob go_cancel left", "bob leave left"]
        agree(ann, bob, cid)
        tidy(bob, cid, ann)


def tidy_letters(*guests):
    for guest in guests:
        letters(guest)


def test_a_kick_and_a_leave_have_one_winner(table):
    dice = random.Random(3)
    ann, bob, cid = table.seats("ann bob cid")
    for _ in range(RACES):
        ann.brings(bob), ann.brings(cid)
        tidy_letters(ann, bob, cid)
        kicked, left = at_once(dice, lambda: ann.party("kick", user=bob.user), lambda: bob.party("leave"))
        ways = {("ok", "not_member"): "bob leave kicked by ann", ("target_not_member", "ok"): "bob leave left"}
        way = ways[code(kicked), code(left)]
        assert letters(ann) == letters(cid) == [way]
        assert letters(bob) == (["ann kick kicked"] if "kicked" in way else [])
        assert agree(ann, bob, cid) == [["ann", "cid"], None, ["ann", "cid"]]
        tidy(cid, ann, bob)


def test_a_promotion_and_a_disbanding_have_one_order(table):
    dice = random.Random(4)
    ann, bob = table.seats("ann bob")
    window = table.seat("ann", server=bob.server)
    for _ in range(RACES):
        ann.brings(bob)
        tidy_letters(ann, bob, window)
        promoted, disbanded = at_once(
            dice, lambda: ann.party("promote", user=bob.user), lambda: window.party("disband"))
        ways = {
            ("ok", "not_leader"): ["bob leader by ann"],
            ("not_member", "ok"): ["ann disband disbanded"],
        }
        way = ways[code(promoted), code(disbanded)]
        assert letters(ann) == letters(bob) == letters(window) == way
        assert agree(ann, bob) == ([["bob", "ann"]] * 2 if "leader" in way[0] else [None, None])
        tidy(bob, ann, window)


def test_an_accept_and_the_expiry_of_its_invite_have_one_winner(short, combination):
    dice = random.Random(5)
    with contextlib.ExitStack() as stack:
        ann, bob = Table(short, stack).seats("ann bob")
        ways = set()
        for _ in range(RACES):
            number = ann.invite(bob)
            invite = bob.letter()
            # Aimed at the deadline by the clock that servers and tests share.
            aim = invite["expires_at"] / 1000 - time.time() + dice.uniform(-0.012, 0.004)
            time.sleep(max(aim, 0))
            reply = bob.party("accept", party_id=number)
            if code(reply) == "ok":
                assert agree(ann, bob) == [["ann", "bob"]] * 2
                assert (letters(ann), letters(bob)) == (["bob accept"], [])
            else:
                assert code(reply) in ("no_invite", "no_such_party") and reply["error"]["party"] is None
                # Refused by the clock; the expiry itself is written by whoever looks after it.
                ann.letters("bob decline expired", "ann disband empty")
                bob.letters("ann invite_cancel expired")
                assert letters(ann) == letters(bob) == []
                assert agree(ann, bob) == [None, None]
            ways.add(code(reply) == "ok")
            tidy(bob, ann)
        assert RACES < 100 or ways == {True, False}, "each of them wins sometimes"
