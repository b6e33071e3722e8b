"""TLS on both ports: every transport, large and many messages, certificate reload."""
import json
import signal
import socket as sockets
import ssl
import time

import httpx
import pytest
import redis

from support.json_client import Poller, Socket, Stream
from support.tls_server import TlsServer


@pytest.fixture(scope="module")
def tls_server():
    with TlsServer() as server:
        yield server


@pytest.fixture
def client(tls_server):
    client = redis.Redis(
        port=tls_server.resp_port, ssl=True, ssl_ca_certs=str(tls_server.cert), ssl_check_hostname=True, host="127.0.0.1", socket_timeout=10,
    )
    yield client
    client.close()


def test_https_works_and_plain_http_is_refused(tls_server):
    answer = httpx.get(f"{tls_server.url}/readyz", verify=tls_server.trust, trust_env=False)
    assert (answer.status_code, answer.text) == (200, "ready\n")
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"http://127.0.0.1:{tls_server.port}/readyz", trust_env=False, timeout=5)


def test_an_unknown_certificate_is_not_trusted(tls_server):
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{tls_server.url}/readyz", verify=ssl.create_default_context(), trust_env=False)


def test_messages_pass_between_all_transports(tls_server, client, channel, user):
    with Socket(tls_server, user=user) as socket, Stream(tls_server, user=user) as stream, Poller(tls_server, user=user) as poller:
        socket.ok("subscribe", channel=channel)
        with Poller(tls_server, user=user, session=stream.greeting()["session"]) as commands:
            commands.ok("subscribe", channel=channel)
        poller.ok("hello")
        poller.ok("subscribe", channel=channel)
        listener = client.pubsub(ignore_subscribe_messages=True)
        listener.subscribe(channel)
        assert listener.get_message(timeout=5) is None  # The confirmation.
        assert client.publish(channel, '"message"') == 4
        assert socket.event()["data"] == "message"
        assert stream.event()[1]["data"] == "message"
        assert poller.take()[0]["data"] == "message"
        assert listener.get_message(timeout=5)["data"] == b'"message"'
        listener.close()


def test_large_messages_pass_in_both_directions(tls_server, channel, user):
    message = "x" * 60_000
    with Socket(tls_server, user=user) as socket, Socket(tls_server, user=user) as other:
        socket.ok("subscribe", channel=channel)
        other.ok("publish", channel=channel, data=message)
        assert socket.event()["data"] == message
        socket.ok("publish", channel=channel, data=message)
        assert socket.event()["data"] == message


def burst(client, channel, count, size):
    pipe = client.pipeline(transaction=False)
    for number in range(count):
        pipe.publish(channel, json.dumps([number, "x" * size]))
    return pipe.execute()


@pytest.mark.parametrize(("count", "size"), [(500, 10), (500, 1_000), (40, 20_000), (12, 60_000)])
def test_a_burst_arrives_complete_and_in_order(tls_server, client, channel, user, count, size):
    """The reader sends nothing, so only the server's own writes can make progress."""
    with Socket(tls_server, user=user) as socket:
        socket.ok("subscribe", channel=channel)
        assert burst(client, channel, count, size) == [1] * count
        received = []
        for _ in range(count):
            received.append(socket.event()["data"][0])
        assert received == list(range(count))


def test_a_burst_to_redis_arrives_complete_and_in_order(tls_server, client, channel):
    listener = client.pubsub(ignore_subscribe_messages=True)
    listener.subscribe(channel)
    assert listener.get_message(timeout=5) is None
    assert burst(client, channel, 30, 20_000) == [1] * 30
    received = [json.loads(listener.get_message(timeout=5)["data"])[0] for _ in range(30)]
    assert received == list(range(30))
    listener.close()


def test_a_burst_to_a_stream_arrives_complete_and_in_order(tls_server, client, channel, user):
    with Stream(tls_server, user=user) as stream, Poller(tls_server, user=user, session=stream.greeting()["session"]) as commands:
        commands.ok("subscribe", channel=channel)
        assert burst(client, channel, 40, 20_000) == [1] * 40
        assert [stream.event()[1]["data"][0] for _ in range(40)] == list(range(40))


def test_a_reader_that_stalls_briefly_misses_nothing(tls_server, client, channel, user):
    """400 KB wait behind a TCP window of a few KB until the client reads again."""
    with Socket(tls_server, user=user, receive_bytes=8192) as socket:
        socket.ok("subscribe", channel=channel)
        assert burst(client, channel, 400, 1_000) == [1] * 400
        with Socket(tls_server, user=user) as other:
            assert "ok" in other.call("ping"), "other clients are not delayed"
        assert [socket.event()["data"][0] for _ in range(400)] == list(range(400))


@pytest.mark.alone
def test_unfinished_handshakes_delay_no_other_client(tls_server, user):
    half = []
    for number in range(50):
        for port in (tls_server.port, tls_server.resp_port):
            half.append(sockets.create_connection(("127.0.0.1", port)))
            half[-1].sendall([b"", b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/1.1\r\n\r\n", b"PING\r\n"][number % 4])
    began = time.monotonic()
    with Socket(tls_server, user=user) as socket:
        assert "ok" in socket.call("ping")
    assert time.monotonic() - began < 1
    for connection in half:
        connection.close()


def poll_until(fact, what, timeout=10.0):
    """Like `until`, but only five times a second, because each check is a TLS handshake."""
    end = time.monotonic() + timeout
    while not fact():
        assert time.monotonic() < end, f"waited {timeout} s for {what}"
        time.sleep(0.2)


def test_replaced_certificates_are_loaded_and_invalid_ones_ignored(channel, user):
    with TlsServer() as server, Socket(server, user=user) as socket:
        first = server.shown()
        second = server.renew("second")
        poll_until(lambda: server.shown() == second, "the new certificate", 10)
        assert first != second == server.shown(server.resp_port)
        assert "ok" in socket.call("ping"), "open connections are unaffected"
        with Socket(server, user=user) as fresh:
            assert "ok" in fresh.call("ping")
        server.key_file.write_text("-----BEGIN PRIVATE KEY-----\nbroken\n-----END PRIVATE KEY-----\n")
        server.cert.write_text("not a certificate")
        poll_until(lambda: "stays in use" in server.log(), "a log line about the invalid files", 10)
        assert server.shown() == second == server.shown(server.resp_port)
        with Socket(server, user=user) as fresh:
            assert "ok" in fresh.call("ping")
        server.process.send_signal(signal.SIGTERM)
        frames, code = socket.closing()
        assert (frames[-1]["event"], code) == ("closing", 4502)
        assert server.process.wait(8) == 0


def test_a_server_without_a_usable_certificate_does_not_start(tmp_path):
    server = TlsServer()
    server.cert.write_text("not a certificate")
    ended = server.run("dev", "--listen", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--data", tmp_path / "data",
                       "--tls-cert", server.cert, "--tls-key", server.key_file)
    assert ended.returncode != 0 and "certificate" in ended.stderr
