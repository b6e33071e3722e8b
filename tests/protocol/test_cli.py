"""The command line: tokens, keys, publish and subscribe, check."""
import json
import os
import pty
import subprocess

import httpx
import jwt
import pytest

from events.endpoint import Endpoint
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


def test_broken_json_is_not_published_as_text(dev, user, channel):
    with Socket(dev, user=user) as ann:
        ann.ok("subscribe", channel=channel)
        for broken in ('{"a": 1', "{'a': 1}", '"half', "[1,"):
            refused = dev.run("publish", "--url", dev.url, channel, broken)
            assert refused.returncode == 1 and "begins like JSON and is not" in refused.stderr and "--text" in refused.stderr
        assert publish(dev, channel, "[draft] hello", "--text") == 1
        assert publish(dev, channel, "hello") == 1
        assert [ann.event()["data"] for _ in range(2)] == ["[draft] hello", "hello"]


def test_token_is_not_signed_with_a_secret_that_servers_refuse(serve):
    refused = serve.run("token", "--secret", "short", "--user", "ann")
    assert refused.returncode == 1 and not refused.stdout
    assert "the secret has 5 bytes and servers need at least 32" in refused.stderr


def test_serve_prints_each_configuration_error_on_a_line(dev):
    path = dev.folder / "several.toml"
    path.write_text("lisen = 1\n[kinds.game]\ngraec_ms = 5\n")
    done = dev.run("serve", "--config", path)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith("error: the configuration is not valid:"))
    errors = lines[first + 1:]
    assert len(errors) == 3 and all(line.startswith("  ") for line in errors), done.stderr
    for named in ("lisen", "graec_ms", "secret"):
        assert sum(named in line for line in errors) == 1, done.stderr


def test_tls_failures_are_explained(dev, channel):
    plain = dev.url.replace("http://", "https://")
    private = TlsServer()
    private.certify()
    with TlsServer() as own, private:
        for url, expected in (
            (plain, "does not speak TLS at this port; use http://"),
            (own.url, "make one with basicConstraints=CA:FALSE; trust its authority with --ca FILE"),
            (private.url, "signed by no authority that this client trusts (it may be self-signed); trust its authority with --ca FILE"),
        ):
            for command in (("ready",), ("publish", channel, "x"), ("who", "--key", dev.key, channel)):
                refused = dev.run(command[0], "--url", url, *command[1:])
                assert refused.returncode == 1 and expected in refused.stderr, refused.stderr
                assert "is a server running there" not in refused.stderr and refused.stderr.count("\n") == 1


def test_users_and_bans_are_listed():
    with Tavern.dev() as server:
        def users(*arguments):
            done = server.run("users", arguments[0], "--url", server.url, "--key", server.key, *arguments[1:])
            assert done.returncode == 0, done.stderr
            return done.stdout

        with Socket(server, user="ann"), Socket(server, user="anton"), Socket(server, user="bob"):
            until(lambda: len(users("list", "--json").splitlines()) == 3, "the users to be online")
            assert [json.loads(line)["user"] for line in users("list", "an", "--json").splitlines()] == ["ann", "anton"]
            table = [line.split()[:2] for line in users("list", "--online").splitlines()]
            assert table == [["USER", "STATE"], ["ann", "online"], ["anton", "online"], ["bob", "online"]]
        assert users("bans") == "no bans\n"
        users("ban", "eve", "--reason", "spam")
        users("ban", "mallory", "--until", "2099-01-01T00:00:00Z")
        shown = [line.split() for line in users("bans").splitlines()]
        assert [line[0] for line in shown] == ["USER", "eve", "mallory"] and shown[1][-2:] == ["never", "spam"]
        bans = [json.loads(line) for line in users("bans", "--json").splitlines()]
        assert [(ban["user"], ban["until"] is None, ban["reason"]) for ban in bans] == [("eve", True, "spam"), ("mallory", False, "")]
        users("unban", "eve")
        assert [json.loads(line)["user"] for line in users("bans", "--json").splitlines()] == ["mallory"]


def test_bans_have_pages_and_need_the_scope_users():
    with Tavern.dev() as server:
        key = {"Authorization": f"Bearer {server.key}"}
        for name in ("a", "b", "c"):
            httpx.put(f"{server.url}/v1/users/{name}/ban", headers=key, json={}).raise_for_status()
        found, after = [], None
        while True:
            page = httpx.get(f"{server.url}/v1/bans", headers=key, params={"limit": 2} | ({"after": after} if after else {})).json()
            found.append([ban["user"] for ban in page["bans"]])
            after = page["next"]
            if after is None:
                break
        assert found == [["a", "b"], ["c"]]
        other = {"Authorization": f"Bearer {server.api_key('presence')}"}
        assert httpx.get(f"{server.url}/v1/bans", headers=other).status_code == 403


def test_a_refused_callback_names_the_schemes_that_are_allowed(dev):
    done = dev.run("events", "subscribe", "ftp", "--url", dev.url, "--key", dev.key, "--topic", "orders", "--callback", "ftp://127.0.0.1/")
    assert done.returncode == 1 and "must start with https:// or http://" in done.stderr, done.stderr


def on_terminal(server, *arguments, stdin=None, stdout=subprocess.PIPE):
    """What a command writes to stderr when that is a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [program(), *map(str, arguments)], cwd=server.folder, env=server.environment() | {"TERM": "xterm"},
        stdin=stdin, stdout=stdout, stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65_536):
            shown += piece
    except OSError:
        # Linux says EIO when the other end is closed.
        pass
    os.close(ours)
    if process.stdout:
        process.stdout.read()
        process.stdout.close()
    assert process.wait(60) == 0, shown
    return shown.decode()


def test_export_import_and_replay_show_their_progress_on_a_terminal(tmp_path):
    def run(server, *arguments):
        done = server.run(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    with Tavern.dev() as server, Endpoint() as endpoint:
        here = ("--url", server.url, "--key", server.key)
        run(server, "events", "subscribe", "billing", *here, "--topic", "orders", "--callback", endpoint.url, "--timeout-ms", "0")
        for number in range(3):
            run(server, "events", "publish", *here, "orders", "paid", "--data", str(number))
        endpoint.got([1, 2, 3])
        shown = on_terminal(server, "events", "replay", *here, "billing", "--from-seq", "1")
        assert "delivered 3 events" in shown and "Ctrl-C" in shown
        plain = server.run("events", "replay", *here, "billing", "--from-seq", "1")
        assert plain.returncode == 0 and plain.stderr == "", "without a terminal the command does not wait"
        server.terminate()
        archive = tmp_path / "archive"
        with archive.open("wb") as out:
            shown = on_terminal(server, "export", "--data", server.data, stdout=out)
        assert "rows\x1b[K" in shown and shown.index("\r") < shown.index("exported")
        with archive.open("rb") as source:
            shown = on_terminal(server, "import", "--data", tmp_path / "copy", stdin=source)
        assert " %  " in shown and "imported" in shown.rsplit("\x1b[K", 1)[1]
        (tmp_path / "again").mkdir()
        with archive.open("rb") as source:
            done = subprocess.run([program(), "import", "--data", tmp_path / "again"], stdin=source, capture_output=True, text=True, env=server.environment())
        assert done.returncode == 0 and "\r" not in done.stderr and "\x1b" not in done.stderr
