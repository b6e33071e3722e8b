"""`tavern export` and `tavern import`: a store moves to another engine and back, and nobody misses anything."""
import itertools
import json
import subprocess

import httpx
import pytest

from support.json_client import Socket
from support.nats_server import NatsServer
from support.process import until
from support.tavern import Tavern, environment, program

CONFIG = """
[sessions]
drain_ms = 20000
[kinds.game]
grace_ms = 30000
[kinds.user]
grace_ms = 30000
"""


@pytest.fixture(params=["postgres", "redis"])
def url(request, schema):
    """An empty store on another engine."""
    server = request.getfixturevalue(request.param)
    return server.url(schema) if request.param == "postgres" else f"{server.url}?prefix={schema}"


def engine(url):
    return url.split(":")[0]


def tavern(*words, stdin=None, code=0):
    done = subprocess.run([program(), *words], env=environment(), input=stdin, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    return done


def export(store, *options):
    return tavern("export", "--store", store, *options).stdout


def rows(text):
    """Everything between the first line and the last, by kind."""
    lines = [json.loads(line) for line in text.splitlines()]
    assert list(lines[0]) == ["tavern"] and lines[-1] == {"end": {"lines": len(lines) - 2}}
    return lines[1:-1]


def kinds(text):
    return [(kind, len(list(group))) for kind, group in itertools.groupby(rows(text), key=lambda row: next(iter(row)))]


class Lived:
    """A server on a folder with something of everything, stopped again."""

    def __init__(self, folder):
        self.store = f"sqlite:{folder}"
        with Tavern.dev(CONFIG, data=folder) as server:
            self.key = server.api_key("publish", "presence")
            ann, bob = Socket(server, user="ann"), Socket(server, user="bob")
            ann.ok("join", channel="game#1", state={"level": 3})
            ann.ok("subscribe", channel="game#1")
            bob.ok("follow", user="ann")
            bob.ok("visibility", value="followers_i_follow")
            bob.ok("join", channel="game#1")
            api = httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {self.key}"}, timeout=5, trust_env=False)
            assert api.put("/v1/channels/activegame%231/presence/ann", json={"with": "game#1"}).status_code == 200
            assert api.put("/v1/channels/game%239/presence/zoe", json={"ttl_s": 3600}).status_code == 200
            self.session = ann.hello["session"]
            ann.drop()
            until(lambda: server.metric("tavern_sessions_detached") == 1, "her transport to be gone")
            bob.ok("publish", channel="game#1", data="while you were away")
            bob.drop()
            assert server.terminate() == 0


@pytest.fixture
def lived(tmp_path):
    return Lived(tmp_path / "lived")


def test_there_and_back_gives_the_same(lived, url, tmp_path):
    first = export(lived.store)
    assert [kind for kind, _ in kinds(first)] == ["key", "user", "follow", "hold", "session", "presence", "deadline"]
    done = tavern("import", "--store", url, stdin=first)
    assert f"imported {len(rows(first))} rows into {engine(url)}" in done.stderr
    second = export(url)
    assert rows(second) == rows(first)
    assert json.loads(second.splitlines()[0])["tavern"]["store"] == engine(url)
    back = f"sqlite:{tmp_path / 'back'}"
    tavern("import", "--store", back, stdin=second)
    assert rows(export(back)) == rows(first)


def test_a_server_moves_to_another_engine(lived, url):
    tavern("import", "--store", url, stdin=export(lived.store))
    with NatsServer() as nats, Tavern.dev(CONFIG, ["--store", url, "--bus", nats.url]) as server:
        api = httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {lived.key}"}, timeout=5, trust_env=False)
        present = api.get("/v1/channels/game%231/presence")
        assert present.status_code == 200, "the key is known"
        assert [user["user"] for user in present.json()["users"]] == ["ann", "bob"]
        assert present.json()["users"][0]["clients"][0]["state"] == {"level": 3}
        with Socket(server, user="ann") as ann:
            hello = ann.ok("hello", session=lived.session, seq=0)
            assert hello["resumed"] is True
            messages = [event for event in ann.events_so_far() if event["event"] == "message"]
            assert [event["data"] for event in messages] == ["while you were away"]
            assert ann.ok("followers")["users"] == ["bob"]
            held = api.get("/v1/channels/activegame%231/presence").json()["users"]
            assert [user["user"] for user in held] == ["ann"], "what the app said still holds"
            # And goes with what carries it.
            ann.ok("leave", channel="game#1")
            until(lambda: api.get("/v1/channels/activegame%231/presence").json()["count"] == 0, "she is gone there too")
        assert [user["user"] for user in api.get("/v1/channels/game%239/presence").json()["users"]] == ["zoe"]
        assert api.get("/v1/users/bob").json()["visibility"] == "followers_i_follow"


def test_versions_go_on_above_those_that_were_seen(tmp_path, url):
    folder = tmp_path / "data"
    with Tavern.dev(CONFIG, data=folder) as server, Socket(server, user="ann") as ann:
        ann.ok("join", channel="game#1")
        before = ann.ok("who", channel="game#1")["version"]
        ann.drop()
        assert server.terminate() == 0
    tavern("import", "--store", url, stdin=export(f"sqlite:{folder}"))
    with NatsServer() as nats, Tavern.dev(CONFIG, ["--store", url, "--bus", nats.url]) as server, Socket(server, user="bob") as bob:
        assert bob.ok("who", channel="game#1")["version"] > before


def test_only_into_an_empty_store(lived, url):
    text = export(lived.store)
    tavern("import", "--store", url, stdin=text)
    done = tavern("import", "--store", url, stdin=text, code=1)
    assert "not empty, there are API keys in it" in done.stderr
    assert rows(export(url)) == rows(text), "nothing has changed"


def test_servers_must_be_stopped_or_keep_what_is_theirs(tmp_path, url):
    with Tavern.dev(data=tmp_path / "data", options=["--node", "north"]) as server, Socket(server, user="ann") as ann:
        ann.ok("join", channel="game#1")
        ann.ok("follow", user="bob")
        store = f"sqlite:{server.data}"
        done = tavern("export", "--store", store, code=1)
        assert "servers run on this store (north)" in done.stderr and done.stdout == ""
        text = export(store, "--live")
        assert dict(kinds(text))["follow"] == 1 and not {"session", "presence"} & set(dict(kinds(text)))
        done = tavern("import", "--store", store, stdin=text, code=1)
        assert "servers run on this store (north)" in done.stderr
    tavern("import", "--store", url, stdin=text)
    assert "follow" in dict(kinds(export(url)))


def test_a_file_that_is_not_whole_is_told(lived, tmp_path):
    text = export(lived.store)
    lines = text.splitlines(keepends=True)
    for n, (wrong, words) in enumerate([
        ("".join(lines[:-1]), "the file is truncated"),
        ("".join(lines)[:-5], "line is truncated"),
        ("".join(lines[:2] + lines[3:]), "should have"),
        ("".join(lines[1:]), "not an export"),
        ("", "not an export"),
        (lines[0] + "{}\n", "cannot be read"),
        (text.replace('"format":2', '"format":7'), "format 7"),
    ]):
        done = tavern("import", "--store", f"sqlite:{tmp_path / str(n)}", stdin=wrong, code=1)
        assert words in done.stderr, done.stderr
        told = "empty the store and try again" if words == "should have" else "nothing was imported"
        assert told in done.stderr or n in (3, 4, 6), "it says how far it came"
    head = json.loads(lines[0])
    head["tavern"]["time"] += 3_600_000
    done = tavern("import", "--store", f"sqlite:{tmp_path / 'late'}", stdin=json.dumps(head) + "\n" + "".join(lines[1:]), code=1)
    assert "versions would go back" in done.stderr


def test_many_rows_in_many_pages(tmp_path, url):
    """More than a page and more than a batch of each."""
    folder = tmp_path / "many"
    with Tavern.dev(data=folder) as server, Socket(server, user="ann") as ann:
        for n in range(1300):
            ann.ok("follow", user=f"user{n:04}")
        assert server.terminate() == 0
    text = export(f"sqlite:{folder}")
    assert dict(kinds(text))["follow"] == 1300
    tavern("import", "--store", url, stdin=text)
    assert rows(export(url)) == rows(text)


def test_there_is_nothing_to_export(tmp_path):
    done = tavern("export", "--store", f"sqlite:{tmp_path / 'none'}", code=1)
    assert "there is no store" in done.stderr and not (tmp_path / "none").exists()
