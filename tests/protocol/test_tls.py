"""TLS on both ports: every transport, large and many messages, certificates replaced while the server runs."""
import json
import signal
import socket as sockets
import ssl
import time

import httpx
import pytest
import redis

from support.json_client import Poller, Socket, Stream
from support.sealed import Sealed


@pytest.fixture(scope="module")
def sealed():
    with Sealed() as server:
        yield server


@pytest.fixture
def client(sealed):
    client = redis.Redis(
        port=sealed.resp_port, ssl=True, ssl_ca_certs=str(sealed.cert), ssl_check_hostname=True, host="127.0.0.1", socket_timeout=10,
    )
    yield client
    client.close()


def test_http_is_sealed_and_plain_http_gets_nowhere(sealed):
    answer = httpx.get(f"{sealed.url}/readyz", verify=sealed.trust, trust_env=False)
    assert (answer.status_code, answer.text) == (200, "ready\n")
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"http://127.0.0.1:{sealed.port}/readyz", trust_env=False, timeout=5)


def test_a_stranger_certificate_is_not_trusted(sealed):
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{sealed.url}/readyz", verify=ssl.create_default_context(), trust_env=False)


def test_all_transports_hear_each_other(sealed, client, channel, user):
    with Socket(sealed, user=user) as socket, Stream(sealed, user=user) as stream, Poller(sealed, user=user) as poller:
        socket.ok("subscribe", channel=channel)
        with Poller(sealed, user=user, session=stream.greeting()["session"]) as hand:
            hand.ok("subscribe", channel=channel)
        poller.ok("hello")
        poller.ok("subscribe", channel=channel)
        listener = client.pubsub(ignore_subscribe_messages=True)
        listener.subscribe(channel)
        assert listener.get_message(timeout=5) is None  # The confirmation.
        assert client.publish(channel, '"word"') == 4
        assert socket.event()["data"] == "word"
        assert stream.event()[1]["data"] == "word"
        assert poller.take()[0]["data"] == "word"
        assert listener.get_message(timeout=5)["data"] == b'"word"'
        listener.close()


def test_a_large_message_goes_both_ways(sealed, channel, user):
    word = "x" * 60_000
    with Socket(sealed, user=user) as socket, Socket(sealed, user=user) as other:
        socket.ok("subscribe", channel=channel)
        other.ok("publish", channel=channel, data=word)
        assert socket.event()["data"] == word
        socket.ok("publish", channel=channel, data=word)
        assert socket.event()["data"] == word


def burst(client, channel, count, size):
    pipe = client.pipeline(transaction=False)
    for number in range(count):
        pipe.publish(channel, json.dumps([number, "x" * size]))
    return pipe.execute()


@pytest.mark.parametrize(("count", "size"), [(500, 10), (500, 1_000), (40, 20_000), (12, 60_000)])
def test_a_burst_arrives_whole_and_in_order(sealed, client, channel, user, count, size):
    """The reader sends nothing meanwhile, so that nothing but the server's own writing moves the bytes."""
    with Socket(sealed, user=user) as socket:
        socket.ok("subscribe", channel=channel)
        assert burst(client, channel, count, size) == [1] * count
        heard = []
        for _ in range(count):
            heard.append(socket.event()["data"][0])
        assert heard == list(range(count))


def test_a_burst_to_redis_arrives_whole_and_in_order(sealed, client, channel):
    listener = client.pubsub(ignore_subscribe_messages=True)
    listener.subscribe(channel)
    assert listener.get_message(timeout=5) is None
    assert burst(client, channel, 30, 20_000) == [1] * 30
    heard = [json.loads(listener.get_message(timeout=5)["data"])[0] for _ in range(30)]
    assert heard == list(range(30))
    listener.close()


def test_a_burst_to_a_stream_arrives_whole_and_in_order(sealed, client, channel, user):
    with Stream(sealed, user=user) as stream, Poller(sealed, user=user, session=stream.greeting()["session"]) as hand:
        hand.ok("subscribe", channel=channel)
        assert burst(client, channel, 40, 20_000) == [1] * 40
        assert [stream.event()[1]["data"][0] for _ in range(40)] == list(range(40))


def test_a_reader_that_stalls_for_a_while_misses_nothing(sealed, client, channel, user):
    """400 KB wait for a window of a few KB; the bytes move again when it reads."""
    with Socket(sealed, user=user, receive_bytes=8192) as socket:
        socket.ok("subscribe", channel=channel)
        assert burst(client, channel, 400, 1_000) == [1] * 400
        with Socket(sealed, user=user) as other:
            assert "ok" in other.call("ping"), "nobody waits for it"
        assert [socket.event()["data"][0] for _ in range(400)] == list(range(400))


@pytest.mark.alone
def test_handshakes_that_never_end_hold_nobody_up(sealed, user):
    half = []
    for number in range(50):
        for port in (sealed.port, sealed.resp_port):
            half.append(sockets.create_connection(("127.0.0.1", port)))
            half[-1].sendall([b"", b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/1.1\r\n\r\n", b"PING\r\n"][number % 4])
    began = time.monotonic()
    with Socket(sealed, user=user) as socket:
        assert "ok" in socket.call("ping")
    assert time.monotonic() - began < 1
    for connection in half:
        connection.close()


def patiently(fact, what, timeout=10.0):
    """Looks five times a second: each look is a handshake."""
    end = time.monotonic() + timeout
    while not fact():
        assert time.monotonic() < end, f"waited {timeout} s for {what}"
        time.sleep(0.2)


def test_replaced_files_are_used_and_broken_ones_are_not(channel, user):
    with Sealed() as server, Socket(server, user=user) as socket:
        first = server.shown()
        second = server.renew("second")
        patiently(lambda: server.shown() == second, "the new certificate", 10)
        assert first != second == server.shown(server.resp_port)
        assert "ok" in socket.call("ping"), "an open connection lives on"
        with Socket(server, user=user) as fresh:
            assert "ok" in fresh.call("ping")
        server.key_file.write_text("-----BEGIN PRIVATE KEY-----\nbroken\n-----END PRIVATE KEY-----\n")
        server.cert.write_text("this is no certificate")
        patiently(lambda: "stays in use" in server.log(), "a word about the broken files", 10)
        assert server.shown() == second == server.shown(server.resp_port)
        with Socket(server, user=user) as fresh:
            assert "ok" in fresh.call("ping")
        server.process.send_signal(signal.SIGTERM)
        frames, code = socket.closing()
        assert (frames[-1]["event"], code) == ("closing", 4502)
        assert server.process.wait(8) == 0


def test_a_server_without_a_usable_certificate_does_not_start(tmp_path):
    server = Sealed()
    server.cert.write_text("this is no certificate")
    ended = server.run("dev", "--listen", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--data", tmp_path / "data",
                       "--tls-cert", server.cert, "--tls-key", server.key_file)
    assert ended.returncode != 0 and "certificate" in ended.stderr
