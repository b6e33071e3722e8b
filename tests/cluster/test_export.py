"""`tavern export` and `tavern import`: a store moves to another engine and back without loss."""
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


def tavern(*arguments, stdin=None, code=0):
    done = subprocess.run([program(), *arguments], env=environment(), input=stdin, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    return done


def export(store, *options):
    return tavern("export", "--store", store, *options).stdout


def rows(text):
    """All rows between the header and the trailer, by kind."""
    lines = [json.loads(line) for line in text.splitlines()]
    assert list(lines[0]) == ["tavern"] and lines[-1] == {"end": {"lines": len(lines) - 2}}
    return lines[1:-1]


def kinds(text):
    return [(kind, len(list(group))) for kind, group in itertools.groupby(rows(text), key=lambda row: next(iter(row)))]


class StoppedServer:
    """A stopped server whose folder holds rows of every kind."""

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
            until(lambda: server.metric("tavern_sessions_detached") == 1, "the connection to be gone")
            bob.ok("publish", channel="game#1", data="while disconnected")
            bob.drop()
            assert server.terminate() == 0


@pytest.fixture
def stopped(tmp_path):
    return StoppedServer(tmp_path / "stopped")


def test_a_round_trip_gives_the_same_rows(stopped, url, tmp_path):
    first = export(stopped.store)
    assert [kind for kind, _ in kinds(first)] == ["key", "user", "follow", "hold", "document", "event", "log", "session", "presence", "deadline"]
    done = tavern("import", "--store", url, stdin=first)
    assert f"imported {len(rows(first))} rows into {engine(url)}" in done.stderr
    second = export(url)
    assert rows(second) == rows(first)
    assert json.loads(second.splitlines()[0])["tavern"]["store"] == engine(url)
    back = f"sqlite:{tmp_path / 'back'}"
    tavern("import", "--store", back, stdin=second)
    assert rows(export(back)) == rows(first)


def test_a_server_continues_on_another_engine(stopped, url):
    tavern("import", "--store", url, stdin=export(stopped.store))
    with NatsServer() as nats, Tavern.dev(CONFIG, ["--store", url, "--bus", nats.url]) as server:
        api = httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {stopped.key}"}, timeout=5, trust_env=False)
        present = api.get("/v1/channels/game%231/presence")
        assert present.status_code == 200, "the API key works"
        assert [user["user"] for user in present.json()["users"]] == ["ann", "bob"]
        assert present.json()["users"][0]["clients"][0]["state"] == {"level": 3}
        with Socket(server, user="ann") as ann:
            hello = ann.ok("hello", session=stopped.session, seq=0)
            assert hello["resumed"] is True
            messages = [event for event in ann.events_so_far() if event["event"] == "message"]
            assert [event["data"] for event in messages] == ["while disconnected"]
            assert ann.ok("followers")["users"] == ["bob"]
            held = api.get("/v1/channels/activegame%231/presence").json()["users"]
            assert [user["user"] for user in held] == ["ann"], "app-set presence is kept"
            # And ends with its session.
            ann.ok("leave", channel="game#1")
            until(lambda: api.get("/v1/channels/activegame%231/presence").json()["count"] == 0, "the app-set presence to end")
        assert [user["user"] for user in api.get("/v1/channels/game%239/presence").json()["users"]] == ["zoe"]
        assert api.get("/v1/users/bob").json()["visibility"] == "followers_i_follow"


def test_versions_continue_above_those_already_seen(tmp_path, url):
    folder = tmp_path / "data"
    with Tavern.dev(CONFIG, data=folder) as server, Socket(server, user="ann") as ann:
        ann.ok("join", channel="game#1")
        before = ann.ok("who", channel="game#1")["version"]
        ann.drop()
        assert server.terminate() == 0
    tavern("import", "--store", url, stdin=export(f"sqlite:{folder}"))
    with NatsServer() as nats, Tavern.dev(CONFIG, ["--store", url, "--bus", nats.url]) as server, Socket(server, user="bob") as bob:
        assert bob.ok("who", channel="game#1")["version"] > before


def test_import_requires_an_empty_store(stopped, url):
    text = export(stopped.store)
    tavern("import", "--store", url, stdin=text)
    done = tavern("import", "--store", url, stdin=text, code=1)
    assert "not empty, it has API keys" in done.stderr
    assert rows(export(url)) == rows(text), "nothing changed"


def test_export_and_import_refuse_while_servers_run(tmp_path, url):
    with Tavern.dev(data=tmp_path / "data", options=["--node", "north"]) as server, Socket(server, user="ann") as ann:
        ann.ok("join", channel="game#1")
        ann.ok("follow", user="bob")
        store = f"sqlite:{server.data}"
        done = tavern("export", "--store", store, code=1)
        assert "servers run on this store (north)" in done.stderr and done.stdout == ""
        done = tavern("export", "--store", store, "--live")
        text = done.stdout
        # What it leaves out is said, with its number.
        assert "not in the file are 1 presences, " in done.stderr, done.stderr
        assert dict(kinds(text))["follow"] == 1 and not {"session", "presence"} & set(dict(kinds(text)))
        done = tavern("import", "--store", store, stdin=text, code=1)
        assert "servers run on this store (north)" in done.stderr
    tavern("import", "--store", url, stdin=text)
    assert "follow" in dict(kinds(export(url)))


def test_an_incomplete_or_invalid_file_is_rejected(stopped, tmp_path):
    text = export(stopped.store)
    lines = text.splitlines(keepends=True)
    for n, (wrong, error) in enumerate([
        ("".join(lines[:-1]), "the file is truncated"),
        ("".join(lines)[:-5], "line is truncated"),
        ("".join(lines[:2] + lines[3:]), "should have"),
        ("".join(lines[1:]), "not an export"),
        ("", "not an export"),
        (lines[0] + "{}\n", "cannot be read"),
        (text.replace('"format":3', '"format":7'), "format 7"),
    ]):
        done = tavern("import", "--store", f"sqlite:{tmp_path / str(n)}", stdin=wrong, code=1)
        assert error in done.stderr, done.stderr
        hint = "empty the store and try again" if error == "should have" else "nothing was imported"
        assert hint in done.stderr or n in (3, 4, 6), "the error says what was imported"
    head = json.loads(lines[0])
    head["tavern"]["time"] += 3_600_000
    done = tavern("import", "--store", f"sqlite:{tmp_path / 'late'}", stdin=json.dumps(head) + "\n" + "".join(lines[1:]), code=1)
    assert "versions would decrease" in done.stderr


def test_many_rows_are_exported_in_pages(tmp_path, url):
    """More than one page and one batch of each kind."""
    folder = tmp_path / "many"
    with Tavern.dev(data=folder) as server, Socket(server, user="ann") as ann:
        for n in range(1300):
            ann.ok("follow", user=f"user{n:04}")
        assert server.terminate() == 0
    text = export(f"sqlite:{folder}")
    assert dict(kinds(text))["follow"] == 1300
    tavern("import", "--store", url, stdin=text)
    assert rows(export(url)) == rows(text)


def test_exporting_a_missing_store_fails_and_creates_nothing(tmp_path):
    done = tavern("export", "--store", f"sqlite:{tmp_path / 'none'}", code=1)
    assert "no Tavern store exists" in done.stderr and not (tmp_path / "none").exists()


def next_of(socket, kind):
    """The next event of a kind."""
    while (event := socket.event())["event"] != kind:
        pass
    return event


def test_history_and_inboxes_move(url, tmp_path):
    config = "[kinds.chat]\nhistory_messages = 100\n"
    store = f"sqlite:{tmp_path}"
    with Tavern.dev(config, data=tmp_path) as server:
        key = server.api_key("publish", "presence")
        api = httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {key}"}, timeout=5, trust_env=False)
        for number in range(40):
            sent = api.post("/v1/channels/chat%231/messages", json={"data": number, "message_id": f"m{number}"})
            assert sent.status_code == 200, sent.text
        assert api.post("/v1/channels/lobby/messages", json={"data": "news", "retain": True}).status_code == 200
        for number in range(3):
            assert api.post("/v1/users/ann/messages", json={"data": number}).status_code == 200
        assert server.terminate() == 0
    text = export(store)
    found = dict(kinds(text))
    assert found["inbox"] == 3 and found["history"] == 41, found
    tavern("import", "--store", url, stdin=text)
    with Tavern.dev(config, options=["--store", url, "--bus", "local"]) as server:
        with Socket(server, user="ann") as ann:
            assert [next_of(ann, "inbox")["data"] for _ in range(3)] == [0, 1, 2]
            page = ann.ok("history", channel="chat#1", limit=100)
            assert [(message["data"], message["message_id"]) for message in page["messages"]] == [(n, f"m{n}") for n in range(40)]
            ann.ok("subscribe", channel="lobby", last=1)
            assert next_of(ann, "message")["data"] == "news"
        api = httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {key}"}, timeout=5, trust_env=False)
        again = api.post("/v1/channels/chat%231/messages", json={"data": 7, "message_id": "m7"}).json()
        assert again["duplicate"], again
