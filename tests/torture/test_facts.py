"""A fact is changed until that is acknowledged."""
import asyncio

from torture.fact import Facts

KEY = ("follow", "ann", "bob")


def test_a_change_is_repeated_until_acknowledged_and_then_the_fact_is_left_alone():
    facts, tries = Facts(), []
    facts.fact(KEY, False)

    async def act():
        tries.append(1)
        if len(tries) < 3:
            raise OSError

    asyncio.run(facts.change(KEY, True, act, (OSError,)))
    assert len(tries) == 3 and facts.known[KEY].value is True and not facts.is_free(KEY)
