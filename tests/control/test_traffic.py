"""`GET /v1/traffic`: what an operator sees of messages and commands as they happen, who may, and how it ends."""
import contextlib
import json
import time

import httpx
import pytest
import redis

from support.json_client import Socket
from support.process import until
from support.tavern import Tavern


def parsed(answer):
    """A status comes each second: without a limit a test would wait for ever for a line that does not come."""
    end = time.monotonic() + 30
    for line in answer.iter_lines():
        assert time.monotonic() < end, "the expected lines did not come"
        yield json.loads(line)


@contextlib.contextmanager
def watching(server, key=None, **query):
    """The lines of a watcher; the first one says that it has begun."""
    headers = {"authorization": f"Bearer {key or server.key}"}
    with httpx.stream("GET", f"{server.url}/v1/traffic", params=query, headers=headers, timeout=15, trust_env=False) as answer:
        assert answer.status_code == 200, answer.read()
        lines = parsed(answer)
        assert next(lines)["kind"] == "status"
        yield lines


def others(lines, number):
    """So many lines that are no status."""
    found = (line for line in lines if line["kind"] != "status")
    return [next(found) for _ in range(number)]


def status(server, key=None, **query):
    """The status of an answer, whose body is not read."""
    headers = {"authorization": f"Bearer {key or server.key}"}
    with httpx.stream("GET", f"{server.url}/v1/traffic", params=query, headers=headers, timeout=15, trust_env=False) as answer:
        return answer.status_code


def api(server, method, path, **how):
    answer = httpx.request(method, f"{server.url}/v1/{path}", headers={"authorization": f"Bearer {server.key}"}, timeout=10, trust_env=False, **how)
    assert answer.status_code < 300, answer.text
    return answer.json()


def test_messages_commands_and_refusals_are_seen(dev):
    with watching(dev, channel="seen#*") as lines:
        with Socket(dev, user="ann") as ann:
            ann.ok("subscribe", channel="seen#1")
            ann.ok("publish", channel="seen#1", data={"n": 1})
            ann.ok("publish", channel="other#1", data="not asked for")
            assert ann.call("publish", channel="seen#2", data="x" * 5000)["ok"]
            assert ann.call("history", channel="seen#1")["error"]
        api(dev, "POST", "channels/seen%231/messages", json={"data": "by a service"})
        with redis.Redis(port=dev.resp_port) as connection:
            connection.publish("seen#1", b"\xff not UTF-8")
        subscribed, first, long, asked, refused, service, by_redis = others(lines, 7)
    assert (subscribed["kind"], subscribed["op"], subscribed["target"], subscribed["user"]) == ("command", "subscribe", "seen#1", "ann")
    assert subscribed["client"] == ann.hello["client"]
    assert (first["kind"], first["channel"], first["data"], first["receivers"], first["user"]) == ("message", "seen#1", {"n": 1}, 1, "ann")
    assert long["truncated"] and len(long["data"]) == 1024
    assert asked["op"] == "history" and (refused["kind"], refused["op"], refused["target"]) == ("refused", "history", "seen#1"), refused
    assert service["user"] is None and service["data"] == "by a service"
    assert by_redis["data"] == "\ufffd not UTF-8"


def test_only_what_is_asked_for_is_seen(dev):
    with watching(dev, sender="only-zoe", only="commands") as lines, Socket(dev, user="only-zoe") as zoe, Socket(dev, user="only-ann") as ann:
        ann.ok("subscribe", channel="only#1")
        zoe.ok("publish", channel="only#1", data=1)
        zoe.ok("subscribe", channel="only#2")
        seen = []
        while "subscribe" not in [line["op"] for line in seen]:
            seen += others(lines, 1)
        assert {line["user"] for line in seen} == {"only-zoe"} and seen[-1]["target"] == "only#2", seen
    for wrong in ({"only": "all"}, {"channel": "x" * 300}, {"sender": "x" * 200}, {"chanel": "x"}):
        assert status(dev, **wrong) == 400, wrong


def test_more_than_a_watcher_reads_is_counted(dev):
    with watching(dev, channel="many#*", only="messages") as lines, Socket(dev, user="ann") as ann:
        for _ in range(10):
            for n in range(100):
                ann.send(json.dumps({"id": n, "op": "publish", "channel": "many#1", "data": n}))
            for _ in range(100):
                ann.frame()
        shown = 0
        for line in lines:
            if line["kind"] == "message":
                shown += 1
            elif line["seen"] == 1000 and shown + line["skipped"] == 1000:
                break
        # At most 200 in each of the seconds that it took.
        assert 200 <= shown < 1000 and line["skipped"] > 0, line


def test_at_most_eight_watch_and_those_who_left_are_not_counted():
    with Tavern.dev() as server:
        with contextlib.ExitStack() as stack:
            for _ in range(8):
                stack.enter_context(watching(server))
            assert status(server) == 429
            assert httpx.head(f"{server.url}/v1/traffic", headers={"authorization": f"Bearer {server.key}"}, trust_env=False).status_code == 200
        until(lambda: status(server) == 200, "the others to be gone", 10)


def test_a_key_that_is_revoked_sees_nothing_more():
    with Tavern.serve() as server:
        admin = server.api_key("admin")
        [key] = api(server, "GET", "keys")["keys"]
        with watching(server, admin) as lines:
            api(server, "DELETE", f"keys/{key['id']}")
            assert all(line["kind"] == "status" for line in lines), "the response ends"


@pytest.mark.parametrize("scope", ["presence", "users"])
def test_only_an_admin_watches_and_each_opening_is_in_the_audit_trail(scope):
    with Tavern.serve() as server:
        assert status(server, server.api_key(scope)) == 403
        assert httpx.get(f"{server.url}/v1/traffic", trust_env=False).status_code == 401
        for channel in ("game#*", ""):
            with watching(server, channel=channel):
                pass
        events = api(server, "GET", "topics/tavern.audit/events", params={"before": 1000})["events"]
        seen = [(event["data"]["action"], event["data"]["target"], event["data"]["status"]) for event in events]
        # Before them the key was created.
        assert seen[:3] == [("traffic.watch", "", 200), ("traffic.watch", "game#*", 200), ("traffic.watch", "", 403)]


def test_watching_is_switched_off_by_configuration():
    with Tavern.serve("[dashboard]\ntraffic = false\n") as server:
        answer = httpx.get(f"{server.url}/v1/traffic", headers={"authorization": f"Bearer {server.key}"}, timeout=5, trust_env=False)
        assert answer.status_code == 403 and "dashboard.traffic" in answer.json()["error"]["message"]


def test_a_server_that_stops_ends_the_watching():
    with Tavern.dev() as server:
        with watching(server) as lines:
            server.terminate()
            with contextlib.suppress(httpx.RemoteProtocolError):
                assert all(line["kind"] == "status" for line in lines)
