"""Publishing from SQL: what commits is delivered once and in order, what does not is not; wrong calls fail at once."""
import contextlib
import json
import threading
import time

import psycopg
import pytest

from cluster.sql_world import ONLY, world  # noqa: F401 (a fixture)
from support.json_client import Socket
from support.process import until


@ONLY
def test_what_commits_is_delivered_in_order_and_what_does_not_is_not(world):
    a, b = world.servers
    with Socket(a, user="ann") as ann, Socket(b, user="bob") as bob, world.connect() as app:
        for socket in (ann, bob):
            socket.ok("subscribe", channel="room#1")
            socket.ok("subscribe", channel="chat#1")
        with app.transaction():
            for n in range(3):
                app.execute("SELECT publish('room#1', %s)", [json.dumps({"n": n})])
                app.execute("SELECT publish('chat#1', %s)", [json.dumps({"n": n})])
                app.execute("SELECT emit('orders', 'made', %s)", [json.dumps({"n": n})])
        with pytest.raises(ZeroDivisionError), app.transaction():
            app.execute("SELECT publish('room#1', '\"never\"')")
            app.execute("SELECT emit('orders', 'made', '\"never\"')")
            raise ZeroDivisionError
        app.execute("SELECT publish('room#1', '\"last\"')")
        for socket in (ann, bob):
            events = [socket.event() for _ in range(7)]
            on = lambda channel: [event["data"] for event in events if event["channel"] == channel]
            assert on("chat#1") == [{"n": 0}, {"n": 1}, {"n": 2}]
            assert on("room#1") == [{"n": 0}, {"n": 1}, {"n": 2}, "last"]
        assert world.history("chat#1") == [{"n": 0}, {"n": 1}, {"n": 2}]
        assert world.events("orders") == [{"n": 0}, {"n": 1}, {"n": 2}]
        until(lambda: world.queued() == 0, "the queue is empty")


@ONLY
def test_an_open_transaction_delays_nobody(world):
    with Socket(world.servers[0], user="ann") as ann, world.connect() as slow, world.connect() as app:
        ann.ok("subscribe", channel="chat#2")
        with slow.transaction():
            slow.execute("SELECT publish('chat#2', '\"slow\"')")
            for n in range(20):
                app.execute("SELECT publish('chat#2', %s)", [str(n)])
                assert ann.event()["data"] == n
        assert ann.event()["data"] == "slow"
        # The server sleeps now; the next call wakes it.
        holds_alone = (f"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 1413564464 AND mode = 'ExclusiveLock' AND granted "
                       f"AND objid = '{world.schema}.sql_calls'::regclass::oid")
        until(lambda: world.postgres.sql(holds_alone) == "1", "the server sleeps")
        app.execute("SELECT publish('chat#2', '\"awake\"')")
        assert ann.event()["data"] == "awake"


@ONLY
@pytest.mark.parametrize("call,error", [
    ("publish('Order 7', '1')", "bad channel name: 'Order 7'"),
    ("publish(NULL, '1')", "bad channel name"),
    ("publish('user#ann', '1')", "reserved kind: channels of kind 'user' belong to the server"),
    ("publish('room#1', NULL)", "data is NULL"),
    ("publish('room#1', '{')", "invalid input syntax for type json"),
    ("publish('room#1', to_json(repeat('x', 70000)))", "too large: data has 70002 bytes, at most 65536 are allowed"),
    ("publish('room#1', '[\"\\ud83d\"]')", "a string contains an unpaired surrogate"),
    ("publish('room#1', '\"\\\\\\ud83d\\\\\\ude00\"')", "a string contains an unpaired surrogate"),
    ("publish('room#1', '[-1.5E+0999]')", "a number is too large"),
    ("emit('orders', 'x', '{\"a\":1e999}')", "a number is too large"),
    ("emit('Orders', 'x', '1')", "bad topic name: 'Orders'"),
    ("emit('tavern.presence', 'x', '1')", "reserved topic"),
    ("emit('orders', '', '1')", "bad type"),
    ("emit('orders', 'x', '1', id => '')", "bad id"),
    ("emit('orders', 'x', to_json(repeat('x', 70000)))", "too large"),
])
def test_a_wrong_call_fails_at_once(nodes, combination, call, error):
    server = combination.engines.server("postgres")
    schema = nodes[0].options[nodes[0].options.index("--store") + 1].split("schema=")[1]
    with psycopg.connect(f"postgres://postgres@127.0.0.1:{server.port}/postgres", options=f"-c search_path={schema}") as app:
        with pytest.raises(psycopg.Error, match=error):
            app.execute(f"SELECT {call}")


@ONLY
@pytest.mark.parametrize("data", [
    r'"\ud83d\ude00"', r'["\\ud83d", "\\\\ude00"]', "[1e308, 0e999, 1e-999]", '{"1e999": "[1e999]"}', "[" * 64 + "]" * 64,
])
def test_unusual_data_that_every_client_can_read_is_delivered(world, data):
    with Socket(world.servers[0], user="ann") as ann, world.connect() as app:
        ann.ok("subscribe", channel="chat#5")
        app.execute("SELECT publish('chat#5', %s)", [data])
        assert ann.event()["data"] == json.loads(data)


@ONLY
@pytest.mark.parametrize("data,reason", [("[" * 65 + "]" * 65, "deeper than 64 levels"), ("9" * 400, "too large"), ("1e310", "too large")])
def test_data_that_some_client_cannot_read_is_refused_after_the_commit(world, data, reason):
    with Socket(world.servers[0], user="ann") as ann, world.connect() as app:
        for channel in ("room#6", "chat#6"):
            ann.ok("subscribe", channel=channel)
            app.execute("SELECT publish(%s, %s)", [channel, data])
            app.execute("SELECT publish(%s, '1')", [channel])
        app.execute("SELECT emit('deep', 'x', %s)", [data])
        app.execute("SELECT emit('deep', 'x', '2')")
        assert sorted((event["channel"], event["data"]) for event in (ann.event(), ann.event())) == [("chat#6", 1), ("room#6", 1)]
        until(lambda: world.queued() == 0 and world.events("deep") == [2], "what follows is stored")
        assert world.history("chat#6") == [1]
        refused = app.execute("SELECT name, data, reason FROM sql_refused ORDER BY id").fetchall()
        assert [(name, kept) for name, kept, _ in refused] == [("room#6", data), ("chat#6", data), ("deep", data)]
        assert all(reason in said for _, _, said in refused), refused


@ONLY
def test_a_role_has_these_two_rights_and_no_other(world):
    role = f"shop_{world.schema}"
    world.postgres.sql(f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {world.schema} TO {role}")
    with psycopg.connect(world.url.replace("postgres@", f"{role}@"), options=f"-c search_path={world.schema}", autocommit=True) as shop:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            shop.execute("SELECT publish('chat#1', '1')")
        world.postgres.sql(f"GRANT EXECUTE ON FUNCTION {world.schema}.publish(text, json), {world.schema}.emit(text, text, json, text) TO {role}")
        shop.execute("SELECT publish('chat#1', '1')")
        shop.execute("SELECT emit('orders', 'x', '1', id => 'one')")
        shop.execute("SELECT emit('orders', 'x', '2', id => 'one')")
        until(lambda: world.queued() == 0 and world.history("chat#1") == [1], "the message is stored")
        assert world.events("orders") == [1], "an id counts once"
        for other in ("TABLE sql_calls", "TABLE events", "SELECT sql_wake()", "SELECT bus_rotate(0, 0)", "DELETE FROM sql_calls"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                shop.execute(other)


@ONLY
def test_an_event_for_a_topic_of_another_publisher_is_kept_with_the_reason(world):
    with world.connect() as app:
        world.ask("POST", "/topics/taken/events", 202, type="x", data=1)
        app.execute("SELECT emit('taken', 'x', '2')")
        app.execute("SELECT emit('free', 'x', '3')")
        until(lambda: app.execute("SELECT count(*) FROM sql_refused WHERE name = 'taken' AND data = '2' AND reason LIKE '%another key%'").fetchone()[0] == 1, "it is refused")
        until(lambda: world.queued() == 0 and world.events("free") == [3], "what follows is not held up")


@ONLY
def test_a_record_that_cannot_be_read_holds_up_nothing_else(world):
    with world.connect() as app:
        app.execute("INSERT INTO documents (kind, name, version, body) VALUES ('topic', 'broken', 1, '\\xff')")
        app.execute("SELECT emit('broken', 'x', '1')")
        app.execute("SELECT emit('sound', 'x', '2')")
        app.execute("SELECT publish('chat#7', '3')")
        until(lambda: world.queued() == 0, "the queue is empty")
        assert world.events("sound") == [2] and world.history("chat#7") == [3]
        refused = app.execute("SELECT name, data FROM sql_refused WHERE reason LIKE '%cannot be read%'").fetchall()
        assert refused == [("broken", "1")]


@ONLY
def test_a_call_after_a_commit_comes_after_it(world):
    """Whichever transaction began first, or has the lower number."""
    with Socket(world.servers[1], user="ann") as ann, contextlib.ExitStack() as stack:
        ann.ok("subscribe", channel="chat#8")
        older, younger = (stack.enter_context(world.connect()) for _ in range(2))
        for n in range(20):
            with older.transaction():
                # It has its number, and no call.
                older.execute("SELECT txid_current()")
                with younger.transaction():
                    younger.execute("SELECT publish('chat#8', %s)", [json.dumps([n, "first"])])
                    younger.execute("SELECT emit('order', 'x', %s)", [json.dumps([n, "first"])])
                older.execute("SELECT publish('chat#8', %s)", [json.dumps([n, "second"])])
                older.execute("SELECT emit('order', 'x', %s)", [json.dumps([n, "second"])])
        expected = [[n, which] for n in range(20) for which in ("first", "second")]
        assert [ann.event()["data"] for _ in expected] == expected
        until(lambda: world.queued() == 0, "the queue is empty")
        assert world.history("chat#8") == world.events("order") == expected


@ONLY
def test_concurrent_transactions_have_one_order_for_all_receivers(world):
    def publish(n):
        with world.connect() as app:
            for one in range(25):
                with app.transaction():
                    for part in range(3):
                        app.execute("SELECT publish('chat#9', %s)", [json.dumps([n, one, part])])
                        app.execute("SELECT publish('room#9', %s)", [json.dumps([n, one, part])])

    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(Socket(server, user=f"user{n}")) for n, server in enumerate(world.servers * 2)]
        for socket in sockets:
            socket.ok("subscribe", channel="chat#9")
            socket.ok("subscribe", channel="room#9")
        threads = [threading.Thread(target=publish, args=(n,)) for n in range(4)]
        [thread.start() for thread in threads]
        received = [[socket.event(30) for _ in range(600)] for socket in sockets]
        [thread.join() for thread in threads]
    for channel in ("chat#9", "room#9"):
        orders = [[event["data"] for event in events if event["channel"] == channel] for events in received]
        assert all(order == orders[0] for order in orders)
        for n in range(4):
            assert [data[1:] for data in orders[0] if data[0] == n] == [[one, part] for one in range(25) for part in range(3)]
        assert channel == "room#9" or world.history(channel) == orders[0]
