"""`tavern events …` on the command line."""
import json
import subprocess

import pytest

from cluster.combination import FOLDER
from events.endpoint import Endpoint
from events.topics_api import publish
from support.process import until
from support.tavern import program

pytestmark = pytest.mark.only(FOLDER, reason="the CLI uses HTTP and is independent of the engine")


@pytest.fixture
def run(server, keys):
    def run(*arguments, key=keys[0]):
        return server.run("events", arguments[0], "--url", server.url, "--key", key, *arguments[1:])

    return run


def output(done):
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_publish_and_tail(run, topic, name):
    printed = json.loads(output(run("publish", topic, "create", "--data", '{"a": 1.50}', "--about", "http://x/1", "--id", "one")))
    assert printed == {"topic": topic, "first_seq": 1, "last_seq": 1, "accepted": 1, "duplicates": 0}
    assert json.loads(output(run("publish", topic, "create", "--id", "one")))["duplicates"] == 1
    missing = run("tail", name, "--count", "1")
    assert missing.returncode == 1 and "--topic" in missing.stderr
    assert run("publish", topic, "x", "--data", "{broken").returncode == 1
    assert run("publish", "Bad", "x").returncode == 1


def test_tail_prints_new_events_and_continues_where_it_stopped(server, run, ann, keys, topic, name):
    arguments = [program(), "events", "tail", "--url", server.url, "--key", keys[0], name, "--topic", topic]
    tail = subprocess.Popen(arguments, env=server.environment(), stdout=subprocess.PIPE, text=True)
    try:
        until(lambda: ann.get(f"/v1/subscriptions/{name}").status_code == 200, "the subscription")
        publish(ann, topic, [{"type": "a", "data": {"n": n}} for n in range(3)])
        lines = [json.loads(tail.stdout.readline()) for _ in range(3)]
        assert [(line["seq"], line["topic"], line["data"]["n"]) for line in lines] == [(1, topic, 0), (2, topic, 1), (3, topic, 2)]
        until(lambda: ann.get(f"/v1/subscriptions/{name}").json()["acknowledged"] == 3, "the acknowledgement")
    finally:
        tail.send_signal(2)
        tail.wait(10)
    publish(ann, topic, [{"type": "b"}, {"type": "c"}])
    assert [json.loads(line)["seq"] for line in output(run("tail", name, "--count", "1")).splitlines()] == [4]
    assert [json.loads(line)["seq"] for line in output(run("tail", name, "--count", "1")).splitlines()] == [5]


def test_subscribe_prints_only_the_secret(run, ann, topic, name):
    with Endpoint() as endpoint:
        made = run("subscribe", name, "--topic", topic, "--callback", endpoint.url, "--timeout-ms", "0", "--header", "X-A: b")
        assert output(made).strip().startswith("whsec_") and len(made.stdout.split()) == 1
        again = run("subscribe", name, "--max-events", "5")
        assert output(again) == "" and "changed" in again.stderr
        shown = ann.get(f"/v1/subscriptions/{name}").json()
        assert (shown["max_events"], shown["timeout_ms"], shown["headers"], shown["topics"]) == (5, 0, {"X-A": "b"}, [topic])
        output(run("publish", topic, "hello"))
        until(lambda: [event["type"] for event in endpoint.taken()] == ["hello"], "the event")
        until(lambda: ann.get(f"/v1/subscriptions/{name}").json()["acknowledged"] == 1, "the acknowledgement")
        assert json.loads(output(run("replay", name, "--from-seq", "1"))) == {"from_seq": 1, "rewound": True}
        until(lambda: len(endpoint.taken()) == 2, "the replayed event")
        assert json.loads(output(run("replay", name, "--from-time", "2000-01-01T00:00:00Z")))["from_seq"] == 1
        assert run("replay", name).returncode == 2


def test_lists_are_printed_as_tables(run, keys, topic, name):
    output(run("subscribe", name, "--topic", topic, "--pull"))
    output(run("publish", topic, "a"))
    table = output(run("list"))
    row = next(line for line in table.splitlines() if line.startswith(f"{name} "))
    assert topic in row and "(pulled)" in row and "healthy" in row
    assert name not in output(run("list", key=keys[1]))
    assert [row["queued"] for row in json.loads(output(run("list", "--json"))) if row["name"] == name] == [1]
    assert any(line.split()[0] == topic and line.split()[2:] == ["1", "1"] for line in output(run("list", "--topics")).splitlines())
    assert output(run("dead", name)).strip() == "no dead letters"
    assert output(run("dead", name, "--retry")).strip() == "0"
    assert json.loads(output(run("dead", name, "--json"))) == []


def test_an_api_key_is_required(server):
    done = server.run("events", "list", "--url", server.url)
    assert done.returncode == 1 and "API key" in done.stderr
