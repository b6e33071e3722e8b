"""Responses of endpoints and the resulting retries: the same batch, the failed rest, halves, later, or none; and how soon a
recovered endpoint gets everything."""
import email.utils
import json
import threading
import time

import pytest

from events.conftest import client
from events.endpoint import HANG, Answer, Endpoint, script
from events.topics_api import command, publish, put, report
from support.process import free_port, until
from support.tavern import Tavern

QUICK = """
[events]
backoff_min_ms = 20
backoff_max_ms = 200
request_timeout_ms = 1000
connect_timeout_ms = 500
"""


@pytest.fixture(scope="module")
def api():
    with Tavern.dev(QUICK) as server, client(server, server.api_key("events", "subscriptions")) as api:
        yield api


def events(count):
    return [{"type": str(n), "id": f"e{n}"} for n in range(1, count + 1)]


def subscribed(api, name, topic, endpoint, count, **settings):
    """Creates a subscription and publishes this many events as one batch."""
    put(api, name, topics=[topic], callback=endpoint.url, **{"timeout_ms": 0, **settings})
    publish(api, topic, events(count))


def at_rest(api, name):
    until(lambda: report(api, name)["queued"] == 0, "the queue to be empty")


def test_a_retry_has_the_same_bytes_and_id(api, topic, name):
    with Endpoint(script(500, 302, 400, 503, 404)) as endpoint:
        subscribed(api, name, topic, endpoint, 3)
        endpoint.posted(1)
        publish(api, topic, {"type": "later"})
        endpoint.got([1, 2, 3, 4])
        tries, last = endpoint.posts[:6], endpoint.posts[6:]
        assert len({(post.id, post.raw) for post in tries}) == 1
        assert [post.headers["tavern-attempt"] for post in tries] == ["1", "2", "3", "4", "5", "6"]
        assert [post.seqs for post in last] == [[4]] and last[0].id != tries[0].id
        at_rest(api, name)
        assert report(api, name)["health"] == "healthy"


def test_only_events_reported_as_failed_are_retried(api, topic, name):
    partly = Answer(200, body=json.dumps({"failed": ["e2", "e4", "nobody"]}).encode())
    again = Answer(202, body=b'{"failed":["e4"]}')
    with Endpoint(script(partly, again)) as endpoint:
        subscribed(api, name, topic, endpoint, 5)
        posts = endpoint.posted(3)
        publish(api, topic, {"type": "next"})
        posts = endpoint.posted(4)
        assert [post.seqs for post in posts] == [[1, 2, 3, 4, 5], [2, 4], [4], [6]]
        assert len({post.id for post in posts}) == 4, "a new batch has a new id"
        at_rest(api, name)
        assert report(api, name)["dead_letters"] == 0


@pytest.mark.parametrize("body", [b'{"failed":[]}', b"ok", b"[1]", b'{"failed":"x"}', b'{"failed":["other"]}', b"", b"{"])
def test_any_other_2xx_body_acknowledges_the_batch(api, topic, name, body):
    with Endpoint(Answer(201, body=body)) as endpoint:
        subscribed(api, name, topic, endpoint, 2)
        endpoint.posted(1)
        at_rest(api, name)
        publish(api, topic, {"type": "next"})
        assert [post.seqs for post in endpoint.posted(2)] == [[1, 2], [3]]


def test_a_poison_event_is_found_by_bisection_and_becomes_a_dead_letter(api, topic, name):
    def refuses(body):
        return 422 if any(event["id"] == "e6" for event in body["events"]) else 200

    with Endpoint(refuses) as endpoint:
        subscribed(api, name, topic, endpoint, 8)
        publish(api, topic, [{"type": "x", "id": "e9"}, {"type": "x", "id": "e10"}])
        endpoint.got([1, 2, 3, 4, 5, 7, 8, 9, 10])
        whole = [post for post in endpoint.posts if len(post.seqs) == 8]
        assert len(whole) == 5 and len({(post.id, post.raw) for post in whole}) == 1, "five refusals before the batch is split"
        cut = [post.seqs for post in endpoint.posts[5:]]
        assert cut == [[1, 2, 3, 4], [5, 6, 7, 8], [5, 6], [5], [6], [7, 8], [9, 10]]
        until(lambda: report(api, name)["dead_letters"] == 1, "a dead letter")
        letters = api.get(f"/v1/subscriptions/{name}/dead-letters").json()["dead_letters"]
        assert [(letter["seq"], letter["id"]) for letter in letters] == [(6, "e6")]
        at_rest(api, name)


def test_only_refusals_split_a_batch(api, topic, name):
    with Endpoint(script(*[500] * 8)) as endpoint:
        subscribed(api, name, topic, endpoint, 4)
        endpoint.got([1, 2, 3, 4])
        assert len(endpoint.posts) == 9 and len({post.raw for post in endpoint.posts}) == 1


def test_410_disables_and_nothing_is_lost(api, topic, name):
    with Endpoint(410) as endpoint:
        subscribed(api, name, topic, endpoint, 2)
        until(lambda: report(api, name)["health"] == "disabled", "410 to disable it")
        assert report(api, name)["why"] == "gone"
        publish(api, topic, {"type": "later"})
        endpoint.status = 200
        assert report(api, name)["queued"] == 3 and len(endpoint.posts) == 1
        command(api, name, "enable")
        endpoint.got([1, 2, 3])


def test_413_splits_the_batch_at_once(api, topic, name):
    with Endpoint(lambda body: 413 if len(body["events"]) > 2 else 200) as endpoint:
        subscribed(api, name, topic, endpoint, 7)
        endpoint.got(range(1, 8))
        assert [len(post.seqs) for post in endpoint.posts] == [7, 4, 2, 2, 3, 2, 1]
        assert report(api, name)["dead_letters"] == 0


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("spelling", ["seconds", "date"])
def test_retry_after_is_honoured(api, topic, name, status, spelling):
    def throttle(body):
        # HTTP dates have whole seconds: two seconds are at least one.
        after = "1" if spelling == "seconds" else email.utils.formatdate(time.time() + 2, usegmt=True)
        return Answer(status, {"retry-after": after})

    with Endpoint(lambda body: throttle(body) if len(endpoint.posts) == 0 else 200) as endpoint:
        subscribed(api, name, topic, endpoint, 2)
        until(lambda: report(api, name)["health"] == "throttled", "the subscription to be throttled")
        endpoint.got([1, 2])
        first, second = endpoint.posts
        assert 0.99 <= second.at - first.at < 4 and first.raw == second.raw and first.id == second.id


def test_a_hanging_endpoint_times_out_and_is_retried(api, topic, name):
    with Endpoint(script(HANG, HANG)) as endpoint:
        subscribed(api, name, topic, endpoint, 2)
        endpoint.got([1, 2])
        first, second, third = endpoint.posts
        assert 0.95 <= second.at - first.at < 3 and first.raw == second.raw == third.raw


def test_an_endpoint_that_comes_up_later_is_reached(api, topic, name):
    port = free_port()
    put(api, name, topics=[topic], callback=f"http://127.0.0.1:{port}/hook", timeout_ms=0, max_events=3)
    publish(api, topic, events(10))
    until(lambda: report(api, name)["health"] == "failing", "the subscription to fail")
    with Endpoint(port=port) as endpoint:
        began = time.monotonic()
        endpoint.got(range(1, 11))
        assert time.monotonic() - began < 5


def test_a_recovered_endpoint_gets_everything_within_seconds(api, topic, name):
    with Endpoint(500) as endpoint:
        subscribed(api, name, topic, endpoint, 200, max_events=10, concurrency=4)
        endpoint.posted(12)
        # Four batches were in flight when the first failed.
        assert {tuple(post.seqs) for post in endpoint.posts[4:]} == {tuple(range(1, 11))}
        endpoint.status = 200
        began = time.monotonic()
        endpoint.until(lambda it: sorted(it.seqs()) == list(range(1, 201)))
        assert time.monotonic() - began < 5


def test_redirects_are_not_followed(api, topic, name):
    with Endpoint() as elsewhere:
        moved = [Answer(status, {"location": elsewhere.url}) for status in (301, 302, 303, 307, 308)]
        with Endpoint(script(*moved)) as endpoint:
            subscribed(api, name, topic, endpoint, 1)
            endpoint.got([1])
            assert [post.status for post in endpoint.posts] == [301, 302, 303, 307, 308, 200]
        assert elsewhere.posts == [] and elsewhere.strays == []


def test_an_endless_response_body_is_cut_off(api, topic, name):
    with Endpoint(script(Answer(200, body=b"yes ", endless=True))) as endpoint:
        subscribed(api, name, topic, endpoint, 1)
        endpoint.posted(1)
        at_rest(api, name)
        publish(api, topic, {"type": "next"})
        assert [post.seqs for post in endpoint.posted(2)] == [[1], [2]]
    with Endpoint(script(Answer(500, endless=True), Answer(200, body=b'{"failed":["e2",', endless=True))) as endpoint:
        put(api, name, callback=endpoint.url)
        publish(api, topic, {"type": "last"})
        posts = endpoint.posted(3)
        assert [post.seqs for post in posts] == [[3], [3], [3]], "a truncated list of failures does not acknowledge"
        at_rest(api, name)


def test_an_endless_response_head_is_cut_off(api, topic, name):
    with Endpoint(script(Answer(200, {"x-long": "x" * 60_000}))) as endpoint:
        subscribed(api, name, topic, endpoint, 1)
        posts = endpoint.posted(2)
        assert [post.seqs for post in posts] == [[1], [1]]
        at_rest(api, name)


def test_a_slow_response_within_the_timeout_is_accepted(api, topic, name):
    gate = threading.Event()
    with Endpoint(Answer(gate=gate)) as endpoint:
        subscribed(api, name, topic, endpoint, 1)
        endpoint.posted(1)
        threading.Timer(0.5, gate.set).start()
        at_rest(api, name)
        assert len(endpoint.posts) == 1


def test_a_subscription_that_fails_too_long_is_disabled_and_reported(topic, name):
    with Tavern.dev("[events]\nbackoff_min_ms = 20\nbackoff_max_ms = 50\ndisable_after_ms = 500\n") as server, \
            client(server, server.key) as api, Endpoint(500) as endpoint, Endpoint() as watcher:
        put(api, "watcher", topics=["tavern.deliveries"], callback=watcher.url, timeout_ms=0)
        subscribed(api, name, topic, endpoint, 2)
        until(lambda: report(api, name)["health"] == "disabled", "the subscription to be disabled")
        assert report(api, name)["why"] == "failing"
        watcher.until(lambda it: [event["type"] for event in it.taken()] == ["disabled"])
        assert watcher.taken()[0]["data"] == {"subscription": name, "why": "failing"}
        endpoint.status = 200
        command(api, name, "enable")
        endpoint.got([1, 2])
