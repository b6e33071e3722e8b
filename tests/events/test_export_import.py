"""A store with events moves to another engine and back: topics and subscriptions continue, acknowledged events are not repeated,
no event is lost, and all seqs stay the same."""
import json
import subprocess

import pytest

from cluster.combination import Engines
from events.conftest import client
from events.endpoint import Endpoint
from events.topics_api import publish, pull, put, report
from support.process import until
from support.tavern import Tavern, environment, program

CONFIG = """
[events]
max_bytes = 65536
low_bytes = 40000
backoff_min_ms = 50
backoff_max_ms = 200
"""


def tavern(*arguments, stdin=None, code=0):
    done = subprocess.run([program(), *arguments], env=environment(), input=stdin, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    return done


def rows(text):
    return [json.loads(line) for line in text.splitlines()][1:-1]


def move(source, target):
    """Exports, imports, and checks that a new export is identical; returns it."""
    text = tavern("export", "--store", source).stdout
    tavern("import", "--store", target, stdin=text)
    assert rows(tavern("export", "--store", target).stdout) == rows(text)
    return rows(text)


def numbered(events, after=0):
    """Checks that seqs have no gaps or duplicates except announced gaps; returns the last seq."""
    for event in events:
        assert event["seq"] == after + 1
        after = event["data"]["last_seq"] if event["type"] == "tavern.gap" else event["seq"]
    return after


def fill(api, first, count):
    return publish(api, "t", [{"type": "x", "id": f"t{n}", "data": "x" * 1000} for n in range(first, first + count)])


@pytest.mark.parametrize("engine", ["postgres", "redis"])
def test_subscriptions_continue_after_a_round_trip(engine, tmp_path):
    first, back = f"sqlite:{tmp_path / 'first'}", f"sqlite:{tmp_path / 'back'}"
    with Engines() as engines, Endpoint() as good, Endpoint(500) as bad:
        there = engines.server(engine).url
        there = there("moved") if callable(there) else there
        bus = engines.server("nats").url
        with Tavern.dev(CONFIG, data=tmp_path / "first") as server, client(server, server.key) as api:
            put(api, "good", topics=["old", "t"], callback=good.url, timeout_ms=0, max_events=20)
            put(api, "bad", topics=["t"], callback=bad.url, timeout_ms=0, max_events=20)
            put(api, "pulls", topics=["t"], pull=True)
            publish(api, "old", [{"type": "x"}] * 3)
            fill(api, 0, 100)
            until(lambda: report(api, "good")["queued"] == 0, "everything to be delivered")
            until(lambda: report(api, "bad")["queued"] < 90, "the log to be truncated", 20)
            read = pull(api, "pulls", limit=10)
            pull(api, "pulls", after=read["next_after"])
            assert "stop them first" in tavern("export", "--live", "--store", first, code=1).stderr
            assert server.terminate() == 0
        moved = move(first, there)
        kinds = {kind: [row[kind] for row in moved if kind in row] for kind in ("topic", "event", "log")}
        assert [topic["topic"] for topic in kinds["topic"]] == ["old", "t", "tavern.audit"], "the log was truncated"
        assert kinds["event"][0]["position"] == kinds["log"][0]["first"] > 1 and kinds["log"][0]["head"] == 106
        with Tavern.dev(CONFIG, ["--store", there, "--bus", bus]) as server, client(server, server.key) as api:
            assert publish(api, "old", {"type": "x"})["first_seq"] == 4
            found = fill(api, 99, 2)
            assert (found["accepted"], found["duplicates"], found["first_seq"], found["last_seq"]) == (1, 1, 101, 101)
            good.got(range(1, 106))
            assert read["next_after"] == numbered(read["events"])
            rest = pull(api, "pulls", after=read["next_after"], limit=1000)
            assert numbered(rest["events"], read["next_after"]) == 101
            assert report(api, "bad")["acknowledged"] == 0
            assert server.terminate() == 0
        move(there, back)
        with Tavern.dev(CONFIG, data=tmp_path / "back") as server, client(server, server.key) as api:
            bad.status = 200
            fill(api, 101, 1)
            good.got(range(1, 107))
            bad.until(lambda it: it.taken() and it.taken()[-1]["seq"] == 102)
            assert numbered(bad.taken()) == 102
            # Batches attempted before the move are retried unchanged.
            batches = {}
            for post in bad.posts:
                assert batches.setdefault(post.id, post.raw) == post.raw
            assert bad.posts[0].id == next(post.id for post in bad.posts if post.status == 200)
