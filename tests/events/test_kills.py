"""Servers are killed at any moment of publishing and delivering, on a seeded schedule, and started again. What was answered with
202 is delivered at least once; each subscription has it in order and numbered without holes; what comes twice is a whole batch,
the same to the byte and under the same id."""
import collections
import contextlib
import json
import random
import threading
import time

import httpx
import pytest

from events.conftest import client
from events.endpoint import Endpoint, Post
from events.office import put, report
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
TOPICS = ("a", "b")
SUBSCRIPTIONS = {"one": ("a",), "both": ("a", "b")}


class Publisher(threading.Thread):
    """Publishes to one topic, at any server, and repeats what was not answered until it is."""

    def __init__(self, servers, topic, seed):
        super().__init__()
        self.servers, self.topic, self.dice = servers, topic, random.Random(f"{seed} {topic}")
        self.accepted, self.failure = [], None
        self.enough = threading.Event()

    def run(self):
        try:
            with contextlib.ExitStack() as stack:
                apis = [stack.enter_context(client(server, server.key)) for server in self.servers]
                while not self.enough.is_set():
                    first = len(self.accepted)
                    events = [{"id": f"{self.topic}{first + n}", "type": "x"} for n in range(self.dice.randint(1, 4))]
                    self.publish(apis, events)
                    self.accepted += [event["id"] for event in events]
        except Exception as failure:
            self.failure = failure

    def publish(self, apis, events):
        end = time.monotonic() + 20
        while time.monotonic() < end:
            with contextlib.suppress(httpx.TransportError):
                answer = self.dice.choice(apis).post(f"/v1/topics/{self.topic}/events", json=events, timeout=5)
                if answer.status_code == 202:
                    told = answer.json()
                    assert told["accepted"] + told["duplicates"] == len(events)
                    return
                assert answer.status_code == 503, answer.text
        raise TimeoutError(f"{events} were not taken")


def moody(seed):
    """Mostly well."""
    dice = random.Random(f"{seed} moods")
    return lambda body: dice.choices((200, 500, 503), (85, 10, 5))[0]


def check(name, posts, accepted):
    """The promise over what one subscription was posted."""
    batches, reached, settled = {}, 0, set()
    numbers = {}
    for post in posts:
        if post.id in batches:
            assert batches[post.id] == post.raw, f"{name}: {post.id} changed"
        else:
            assert post.seqs[0] == reached + 1, f"{name}: {post.seqs} came after {reached}"
            assert settled == set(batches), f"{name}: {post.id} came before those ahead of it were settled"
            batches[post.id], reached = post.raw, post.seqs[-1]
        assert post.seqs == list(range(post.body["first_seq"], post.body["last_seq"] + 1))
        for event in post.body["events"]:
            assert numbers.setdefault(event["seq"], event["id"]) == event["id"], f"{name}: {event['seq']} is two events"
        if post.status == 200:
            settled.add(post.id)
    assert settled == set(batches) and sorted(numbers) == list(range(1, len(numbers) + 1))
    assert len(set(numbers.values())) == len(numbers), f"{name}: one event has two numbers"
    heard = collections.defaultdict(list)
    for seq in sorted(numbers):
        heard[numbers[seq][0]].append(numbers[seq])
    assert heard == {topic: accepted[topic] for topic in SUBSCRIPTIONS[name]}


def posted(batch, seqs, status=200, name="one", mark=""):
    """A post as the endpoint keeps it, of events of topic a whose ids follow their numbers."""
    events = [{"seq": seq, "id": f"a{seq - 1}{mark}"} for seq in seqs]
    post = Post(status, {"webhook-id": batch}, {"subscription": name, "first_seq": seqs[0], "last_seq": seqs[-1], "events": events})
    post.raw = json.dumps(post.body)
    return post


GOOD = [posted("1", [1, 2], 500), posted("1", [1, 2]), posted("2", [3]), posted("1", [1, 2]), posted("2", [3])]


def test_the_check_finds_what_is_planted():
    accepted = {"a": ["a0", "a1", "a2"]}
    check("one", GOOD, accepted)
    for planted in [
        GOOD[:2],
        GOOD[2:] + GOOD[:2],
        [posted("1", [1, 2], 500), posted("2", [3]), posted("1", [1, 2])],
        [*GOOD, posted("1", [1, 2], mark="x")],
        [*GOOD, posted("1", [1])],
        [*GOOD, posted("3", [3])],
        [*GOOD, posted("3", [4])],
        [posted("1", [1, 2]), posted("2", [4])],
        [posted("1", [1, 2]), posted("2", [3], 500)],
    ]:
        with pytest.raises(AssertionError):
            check("one", planted, accepted)


@pytest.mark.parametrize("count, kills, seed", [(1, 10, 1), (3, 10, 2)], ids=["one server", "three servers"])
def test_whatever_is_killed_every_event_arrives_in_order(combination, count, kills, seed):
    dice = random.Random(seed)
    with combination.cluster(count, CONFIG) as servers, Endpoint(moody(seed)) as endpoint:
        with client(servers[0], servers[0].key) as api:
            for name, topics in SUBSCRIPTIONS.items():
                put(api, name, topics=list(topics), callback=endpoint.url, timeout_ms=dice.choice((0, 20)), max_events=7)
        publishers = {topic: Publisher(servers, topic, seed) for topic in TOPICS}
        [publisher.start() for publisher in publishers.values()]
        try:
            for _ in range(kills):
                victim = dice.choice(servers)
                time.sleep(dice.uniform(0.02, 0.5))
                victim.kill()
                victim.start()
        finally:
            [publisher.enough.set() for publisher in publishers.values()]
            [publisher.join() for publisher in publishers.values()]
        for publisher in publishers.values():
            assert publisher.failure is None and publisher.accepted, publisher.failure
        endpoint.status = 200
        with client(servers[0], servers[0].key) as api:
            for name in SUBSCRIPTIONS:
                until(lambda: report(api, name)["queued"] == 0, f"everything of {name} to be delivered", 20)
        accepted = {topic: publisher.accepted for topic, publisher in publishers.items()}
        assert sum(map(len, accepted.values())) > 50
        for name in SUBSCRIPTIONS:
            check(name, [post for post in endpoint.posts if post.body["subscription"] == name], accepted)
