"""Topics: claims, listing, deletion."""
import threading

import pytest

from events.topics_api import code, events, publish, pull, put, report, seqs


def topic_of(api, topic):
    answer = api.get(f"/v1/topics/{topic}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_topic_shows_its_publisher_and_counts(ann, keys, topic, name):
    publish(ann, topic, [{"type": "a"}] * 3)
    put(ann, name, topics=[topic], pull=True)
    found = topic_of(ann, topic)
    assert found.pop("created_at") > 0
    assert found == {"topic": topic, "publisher": keys[0].split("_")[1], "events": 3, "subscriptions": 1}
    assert code(ann.get(f"/v1/topics/{topic}.none")) == (404, "not_found")


@pytest.mark.parametrize("bad", ["Upper", "a%20b", "x" * 65])
def test_an_invalid_name_creates_nothing(ann, admin, bad):
    before = admin.get("/v1/topics?limit=1000").json()
    for method, path, body in [("POST", "/events", {"type": "a"}), ("GET", "", None), ("PUT", "", {"publisher": None}), ("DELETE", "", None)]:
        assert code(admin.request(method, f"/v1/topics/{bad}{path}", json=body)) == (400, "bad_request")
    assert admin.get("/v1/topics?limit=1000").json() == before


def test_topics_are_listed_in_pages(ann, topic):
    names = [f"{topic}.{n}" for n in range(5)]
    for one in names:
        publish(ann, one, {"type": "a"})
    seen, after = [], topic
    while len(seen) < 5:
        page = ann.get("/v1/topics", params={"after": after, "limit": 2}).json()
        seen += [row["topic"] for row in page["topics"]]
        after = page["next"]
    assert seen[:5] == names


def test_a_topic_created_by_a_subscription_is_claimed_by_its_first_publisher(ann, bob, topic, name):
    put(ann, name, topics=[topic], pull=True)
    assert topic_of(ann, topic)["publisher"] is None
    publish(bob, topic, {"type": "a"})
    assert code(ann.post(f"/v1/topics/{topic}/events", json={"type": "a"})) == (403, "claimed")
    assert seqs(pull(ann, name)) == [1]


def test_an_admin_can_move_and_clear_a_claim(ann, bob, admin, keys, topic):
    publish(ann, topic, {"type": "a"})
    assert code(bob.put(f"/v1/topics/{topic}", json={"publisher": None})) == (403, "not_allowed")
    for body in ({}, {"publisher": ""}, {"publisher": 5}, {"publisher": "x" * 65}):
        assert code(admin.put(f"/v1/topics/{topic}", json=body)) == (400, "bad_request"), body
    moved = admin.put(f"/v1/topics/{topic}", json={"publisher": keys[1].split("_")[1]})
    assert moved.status_code == 200 and moved.json()["publisher"] == keys[1].split("_")[1]
    assert code(ann.post(f"/v1/topics/{topic}/events", json={"type": "a"})) == (403, "claimed")
    assert publish(bob, topic, {"type": "b"})["first_seq"] == 2
    assert admin.put(f"/v1/topics/{topic}", json={"publisher": None}).json()["publisher"] is None
    publish(ann, topic, {"type": "c"})
    assert code(bob.post(f"/v1/topics/{topic}/events", json={"type": "a"})) == (403, "claimed")


def test_subscriptions_survive_the_deletion_of_a_topic(ann, bob, admin, topic, name):
    other = f"{topic}.other"
    put(ann, name, topics=[topic, other], pull=True)
    publish(ann, topic, {"type": "1"})
    publish(ann, other, {"type": "2"})
    assert code(bob.delete(f"/v1/topics/{topic}")) == (403, "not_allowed")
    assert ann.delete(f"/v1/topics/{topic}").status_code == 200
    assert code(ann.get(f"/v1/topics/{topic}")) == (404, "not_found")
    assert report(ann, name)["topics"] == [other]
    assert publish(bob, topic, {"type": "-"})["accepted"] == 1, "the name can be reused, also where it was cached"
    publish(ann, other, {"type": "3"})
    assert [(event["seq"], event["type"]) for event in events(pull(ann, name))] == [(1, "1"), (2, "2"), (3, "3")]
    put(ann, name, topics=[topic])
    publish(bob, topic, {"type": "4"})
    assert seqs(pull(ann, name)) == [1, 2, 3, 4]


def test_only_its_publisher_or_an_admin_can_delete_a_topic(ann, bob, admin, topic, name):
    put(ann, name, topics=[topic], pull=True)
    assert code(ann.delete(f"/v1/topics/{topic}")) == (403, "not_allowed"), "unclaimed"
    assert admin.delete(f"/v1/topics/{topic}").status_code == 200
    assert code(admin.delete(f"/v1/topics/{topic}")) == (404, "not_found")
    put(ann, name, topics=["tavern.deliveries"])
    assert code(admin.delete("/v1/topics/tavern.deliveries")) == (403, "not_allowed")


def test_concurrent_subscriptions_do_not_keep_a_deleted_topic(ann, admin, topic):
    publish(ann, topic, {"type": "a"})
    names = [f"{topic}-s{n}" for n in range(20)]

    def subscribe(some):
        for name in some:
            put(ann, name, topics=[topic], pull=True)

    crowd = [threading.Thread(target=subscribe, args=(names[at::4],)) for at in range(4)]
    [one.start() for one in crowd]
    ended = admin.delete(f"/v1/topics/{topic}")
    [one.join() for one in crowd]
    assert ended.status_code in (200, 503), ended.text
    holders = [name for name in names if topic in report(ann, name)["topics"]]
    exists = admin.get(f"/v1/topics/{topic}").status_code == 200
    assert exists or not holders, "a subscription has a topic that does not exist"
    assert exists == bool(holders) or ended.status_code == 503


def test_unknown_publisher_is_refused(server, ann, admin, topic):
    publish(ann, topic, {"type": "a"})
    refused = admin.put(f"/v1/topics/{topic}", json={"publisher": "nosuchkey"})
    assert code(refused) == (400, "bad_request") and "nosuchkey" in refused.text
    assert topic_of(ann, topic)["publisher"] != "nosuchkey"
    assert admin.put(f"/v1/topics/{topic}", json={"publisher": "admin"}).status_code == 200, "the configured key has no row"


def test_ids_of_a_deleted_topic_do_not_count_for_a_new_one(ann, bob, admin, topic, name):
    publish(ann, topic, [{"type": "a", "id": "x"}, {"type": "b", "id": "y"}])
    assert admin.delete(f"/v1/topics/{topic}").status_code == 200
    put(bob, name, topics=[topic], pull=True)
    again = publish(bob, topic, [{"type": "c", "id": "x"}, {"type": "d", "id": "x"}])
    assert (again["accepted"], again["duplicates"], again["first_seq"]) == (1, 1, 1)
    assert [(event["id"], event["type"]) for event in pull(bob, name)["events"]] == [("x", "c")]


def test_relay_publishes_the_ids_it_received(ann, topic, name):
    put(ann, name, topics=[topic, f"{topic}.copy"], pull=True)
    publish(ann, topic, [{"type": "a"}, {"type": "b"}])
    got = pull(ann, name)["events"]
    for expected in (2, 0):
        relayed = publish(ann, f"{topic}.copy", [{"type": event["type"], "id": event["id"]} for event in got])
        assert relayed["accepted"] == expected
    ids = [event["id"] for event in pull(ann, name)["events"]]
    assert ids == [event["id"] for event in got] * 2
