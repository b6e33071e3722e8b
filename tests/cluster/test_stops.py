"""Graceful stops: sessions move to a live server, or wait in the store for the next one."""
import signal
import time

from support.json_client import Poller, Socket
from support.process import until
from support.resp import RespConnection

CONFIG = """
[sessions]
drain_ms = 3000
[nodes]
heartbeat_ms = 300
"""


def publish(server, channel, *messages):
    connection = RespConnection(server.resp_port)
    for message in messages:
        connection.call("PUBLISH", channel, message)
    connection.close()


def test_sessions_of_a_stopped_server_continue_on_others(combination, channel):
    with combination.cluster(3, CONFIG) as (a, b, c):
        with Socket(c, user="watcher") as watcher:
            watcher.ok("subscribe", channel=channel, presence=True)
            ann, bob = Socket(a, user="ann"), Poller(a, user="bob")
            bob.ok("hello")
            for client in (ann, bob):
                client.ok("subscribe", channel=channel)
            ann.ok("join", channel=channel, state=1)
            publish(a, channel, 1)
            assert [watcher.event()["event"] for _ in range(3)] == ["user_online", "client_online", "message"]
            a.process.send_signal(signal.SIGTERM)
            frames, code = ann.closing()
            assert code == 4502 and frames[-1]["event"] == "closing"
            assert a.process.wait(5) == 0
            # No client has reconnected yet, but the sessions keep receiving.
            publish(b, channel, 2)
            publish(c, channel, 3)
            with Socket(b, user="ann") as back:
                hello = back.ok("hello", session=ann.hello["session"], seq=0)
                assert (hello["resumed"], hello["client"]) == (True, ann.hello["client"])
                # There is no order between two servers.
                assert sorted(back.event()["data"] for _ in range(3)) == [1, 2, 3]
                with Poller(c, user="bob", session=bob.session) as again:
                    assert sorted(event["data"] for event in again.take()) == [1, 2, 3]
                time.sleep(3.5)
                assert [event["event"] for event in watcher.events_so_far()] == ["message"] * 2, "only the messages"
                assert watcher.ok("who", channel=channel)["users"][0]["clients"][0]["state"] == 1
            bob.http.close()


def test_the_next_server_adopts_the_sessions_of_the_last_one(combination, channel):
    with combination.settings() as settings:
        with settings.server(CONFIG) as first:
            ann = Socket(first, user="ann")
            ann.ok("subscribe", channel=channel, presence=True)
            ann.ok("join", channel=channel)
            publish(first, channel, 1)
            assert [ann.event()["event"] for _ in range(3)] == ["user_online", "client_online", "message"]
            ann.drop()
            publish(first, channel, 2)
            assert first.terminate() == 0
        with settings.server(CONFIG) as other:
            assert other.port != first.port, "another server, with another name"
            publish(other, channel, 3)
            with Socket(other, user="ann") as back:
                hello = back.ok("hello", session=ann.hello["session"], seq=3)
                assert (hello["resumed"], hello["client"]) == (True, ann.hello["client"])
                assert hello["node"] != ann.hello["node"]
                assert [back.event()["data"] for _ in range(2)] == [2, 3]
                assert back.ok("who", channel=channel)["users"][0]["clients"][0]["client"] == hello["client"]
                assert back.events_so_far() == []


def test_a_live_server_adopts_sessions_that_could_not_be_migrated(combination, channel):
    """The only other server is suspended during the stop; after it resumes it finds the sessions in the store."""
    with combination.cluster(2, CONFIG) as (a, b):
        ann = Socket(a, user="ann")
        ann.ok("subscribe", channel=channel)
        publish(b, channel, 1)
        assert ann.event()["data"] == 1
        b.suspend()
        try:
            assert a.terminate(timeout=6) == 0, "the stop has a time limit"
        finally:
            b.resume()
        until(lambda: b.metric("tavern_sessions") == 1, "the session to be adopted")
        publish(b, channel, 2)
        with Socket(b, user="ann") as back:
            assert back.ok("hello", session=ann.hello["session"], seq=1)["resumed"] is True
            publish(b, channel, 3)
            # A server was running while the session was in the store, so it may have missed messages.
            gap, *messages = [back.event()]
            assert (gap["event"], gap["channel"]) == ("gap", channel), gap
            while not messages or messages[-1] != 3:
                messages.append(back.event()["data"])
            # The first one may have come before the session was subscribed again: that is what the gap says.
            assert messages in ([2, 3], [3])


def test_all_servers_stop_at_once_and_one_starts_again(combination, channel):
    with combination.settings() as settings:
        servers = [settings.server(CONFIG).start() for _ in range(3)]
        try:
            clients = [Socket(server, user=f"u{n}") for n, server in enumerate(servers * 4)]
            for client in clients:
                client.ok("subscribe", channel=channel)
            publish(servers[0], channel, 1)
            for client in clients:
                assert client.event()["data"] == 1
            for server in servers:
                server.process.send_signal(signal.SIGTERM)
            assert [server.process.wait(8) for server in servers] == [0, 0, 0]
            one = servers[1]
            one.kill()
            one.start()
            publish(one, channel, 2)
            for n, client in enumerate(clients):
                with Socket(one, user=f"u{n}") as back:
                    hello = back.ok("hello", session=client.hello["session"], seq=1)
                    assert (hello["resumed"], hello["client"]) == (True, client.hello["client"])
                    event = back.event()
                    # Another server may have published after this session was stored, and stopped later.
                    assert (back.event() if event["event"] == "gap" else event)["data"] == 2
        finally:
            for server in servers:
                server.kill()
