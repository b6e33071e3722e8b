"""A refused connection is closed soon, even if its peer keeps sending."""
import socket
import ssl
import time

import pytest

from support.tls_server import TlsServer

# The server waits at most 2 s for the peer to close; the rest is for a busy machine.
CLOSED_WITHIN = 3.0
GIVE_UP = 8.0
FLOOD = b"A" * 65_536
HANDSHAKE = (
    b"GET /v1/connect HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@pytest.fixture(scope="module")
def sealed():
    with TlsServer() as server:
        yield server


def redis_error(server):
    connection = _connect(server, server.resp_port)
    connection.sendall(b"*\x00\r\n")
    assert connection.recv(100).startswith(b"-ERR Protocol error")
    return connection


def redis_quit(server):
    connection = _connect(server, server.resp_port)
    connection.sendall(b"QUIT\r\n")
    assert connection.recv(100) == b"+OK\r\n"
    return connection


def websocket_error(server):
    connection = _connect(server, server.port)
    connection.sendall(HANDSHAKE)
    assert connection.recv(4096).startswith(b"HTTP/1.1 101")
    connection.sendall(b"\x81\x01x")  # Not masked.
    assert connection.recv(4)[0] == 0x88, "a close frame"
    return connection


def http_garbage(server):
    connection = _connect(server, server.port)
    connection.sendall(b"nonsense\r\n\r\n")
    assert connection.recv(100).startswith(b"HTTP/1.1 400")
    return connection


def http_endless_body(server):
    connection = _connect(server, server.port)
    connection.sendall(b"POST /v1/nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999999\r\n\r\n")
    return connection


REFUSALS = [redis_error, redis_quit, websocket_error, http_garbage, http_endless_body]


def _connect(server, port):
    connection = socket.create_connection(("127.0.0.1", port), timeout=5)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return server.trust.wrap_socket(connection, server_hostname="127.0.0.1") if server.trust else connection


def _seconds_until_closed(connection, data, pause):
    """Sends until the server has closed."""
    started = time.monotonic()
    with connection:
        while (elapsed := time.monotonic() - started) < GIVE_UP:
            try:
                connection.sendall(data)
            except (ConnectionError, ssl.SSLError):
                return elapsed
            time.sleep(pause)
    return elapsed


@pytest.mark.parametrize("refuse", REFUSALS)
def test_refused_connection_that_floods_is_closed(dev, refuse):
    assert _seconds_until_closed(refuse(dev), FLOOD, 0) < CLOSED_WITHIN


@pytest.mark.parametrize("refuse", REFUSALS)
def test_refused_connection_that_trickles_is_closed(dev, refuse):
    assert _seconds_until_closed(refuse(dev), b"A", 0.1) < CLOSED_WITHIN


@pytest.mark.parametrize("refuse", REFUSALS)
def test_refused_tls_connection_that_sends_is_closed(sealed, refuse):
    assert _seconds_until_closed(refuse(sealed), FLOOD, 0.05) < CLOSED_WITHIN


def test_connection_that_never_logs_in_is_closed_although_it_sends(serve):
    """15 s without AUTH or hello."""
    redis = _connect(serve, serve.resp_port)
    websocket = _connect(serve, serve.port)
    websocket.sendall(HANDSHAKE)
    assert websocket.recv(4096).startswith(b"HTTP/1.1 101")
    pings = {redis: b"PING\r\n", websocket: b"\x89\x80\0\0\0\0"}
    closed, started = {}, time.monotonic()
    while len(closed) < 2 and time.monotonic() - started < 25:
        for connection in pings.keys() - closed.keys():
            try:
                connection.sendall(pings[connection])
            except ConnectionError:
                closed[connection] = time.monotonic() - started
        time.sleep(0.2)
    assert len(closed) == 2 and all(10 < seconds < 22 for seconds in closed.values()), list(closed.values())
