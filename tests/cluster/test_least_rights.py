"""The minimal engine permissions in docs/deploy/security.md, taken from the page, are sufficient."""
import itertools
import pathlib
import re
import subprocess

import pytest

from support.json_client import Socket
from support.nats_server import NatsServer
from support.postgres_server import PostgresServer
from support.redis_server import RedisServer
from support.tavern import Tavern

PAGE = (pathlib.Path(__file__).parents[2] / "docs/deploy/security.md").read_text()
USERS = itertools.count(1)


def block(language, number=0):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)[number].replace("PASSWORD'", "pw'").replace(">PASSWORD", ">pw").replace(": PASSWORD", ": pw")


def works(options, folder=None):
    """Messages, presence, follows and session migration work between two servers, without permission errors in the logs."""
    n = next(USERS)
    room, names = f"game#{n}", [f"{name}{n}" for name in ("ann", "bob", "fan")]
    with Tavern.dev(options=options, data=folder) as a, Tavern.dev(options=options, data=folder) as b:
        with Socket(a, user=names[0]) as ann, Socket(b, user=names[1]) as bob, Socket(b, user=names[2]) as fan:
            bob.ok("subscribe", channel=room, presence=True)
            bob.ok("subscribe", pattern="ga*")
            ann.ok("join", channel=room)
            ann.ok("publish", channel=room, data=7)
            assert sorted(bob.event()["event"] for _ in range(3)) == ["client_online", "message", "user_online"]
            fan.ok("follow", user=names[0])
            assert fan.event()["status"]["online"] is True
            with Socket(b, user=names[0]) as back:
                assert back.ok("hello", session=ann.hello["session"], seq=0)["resumed"] is True
        for server in (a, b):
            assert not re.search("WARN|ERROR", server.log()), server.log()


def test_the_redis_permissions_are_sufficient_for_a_bus(tmp_path):
    with RedisServer() as redis:
        rule = block("redis").split()
        done = subprocess.run(["redis-cli", "-p", str(redis.resp_port), *rule], capture_output=True, text=True, timeout=10)
        assert done.stdout.strip() == "OK", done.stdout
        works(["--bus", f"redis://tavern:pw@127.0.0.1:{redis.resp_port}"], tmp_path / "data")


def test_the_nats_permissions_are_sufficient(tmp_path):
    rules = tmp_path / "nats.conf"
    rules.write_text(block("nats"))
    with NatsServer("-c", str(rules)) as nats:
        works(["--bus", f"nats://tavern:pw@127.0.0.1:{nats.port}"], tmp_path / "data")
        assert "Violation" not in nats.log()


@pytest.fixture(scope="module")
def postgres():
    with PostgresServer() as server:
        server.sql("CREATE DATABASE app")
        server.sql("REVOKE ALL ON DATABASE app FROM PUBLIC")
        for number in (0, 1):
            server.sql_in("app", block("sql", number))
        server.require_password("tavern,tavern_server")
        yield server


def test_the_postgres_permissions_are_sufficient(postgres):
    with NatsServer() as nats:
        for login in ("tavern", "tavern_server"):
            url = f"postgres://{login}:pw@127.0.0.1:{postgres.port}/app"
            works(["--store", url, "--bus", nats.url])
            works(["--store", url])
