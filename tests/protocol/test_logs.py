"""The log: why something was refused, at most one line per reason in ten seconds; warnings about unsafe settings."""
import json
import os
import resource
import socket as sockets
import time

import httpx
import pytest
import redis

from support import tokens
from support.json_client import Socket
from support.process import until
from support.redis_server import RedisServer
from support.tavern import Tavern

CONFIG = 'log = "json"\norigins = ["https://app.example"]\n'


@pytest.fixture(scope="module")
def server():
    with Tavern.serve(CONFIG) as server:
        yield server


def lines(server, message):
    found = [json.loads(line) for line in server.log(1_000_000).splitlines() if line.startswith("{")]
    return [one["fields"] | {"level": one["level"]} for one in found if one["fields"]["message"] == message]


def one_line(server, message, **fields):
    """The only line with this message and these fields."""
    matching = lambda: [one for one in lines(server, message) if fields.items() <= one.items()]
    until(matching, f"the line {message!r} {fields}")
    assert len(matching()) == 1, matching()
    return matching()[0]


def get(server, path, **headers):
    return httpx.get(f"{server.url}{path}", headers=headers, timeout=5, trust_env=False)


def test_a_refused_origin_is_logged_once_with_its_name(server):
    for _ in range(20):
        assert get(server, "/v1/users", origin="https://other.example").status_code == 403
    line = one_line(server, "request refused", reason="origin not allowed")
    assert (line["origin"], line["address"], line["refused"], line["level"]) == ("https://other.example", "127.0.0.1", 1, "WARN")


def test_a_refused_login_is_logged_with_its_reason_and_without_the_credential(server):
    expired = tokens.token("ann", ttl=-3600)
    for _ in range(5):
        assert get(server, "/v1/users", authorization="Bearer tvk_wrong_key").status_code == 401
        assert get(server, "/v1/users", authorization=f"Bearer {expired}").status_code == 401
    assert one_line(server, "login refused", reason="API key unknown or revoked", transport="http")["address"] == "127.0.0.1"
    one_line(server, "login refused", reason="token expired", transport="http")
    assert "tvk_wrong_key" not in server.log(1_000_000) and expired not in server.log(1_000_000)


def test_a_refused_hello_and_redis_login_are_logged(server):
    with Socket(server, greet=False) as socket:
        assert socket.call("hello", token=tokens.token("ann", secret="x" * 40))["error"]["code"] == "unauthenticated"
    one_line(server, "login refused", reason="wrong token signature", transport="hello")
    with pytest.raises(redis.AuthenticationError):
        redis.Redis(port=server.resp_port, password="no.such.token").ping()
    until(lambda: [one for one in lines(server, "login refused") if one["transport"] == "redis"], "the line")


def test_no_line_shows_rust_values(server):
    get(server, "/v1/users")
    for line in server.log(1_000_000).splitlines():
        assert "Some(" not in line and "None" not in line, line


@pytest.mark.parametrize("config, warned", [
    ("", True), ('trusted_proxies = ["10.0.0.0/8"]\n', False),
])
def test_a_public_address_without_tls_is_warned_of(config, warned):
    server = Tavern.serve(config)
    usual = server.command()
    server.command = lambda: [f"0.0.0.0:{server.port}" if part == f"127.0.0.1:{server.port}" else part for part in usual]
    with server:
        # The server answers before it logs that it is ready.
        end = time.monotonic() + 10
        while "ready" not in server.log() and time.monotonic() < end:
            time.sleep(0.02)
        assert ("listening on a public address without TLS" in server.log()) == warned


def test_a_loopback_address_needs_no_warning(server):
    assert lines(server, "listening on a public address without TLS") == []


@pytest.mark.parametrize(("level", "shown"), [("warn", False), ("warn,tavern=info", True), ("info,tavern=error", False)])
def test_the_level_of_a_module_decides_what_is_logged(level, shown):
    with Tavern.serve(f'{CONFIG}log_level = "{level}"\n') as server:
        assert bool(lines(server, "ready")) is shown


def test_a_shortage_of_descriptors_is_logged_once_in_a_while():
    with Tavern.serve(CONFIG) as server:
        pid = server.process.pid
        _, most = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")) + 4, most))
        crowd = [sockets.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
        until(lambda: lines(server, "accept failed; pausing"), "the line")
        # It tries again every tenth of a second.
        time.sleep(1.5)
        assert len(lines(server, "accept failed; pausing")) == 1
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, most))
        for made in crowd:
            made.close()


def test_failing_commits_are_logged_once_in_a_while():
    with RedisServer() as store, Tavern.serve(CONFIG, ["--store", store.url, "--bus", "local"]) as server:
        store.kill()
        headers, before = {"authorization": f"Bearer {server.key}"}, len(server.log(1_000_000).splitlines())
        with httpx.Client(base_url=server.url, headers=headers, timeout=20, trust_env=False) as api:
            for number in range(40):
                assert api.post("/v1/users/ann/messages", json={"data": number}).status_code == 503
        assert lines(server, "store failed"), server.log()
        assert len(server.log(1_000_000).splitlines()) - before < 20, server.log()
