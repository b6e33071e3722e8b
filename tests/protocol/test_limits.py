"""Limits: rates, sizes, counts, addresses. Exceeding one gives an error and affects no other client."""
import json
import socket as sockets

import httpx
import pytest
import websockets.exceptions

from support import tokens
from support.json_client import Poller, Socket
from support.process import until
from support.resp import CLOSED, ErrorReply, RespConnection, pack
from support.tavern import Tavern


def test_too_many_commands_are_refused_with_retry_after(serve, channel):
    with Socket(serve, token=tokens.token("hasty")) as socket:
        count = 400
        socket.send("\n".join(json.dumps({"id": n, "op": "ping"}) for n in range(count)))
        answers = [socket.frame() for _ in range(count)]
        refused = [a["error"] for a in answers if "error" in a]
        assert 100 <= len(refused) < count - 100, f"{len(refused)} of {count} refused"
        assert all(error["code"] == "rate_limited" and error["retry_after_ms"] > 0 for error in refused)
    with Socket(serve, token=tokens.token("calm")) as other:
        assert "ok" in other.call("ping"), "other clients are not limited"


def test_the_rate_limit_applies_to_http_with_status_429():
    # A low rate: a slow machine may not send more.
    with Tavern.serve("[limits]\ncommands_per_second = 5\n") as server, Poller(server, token=tokens.token("hasty")) as poller:
        poller.ok("hello")
        for _ in range(100):
            response = poller.command_response("ping")
            if response.status_code == 429:
                error = response.json()["error"]
                assert error["code"] == "rate_limited" and error["retry_after_ms"] > 0
                return
        pytest.fail("none of 100 commands was refused")


def test_the_rate_limit_applies_to_redis(serve):
    connection = RespConnection(serve.resp_port)
    assert connection.call("AUTH", tokens.token("hasty")) == "OK"
    connection.send(pack("PUBLISH", "game#1", "x") * 600)
    answers = [connection.read() for _ in range(600)]
    assert any(isinstance(answer, ErrorReply) for answer in answers), "none of 600 publishes was refused"
    connection.close()


def test_api_keys_have_no_rate_limit(serve):
    connection = RespConnection(serve.resp_port)
    assert connection.call("AUTH", serve.key) == "OK"
    connection.send(pack("PUBLISH", "game#1", "x") * 1000)
    assert [connection.read() for _ in range(1000)] == [0] * 1000
    connection.close()


def test_message_size_is_limited(dev, user, channel):
    with Socket(dev, user=user) as socket:
        assert "ok" in socket.call("publish", channel=channel, data="x" * (65_536 - 2))
        assert socket.call("publish", channel=channel, data="x" * 65_536)["error"]["code"] == "too_large"
        assert "ok" in socket.call("ping")


def test_redis_message_size_is_limited(dev, channel):
    connection = RespConnection(dev.resp_port)
    assert connection.call("PUBLISH", channel, "x" * 65_536) == 0
    assert isinstance(connection.call("PUBLISH", channel, "x" * 65_537), ErrorReply)
    connection.close()


def test_body_size_is_limited(dev, user):
    response = httpx.post(
        f"{dev.url}/v1/command?user={user}", content=b'{"op":"ping","x":"' + b"x" * 10_000_000 + b'"}', timeout=10,
        trust_env=False,
    )
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "too_large"


def test_an_oversized_frame_closes_only_its_connection(dev, user):
    with Socket(dev, user=user) as victim, Socket(dev, user=user) as socket:
        try:
            socket.send('{"op":"ping","x":"' + "x" * 20_000_000 + '"}')
            frames, code = socket.closing()
            assert code == 1009 or frames[0]["error"]["code"] == "too_large"
        except (websockets.exceptions.ConnectionClosed, ConnectionError):
            pass
        assert "ok" in victim.call("ping")


@pytest.fixture(scope="module")
def limited():
    config = "[limits]\nconnections_per_address = 5\nchannels_per_session = 3\n"
    with Tavern.serve(config) as server:
        yield server


def test_channels_per_session_are_limited(limited):
    with Socket(limited, token=tokens.token()) as socket:
        for number in range(3):
            socket.ok("subscribe", channel=f"game#{number}")
        assert socket.call("subscribe", channel="game#3")["error"]["code"] in ("too_large", "rate_limited", "busy")
        assert "ok" in socket.call("subscribe", channel="game#0"), "an existing subscription"
        socket.ok("unsubscribe", channel="game#0")
        assert "ok" in socket.call("subscribe", channel="game#3")


def test_websockets_per_address_are_limited(limited):
    def opens():
        try:
            return Socket(limited, token=tokens.token())
        except (websockets.exceptions.WebSocketException, ConnectionError, EOFError):
            return None  # Refused during or before the handshake.

    held = []
    try:
        # Connections of earlier tests may still be closing.
        until(lambda: len(held) == 5 or ((made := opens()) and held.append(made)), "five sockets")
        assert opens() is None, "the sixth is refused"
        held.pop().close()
        until(lambda: (made := opens()) and (held.append(made) or True), "a free slot after one has closed")
    finally:
        for socket in held:
            socket.close()


def test_connection_over_the_limit_per_address_is_answered_and_logged():
    with Tavern.dev("[limits]\nconnections_per_address = 2\n") as server:
        held = []

        def is_full():
            if httpx.get(f"{server.url}/livez", trust_env=False).status_code == 429:
                return True
            held.append(sockets.create_connection(("127.0.0.1", server.port)))

        until(is_full, "the limit to be reached")
        for _ in range(3):
            answer = httpx.get(f"{server.url}/livez", trust_env=False)
            assert answer.status_code == 429 and answer.headers["retry-after"] == "5"
            error = answer.json()["error"]
            assert error["code"] == "rate_limited" and "address" in error["message"]
        redis = RespConnection(server.resp_port)
        assert redis.frame() == b"-ERR max number of clients reached\r\n"
        redis.send(pack("PING"))
        assert redis.frame() is CLOSED
        lines = [line for line in server.log().splitlines() if "connection refused: limit reached" in line]
        assert len(lines) == 2, "one line per port"
        assert all("limits.connections_per_address" in line and "127.0.0.1" in line for line in lines)
        for connection in held:
            connection.close()


def test_redis_connections_per_address_are_limited(limited):
    def opens():
        connection = RespConnection(limited.resp_port)
        connection.send(pack("AUTH", limited.key))
        first = connection.frame()
        return connection if first == b"+OK\r\n" else None

    held = []
    until(lambda: len(held) == 5 or ((made := opens()) and held.append(made)), "five connections")
    assert opens() is None, "the sixth is refused"
    held.pop().close()
    until(lambda: (made := opens()) and (held.append(made) or True), "a free slot after one has closed")
    for connection in held:
        connection.close()


def test_half_open_connections_affect_no_other_client(user, channel):
    """2,000 peers that start a request and never finish it."""
    with Tavern.dev("[limits]\nconnections_per_address = 10000\n") as server:
        begun = [
            b"", b"GET /v1/con", b"GET /v1/connect HTTP/1.1\r\nHost: x\r\n",
            b"POST /v1/poll HTTP/1.1\r\nContent-Length: 9\r\n\r\n{",
        ]
        half = []
        try:
            for number in range(1000):
                half.append(sockets.create_connection(("127.0.0.1", server.port)))
                half[-1].sendall(begun[number % len(begun)])
                half.append(sockets.create_connection(("127.0.0.1", server.resp_port)))
                half[-1].sendall([b"", b"*3\r\n$7\r\nPUB", b"PUBLISH x", b"*1000000\r\n"][number % 4])
            with Socket(server, user="ann") as ann, Socket(server, user="bob") as bob:
                ann.ok("subscribe", channel=channel)
                for number in range(100):
                    bob.ok("publish", channel=channel, data=number)
                    assert ann.event(timeout=2)["data"] == number
        finally:
            for connection in half:
                connection.close()


def test_a_redis_client_that_stops_reading_is_closed_and_others_continue():
    """RESP has no gap event, so the connection is closed; other readers miss nothing."""
    with Tavern.dev("threads = 1\n[limits]\nredis_pending_bytes = 1048576\n") as server:
        stalled, reader, publisher = (RespConnection(server.resp_port) for _ in range(3))
        stalled.socket.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 4096)
        for connection in (stalled, reader):
            connection.call("SUBSCRIBE", "x")
        payload = "p" * 60_000
        for number in range(600):
            assert publisher.call("PUBLISH", "x", f"{number} {payload}") in (1, 2)
            assert reader.read()[2].startswith(b"%d " % number)
        assert publisher.call("PUBLISH", "x", "end") == 1, "the stalled reader is closed"
        try:
            while stalled.frame() != CLOSED:
                pass
        except ConnectionError:
            pass  # Closed inside a message.
