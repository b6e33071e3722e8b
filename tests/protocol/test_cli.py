"""The command line: tokens, keys, publish and subscribe, check."""
import json
import subprocess

import jwt
import pytest

from support import tokens
from support.json_client import Socket
from support.process import until
from support.tavern import program


def test_token_prints_a_token_the_server_takes(serve):
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

        until(published, "the subscriber to be there")
        line = json.loads(listener.stdout.readline())
        assert line["channel"] == channel and line["data"] == {"a": 1}
    finally:
        listener.terminate()
        listener.wait(5)


def test_check_shows_values_and_where_they_came_from(dev):
    done = dev.run("check", "--config", dev.config, "--secret", tokens.SECRET)
    assert done.returncode == 0, done.stderr
    assert "sessions.resume_ms" in done.stdout and "2000" in done.stdout
    assert tokens.SECRET not in done.stdout, "a secret is never shown"


@pytest.mark.parametrize(
    "text, words",
    [
        ("colour = 1\n", ["colour", "1:1"]),
        ("[sessions]\nresume_ms = 1\nresume = 2\n", ["resume", "3:1"]),
        ("[limits]\nmessage_bytes = \"x\"\n", ["message_bytes", "2:"]),
        ("listen = \n", ["1:"]),
    ],
)
def test_what_is_wrong_in_the_file_is_told_with_its_place(dev, text, words):
    path = dev.folder / "wrong.toml"
    path.write_text(text)
    done = dev.run("check", "--config", path)
    assert done.returncode != 0
    for word in words:
        assert word in done.stderr + done.stdout


def test_serve_needs_a_secret(dev):
    done = dev.run("serve", "--listen", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--data", dev.folder / "other")
    assert done.returncode != 0 and "secret" in done.stderr


def test_dev_refuses_to_listen_beyond_loopback(dev):
    done = dev.run("dev", "--listen", "0.0.0.0:0", "--resp", "127.0.0.1:0", "--data", dev.folder / "other")
    assert done.returncode != 0 and "loopback" in done.stderr


def test_doctor(dev):
    done = dev.run("doctor", "--config", dev.config, "--data", dev.folder / "data", "--secret", tokens.SECRET)
    assert done.returncode == 0, done.stdout + done.stderr
