"""What clients that are not authenticated, or that do not read, may cost."""
import base64
import json
import os
import selectors
import socket as sockets
import time

import pytest

from support import tokens
from support.json_client import Socket
from support.process import until
from support.resp import pack
from support.tavern import Tavern

FLOOD_CONFIG = "[limits]\nconnections_per_address = 10000\n"
MIB = 1024 * 1024
CROWD = 1000


def handshake(path="/v1/connect"):
    key = base64.b64encode(os.urandom(16)).decode()
    return (f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n").encode()


def masked(payload, opcode=0x81):
    """A client's frame with a mask of zeros."""
    size = len(payload)
    head = bytes([opcode, 0x80 | size]) if size < 126 else (
        bytes([opcode, 0x80 | 126]) + size.to_bytes(2, "big") if size < 65536 else
        bytes([opcode, 0x80 | 127]) + size.to_bytes(8, "big"))
    return head + b"\0\0\0\0" + payload


def connect(port, first=b""):
    made = sockets.socket()
    made.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 4096)
    made.setsockopt(sockets.SOL_SOCKET, sockets.SO_SNDBUF, 65536)
    made.connect(("127.0.0.1", port))
    made.sendall(first)
    return made


def flood(crowd, piece, seconds, watch=lambda: None):
    """Every connection sends as much as the server takes and reads nothing. Those that the server closes are left out."""
    chooser = selectors.DefaultSelector()
    for made in crowd:
        made.setblocking(False)
        chooser.register(made, selectors.EVENT_WRITE)
    end = time.monotonic() + seconds
    sent = 0
    while time.monotonic() < end and chooser.get_map():
        for key, _ in chooser.select(0.2):
            try:
                sent += key.fileobj.send(piece)
            except BlockingIOError:
                pass
            except OSError:
                chooser.unregister(key.fileobj)
        watch()
    chooser.close()
    return sent


FLOODS = {
    # Many small commands in one frame, each with a reply that is longer than itself.
    "commands over WebSocket": ("http", handshake(), masked(b"x\n" * 8000)),
    "pings over WebSocket": ("http", handshake(), masked(b"p" * 125, 0x89) * 100),
    "unfinished frames": ("http", handshake(), masked(b"x" * 16000)[:-1]),
    "fragments without an end": ("http", handshake(), masked(b"x" * 15000, 0x01)),
    "frames that are too large": ("http", handshake(), masked(b"x" * 200_000)),
    "commands over Redis": ("redis", b"", b"\r\nx" * 8000),
    "unfinished Redis commands": ("redis", b"*10\r\n$16384\r\n", b"x" * 16384 + b"\r\n$16384\r\n"),
    "pipelined requests": ("http", b"", b"GET /v1/nodes HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 200),
    "polls with half a body": (
        "http", b"", b"POST /v1/poll HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 16000\r\n\r\n" + b" " * 15999),
    "commands with half a body": (
        "http", b"", b"POST /v1/command HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 69000\r\n\r\n" + b" " * 68999),
}


@pytest.mark.parametrize("kind", FLOODS)
def test_a_thousand_floods_before_login_cost_less_than_64_mib(kind):
    transport, first, piece = FLOODS[kind]
    with Tavern.serve(FLOOD_CONFIG) as server:
        with Socket(server, token=tokens.token("warm")) as warm:
            warm.ok("ping")
        before = server.resident_bytes()
        peak = before

        def watch():
            nonlocal peak
            peak = max(peak, server.resident_bytes())

        port = server.port if transport == "http" else server.resp_port
        crowd = []
        try:
            for number in range(CROWD):
                try:
                    crowd.append(connect(port, first))
                except OSError:
                    pass
                if number % 100 == 0:
                    watch()
            flood(crowd, piece, 6, watch)
            cost = peak - before
            print(f"{kind}: {cost / MIB:.1f} MiB for {len(crowd)} connections")
            assert cost < 64 * MIB, f"{cost / MIB:.1f} MiB"
            with Socket(server, token=tokens.token("calm"), source="127.0.0.3") as calm:
                assert "ok" in calm.call("ping"), "a client with a token and another address is served"
        finally:
            for made in crowd:
                made.close()


def test_the_oldest_connections_are_closed_when_unauthenticated_ones_hold_too_much():
    config = FLOOD_CONFIG + "unauthenticated_total_bytes = 1048576\n"
    with Tavern.serve("threads = 1\n" + config) as server:
        with Socket(server, token=tokens.token("member")) as member:
            member.ok("subscribe", channel="game#1")
            unfinished = masked(b"x" * 16000)[:-1]
            crowd = []
            # One after the other: handshakes that run at the same time may finish in another order.
            for _ in range(100):
                crowd.append(connect(server.port, handshake()))
                assert crowd[-1].recv(4096).startswith(b"HTTP/1.1 101")
            for made in crowd:
                made.sendall(unfinished)
            until(lambda: server.metric("tavern_connections_closed_unauthenticated_total") > 0, "some are closed")

            def is_closed(made):
                made.settimeout(0.02)
                try:
                    return made.recv(1) == b""
                except TimeoutError:
                    return False
                except OSError:
                    return True

            closed = [is_closed(made) for made in crowd]
            assert sum(closed[:30]) >= 28 and sum(closed[-30:]) <= 2, f"the oldest are closed, not the newest: {closed}"
            assert "ok" in member.call("ping"), "a session is not closed"
            assert "limits.unauthenticated_total_bytes" in server.log()
            for made in crowd:
                made.close()


@pytest.mark.parametrize("transport", ["websocket", "redis"])
def test_unread_replies_pause_a_client_and_then_close_it(transport):
    config = FLOOD_CONFIG + "unread_reply_bytes = 65536\n[sessions]\nheartbeat_ms = 1000\n"
    with Tavern.dev(config) as server:
        if transport == "websocket":
            made = connect(server.port, handshake("/v1/connect?user=ann"))
            piece = masked(b'{"op":"ping"}\n' * 1000)
        else:
            made = connect(server.resp_port)
            piece = pack("ECHO", "x" * 100) * 100
        before = server.resident_bytes()
        commands = server.metric("tavern_commands_total")
        sent = flood([made], piece, 1)
        assert sent > 0
        paused = server.metric("tavern_commands_total")
        assert paused > commands
        assert server.resident_bytes() - before < 8 * MIB
        until(lambda: server.metric("tavern_connections_closed_slow_total") == 1, "the connection is closed", 10)
        made.close()


@pytest.mark.parametrize("transport", ["websocket", "redis"])
def test_a_paused_client_that_reads_gets_every_reply(transport):
    with Tavern.dev("[limits]\nunread_reply_bytes = 16384\n") as server:
        count = 20_000
        if transport == "websocket":
            made = connect(server.port, handshake("/v1/connect?user=ann"))
            lines = [json.dumps({"id": number, "op": "ping"}).encode() for number in range(count)]
            sent = b"".join(masked(b"\n".join(lines[at:at + 500])) for at in range(0, count, 500))
            last = b'"id":%d,' % (count - 1)
        else:
            made = connect(server.resp_port)
            sent = b"".join(pack("ECHO", f"reply-{number}") for number in range(count))
            last = b"reply-%d\r\n" % (count - 1)
        made.setblocking(False)
        received = b""
        end = time.monotonic() + 20
        while last not in received[-200:] and time.monotonic() < end:
            try:
                sent = sent[made.send(sent[:65536]):] if sent else sent
            except BlockingIOError:
                # Only now, so that the server has to pause first.
                time.sleep(0.01)
                try:
                    received += made.recv(1 << 20)
                except BlockingIOError:
                    pass
            else:
                if not sent:
                    try:
                        received += made.recv(1 << 20)
                    except BlockingIOError:
                        time.sleep(0.01)
        word = b'"ok"' if transport == "websocket" else b"reply-"
        assert received.count(word) >= count
        made.close()
