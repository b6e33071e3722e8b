"""`tavern events …`: what an operator does by hand."""
import json
import subprocess

import pytest

from cluster.combination import FOLDER
from events.endpoint import Endpoint
from events.office import publish
from support.process import until
from support.tavern import program

pytestmark = pytest.mark.only(FOLDER, reason="the command line speaks HTTP and knows no engine")


@pytest.fixture
def run(server, keys):
    def run(*words, key=keys[0]):
        return server.run("events", words[0], "--url", server.url, "--key", key, *words[1:])

    return run


def said(done):
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_publish_and_tail(run, topic, name):
    printed = json.loads(said(run("publish", topic, "create", "--data", '{"a": 1.50}', "--about", "http://x/1", "--id", "one")))
    assert printed == {"topic": topic, "first_seq": 1, "last_seq": 1, "accepted": 1, "duplicates": 0}
    assert json.loads(said(run("publish", topic, "create", "--id", "one")))["duplicates"] == 1
    missing = run("tail", name, "--count", "1")
    assert missing.returncode == 1 and "--topic" in missing.stderr
    assert run("publish", topic, "x", "--data", "{broken").returncode == 1
    assert run("publish", "Bad", "x").returncode == 1


def test_tail_prints_events_as_they_come_and_goes_on_where_it_was(server, run, ann, keys, topic, name):
    words = [program(), "events", "tail", "--url", server.url, "--key", keys[0], name, "--topic", topic]
    tail = subprocess.Popen(words, env=server.environment(), stdout=subprocess.PIPE, text=True)
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
    assert [json.loads(line)["seq"] for line in said(run("tail", name, "--count", "1")).splitlines()] == [4]
    assert [json.loads(line)["seq"] for line in said(run("tail", name, "--count", "1")).splitlines()] == [5]


def test_subscribe_prints_the_secret_alone(run, ann, topic, name):
    with Endpoint() as endpoint:
        made = run("subscribe", name, "--topic", topic, "--callback", endpoint.url, "--timeout-ms", "0", "--header", "X-A: b")
        assert said(made).strip().startswith("whsec_") and len(made.stdout.split()) == 1
        again = run("subscribe", name, "--max-events", "5")
        assert said(again) == "" and "changed" in again.stderr
        told = ann.get(f"/v1/subscriptions/{name}").json()
        assert (told["max_events"], told["timeout_ms"], told["headers"], told["topics"]) == (5, 0, {"X-A": "b"}, [topic])
        said(run("publish", topic, "hello"))
        until(lambda: [event["type"] for event in endpoint.taken()] == ["hello"], "the event")
        until(lambda: ann.get(f"/v1/subscriptions/{name}").json()["acknowledged"] == 1, "the acknowledgement")
        assert json.loads(said(run("replay", name, "--from-seq", "1"))) == {"from_seq": 1, "rewound": True}
        until(lambda: len(endpoint.taken()) == 2, "it again")
        assert json.loads(said(run("replay", name, "--from-time", "2000-01-01T00:00:00Z")))["from_seq"] == 1
        assert run("replay", name).returncode == 2


def test_lists(run, keys, topic, name):
    said(run("subscribe", name, "--topic", topic, "--pull"))
    said(run("publish", topic, "a"))
    table = said(run("list"))
    row = next(line for line in table.splitlines() if line.startswith(f"{name} "))
    assert topic in row and "(pulled)" in row and "healthy" in row
    assert name not in said(run("list", key=keys[1]))
    assert [row["queued"] for row in json.loads(said(run("list", "--json"))) if row["name"] == name] == [1]
    assert any(line.split()[0] == topic and line.split()[2:] == ["1", "1"] for line in said(run("list", "--topics")).splitlines())
    assert said(run("dead", name)).strip() == "no dead letters"
    assert said(run("dead", name, "--retry")).strip() == "0"
    assert json.loads(said(run("dead", name, "--json"))) == []


def test_a_key_is_needed(server):
    done = server.run("events", "list", "--url", server.url)
    assert done.returncode == 1 and "API key" in done.stderr
