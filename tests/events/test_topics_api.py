"""Topics and subscriptions over REST: rights to publish, retention, pull."""
import threading
import time

import pytest

from events.topics_api import code, events, publish, pull, put, seqs


def test_the_first_publisher_claims_a_topic(ann, bob, admin, topic):
    assert publish(ann, topic, {"type": "a"}) == {"topic": topic, "first_seq": 1, "last_seq": 1, "accepted": 1, "duplicates": 0}
    assert code(bob.post(f"/v1/topics/{topic}/events", json={"type": "b"})) == (403, "claimed")
    assert code(admin.post(f"/v1/topics/{topic}/events", json={"type": "b"})) == (403, "claimed")
    assert publish(ann, topic, [{"type": "a"}, {"type": "b"}])["last_seq"] == 3


def test_concurrent_claims_of_a_topic_have_one_winner(ann, bob, topic):
    answers = []

    def claim(api):
        answers.append(api.post(f"/v1/topics/{topic}/events", json={"type": "a"}).status_code)

    claims = [threading.Thread(target=claim, args=(api,)) for api in (ann, bob)]
    [claim.start() for claim in claims]
    [claim.join() for claim in claims]
    assert sorted(answers) == [202, 403]


@pytest.mark.parametrize("bad", ["Upper", "a%20b", "a%2Fb", "%C3%A4", "x" * 65])
def test_an_invalid_name_creates_nothing(ann, admin, bad):
    assert code(ann.post(f"/v1/topics/{bad}/events", json={"type": "a"})) == (400, "bad_request")


@pytest.mark.parametrize("reserved", ["tavern.presence", "tavern.mine", "tavern"])
def test_reserved_topics_cannot_be_published_to(admin, reserved):
    assert code(admin.post(f"/v1/topics/{reserved}/events", json={"type": "a"})) == (403, "not_allowed")


def test_each_route_requires_its_scope(server, topic, name):
    import httpx

    key = server.api_key("publish")
    headers = {"authorization": f"Bearer {key}"}
    for method, path in [("POST", f"/v1/topics/{topic}/events"), ("PUT", f"/v1/subscriptions/{name}"), ("GET", "/v1/subscriptions")]:
        answer = httpx.request(method, server.url + path, headers=headers, json={}, trust_env=False)
        assert code(answer) == (403, "not_allowed"), path
        assert code(httpx.request(method, server.url + path, json={}, trust_env=False)) == (401, "unauthenticated"), path


def test_the_same_id_is_accepted_once(ann, topic):
    first = publish(ann, topic, {"type": "a", "id": "x"})
    again = publish(ann, topic, {"type": "another", "id": "x", "data": [1]})
    assert (first["accepted"], first["duplicates"]) == (1, 0)
    assert again == {**first, "accepted": 0, "duplicates": 1}
    some = publish(ann, topic, [{"type": "a", "id": "x"}, {"type": "a", "id": "y"}, {"type": "a"}])
    assert (some["accepted"], some["duplicates"], some["first_seq"], some["last_seq"]) == (2, 1, 2, 3)
    twice = publish(ann, topic, [{"type": "a", "id": "z"}, {"type": "a", "id": "z"}])
    assert (twice["accepted"], twice["duplicates"], twice["last_seq"]) == (1, 1, 4)


def test_an_idempotency_key_returns_the_first_response(ann, topic, name):
    put(ann, name, topics=[topic], pull=True)
    first = publish(ann, topic, [{"type": "a"}, {"type": "b"}], once="k1")
    assert publish(ann, topic, [{"type": "a"}, {"type": "b"}], once="k1") == first
    assert publish(ann, topic, {"type": "other"}, once="k1") == first, "also with another body"
    assert first["accepted"] == 2 and first["duplicates"] == 0
    assert publish(ann, topic, {"type": "c"}, once="k2")["first_seq"] == 3
    got = events(pull(ann, name))
    assert [event["type"] for event in got] == ["a", "b", "c"]
    assert all(event["id"].startswith("evt-") for event in got), "the key is not shown to subscribers"


def test_a_list_is_all_or_nothing(ann, topic, name):
    put(ann, name, topics=[topic], pull=True)
    answer = ann.post(f"/v1/topics/{topic}/events", json=[{"type": "a"}, {"type": ""}])
    assert code(answer) == (400, "bad_request") and "event 1" in answer.text
    assert pull(ann, name)["events"] == []


def test_request_sizes_are_limited(ann, topic):
    url = f"/v1/topics/{topic}/events"
    assert publish(ann, topic, [{"type": "a"}] * 1000)["accepted"] == 1000
    assert code(ann.post(url, json=[{"type": "a"}] * 1001)) == (400, "bad_request")
    assert code(ann.post(url, json=[])) == (400, "bad_request")
    assert code(ann.post(url, json={"type": "a", "data": "x" * 65_536})) == (413, "too_large")
    assert code(ann.post(url, json=[{"type": "a", "data": "x" * 65_000}] * 17)) == (413, "too_large")
    assert code(ann.post(url, json={"type": "t" * 65})) == (413, "too_large")
    assert code(ann.post(url, content="nonsense")) == (400, "bad_request")
    assert publish(ann, topic, {"type": "last"})["last_seq"] == 1001


def test_events_are_pulled_as_published(ann, topic, name):
    put(ann, name, topics=[topic], pull=True)
    publish(ann, topic, {"type": "create", "id": "i", "url": "http://x/1", "time": 5, "data": {"a": [1, None]}})
    publish(ann, topic, {"type": "noop"})
    answer = pull(ann, name)
    assert (answer["first_seq"], answer["last_seq"], answer["next_after"]) == (1, 2, 2)
    first, second = answer["events"]
    assert first == {"seq": 1, "id": "i", "topic": topic, "type": "create", "url": "http://x/1", "time": 5, "data": {"a": [1, None]}}
    assert second["seq"] == 2 and second["data"] is None and abs(second["time"] / 1000 - time.time()) < 60


def test_after_acknowledges_earlier_events(ann, topic, name):
    put(ann, name, topics=[topic], pull=True)
    publish(ann, topic, [{"type": str(n)} for n in range(5)])
    assert seqs(pull(ann, name, limit=2)) == [1, 2]
    assert seqs(pull(ann, name, limit=2)) == [1, 2], "unacknowledged events are returned again"
    assert seqs(pull(ann, name, after=2)) == [3, 4, 5]
    assert seqs(pull(ann, name)) == [3, 4, 5]
    assert seqs(pull(ann, name, after=1, limit=9)) == [2], "acknowledged events can be read again"
    empty = pull(ann, name, after=5)
    assert empty == {"events": [], "first_seq": None, "last_seq": None, "next_after": 5}
    assert code(ann.get(f"/v1/subscriptions/{name}/events?after=6")) == (400, "bad_request")
    report = ann.get(f"/v1/subscriptions/{name}").json()
    assert (report["queued"], report["acknowledged"], report["seq"]) == (0, 5, 5)


def test_a_pull_waits_for_events(ann, bob, topic, name):
    put(ann, name, topics=[topic], pull=True)
    started = time.monotonic()
    assert pull(ann, name, wait_ms=300)["events"] == []
    assert 0.28 < time.monotonic() - started < 5
    later = threading.Timer(0.3, lambda: publish(bob, topic, {"type": "late"}))
    later.start()
    started = time.monotonic()
    assert seqs(pull(ann, name, wait_ms=20_000)) == [1]
    assert time.monotonic() - started < 5
    later.join()


def test_a_subscription_starts_with_the_next_event(ann, topic, name):
    publish(ann, topic, {"type": "before"})
    put(ann, name, topics=[topic], pull=True)
    publish(ann, topic, {"type": "after"})
    assert [(event["seq"], event["type"]) for event in events(pull(ann, name))] == [(1, "after")]


def test_seqs_have_no_gaps_when_topics_change(ann, topic, name):
    a, b, c = (f"{topic}.{letter}" for letter in "abc")
    put(ann, name, topics=[a, b], pull=True)
    publish(ann, a, {"type": "1"})
    publish(ann, c, {"type": "-"})
    publish(ann, b, {"type": "2"})
    put(ann, name, topics=[b, c])
    publish(ann, a, {"type": "-"})
    publish(ann, c, [{"type": "3"}, {"type": "4"}])
    put(ann, name, topics=[])
    publish(ann, c, {"type": "-"})
    put(ann, name, topics=[a, b, c])
    publish(ann, b, {"type": "5"})
    every = [(n, str(n)) for n in range(1, 6)]
    assert [(event["seq"], event["type"]) for event in events(pull(ann, name))] == every
    one_by_one = [events(pull(ann, name, after=n, limit=1))[0]["type"] for n in range(5)]
    assert one_by_one == ["1", "2", "3", "4", "5"]
    report = ann.get(f"/v1/subscriptions/{name}").json()
    assert (report["seq"], report["acknowledged"], report["queued"]) == (5, 4, 1)


def test_put_keeps_omitted_settings(ann, topic, name):
    made = put(ann, name, topics=[topic], callback="http://127.0.0.1:9/hook", timeout_ms=7, max_events=3, headers={"x-a": "b"}, uuid="u")
    assert made["created"] and made["secret"].startswith("whsec_")
    again = put(ann, name, topics=[f"{topic}.b"], max_bytes=4096, timeout_ms=None)
    assert not again["created"] and "secret" not in again
    expected = {**made, "topics": [f"{topic}.b"], "max_bytes": 4096, "created": False}
    expected.pop("secret")
    assert again == expected


def test_a_refused_put_changes_nothing(ann, topic, name):
    put(ann, name, topics=[topic], callback="http://127.0.0.1:9/hook")
    before = ann.get(f"/v1/subscriptions/{name}").json()
    for settings in [
        [], {"topics": ["Bad"], "max_events": 5}, {"callback": "ftp://x/"}, {"timeout_ms": 3_600_001}, {"max_events": 0}, {"max_bytes": 1},
        {"concurrency": 0}, {"format": "xml"}, {"secret": "short"}, {"headers": {"host": "x"}}, {"headers": {"a\n": "x"}}, {"what": 1},
        {"topics": [f"{topic}.new"], "callback": "http://user:pw@127.0.0.1/"},
    ]:
        assert code(ann.put(f"/v1/subscriptions/{name}", json=settings)) == (400, "bad_request"), settings
    assert ann.get(f"/v1/subscriptions/{name}").json() == before
    assert code(ann.put("/v1/subscriptions/bad%20name", json={"topics": [], "pull": True})) == (400, "bad_request")


def test_only_the_owner_sees_secrets(ann, bob, admin, topic, name):
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    made = put(ann, name, topics=[topic], callback="http://127.0.0.1:9/hook", secret=secret, headers={"authorization": "Bearer hush"}, uuid="hush")
    assert "secret" not in made
    for method, path in [("GET", ""), ("PUT", ""), ("DELETE", ""), ("GET", "/events")]:
        answer = bob.request(method, f"/v1/subscriptions/{name}{path}", json={})
        assert code(answer) == (403, "not_allowed"), (method, path)
        assert "hush" not in answer.text and secret not in answer.text
    assert name not in bob.get("/v1/subscriptions?limit=1000").text
    assert "hush" in ann.get(f"/v1/subscriptions/{name}").text, "the owner sees their settings"
    for seen in (admin.get(f"/v1/subscriptions/{name}"), admin.get("/v1/subscriptions?limit=1000"), ann.get(f"/v1/subscriptions/{name}")):
        assert seen.status_code == 200 and secret not in seen.text and name in seen.text
    assert "hush" not in admin.get(f"/v1/subscriptions/{name}").text


def test_a_deleted_subscription_leaves_nothing_behind(ann, bob, topic, name):
    put(ann, name, topics=[topic], pull=True)
    publish(ann, topic, {"type": "a"})
    assert ann.delete(f"/v1/subscriptions/{name}").status_code == 200
    assert code(ann.get(f"/v1/subscriptions/{name}")) == (404, "not_found")
    assert code(ann.get(f"/v1/subscriptions/{name}/events")) == (404, "not_found")
    assert code(ann.delete(f"/v1/subscriptions/{name}")) == (404, "not_found")
    assert put(bob, name, topics=[topic], pull=True)["created"], "the name can be reused"
    assert pull(bob, name)["events"] == []


def test_lists_are_paged(ann, topic):
    names = [f"page-{topic}-{n}" for n in range(5)]
    for name in names:
        put(ann, name, topics=[topic], pull=True)
    seen, after = [], f"page-{topic}"
    while True:
        page = ann.get("/v1/subscriptions", params={"after": after, "limit": 2}).json()
        seen += [row["name"] for row in page["subscriptions"]]
        after = page["next"]
        if after is None or not seen[-1].startswith(f"page-{topic}"):
            break
    assert [name for name in seen if name.startswith(f"page-{topic}-")] == names
