"""Servers are killed while events are published and delivered, on a seeded schedule, and restarted. An event answered with 202 is
delivered at least once; each subscription gets its events in order and numbered without gaps; a duplicate is a whole batch with
the same bytes and the same id.

TAVERN_EVENTS_KILLS is the number of kills over all cases: default 60; `make torture-events` uses 5,000.
TAVERN_EVENTS_SEED selects another schedule."""
import collections
import contextlib
import hashlib
import json
import math
import os
import random
import threading
import time

import httpx
import pytest

from events.conftest import client
from events.endpoint import Endpoint, Post
from events.topics_api import put, report
from support.process import until

CONFIG = """
[nodes]
heartbeat_ms = 200
lease_ms = 1500
[events]
lease_ms = 1000
backoff_min_ms = 20
backoff_max_ms = 100
"""
# Cases: each combination of engines with one server and with three.
KILLS = math.ceil(int(os.environ.get("TAVERN_EVENTS_KILLS", "60")) / 6)
SEED = int(os.environ.get("TAVERN_EVENTS_SEED", "0"))
# A publisher waits while this many events are undelivered.
AHEAD = 2_000
TOPICS = ("a", "b")
SUBSCRIPTIONS = {"one": ("a",), "both": ("a", "b")}


class Publisher(threading.Thread):
    """Publishes to one topic on any server and retries until it gets an answer."""

    def __init__(self, servers, topic, seed):
        super().__init__()
        self.servers, self.topic, self.rng = servers, topic, random.Random(f"{seed} {topic}")
        # Accepted events, and how many of them every subscription has received.
        self.accepted, self.received, self.failure = 0, 0, None
        self.enough = threading.Event()

    def run(self):
        try:
            with contextlib.ExitStack() as stack:
                apis = [stack.enter_context(client(server, server.key)) for server in self.servers]
                while not self.enough.is_set():
                    if self.accepted - self.received > AHEAD:
                        self.enough.wait(0.01)
                        continue
                    count = self.rng.randint(1, 4)
                    self.publish(apis, [{"id": f"{self.topic}{self.accepted + n}", "type": "x"} for n in range(count)])
                    self.accepted += count
        except Exception as failure:
            self.failure = failure

    def publish(self, apis, events):
        end = time.monotonic() + 20
        while time.monotonic() < end:
            with contextlib.suppress(httpx.TransportError):
                answer = self.rng.choice(apis).post(f"/v1/topics/{self.topic}/events", json=events, timeout=5)
                if answer.status_code == 202:
                    found = answer.json()
                    assert found["accepted"] + found["duplicates"] == len(events)
                    return
                assert answer.status_code == 503, answer.text
            time.sleep(0.002)
        raise TimeoutError(f"{events} were not accepted")


def flaky(seed):
    """An endpoint that fails sometimes."""
    rng = random.Random(f"{seed} moods")
    return lambda body: rng.choices((200, 500, 503), (85, 10, 5))[0]


class Account:
    """Checks the guarantees for the posts of one subscription, one post at a time."""

    def __init__(self, name):
        self.name = name
        self.batches, self.unsettled, self.reached = {}, set(), 0
        # Events received of each topic.
        self.received = collections.Counter()

    def take(self, post):
        name, raw = self.name, hashlib.sha1(post.raw.encode() if isinstance(post.raw, str) else post.raw).digest()
        assert post.seqs == list(range(post.body["first_seq"], post.body["last_seq"] + 1))
        if post.id in self.batches:
            assert self.batches[post.id] == raw, f"{name}: {post.id} changed"
        else:
            assert post.seqs[0] == self.reached + 1, f"{name}: {post.seqs} after {self.reached}"
            assert not self.unsettled, f"{name}: {post.id} was sent before {self.unsettled} were settled"
            self.batches[post.id], self.reached = raw, post.seqs[-1]
            self.unsettled.add(post.id)
            for event in post.body["events"]:
                topic = event["id"][0]
                assert event["id"] == f"{topic}{self.received[topic]}", f"{name}: {event} came after {self.received}"
                self.received[topic] += 1
        if post.status == 200:
            self.unsettled.discard(post.id)

    def end(self, accepted):
        """Every accepted event was delivered, and nothing else."""
        assert not self.unsettled
        assert self.received == {topic: accepted[topic] for topic in SUBSCRIPTIONS[self.name]}


def check(name, posts, accepted):
    account = Account(name)
    [account.take(post) for post in posts]
    account.end(accepted)


def posted(batch, seqs, status=200, name="one", mark=""):
    """A recorded post with events of topic a, whose ids follow their seqs."""
    events = [{"seq": seq, "id": f"a{seq - 1}{mark}"} for seq in seqs]
    post = Post(status, {"webhook-id": batch}, {"subscription": name, "first_seq": seqs[0], "last_seq": seqs[-1], "events": events})
    post.raw = json.dumps(post.body)
    return post


GOOD = [posted("1", [1, 2], 500), posted("1", [1, 2]), posted("2", [3]), posted("1", [1, 2]), posted("2", [3])]


def test_the_check_detects_planted_violations():
    accepted = {"a": 3}
    check("one", GOOD, accepted)
    for planted in [
        GOOD[:2],
        GOOD[2:] + GOOD[:2],
        [posted("1", [1, 2], 500), posted("2", [3]), posted("1", [1, 2])],
        [*GOOD, posted("1", [1, 2], mark="x")],
        [*GOOD, posted("1", [1])],
        [*GOOD, posted("3", [3])],
        [*GOOD, posted("3", [4])],
        [posted("1", [1, 2]), posted("2", [3], mark="x")],
        [posted("1", [1, 2]), posted("2", [4])],
        [posted("1", [1, 2]), posted("2", [3], 500)],
    ]:
        with pytest.raises(AssertionError):
            check("one", planted, accepted)


def take(endpoint, accounts):
    """Gives new posts to the accounts and discards them."""
    with endpoint.more:
        posts, endpoint.posts = endpoint.posts, []
    for post in posts:
        accounts[post.body["subscription"]].take(post)


@pytest.mark.parametrize("count", [1, 3], ids=["one server", "three servers"])
def test_every_event_arrives_in_order_despite_kills(combination, count):
    seed = SEED + count
    rng, accounts = random.Random(seed), {name: Account(name) for name in SUBSCRIPTIONS}
    with combination.cluster(count, CONFIG) as servers, Endpoint(flaky(seed)) as endpoint:
        with client(servers[0], servers[0].key) as api:
            for name, topics in SUBSCRIPTIONS.items():
                put(api, name, topics=list(topics), callback=endpoint.url, timeout_ms=rng.choice((0, 20)), max_events=7)
        publishers = {topic: Publisher(servers, topic, seed) for topic in TOPICS}
        [publisher.start() for publisher in publishers.values()]
        began = time.monotonic()
        try:
            for _ in range(KILLS):
                victim = rng.choice(servers)
                # Mostly right after the start, sometimes later.
                time.sleep(rng.uniform(0, 0.06) if rng.random() < 0.8 else rng.uniform(0.06, 0.5))
                victim.kill()
                victim.start()
                take(endpoint, accounts)
                for topic, publisher in publishers.items():
                    publisher.received = min(accounts[name].received[topic] for name, of in SUBSCRIPTIONS.items() if topic in of)
                    assert publisher.is_alive(), publisher.failure
        finally:
            [publisher.enough.set() for publisher in publishers.values()]
            [publisher.join() for publisher in publishers.values()]
        took = time.monotonic() - began
        assert all(publisher.failure is None for publisher in publishers.values())
        endpoint.status = 200
        with client(servers[0], servers[0].key) as api:
            for name in SUBSCRIPTIONS:
                until(lambda: report(api, name)["queued"] == 0, f"everything of {name} to be delivered", 60)
        take(endpoint, accounts)
        accepted = {topic: publisher.accepted for topic, publisher in publishers.items()}
        print(f"{KILLS} kills in {took:.0f} s, {accepted} events accepted, {len(accounts['both'].batches)} batches")
        assert min(accepted.values()) > 0 and sum(accepted.values()) > KILLS
        [account.end(accepted) for account in accounts.values()]
