"""Those who stall: readers that stop, connections that never begin, sessions that nobody comes back for. Memory stays bounded and
whoever is well notices nothing."""
import json
import resource
import select
import socket as sockets
import threading
import time

import pytest

from support.json_client import Poller, Socket
from support.process import until
from support.resp import CLOSED, RespConnection, pack
from support.tavern import Tavern

pytestmark = pytest.mark.alone
MIB = 1 << 20
ROUND_TRIP = 0.050


def p99(times):
    return sorted(times)[int(len(times) * 0.99)]


def stalled_redis(server, channel):
    """Subscribes with a small window and never reads again."""
    raw = sockets.socket()
    raw.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 4096)
    raw.connect(("127.0.0.1", server.resp_port))
    raw.settimeout(5)
    raw.sendall(pack("SUBSCRIBE", channel))
    assert raw.recv(1024).startswith(b"*3")
    return raw


class Talk(threading.Thread):
    """Words at a steady rate, each with the time at which it was said."""

    def __init__(self, server, channel, count, per_second, size):
        super().__init__(daemon=True)
        self.connection = RespConnection(server.resp_port)
        self.words = [channel, count, per_second, "x" * size]
        self.receivers = []

    def run(self):
        channel, count, per_second, ballast = self.words
        began = time.monotonic()
        for number in range(1, count + 1):
            time.sleep(max(began + number / per_second - time.monotonic(), 0))
            word = json.dumps([number, time.monotonic(), ballast])
            self.receivers.append(self.connection.call("PUBLISH", channel, word))
        self.connection.close()


def test_stalled_readers_cost_little_and_delay_nobody():
    config = "threads = 1\n[limits]\nmailbox_events = 100\nredis_pending_bytes = 131072\n"
    count, each = 1000, 10
    with Tavern.dev(config) as server:
        json_stalled = [Socket(server, user=f"stalled-{n}", receive_bytes=4096) for n in range(each)]
        for socket in json_stalled:
            socket.ok("subscribe", channel="game#1")
        redis_stalled = [stalled_redis(server, "game#1") for _ in range(each)]
        with Socket(server, user="healthy") as healthy:
            healthy.ok("subscribe", channel="game#1")
            before = server.resident_bytes()
            talk = Talk(server, "game#1", count, 200, 1024)
            talk.start()
            heard, late, most = [], [], before
            while len(heard) < count:
                event = healthy.event()
                late.append(time.monotonic() - event["data"][1])
                heard.append((event["seq"], event["data"][0]))
                if len(heard) % 50 == 0:
                    most = max(most, server.resident_bytes())
            talk.join(5)
        assert heard == [(number, number) for number in range(1, count + 1)]
        assert p99(late) < ROUND_TRIP, f"p99 {p99(late) * 1000:.1f} ms"
        # A megabyte was said; twenty who did not listen may not keep twenty of them.
        assert most - before < 16 * MIB, f"grew by {(most - before) / MIB:.1f} MiB"
        assert talk.receivers[0] == 2 * each + 1
        assert talk.receivers[-1] == each + 1, "the stalled Redis readers were closed, the sessions not"

        for raw in redis_stalled:
            while raw.recv(65_536):
                pass  # What had been sent, then the end.
            raw.close()
        for socket in json_stalled:
            last, gaps = 0, 0
            while last < count:
                event = socket.event()
                if event["event"] == "gap":
                    assert (event["from"], event["seq"]) == (last + 1, event["to"])
                    gaps += 1
                else:
                    assert event["seq"] == last + 1 == event["data"][0]
                last = event["seq"]
            assert gaps == 1, "one silence, one gap"
            socket.close()


BEGUN = [
    b"",
    b"GET /v1/con",
    b"GET /v1/connect HTTP/1.1\r\nHost: localhost\r\n",
    b"POST /v1/poll?user=x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
    b"GET /v1/connect HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n\x81\xfe\xff",
]
BEGUN_REDIS = [b"", b"*3\r\n$7\r\nPUB", b"PUBLISH x", b"*1000000\r\n", b"*2\r\n$4\r\nPING\r\n$60000\r\n" + b"x" * 100]


@pytest.fixture
def descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_half_open_connections_cost_little_delay_nobody_and_go(descriptors):
    config = "[limits]\nconnections_per_address = 10000\nhttp_header_ms = 2000\n"
    with Tavern.dev(config) as server, Socket(server, user="ann") as ann, Socket(server, user="bob") as bob:
        ann.ok("subscribe", channel="game#1")
        before = server.resident_bytes()
        web, redis, times = [], [], []

        def round_trip(number):
            began = time.monotonic()
            bob.ok("publish", channel="game#1", data=number)
            assert ann.event(timeout=2)["data"] == number
            times.append(time.monotonic() - began)

        try:
            for number in range(1000):
                for port, begun, held in ((server.port, BEGUN, web), (server.resp_port, BEGUN_REDIS, redis)):
                    raw = sockets.create_connection(("127.0.0.1", port), timeout=5)
                    raw.sendall(begun[number % len(begun)])
                    held.append((raw, begun[number % len(begun)]))
                if number % 5 == 0:
                    round_trip(number)
            for number in range(300):
                round_trip(1000 + number)
            assert p99(times) < ROUND_TRIP, f"p99 {p99(times) * 1000:.1f} ms"
            grown = server.resident_bytes() - before
            assert grown < 64 * MIB, f"grew by {grown / MIB:.1f} MiB: {grown / 2000 / 1024:.1f} KiB each"
            # Whoever has not sent a whole head in two seconds is gone. Bodies and hellos may take longer.
            headless = {raw.fileno(): begun for raw, begun in web if b"\r\n\r\n" not in begun}
            poll = select.poll()
            for number in headless:
                poll.register(number, select.POLLIN)
            end = time.monotonic() + 5
            while headless and time.monotonic() < end:
                for number, _ in poll.poll(200):
                    poll.unregister(number)
                    del headless[number]
            left = {begun for begun in headless.values()}
            assert not headless, f"{len(headless)} are still open; they had sent {left}"
            round_trip("end")
        finally:
            for raw, _ in web + redis:
                raw.close()
        until(lambda: "\ntavern_connections 3\n" in server.metrics(), "all the others to be gone", 5)


def test_a_connection_that_has_answered_once_may_rest(channel):
    """Keep-alive: the time for a head begins with the head, or a resting client would lose its next request."""
    with Tavern.dev("[limits]\nhttp_header_ms = 300\n") as server:
        with Poller(server, user="ann") as poller:
            poller.ok("hello")
            poller.ok("subscribe", channel=channel)
            began = time.monotonic()
            assert poller.poll(timeout_ms=1000)["events"] == [], "a parked poll is not a late head"
            assert time.monotonic() - began > 0.8
            assert "ok" in poller.command("ping")


def test_mailboxes_together_are_bounded_and_tell_their_gaps():
    sessions, words, size = 100, 40, 20_000
    with Tavern.dev(f"threads = 2\n[limits]\nmailbox_total_bytes = {4 * MIB}\n") as server:
        speaker = RespConnection(server.resp_port, timeout=20)
        with Poller(server, user="ann") as poller, Socket(server, user="bob") as healthy:
            healthy.ok("subscribe", channel="game#1")
            keys = []
            for number in range(sessions):
                poller.session = None
                keys.append(poller.ok("hello")["session"])
                poller.ok("subscribe", channel=f"own#{number}")
            before = server.resident_bytes()
            most = before
            for word in range(1, words + 1):
                payload = json.dumps([word, "x" * size])
                speaker.send(b"".join(pack("PUBLISH", f"own#{number}", payload) for number in range(sessions)))
                assert [speaker.read() for _ in range(sessions)] == [1] * sessions
                most = max(most, server.resident_bytes())
                assert speaker.call("PUBLISH", "game#1", word) == 1
                assert healthy.event()["data"] == word, "who reads misses nothing"
            # 80 MB were said to people who are away; about four may be kept.
            assert most - before < 24 * MIB, f"grew by {(most - before) / MIB:.1f} MiB"
            kept, told = 0, 0
            for key in keys:
                cursor, last = 0, 0
                while last < words:
                    answer = poller.poll(session=key, cursor=cursor, timeout_ms=0)
                    assert answer["events"], f"after {last} of {words} there is nothing, and no gap was told"
                    for event in answer["events"]:
                        if event["event"] == "gap":
                            assert event["from"] == last + 1
                            told += 1
                        else:
                            assert event["seq"] == last + 1 == event["data"][0]
                            kept += size
                        last = event["seq"]
                    cursor = answer["cursor"]
                assert last == words
            assert told >= sessions * 0.9
            assert kept <= 8 * MIB, f"{kept / MIB:.1f} MiB were kept"
        speaker.close()


def test_a_closed_redis_reader_is_told_nothing_more(channel):
    """The end of a stalled Redis reader is an end: what it reads at last is whole messages in order, then nothing."""
    with Tavern.dev("threads = 1\n[limits]\nredis_pending_bytes = 65536\n") as server:
        stalled = RespConnection(server.resp_port)
        stalled.socket.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 4096)
        stalled.call("SUBSCRIBE", channel)
        speaker = RespConnection(server.resp_port)
        for number in range(2000):
            if speaker.call("PUBLISH", channel, f"{number} {'x' * 4000}") == 0:
                break
        assert number < 1999, "it was never closed"
        # Through the small window the rest would take seconds.
        stalled.socket.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, MIB)
        heard = 0
        try:
            while (frame := stalled.frame()) != CLOSED:
                assert b"\r\n%d xxx" % heard in frame
                heard += 1
        except ConnectionError:
            pass  # Cut off inside a message: it cannot be taken for a whole one.
        assert heard > 0
        speaker.close()
        stalled.close()
