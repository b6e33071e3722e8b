"""REST calls of the dashboard: overview, settings, channels with counts, users by prefix, inbox."""
import concurrent.futures
import json

import httpx
import pytest

from cluster.combination import Engines
from support.json_client import Socket
from support.process import until
from support.tavern import Tavern

from .sample import HOSTILE, HOSTILE_CHANNEL, client, good, path


def names(answer, list, member):
    return [row[member] for row in answer[list]]


def test_the_overview_matches_the_metrics(sample):
    found = good(sample.api.get("/v1/overview"))
    assert found["mode"] == "dev" and found["store_up"] and found["bus_up"] and not found["stopping"]
    assert found["metrics"]["tavern_sessions"] == sample.server.metric("tavern_sessions") == 9
    assert found["events"]["accepted"] == 20 and found["events"]["dead_letters"] == 2


def test_settings_show_their_source_and_no_secrets(sample):
    answer = sample.api.get("/v1/settings")
    values = {row["key"]: row for row in good(answer)["values"]}
    assert values["listen"]["origin"] == "--listen"
    assert values["events.backoff_min_ms"]["value"] == 50 and "tavern.toml" in values["events.backoff_min_ms"]["origin"]
    assert values["sessions.resume_ms"]["origin"] == "default"
    assert sample.server.key not in answer.text and "secret" in values
    checked = sample.server.run("check", "--dev", "--json", *sample.server.command()[2:])
    assert {row["key"] for row in json.loads(checked.stdout)["values"]} == set(values)


def test_channels_are_listed_with_counts(sample):
    found = good(sample.api.get("/v1/channels", params={"present": "true"}))
    present = {row["channel"]: row["present"] for row in found["channels"]}
    assert present["lobby#main"] == 8 and present["game#1048"] == 2 and present[HOSTILE_CHANNEL] == 1
    assert not any(name.startswith("user#") for name in present), "users' own channels are omitted"
    own = good(sample.api.get("/v1/channels", params={"present": "true", "prefix": "user#a"}))
    assert {"user#ann": 1}.items() <= {row["channel"]: row["present"] for row in own["channels"]}.items()
    games = good(sample.api.get("/v1/channels", params={"prefix": "game"}))
    assert names(games, "channels", "channel") == ["game#1048", "gametv#1048"]
    assert "present" not in games["channels"][0]


def test_a_channel_with_presence_and_no_subscription_is_listed(sample):
    good(sample.api.put("/v1/channels/stage%23quiet/presence/zoe", json={"ttl_s": 600}))
    found = good(sample.api.get("/v1/channels", params={"present": "true", "prefix": "stage"}))
    assert found["channels"] == [{"channel": "stage#quiet", "subscriptions": 0, "present": 1}]


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_paging_returns_each_channel_once(sample, limit):
    whole = names(good(sample.api.get("/v1/channels", params={"present": "true"})), "channels", "channel")
    seen, after = [], None
    for _ in range(20):
        page = good(sample.api.get("/v1/channels", params={"present": "true", "limit": limit, "after": after or ""}))
        seen += names(page, "channels", "channel")
        after = page["next"]
        if after is None:
            break
    assert seen == whole and len(whole) >= 4


def test_more_users_than_a_store_page_are_counted(scratch):
    with client(scratch) as api:
        hold = lambda n: good(api.put(f"/v1/channels/crowd%23a/presence/u{n}", json={"ttl_s": 600}))
        # Concurrently, so that commits are batched.
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            list(pool.map(hold, range(1_003)))
        good(api.put("/v1/channels/crowd%23b/presence/u1", json={"ttl_s": 600}))
        found = good(api.get("/v1/channels", params={"present": "true", "prefix": "crowd"}))
        assert [(row["channel"], row["present"]) for row in found["channels"]] == [("crowd#a", 1_003), ("crowd#b", 1)]


def test_users_are_found_by_prefix(sample):
    row = lambda: {row["user"]: row for row in good(sample.api.get("/v1/users", params={"prefix": "ann"}))["users"]}
    with Socket(sample.server, user="anna-was-here"):
        until(lambda: row().get("anna-was-here", {}).get("online"), "the user to be online", 10)
    until(lambda: row()["anna-was-here"]["last_seen"], "last_seen to be stored", 10)
    assert row()["ann"]["online"] and set(row()) == {"ann", "anna-was-here"}
    all_users = names(good(sample.api.get("/v1/users")), "users", "user")
    assert HOSTILE in all_users and all_users == sorted(all_users)
    page = good(sample.api.get("/v1/users", params={"limit": 2}))
    assert names(page, "users", "user") == all_users[:2] and page["next"] == all_users[1]
    rest = good(sample.api.get("/v1/users", params={"after": page["next"]}))
    assert names(rest, "users", "user") == all_users[2:] and rest["next"] is None


def test_reading_an_inbox_acknowledges_nothing(sample):
    for _ in range(2):
        found = good(sample.api.get("/v1/users/igor/inbox"))
        assert [message["event"]["data"] for message in found["messages"]] == [{"gift": "a red scarf", "from": "carla"}, {"text": HOSTILE}]
        assert found["next"] is None and found["dropped_through"] == 0
    first = good(sample.api.get("/v1/users/igor/inbox", params={"limit": 1}))
    rest = good(sample.api.get("/v1/users/igor/inbox", params={"after": first["next"]}))
    assert len(first["messages"]) == len(rest["messages"]) == 1
    assert sample.api.get("/v1/users/igor/inbox", params={"after": "x"}).status_code == 400


def test_a_user_shows_party_and_invites(sample):
    assert good(sample.api.get("/v1/users/ann"))["party"] == sample.party
    carla = good(sample.api.get("/v1/users/carla"))
    assert carla["party"] is None and carla["invites"] == [sample.party]


@pytest.mark.parametrize("path, scope", [("overview", "admin"), ("load", "admin"), ("settings", "admin"), ("users", "presence"), ("users/ann/inbox", "admin")])
def test_each_route_requires_its_scope(path, scope):
    with Tavern.serve() as server:
        ask = lambda **headers: httpx.get(f"{server.url}/v1/{path}", headers=headers, timeout=5, trust_env=False).status_code
        other = "publish" if scope == "presence" else "presence"
        assert ask() == 401 and ask(authorization="Bearer wrong") == 401
        assert ask(authorization=f"Bearer {server.api_key(other)}") == 403
        assert ask(authorization=f"Bearer {server.api_key(scope)}") == 200


def test_prefix_length_is_limited(sample):
    assert sample.api.get("/v1/users", params={"prefix": "x" * 200}).status_code == 400
    assert sample.api.get("/v1/channels", params={"prefix": "x" * 300}).status_code == 400


# Upper and lower case, characters around `#`, multi-byte characters: a locale-aware sort order would differ.
ROOMS = ["room", "room#", "room#A", "room#a", "room#a b", "room#aa", "room#ä", "room#\U0001f37a", "room#~", "room-b#1", "roomy#1", "user-club#1"]


@pytest.mark.parametrize("store", ["sqlite", "redis", "postgres"])
def test_lists_are_equal_on_every_store(store):
    with Engines() as engines:
        url = {"sqlite": lambda: None, "redis": lambda: engines.server("redis").url, "postgres": lambda: engines.server("postgres").url("lists")}[store]()
        with Tavern.dev(options=("--store", url, "--bus", "local") if url else ()) as server, client(server) as api, Socket(server, user="Ann"), Socket(server, user="ann"):
            for at, room in enumerate(ROOMS):
                for user in range(at % 3 + 1):
                    good(api.put(f"/v1/channels/{path(room)}/presence/u{user}", json={"ttl_s": 600}))
            ordered = sorted(ROOMS, key=str.encode)
            present = lambda **query: [(row["channel"], row["present"]) for row in good(api.get("/v1/channels", params={"present": "true"} | query))["channels"]]
            expected = [(room, ROOMS.index(room) % 3 + 1) for room in ordered]
            assert present() == expected
            assert present(prefix="room#a") == [row for row in expected if row[0].startswith("room#a")]
            for after in ordered:
                assert present(after=after, limit=2) == expected[ordered.index(after) + 1:][:2], after
            until(lambda: names(good(api.get("/v1/users")), "users", "user") == ["Ann", "ann"], "both users to be stored", 10)
            assert names(good(api.get("/v1/users", params={"prefix": "A"})), "users", "user") == ["Ann"]
            assert names(good(api.get("/v1/users", params={"after": "Ann"})), "users", "user") == ["ann"]
            for n in range(2):
                good(api.post("/v1/users/igor/messages", json={"data": n}))
            assert [one["event"]["data"] for one in good(api.get("/v1/users/igor/inbox"))["messages"]] == [0, 1]
