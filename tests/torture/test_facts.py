"""The checks of facts, followers and last_seen detect planted violations and accept valid histories."""
import asyncio
import types

from torture.checks import facts as checks
from torture.checks import people
from torture.fact import Facts

KEY = ("follow", "ann", "bob")


def known(*values, doubt=None):
    facts = Facts()
    fact = facts.fact(KEY, False)
    fact.acknowledged += [(float(at), value) for at, value in enumerate(values, 10)]
    fact.doubt = doubt
    return facts


def broken(facts, value, losses=()):
    return len(checks.acknowledged_facts_are_kept(facts, {KEY: {"n1": value}}, losses).violations)


def test_the_last_acknowledged_value_must_be_read():
    assert broken(known(True), True) == 0
    assert broken(known(True), False) == 1
    assert broken(known(True, False), True) == 1
    assert broken(known(), True) == 1


def test_an_unread_fact_is_detected():
    assert checks.acknowledged_facts_are_kept(known(True), {}, ()).violations


def test_an_unanswered_change_may_or_may_not_apply():
    assert broken(known(True, doubt=False), True) == 0
    assert broken(known(True, doubt=False), False) == 0


def test_a_killed_redis_may_lose_its_last_second_only():
    assert broken(known(True), False, losses=[11.0]) == 0
    assert broken(known(True), False, losses=[20.0]) == 1
    assert broken(known(True), False, losses=[9.0]) == 1


def test_a_change_is_repeated_until_acknowledged_and_then_the_fact_is_left_alone():
    facts, tries = known(), []

    async def act():
        tries.append(1)
        if len(tries) < 3:
            raise OSError

    asyncio.run(facts.change(KEY, True, act, (OSError,)))
    assert len(tries) == 3 and facts.known[KEY].value is True and not facts.is_free(KEY)


def test_a_last_seen_that_moves_backwards_is_detected():
    seen = [(0.0, 1.0, "ann", 100), (2.0, 3.0, "ann", 90)]
    assert checks.last_seen_never_goes_back(seen, ()).violations
    assert checks.last_seen_never_goes_back(seen, [2.5]).violations == [], "a Redis was killed in between"
    assert checks.last_seen_never_goes_back([*seen[:1], (2.0, 3.0, "ann", None)], ()).violations
    together = [(0.0, 4.0, "ann", 100), (2.0, 3.0, "ann", 90)]
    assert checks.last_seen_never_goes_back(together, ()).violations == [], "at the same time"


def test_a_follower_with_a_wrong_status_is_detected():
    status = {"online": True, "channels": ["stage#1"]}
    pair = ("ann", "bob")
    beliefs = lambda believed: {pair: believed} if believed else {}
    check = lambda believed, true: len(people.followers_know_the_final_status(beliefs(believed), {pair: true}).violations)
    assert check(status, (True, ["stage#1"])) == 0
    assert check(status, (True, [])) == 1
    assert check(status, (False, [])) == 1
    assert check(None, (False, [])) == 1


def test_a_status_after_unfollow_is_detected():
    event_entry = ("event", 1, {"event": "status", "user": "bob"})
    follower = lambda *entries: types.SimpleNamespace(name="ann", log=[(0.0, *entry) for entry in entries])
    check = lambda *entries: len(people.no_status_after_unfollow([follower(*entries)]).violations)
    assert check(event_entry, ("unfollowed", "bob")) == 0
    assert check(("unfollowed", "bob"), event_entry) == 1
    assert check(("unfollowed", "bob"), ("follows", "bob"), event_entry) == 0
