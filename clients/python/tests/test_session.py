"""Sessions: lost connections, retries, tokens, restore."""
import asyncio
import base64
import datetime
import functools
import json
import sys
import pathlib
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from fake_server import FakeServer, eventually  # noqa: E402
from tavern_client import Tavern, TavernError  # noqa: E402


def async_test(test):
    """Runs an asynchronous test with a timeout."""
    @functools.wraps(test)
    def run(**fixtures):
        async def limited():
            async with asyncio.timeout(20):
                await test(**fixtures)

        asyncio.run(limited())

    return run


@async_test
async def test_a_duplicate_event_is_emitted_once():
    async with FakeServer() as server, Tavern(server.url, user="ann") as tavern:
        channel, connection = tavern.channel("game#1"), await server.connection(1)
        messages = channel.messages()
        await channel.subscribe()
        for seq in (1, 2, 2, 1, 3):
            await connection.message(seq, seq)
        assert [(await messages.next(2)).data for _ in range(3)] == [1, 2, 3]
        await connection.close(4501)
        next_connection = await server.connection(2)
        assert next_connection.hello["session"] == "secret" and next_connection.hello["seq"] == 3
        await next_connection.message(3, 3)
        await next_connection.message(4, 4)
        assert (await messages.next(2)).data == 4
        assert "subscribe" not in next_connection.ops(), "a resumed session needs no restore"


@async_test
async def test_an_inbox_message_is_emitted_once_across_sessions():
    number = iter(range(9))

    def hello(_, asked):
        return {"ok": server.welcome(asked, resumed=False, session=f"s{next(number)}")}

    server = FakeServer(hello=hello)
    async with server, Tavern(server.url, user="ann") as tavern:
        inbox, resets = tavern.me.stream("inbox"), tavern.stream("reset")
        connection = await server.connection(1)
        await connection.send({"seq": 1, "event": "inbox", "message_id": 7, "data": "a"})
        assert (await inbox.next(2))["data"] == "a"
        await connection.close(4501)
        connection = await server.connection(2)
        await resets.next(2)
        await connection.send({"seq": 1, "event": "inbox", "message_id": 7, "data": "a"})
        await connection.send({"seq": 2, "event": "inbox", "message_id": 8, "data": "b"})
        assert (await inbox.next(2))["data"] == "b"


@async_test
async def test_party_messages_are_emitted_as_say():
    async with FakeServer() as server, Tavern(server.url, user="ann") as tavern:
        said, connection = tavern.party.stream("say"), await server.connection(1)
        await connection.message(1, "ready?", "party#5")
        assert (await said.next(2)).data == "ready?"


@async_test
async def test_after_a_lost_connection_idempotent_commands_are_retried_and_others_fail_with_unknown_outcome():
    async with FakeServer() as server, Tavern(server.url, user="ann") as tavern:
        server.replies |= {"join": None, "publish": None}
        connection, channel = await server.connection(1), tavern.channel("game#1")
        join, publish = asyncio.create_task(channel.join(1)), asyncio.create_task(channel.publish(1))
        await server.until(lambda: connection.ops() == ["join", "publish"])
        server.replies.clear()
        await connection.close(4501)
        with pytest.raises(TavernError) as lost:
            await publish
        assert lost.value.code == "unknown_outcome"
        await join
        assert (await server.connection(2)).ops() == ["join"]


@async_test
async def test_a_superseded_client_does_not_reconnect():
    async with FakeServer() as server, Tavern(server.url, user="ann") as tavern:
        messages, received = tavern.channel("game#1").messages(), []
        for state in ("superseded", "reconnecting", "closed"):
            tavern.on(state, lambda frame, state=state: received.append(state))
        connection = await server.connection(1)
        await connection.send({"event": "superseded"})
        with pytest.raises(TavernError) as end:
            await messages.next(2)
        assert end.value.code == "superseded" and received == ["superseded", "closed"] and tavern.state == "closed"
        with pytest.raises(TavernError, match="superseded"):
            await tavern.channel("game#1").publish(1)
        await asyncio.sleep(0.6)
        assert len(server.connections) == 1


@async_test
async def test_the_close_code_decides_whether_to_reconnect():
    for code, reconnects in [(4003, False), (4002, False), (4500, True), (1011, True), (1001, True)]:
        async with FakeServer() as server, Tavern(server.url, user="ann") as tavern:
            await (await server.connection(1)).close(code)
            if reconnects:
                await server.connection(2)
            else:
                await eventually(lambda: tavern.state == "closed")
                assert len(server.connections) == 1


@async_test
async def test_closing_delays_the_reconnect():
    async with FakeServer() as server, Tavern(server.url, user="ann") as tavern:
        closing = tavern.stream("closing")
        await (await server.connection(1)).send({"event": "closing", "reconnect_after_ms": 700})
        announced_at = time.monotonic()
        assert (await closing.next(2))["reconnect_after_ms"] == 700
        await server.connection(2)
        assert 0.65 < time.monotonic() - announced_at < 2


@async_test
async def test_heartbeats_acknowledge_and_a_connection_without_traffic_is_replaced():
    async with FakeServer(heartbeat_ms=200) as server, Tavern(server.url, user="ann"):
        connection = await server.connection(1)
        await connection.message(5, "x")
        await server.until(lambda: {"ack", "ping"} <= set(connection.ops()))
        acks = [command["seq"] for command in connection.commands if command["op"] == "ack"]
        assert acks == [5], "one ack per new event"
        server.replies |= {"ack": None, "ping": None}
        next_connection = await server.connection(2)
        assert next_connection.hello["seq"] == 5


@async_test
async def test_a_rate_limited_hello_is_retried_after_the_given_delay():
    def hello(number, asked):
        if number == 1:
            return {"error": {"code": "rate_limited", "message": "later", "retry_after_ms": 400}}
        return {"ok": server.welcome(asked)}

    server = FakeServer(hello=hello)
    async with server:
        began = time.monotonic()
        async with Tavern(server.url, user="ann"):
            assert time.monotonic() - began >= 0.4


@async_test
async def test_an_unauthenticated_hello_is_raised():
    async with FakeServer(hello=lambda number, asked: {"error": {"code": "unauthenticated", "message": "no"}}) as server:
        for who in ({"token": "x"}, {"get_token": lambda: "x"}):
            before = len(server.connections)
            with pytest.raises(TavernError) as refused:
                await Tavern(server.url, **who).connect(5)
            assert refused.value.code == "unauthenticated" and len(server.connections) == before + 1


def minted(seconds):
    claims = base64.urlsafe_b64encode(json.dumps({"exp": time.time() + seconds}).encode()).decode().rstrip("=")
    return f"h.{claims}.s"


@async_test
async def test_a_token_is_renewed_before_and_after_it_expires():
    given = []

    async def get_token():
        given.append(minted(2 if not given else 3_600))
        return given[-1]

    async with FakeServer() as server, Tavern(server.url, get_token=get_token) as tavern:
        connection = await server.connection(1)
        assert connection.hello["token"] == given[0] and "token" not in connection.socket.request.path
        await server.until(lambda: "hello" in connection.ops())
        assert connection.commands[-1]["token"] == given[1] and tavern.state == "open"
        await connection.close(4001)
        next_connection = await server.connection(2)
        assert len(given) == 3 and next_connection.hello["token"] == given[2], "4001 means that the token has expired"


@async_test
async def test_a_failing_token_source_is_retried():
    tries = []

    def get_token():
        tries.append(1)
        if len(tries) == 1:
            raise OSError("connection refused")
        return "token"

    async with FakeServer() as server, Tavern(server.url, get_token=get_token):
        assert (await server.connection(1)).hello["token"] == "token"


@async_test
async def test_a_new_session_is_restored_before_waiting_commands():
    def hello(number, asked):
        return {"ok": server.welcome(asked, resumed=False, session=f"s{number}")}

    server = FakeServer(hello=hello)
    server.replies["subscribe"] = lambda command: {
        "ok": {"members": {"version": 1, "users": [], "count": 0}} if command.get("presence") else {}
    }
    async with server, Tavern(server.url, user="ann") as tavern:
        connection, resets = await server.connection(1), tavern.stream("reset")
        await tavern.channel("game#1").presence()
        await tavern.channel("game#1").join({"seat": 1})
        await tavern.channel("chat#1").subscribe()
        await tavern.channel("left#1").join()
        await tavern.channel("left#1").leave()
        await tavern.pattern("news#*").subscribe()
        await connection.close(1011)
        publishing = asyncio.create_task(tavern.channel("game#1").publish(1))
        await resets.next(3)
        next_connection = await server.connection(2)
        await publishing
        wanted = [(command["op"], command.get("channel") or command.get("pattern")) for command in next_connection.commands]
        assert wanted == [("subscribe", "game#1"), ("join", "game#1"), ("subscribe", "chat#1"), ("subscribe", "news#*"), ("publish", "game#1")]
        assert next_connection.commands[0]["presence"] is True and next_connection.commands[1]["state"] == {"seat": 1}


@async_test
async def test_a_gone_session_is_replaced_and_the_command_retried():
    refusals = [{"error": {"code": "gone", "message": "no session"}}]
    async with FakeServer() as server, Tavern(server.url, user="ann") as tavern:
        server.replies["publish"] = lambda command: refusals.pop() if refusals else {"ok": {"receivers": 3}}
        assert (await tavern.channel("game#1").publish(1)).receivers == 3
        assert len(server.connections) == 2


@async_test
async def test_unavailable_is_retried_only_for_idempotent_commands():
    refusals = []
    async with FakeServer() as server, Tavern(server.url, user="ann") as tavern:
        busy = {"error": {"code": "unavailable", "message": "later", "retry_after_ms": 50}}
        server.replies["join"] = server.replies["publish"] = lambda command: refusals.pop() if refusals else {"ok": {}}
        refusals.append(busy)
        await tavern.channel("game#1").join(1)
        refusals.append(busy)
        with pytest.raises(TavernError) as refused:
            await tavern.channel("game#1").publish(1)
        assert refused.value.code == "unavailable" and refused.value.retry_after_ms == 50


@async_test
async def test_a_gap_reloads_presence():
    async with FakeServer() as server, Tavern(server.url, user="ann") as tavern:
        counts = iter([1, 2, 3])
        server.replies["subscribe"] = lambda command: {"ok": {"members": {"version": 1, "users": [], "count": next(counts)}}}
        connection, gaps = await server.connection(1), tavern.stream("gap")
        there = await tavern.channel("game#1").presence()
        await connection.send({"seq": 9, "event": "gap", "from": 1, "to": 9})
        assert (await gaps.next(2))["to"] == 9
        await eventually(lambda: there.count == 2)
        await connection.send({"seq": 10, "event": "gap", "channel": "game#1"})
        await eventually(lambda: there.count == 3)


@async_test
async def test_messages_of_a_redirected_channel_arrive():
    async with FakeServer() as server, Tavern(server.url, user="ann") as tavern:
        server.replies["subscribe"] = {"ok": {"channel": "gametv#1"}}
        channel, connection = tavern.channel("game#1"), await server.connection(1)
        messages = channel.messages()
        await channel.subscribe()
        await connection.message(1, "seen", "gametv#1")
        assert (await messages.next(2)).data == "seen" and channel.actual == "gametv#1"


@async_test
async def test_a_slow_iterator_raises_overflow():
    async with FakeServer() as server, Tavern(server.url, user="ann") as tavern:
        channel, connection = tavern.channel("game#1"), await server.connection(1)
        few = channel.stream("message", limit=3)
        await channel.subscribe()
        for seq in range(1, 6):
            await connection.message(seq, seq)
        await eventually(lambda: tavern.ticket == ("secret", 5))
        with pytest.raises(TavernError, match="overflow: read too slowly: 2"):
            await few.next(1)
        assert [(await few.next(1)).data for _ in range(3)] == [3, 4, 5]


@async_test
async def test_a_failing_listener_does_not_affect_others():
    async with FakeServer() as server, Tavern(server.url, user="ann") as tavern:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context["exception"]))
        failures, received = [], asyncio.Queue()
        channel, connection = tavern.channel("game#1"), await server.connection(1)
        channel.on("message", lambda message: 1 / 0)
        await channel.subscribe(received.put)
        await connection.message(1, "x")
        assert (await received.get()).data == "x" and isinstance(failures[0], ZeroDivisionError)


@async_test
async def test_an_unreachable_server_is_a_timeout_with_the_reason():
    with pytest.raises(TavernError, match="cannot reach") as late:
        await Tavern("http://127.0.0.1:9", user="ann").connect(0.5)
    assert late.value.code == "timeout"


@async_test
async def test_the_next_address_is_tried_when_a_server_is_down():
    async with FakeServer() as server, Tavern(["http://127.0.0.1:9", server.url], user="ann") as tavern:
        assert tavern.state == "open"


@pytest.mark.parametrize("wrong", [{"user": "a", "token": "b"}, {"transports": ["unknown"]}, {"transports": []}])
def test_invalid_arguments_are_rejected(wrong):
    async def make():
        Tavern("http://h", **wrong)

    with pytest.raises(ValueError):
        asyncio.run(make())


@async_test
async def test_a_revoked_token_is_replaced_at_once():
    given = iter(["old", "new"])
    allowed = {"old"}

    def hello(number, asked):
        if asked["token"] in allowed:
            return {"ok": server.welcome(asked)}
        return {"error": {"code": "unauthenticated", "message": "revoked"}}

    server = FakeServer(hello=hello)
    async with server, Tavern(server.url, get_token=lambda: next(given)) as tavern:
        allowed = {"new"}
        # The first delay is zero; a second one, after the rejected token, would be 15 seconds.
        rand = iter([0.0])
        tavern._session.settings.backoff.tries = 30
        tavern._session.settings.backoff.rand = lambda: next(rand, 1.0)
        await tavern._session.drop()
        connection = await server.connection(3)
        assert connection.hello["token"] == "new" and connection.hello["session"] == "secret"


@async_test
async def test_a_frame_that_is_too_large_for_the_server_is_refused_without_sending_it():
    server = FakeServer(hello=lambda _, asked: {"ok": server.welcome(asked, frame_bytes=200)})
    async with server, Tavern(server.url, user="ann") as tavern:
        channel, connection = tavern.channel("game#1"), await server.connection(1)
        for data in ("x" * 200, "ü" * 100):
            with pytest.raises(TavernError, match="too_large"):
                await channel.publish(data)
        assert connection.ops() == []
        await channel.publish("x" * 100)
        assert connection.ops() == ["publish"] and tavern.state == "open"


@async_test
async def test_what_a_fresh_token_does_not_allow_is_reported_and_not_restored():
    server = FakeServer(hello=lambda number, asked: {"ok": server.welcome(asked, resumed=False, session=f"s{number}")})
    server.replies["subscribe"] = {"ok": {"members": {"version": 1, "users": [], "count": 0}}}
    async with server, Tavern(server.url, user="ann") as tavern:
        game, chat, pattern = tavern.channel("game#1"), tavern.channel("chat#1"), tavern.pattern("game#*")
        await game.presence()
        await game.join({"seat": 1})
        await chat.presence()
        await pattern.subscribe()
        revoked, connection = tavern.stream("revoked"), await server.connection(1)
        ended = [("subscribe", "channel", "game#1"), ("join", "channel", "game#1"), ("subscribe", "pattern", "game#*")]
        for seq, (verb, place, name) in enumerate(ended, 1):
            await connection.send({"seq": seq, "event": "revoked", "verb": verb, place: name})
        assert [(await revoked.next(2))["verb"] for _ in ended] == ["subscribe", "join", "subscribe"]
        resets = tavern.stream("reset")
        await connection.close(4501)
        await resets.next(5)
        restored = [command["channel"] for command in (await server.connection(2)).commands if command["op"] == "subscribe"]
        assert restored == ["chat#1"] and "join" not in (await server.connection(2)).ops()


@async_test
async def test_a_command_that_is_refused_for_an_expired_token_is_sent_again_with_a_new_one():
    tokens = iter(range(9))
    refuse = {"error": {"code": "unauthenticated", "message": "the token has expired"}}
    server = FakeServer()
    answers = iter([refuse])
    server.replies["join"] = lambda command: next(answers, {"ok": {}})
    async with server, Tavern(server.url, get_token=lambda: f"t{next(tokens)}") as tavern:
        await tavern.channel("game#1").join()
        assert [connection.hello["token"] for connection in server.connections] == ["t0", "t1"]


@pytest.mark.parametrize("value", [{"at": datetime.datetime(2024, 1, 1)}, {1, 2}, float("nan"), "\ud800", b"bytes"], ids=repr)
def test_a_value_that_is_not_json_is_refused_at_once_and_harms_nothing_else(value):
    async def publish():
        async with asyncio.timeout(20), FakeServer() as server, Tavern(server.url, user="ann") as tavern:
            channel = tavern.channel("game#1")
            with pytest.raises(TypeError, match="publish: not JSON: .*; convert the value first"):
                await channel.publish(value)
            with pytest.raises(TypeError, match="join: not JSON"):
                await channel.join(value)
            await channel.publish("fine")
            assert tavern.state == "open" and (await server.connection(1)).ops() == ["publish"]

    asyncio.run(publish())


@async_test
async def test_a_command_is_sent_as_it_was_when_it_was_given():
    async with FakeServer() as server, Tavern(server.url, user="ann") as tavern:
        data = {"move": "e4"}
        publishing = asyncio.create_task(tavern.channel("game#1").publish(data))
        await asyncio.sleep(0)
        data["move"] = {"not", "json"}
        await publishing
        assert (await server.connection(1)).commands[0]["data"] == {"move": "e4"}


async def fails_with_the_client(tavern, *waiting):
    """All waiting calls and every later one fail with the error that ended the client."""
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    for call in waiting:
        with pytest.raises(TavernError, match="failed: the client failed") as failed:
            await call
        assert isinstance(failed.value.__cause__, KeyError)
    with pytest.raises(TavernError, match="failed: the client failed"):
        await tavern.channel("game#1").publish("later")
    assert tavern.state == "closed"


@async_test
async def test_an_exception_inside_the_client_ends_it_and_fails_every_call():
    async with FakeServer() as server, Tavern(server.url, user="ann") as tavern:
        server.replies["publish"] = None
        closed, messages = tavern.stream("closed"), tavern.channel("game#1").messages()
        connection = await server.connection(1)
        publishing = asyncio.create_task(tavern.channel("game#1").publish(1))
        await server.until(lambda: connection.ops() == ["publish"])
        await connection.send({"seq": 1, "event": "message", "data": "a message needs a channel"})
        await fails_with_the_client(tavern, publishing, messages.next())
        assert (await closed.next(2))["code"] == "failed"


@async_test
async def test_an_exception_while_a_reply_is_read_fails_the_command_it_answers():
    async with FakeServer() as server, Tavern(server.url, user="ann") as tavern:
        server.replies["subscribe"] = {"ok": {"members": {}}}
        await fails_with_the_client(tavern, asyncio.create_task(tavern.channel("game#1").presence()))


@async_test
async def test_a_hello_that_cannot_be_read_fails_connect():
    async with FakeServer(hello=lambda number, asked: {"ok": {}}) as server:
        tavern = Tavern(server.url, user="ann")
        await fails_with_the_client(tavern, asyncio.create_task(tavern.connect()))


@async_test
async def test_a_token_source_that_is_cancelled_or_gives_no_string_is_retried():
    given = iter([asyncio.CancelledError(), b"token", "token"])

    def get_token():
        token = next(given)
        if isinstance(token, BaseException):
            raise token
        return token

    async with FakeServer() as server, Tavern(server.url, get_token=get_token):
        assert (await server.connection(1)).hello["token"] == "token"


@async_test
async def test_own_messages_can_be_left_out():
    async with FakeServer() as server, Tavern(server.url, user="ann") as tavern:
        channel, connection = tavern.channel("game#1"), await server.connection(1)
        received = []
        await channel.subscribe(lambda message: received.append(message.data), echo=False)
        for seq, client in ((1, "c1"), (2, "c9")):
            await connection.send({"seq": seq, "event": "message", "channel": "game#1", "data": seq, "from": {"user": "ann", "client": client}})
        await eventually(lambda: received)
        assert received == [2]


@async_test
async def test_an_arrival_and_a_leave_are_one_change_each():
    async with FakeServer() as server:
        server.replies["subscribe"] = {"ok": {"members": {"version": 1, "users": [], "count": 0}}}
        async with Tavern(server.url, user="ann") as tavern:
            presence, connection = await tavern.channel("game#1").presence(), await server.connection(1)
            changes = presence.stream("change")
            bob = {"channel": "game#1", "user": "bob"}
            await connection.send({"seq": 1, "event": "user_online", "version": 2, "name": "Bob", **bob})
            await connection.send({"seq": 2, "event": "client_online", "version": 3, "client": "b1", "state": 1, **bob})
            await connection.send({"seq": 3, "event": "client_offline", "version": 4, "client": "b1", "explicit": True, **bob})
            await connection.send({"seq": 4, "event": "user_offline", "version": 5, **bob})
            await connection.send({"seq": 5, "event": "user_online", "version": 6, "name": None, **bob})
            seen = [await changes.next(2) for _ in range(3)]
            assert [change["event"] for change in seen] == ["user_online", "user_offline", "user_online"]
            assert (seen[0]["name"], seen[0]["state"]) == ("Bob", 1)


@async_test
async def test_statuses_are_folded_and_loaded_again_after_a_gap():
    async with FakeServer() as server, Tavern(server.url, user="ann", statuses=True) as tavern:
        connection = await server.connection(1)
        await connection.send({"seq": 1, "event": "statuses", "statuses": [{"user": "bob", "online": True}]})
        await connection.send({"seq": 2, "event": "status", "user": "cid", "status": {"user": "cid", "online": True}, "change": "none"})
        await eventually(lambda: len(tavern.me.statuses) == 2)
        await tavern.me.unfollow("bob")
        assert list(tavern.me.statuses) == ["cid"]
        await connection.send({"seq": 9, "event": "gap", "from": 3, "to": 9})
        await eventually(lambda: any(command["op"] == "hello" and command.get("status") for command in connection.commands))


@async_test
async def test_a_token_that_cannot_be_renewed_leaves_the_session_open():
    tokens = [jwt(2)]

    def source():
        if not tokens:
            raise OSError("login is down")
        return tokens.pop()

    async with FakeServer() as server, Tavern(server.url, get_token=source) as tavern:
        failures = tavern.stream("error")
        failure = await failures.next(5)
        assert failure.code == "unavailable" and "login is down" in failure.message
        assert tavern.state == "open" and len(server.connections) == 1


def jwt(left_s):
    claims = base64.urlsafe_b64encode(json.dumps({"exp": time.time() + left_s}).encode()).decode()
    return f"h.{claims}.s"
