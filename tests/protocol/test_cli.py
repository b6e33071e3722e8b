"""The command line: tokens, keys, publish and subscribe, check."""
import json
import subprocess

import jwt
import pytest

from support import tokens
from support.json_client import Socket
from support.process import until
from support.tls_server import TlsServer
from support.tavern import Tavern, program


def test_token_prints_a_valid_token(serve):
    made = serve.run(
        "token", "--secret", tokens.SECRET, "--user", "ann", "--name", "Ann", "--ttl", "1h",
        "--allow", "game#*=subscribe,publish",
    )
    assert made.returncode == 0, made.stderr
    token = made.stdout.strip()
    claims = jwt.decode(token, tokens.SECRET, algorithms=["HS256"])
    assert claims["sub"] == "ann" and claims["name"] == "Ann" and claims["allow"] == {"game#*": ["subscribe", "publish"]}
    with Socket(serve, token=token) as socket:
        assert "ok" in socket.call("subscribe", channel="game#1")
        assert socket.call("subscribe", channel="other#1")["error"]["code"] == "not_allowed"


def test_publish_and_subscribe(dev, channel):
    listener = subprocess.Popen(
        [program(), "subscribe", "--url", dev.url, "--token", dev.token, channel], cwd=dev.folder, env=dev.environment(),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )
    try:
        def published():
            done = dev.run("publish", "--url", dev.url, "--token", dev.token, channel, '{"a":1}')
            assert done.returncode == 0, done.stderr
            return int(done.stdout.strip()) == 1

        until(published, "the subscriber to be connected")
        line = json.loads(listener.stdout.readline())
        assert line["channel"] == channel and line["data"] == {"a": 1}
    finally:
        listener.terminate()
        listener.wait(5)


class Listener:
    """`tavern subscribe` in the background."""

    def __init__(self, server, *arguments):
        self.process = subprocess.Popen(
            [program(), "subscribe", "--url", server.url, *map(str, arguments)], cwd=server.folder, env=server.environment(),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.communicate(timeout=5)

    def line(self):
        return self.process.stdout.readline()


def publish(server, channel, payload, *options):
    done = server.run("publish", "--url", server.url, *options, channel, payload)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


PAYLOAD = '{"b":  1.50, "a": 12345678901234567890123}'


@pytest.mark.parametrize("publisher", ["user", "key"])
@pytest.mark.parametrize("subscriber", ["user", "key"])
def test_payloads_arrive_byte_for_byte(dev, channel, publisher, subscriber):
    credentials = {"user": ("--user", "ann"), "key": ("--key", dev.key)}
    with Listener(dev, *credentials[subscriber], channel) as listener:
        until(lambda: publish(dev, channel, PAYLOAD, *credentials[publisher]) == 1, "the subscriber to be connected")
        line = listener.line()
        assert f'"data":{PAYLOAD}' in line and json.loads(line)["channel"] == channel


def test_publish_and_subscribe_over_tls_with_a_private_ca(channel):
    server = TlsServer()
    trust = ("--ca", server.certify())
    with server:
        with Listener(server, *trust, channel) as listener:
            until(lambda: publish(server, channel, "hello", *trust) == 1, "the subscriber to be connected")
            assert json.loads(listener.line())["data"] == "hello"
            assert publish(server, channel, "again", *trust, "--key", server.key) == 1
            assert json.loads(listener.line())["data"] == "again"
            there = server.run("who", "--url", server.url, *trust, "--key", server.key, "--json", channel)
            assert json.loads(there.stdout)["count"] == 0, there.stderr
        assert server.run("ready", "--url", server.url, *trust).stdout == "ready\n"
        for stranger in (("ready",), ("publish", channel, "x"), ("who", channel)):
            refused = server.run(stranger[0], "--url", server.url, *stranger[1:])
            assert refused.returncode == 1 and "certificate" in refused.stderr, refused.stderr


def test_subscribe_reconnects_after_a_restart(channel):
    with Tavern.dev() as server:
        with Listener(server, channel) as listener:
            until(lambda: publish(server, channel, "1") == 1, "the subscriber to be connected")
            assert json.loads(listener.line())["data"] == 1
            server.terminate()
            server.start()
            until(lambda: publish(server, channel, "2") == 1, "the subscriber to reconnect")
            assert json.loads(listener.line())["data"] == 2


def test_subscribe_ends_by_count_by_timeout_and_on_a_closed_stdout(dev, channel):
    with Listener(dev, "--count", "2", channel) as listener:
        until(lambda: publish(dev, channel, "1") == 1, "the subscriber to be connected")
        publish(dev, channel, "2")
        assert listener.process.wait(5) == 0
        assert [json.loads(line)["data"] for line in listener.process.stdout] == [1, 2]
    assert dev.run("subscribe", "--url", dev.url, "--wait", "50", channel).returncode == 0
    with Listener(dev, channel) as listener:
        until(lambda: publish(dev, channel, "1") == 1, "the subscriber to be connected")
        listener.process.stdout.close()
        until(lambda: publish(dev, channel, "1") == 0 or listener.process.poll() is not None, "the subscriber to exit")
        assert listener.process.wait(5) == 0
        listener.process.stdout = open("/dev/null")


def test_errors_show_the_message_of_the_server(dev, serve, channel):
    for arguments, expected in [
        (("publish", "--url", serve.url, "--token", "a.b.c", channel, "1"), "unauthenticated"),
        (("subscribe", "--url", serve.url, "--user", "ann", channel), "unauthenticated"),
        (("who", "--url", serve.url, "--key", "tvk_no_such", channel), "unauthenticated"),
        (("publish", "--url", dev.url, "party#1", "1"), "not_allowed"),
        (("publish", "--url", "http://127.0.0.1:1", channel, "1"), "is a server running there?"),
        (("publish", "--url", "ftp://127.0.0.1", channel, "1"), "http"),
        (("party", "--url", dev.url, "--key", dev.key, "get"), "--token"),
        (("party", "--url", dev.url, "--user", "ann", "accept", "77"), "no_such_party"),
    ]:
        refused = dev.run(*arguments)
        assert refused.returncode == 1 and expected in refused.stderr, (arguments, refused.stderr)


def test_check_shows_values_and_their_sources(dev):
    done = dev.run("check", "--config", dev.config, "--secret", tokens.SECRET)
    assert done.returncode == 0, done.stderr
    assert "sessions.resume_ms" in done.stdout and "2000" in done.stdout
    assert tokens.SECRET not in done.stdout, "secrets are not printed"


@pytest.mark.parametrize(
    "text, expected",
    [
        ("colour = 1\n", ["colour", "1:1"]),
        ("[sessions]\nresume_ms = 1\nresume = 2\n", ["resume", "3:1"]),
        ("[limits]\nmessage_bytes = \"x\"\n", ["message_bytes", "2:"]),
        ("listen = \n", ["1:"]),
    ],
)
def test_configuration_errors_show_line_and_column(dev, text, expected):
    path = dev.folder / "wrong.toml"
    path.write_text(text)
    done = dev.run("check", "--config", path)
    assert done.returncode != 0
    for part in expected:
        assert part in done.stderr + done.stdout


def test_serve_needs_a_secret(dev):
    done = dev.run("serve", "--listen", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--data", dev.folder / "other")
    assert done.returncode != 0 and "secret" in done.stderr


def test_dev_refuses_to_listen_beyond_loopback(dev):
    done = dev.run("dev", "--listen", "0.0.0.0:0", "--resp", "127.0.0.1:0", "--data", dev.folder / "other")
    assert done.returncode != 0 and "loopback" in done.stderr


def test_doctor_passes_on_a_healthy_server(dev):
    done = dev.run("doctor", "--config", dev.config, "--data", dev.folder / "data", "--secret", tokens.SECRET)
    assert done.returncode == 0, done.stdout + done.stderr
