"""Lines that end in every way, and what the client makes of it."""
import asyncio
import base64
import json
import sys
import pathlib
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from house import House, eventually  # noqa: E402
from tavern_client import Tavern, TavernError  # noqa: E402


def story(test):
    """Runs an asynchronous test, with an end."""
    def run():
        async def limited():
            async with asyncio.timeout(20):
                await test()

        asyncio.run(limited())

    run.__name__ = test.__name__
    return run


@story
async def test_what_comes_twice_is_told_once():
    async with House() as house, Tavern(house.url, user="ann") as tavern:
        channel, line = tavern.channel("game#1"), await house.line(1)
        messages = channel.messages()
        await channel.subscribe()
        for seq in (1, 2, 2, 1, 3):
            await line.message(seq, seq)
        assert [(await messages.next(2)).data for _ in range(3)] == [1, 2, 3]
        await line.close(4501)
        again = await house.line(2)
        assert again.hello["session"] == "secret" and again.hello["seq"] == "3"
        await again.message(3, 3)
        await again.message(4, 4)
        assert (await messages.next(2)).data == 4
        assert "subscribe" not in again.ops(), "a resumed session is left as it is"


@story
async def test_a_letter_is_told_once_in_all_sessions():
    number = iter(range(9))

    def hello(_, asked):
        return {"ok": house.welcome(asked, resumed=False, session=f"s{next(number)}")}

    house = House(hello=hello)
    async with house, Tavern(house.url, user="ann") as tavern:
        letters, resets = tavern.me.stream("letter"), tavern.stream("reset")
        line = await house.line(1)
        await line.tell({"seq": 1, "event": "letter", "letter": 7, "data": "a"})
        assert (await letters.next(2))["data"] == "a"
        await line.close(4501)
        line = await house.line(2)
        await resets.next(2)
        await line.tell({"seq": 1, "event": "letter", "letter": 7, "data": "a"})
        await line.tell({"seq": 2, "event": "letter", "letter": 8, "data": "b"})
        assert (await letters.next(2))["data"] == "b"


@story
async def test_what_members_say_is_heard_by_the_party():
    async with House() as house, Tavern(house.url, user="ann") as tavern:
        said, line = tavern.party.stream("say"), await house.line(1)
        await line.message(1, "ready?", "party#5")
        assert (await said.next(2)).data == "ready?"


@story
async def test_commands_that_may_be_repeated_are_and_others_say_that_nobody_knows():
    async with House() as house, Tavern(house.url, user="ann") as tavern:
        house.replies |= {"join": None, "publish": None}
        line, channel = await house.line(1), tavern.channel("game#1")
        join, publish = asyncio.create_task(channel.join(1)), asyncio.create_task(channel.publish(1))
        await house.until(lambda: line.ops() == ["join", "publish"])
        house.replies.clear()
        await line.close(4501)
        with pytest.raises(TavernError) as doubt:
            await publish
        assert doubt.value.code == "unknown_outcome"
        await join
        assert (await house.line(2)).ops() == ["join"]


@story
async def test_whoever_is_superseded_does_not_come_back():
    async with House() as house, Tavern(house.url, user="ann") as tavern:
        messages, heard = tavern.channel("game#1").messages(), []
        for turn in ("superseded", "reconnecting", "closed"):
            tavern.on(turn, lambda frame, turn=turn: heard.append(turn))
        line = await house.line(1)
        await line.tell({"event": "superseded"})
        with pytest.raises(TavernError) as end:
            await messages.next(2)
        assert end.value.code == "superseded" and heard == ["superseded", "closed"] and tavern.state == "closed"
        with pytest.raises(TavernError, match="superseded"):
            await tavern.channel("game#1").publish(1)
        await asyncio.sleep(0.6)
        assert len(house.lines) == 1


@story
async def test_the_close_code_says_whether_to_come_back():
    for code, comes in [(4003, False), (4002, False), (4500, True), (1011, True), (1001, True)]:
        async with House() as house, Tavern(house.url, user="ann") as tavern:
            await (await house.line(1)).close(code)
            if comes:
                await house.line(2)
            else:
                await eventually(lambda: tavern.state == "closed")
                assert len(house.lines) == 1


@story
async def test_a_server_that_stops_is_given_the_time_it_asks_for():
    async with House() as house, Tavern(house.url, user="ann") as tavern:
        closing = tavern.stream("closing")
        await (await house.line(1)).tell({"event": "closing", "reconnect_after_ms": 700})
        told = time.monotonic()
        assert (await closing.next(2))["reconnect_after_ms"] == 700
        await house.line(2)
        assert 0.65 < time.monotonic() - told < 2


@story
async def test_heartbeats_acknowledge_and_a_silent_line_is_given_up():
    async with House(heartbeat_ms=200) as house, Tavern(house.url, user="ann"):
        line = await house.line(1)
        await line.message(5, "x")
        await house.until(lambda: {"ack", "ping"} <= set(line.ops()))
        acks = [command["seq"] for command in line.heard if command["op"] == "ack"]
        assert acks == [5], "once is enough"
        house.replies |= {"ack": None, "ping": None}
        again = await house.line(2)
        assert again.hello["seq"] == "5"


@story
async def test_a_hello_that_is_refused_for_a_while_is_said_again_then():
    def hello(number, asked):
        if number == 1:
            return {"error": {"code": "rate_limited", "message": "later", "retry_after_ms": 400}}
        return {"ok": house.welcome(asked)}

    house = House(hello=hello)
    async with house:
        began = time.monotonic()
        async with Tavern(house.url, user="ann"):
            assert time.monotonic() - began >= 0.4


@story
async def test_a_hello_that_is_refused_for_good_is_raised():
    async with House(hello=lambda number, asked: {"error": {"code": "unauthenticated", "message": "no"}}) as house:
        for who in ({"token": "x"}, {"get_token": lambda: "x"}):
            before = len(house.lines)
            with pytest.raises(TavernError) as refused:
                await Tavern(house.url, **who).connect(5)
            assert refused.value.code == "unauthenticated" and len(house.lines) == before + 1


def minted(seconds):
    claims = base64.urlsafe_b64encode(json.dumps({"exp": time.time() + seconds}).encode()).decode().rstrip("=")
    return f"h.{claims}.s"


@story
async def test_a_token_is_renewed_before_it_ends_and_after_it_ended():
    given = []

    async def get_token():
        given.append(minted(2 if not given else 3_600))
        return given[-1]

    async with House() as house, Tavern(house.url, get_token=get_token) as tavern:
        line = await house.line(1)
        assert line.hello["token"] == given[0] and "token" not in line.socket.request.path
        await house.until(lambda: "hello" in line.ops())
        assert line.heard[-1]["token"] == given[1] and tavern.state == "open"
        await line.close(4001)
        again = await house.line(2)
        assert len(given) == 3 and again.hello["token"] == given[2], "the server says that it has ended"


@story
async def test_whoever_gives_tokens_may_be_away_for_a_while():
    tries = []

    def get_token():
        tries.append(1)
        if len(tries) == 1:
            raise OSError("nobody there")
        return "token"

    async with House() as house, Tavern(house.url, get_token=get_token):
        assert (await house.line(1)).hello["token"] == "token"


@story
async def test_another_session_is_told_what_the_old_one_wanted_first():
    def hello(number, asked):
        return {"ok": house.welcome(asked, resumed=False, session=f"s{number}")}

    house = House(hello=hello)
    house.replies["subscribe"] = lambda command: {
        "ok": {"members": {"version": 1, "users": [], "count": 0}} if command.get("presence") else {}
    }
    async with house, Tavern(house.url, user="ann") as tavern:
        line, resets = await house.line(1), tavern.stream("reset")
        await tavern.channel("game#1").presence()
        await tavern.channel("game#1").join({"seat": 1})
        await tavern.channel("chat#1").subscribe()
        await tavern.channel("left#1").join()
        await tavern.channel("left#1").leave()
        await tavern.pattern("news#*").subscribe()
        await line.close(1011)
        publishing = asyncio.create_task(tavern.channel("game#1").publish(1))
        await resets.next(3)
        again = await house.line(2)
        await publishing
        wanted = [(command["op"], command.get("channel") or command.get("pattern")) for command in again.heard]
        assert wanted == [("subscribe", "game#1"), ("join", "game#1"), ("subscribe", "chat#1"), ("subscribe", "news#*"), ("publish", "game#1")]
        assert again.heard[0]["presence"] is True and again.heard[1]["state"] == {"seat": 1}


@story
async def test_a_session_that_is_gone_is_replaced_and_the_command_carried_out():
    refusals = [{"error": {"code": "gone", "message": "no session"}}]
    async with House() as house, Tavern(house.url, user="ann") as tavern:
        house.replies["publish"] = lambda command: refusals.pop() if refusals else {"ok": {"receivers": 3}}
        assert await tavern.channel("game#1").publish(1) == 3
        assert len(house.lines) == 2


@story
async def test_what_is_unavailable_is_asked_again_unless_it_may_not_be():
    refusals = []
    async with House() as house, Tavern(house.url, user="ann") as tavern:
        busy = {"error": {"code": "unavailable", "message": "later", "retry_after_ms": 50}}
        house.replies["join"] = house.replies["publish"] = lambda command: refusals.pop() if refusals else {"ok": {}}
        refusals.append(busy)
        await tavern.channel("game#1").join(1)
        refusals.append(busy)
        with pytest.raises(TavernError) as refused:
            await tavern.channel("game#1").publish(1)
        assert refused.value.code == "unavailable" and refused.value.retry_after_ms == 50


@story
async def test_a_gap_reads_the_map_again():
    async with House() as house, Tavern(house.url, user="ann") as tavern:
        counts = iter([1, 2, 3])
        house.replies["subscribe"] = lambda command: {"ok": {"members": {"version": 1, "users": [], "count": next(counts)}}}
        line, gaps = await house.line(1), tavern.stream("gap")
        there = await tavern.channel("game#1").presence()
        await line.tell({"seq": 9, "event": "gap", "from": 1, "to": 9})
        assert (await gaps.next(2))["to"] == 9
        await eventually(lambda: there.count == 2)
        await line.tell({"seq": 10, "event": "gap", "channel": "game#1"})
        await eventually(lambda: there.count == 3)


@story
async def test_the_apps_hook_may_choose_another_channel():
    async with House() as house, Tavern(house.url, user="ann") as tavern:
        house.replies["subscribe"] = {"ok": {"channel": "gametv#1"}}
        channel, line = tavern.channel("game#1"), await house.line(1)
        messages = channel.messages()
        await channel.subscribe()
        await line.message(1, "seen", "gametv#1")
        assert (await messages.next(2)).data == "seen" and channel.actual == "gametv#1"


@story
async def test_an_iterator_that_is_read_too_slowly_says_so():
    async with House() as house, Tavern(house.url, user="ann") as tavern:
        channel, line = tavern.channel("game#1"), await house.line(1)
        few = channel.stream("message", most=3)
        await channel.subscribe()
        for seq in range(1, 6):
            await line.message(seq, seq)
        await eventually(lambda: tavern.ticket == ("secret", 5))
        with pytest.raises(TavernError, match="overflow: read too slowly: 2"):
            await few.next(1)
        assert [(await few.next(1)).data for _ in range(3)] == [3, 4, 5]


@story
async def test_a_listener_that_fails_disturbs_nobody():
    async with House() as house, Tavern(house.url, user="ann") as tavern:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context["exception"]))
        failures, heard = [], asyncio.Queue()
        channel, line = tavern.channel("game#1"), await house.line(1)
        channel.on("message", lambda message: 1 / 0)
        await channel.subscribe(heard.put)
        await line.message(1, "x")
        assert (await heard.get()).data == "x" and isinstance(failures[0], ZeroDivisionError)


@story
async def test_a_server_that_is_not_there_is_a_timeout_with_its_reason():
    with pytest.raises(TavernError, match="cannot reach") as late:
        await Tavern("http://127.0.0.1:9", user="ann").connect(0.5)
    assert late.value.code == "timeout"


@story
async def test_the_next_address_is_tried_when_one_does_not_answer():
    async with House() as house, Tavern(["http://127.0.0.1:9", house.url], user="ann") as tavern:
        assert tavern.state == "open"


@pytest.mark.parametrize("wrong", [{"user": "a", "token": "b"}, {"transports": ["pigeon"]}, {"transports": []}])
def test_wrong_arguments_are_refused(wrong):
    async def make():
        Tavern("http://h", **wrong)

    with pytest.raises(ValueError):
        asyncio.run(make())


@story
async def test_a_token_that_the_server_does_not_take_any_more_is_replaced_at_once():
    given = iter(["old", "new"])
    allowed = {"old"}

    def hello(number, asked):
        if asked["token"] in allowed:
            return {"ok": house.welcome(asked)}
        return {"error": {"code": "unauthenticated", "message": "revoked"}}

    house = House(hello=hello)
    async with house, Tavern(house.url, get_token=lambda: next(given)) as tavern:
        allowed = {"new"}
        # Only the wait after the lost line is nothing; one after the refusal would be fifteen seconds.
        dice = iter([0.0])
        tavern._session.settings.backoff.tries = 30
        tavern._session.settings.backoff.dice = lambda: next(dice, 1.0)
        await tavern._session.drop()
        line = await house.line(3)
        assert line.hello["token"] == "new" and line.hello["session"] == "secret"
