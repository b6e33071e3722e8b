"""The promises about facts, followers and last seen find what is planted, and nothing where nothing is."""
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
    return len(checks.acknowledged_facts_are_there(facts, {KEY: {"n1": value}}, losses).violations)


def test_what_was_acknowledged_last_must_be_there():
    assert broken(known(True), True) == 0
    assert broken(known(True), False) == 1
    assert broken(known(True, False), True) == 1
    assert broken(known(), True) == 1


def test_a_fact_that_nobody_read_is_found():
    assert checks.acknowledged_facts_are_there(known(True), {}, ()).violations


def test_what_was_not_answered_may_be_so_or_not():
    assert broken(known(True, doubt=False), True) == 0
    assert broken(known(True, doubt=False), False) == 0


def test_a_killed_redis_may_forget_its_last_second_and_no_more():
    assert broken(known(True), False, losses=[11.0]) == 0
    assert broken(known(True), False, losses=[20.0]) == 1
    assert broken(known(True), False, losses=[9.0]) == 1


def test_an_act_is_repeated_until_it_is_acknowledged_and_the_fact_is_then_left_alone():
    facts, tries = known(), []

    async def act():
        tries.append(1)
        if len(tries) < 3:
            raise OSError

    asyncio.run(facts.change(KEY, True, act, (OSError,)))
    assert len(tries) == 3 and facts.known[KEY].value is True and not facts.is_free(KEY)


def test_last_seen_that_goes_back_is_found():
    seen = [(0.0, 1.0, "ann", 100), (2.0, 3.0, "ann", 90)]
    assert checks.last_seen_never_goes_back(seen, ()).violations
    assert checks.last_seen_never_goes_back(seen, [2.5]).violations == [], "a Redis was killed in between"
    assert checks.last_seen_never_goes_back([*seen[:1], (2.0, 3.0, "ann", None)], ()).violations
    together = [(0.0, 4.0, "ann", 100), (2.0, 3.0, "ann", 90)]
    assert checks.last_seen_never_goes_back(together, ()).violations == [], "at the same time"


def test_a_follower_who_believes_something_else_is_found():
    status = {"online": True, "channels": ["stage#1"]}
    pair = ("ann", "bob")
    beliefs = lambda believed: {pair: believed} if believed else {}
    check = lambda believed, true: len(people.followers_know_the_truth(beliefs(believed), {pair: true}).violations)
    assert check(status, (True, ["stage#1"])) == 0
    assert check(status, (True, [])) == 1
    assert check(status, (False, [])) == 1
    assert check(None, (False, [])) == 1


def test_a_status_after_unfollow_is_found():
    told = ("told", 1, {"event": "status", "user": "bob"})
    fan = lambda *entries: types.SimpleNamespace(name="ann", log=[(0.0, *entry) for entry in entries])
    check = lambda *entries: len(people.nothing_is_heard_after_unfollow([fan(*entries)]).violations)
    assert check(told, ("unfollowed", "bob")) == 0
    assert check(("unfollowed", "bob"), told) == 1
    assert check(("unfollowed", "bob"), ("follows", "bob"), told) == 0
