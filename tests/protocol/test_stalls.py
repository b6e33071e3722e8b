"""Stalled readers, half-open connections and abandoned sessions: memory stays bounded and healthy clients are not affected."""
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
    """Subscribes with a small TCP window and never reads again."""
    raw = sockets.socket()
    raw.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 4096)
    raw.connect(("127.0.0.1", server.resp_port))
    raw.settimeout(5)
    raw.sendall(pack("SUBSCRIBE", channel))
    assert raw.recv(1024).startswith(b"*3")
    return raw


class PublisherThread(threading.Thread):
    """Publishes at a constant rate; each message contains its time."""

    def __init__(self, server, channel, count, per_second, size):
        super().__init__(daemon=True)
        self.connection = RespConnection(server.resp_port)
        self.messages = [channel, count, per_second, "x" * size]
        self.receivers = []

    def run(self):
        channel, count, per_second, ballast = self.messages
        began = time.monotonic()
        for number in range(1, count + 1):
            time.sleep(max(began + number / per_second - time.monotonic(), 0))
            message = json.dumps([number, time.monotonic(), ballast])
            self.receivers.append(self.connection.call("PUBLISH", channel, message))
        self.connection.close()


def test_stalled_readers_use_little_memory_and_delay_no_other_client():
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
            publisher = PublisherThread(server, "game#1", count, 200, 1024)
            publisher.start()
            received, late, most = [], [], before
            while len(received) < count:
                event = healthy.event()
                late.append(time.monotonic() - event["data"][1])
                received.append((event["seq"], event["data"][0]))
                if len(received) % 50 == 0:
                    most = max(most, server.resident_bytes())
            publisher.join(5)
        assert received == [(number, number) for number in range(1, count + 1)]
        assert p99(late) < ROUND_TRIP, f"p99 {p99(late) * 1000:.1f} ms"
        # 1 MB was published; 20 stalled readers must not hold 20 copies.
        assert most - before < 16 * MIB, f"grew by {(most - before) / MIB:.1f} MiB"
        assert publisher.receivers[0] == 2 * each + 1
        assert publisher.receivers[-1] == each + 1, "the stalled Redis readers were closed, the sessions not"

        for raw in redis_stalled:
            while raw.recv(65_536):
                pass  # The data already sent, then the close.
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
            assert gaps == 1, "one gap per stall"
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


def test_half_open_connections_use_little_memory_and_are_closed(descriptors):
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
            # A connection without a complete request head is closed after two seconds. Bodies and hellos may take longer.
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
        until(lambda: "\ntavern_connections 3\n" in server.metrics(), "all other connections to be closed", 5)


def test_an_idle_keep_alive_connection_stays_open(channel):
    """The header timeout starts with the first byte of a head; otherwise an idle client would lose its next request."""
    with Tavern.dev("[limits]\nhttp_header_ms = 300\n") as server:
        with Poller(server, user="ann") as poller:
            poller.ok("hello")
            poller.ok("subscribe", channel=channel)
            began = time.monotonic()
            assert poller.poll(timeout_ms=1000)["events"] == [], "a parked poll does not hit the header timeout"
            assert time.monotonic() - began > 0.8
            assert "ok" in poller.command("ping")


def test_the_total_size_of_mailboxes_is_bounded_and_drops_are_gaps():
    sessions, messages, size = 100, 40, 20_000
    with Tavern.dev(f"threads = 2\n[limits]\nmailbox_total_bytes = {4 * MIB}\n") as server:
        publisher = RespConnection(server.resp_port, timeout=20)
        with Poller(server, user="ann") as poller, Socket(server, user="bob") as healthy:
            healthy.ok("subscribe", channel="game#1")
            keys = []
            for number in range(sessions):
                poller.session = None
                keys.append(poller.ok("hello")["session"])
                poller.ok("subscribe", channel=f"own#{number}")
            before = server.resident_bytes()
            most = before
            for message in range(1, messages + 1):
                payload = json.dumps([message, "x" * size])
                publisher.send(b"".join(pack("PUBLISH", f"own#{number}", payload) for number in range(sessions)))
                assert [publisher.read() for _ in range(sessions)] == [1] * sessions
                most = max(most, server.resident_bytes())
                assert publisher.call("PUBLISH", "game#1", message) == 1
                assert healthy.event()["data"] == message, "a healthy reader misses nothing"
            # 80 MB were published to disconnected sessions; about 4 MB may be kept.
            assert most - before < 24 * MIB, f"grew by {(most - before) / MIB:.1f} MiB"
            kept, gaps = 0, 0
            for key in keys:
                cursor, last = 0, 0
                while last < messages:
                    answer = poller.poll(session=key, cursor=cursor, timeout_ms=0)
                    assert answer["events"], f"after {last} of {messages} there are no events and no gap"
                    for event in answer["events"]:
                        if event["event"] == "gap":
                            assert event["from"] == last + 1
                            gaps += 1
                        else:
                            assert event["seq"] == last + 1 == event["data"][0]
                            kept += size
                        last = event["seq"]
                    cursor = answer["cursor"]
                assert last == messages
            assert gaps >= sessions * 0.9
            assert kept <= 8 * MIB, f"{kept / MIB:.1f} MiB were kept"
        publisher.close()


def test_a_closed_redis_reader_gets_only_complete_messages(channel):
    """A stalled Redis reader that was closed reads complete messages in order, then the end."""
    with Tavern.dev("threads = 1\n[limits]\nredis_pending_bytes = 65536\n") as server:
        stalled = RespConnection(server.resp_port)
        stalled.socket.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 4096)
        stalled.call("SUBSCRIBE", channel)
        publisher = RespConnection(server.resp_port)
        for number in range(2000):
            if publisher.call("PUBLISH", channel, f"{number} {'x' * 4000}") == 0:
                break
        assert number < 1999, "the reader was never closed"
        # Reading the rest through the small window would take seconds.
        stalled.socket.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, MIB)
        received = 0
        try:
            while (frame := stalled.frame()) != CLOSED:
                assert b"\r\n%d xxx" % received in frame
                received += 1
        except ConnectionError:
            pass  # Closed inside a message.
        assert received > 0
        publisher.close()
        stalled.close()
