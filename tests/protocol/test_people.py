"""Follows, statuses, last seen and visibility on one server, over every transport."""
import itertools
import json
import sqlite3
import time
import urllib.parse

import httpx
import pytest

from support.json_client import Poller, Socket, Stream, connect_online
from support.process import until
from support.tavern import Tavern
from support.tokens import token

CONFIG = """
[sessions]
resume_ms = 300
[kinds.user]
grace_ms = 600
[kinds.game]
grace_ms = 600
[presence]
disconnect_coalesce_ms = 1000
"""
COUNT = itertools.count(1)


@pytest.fixture(scope="module")
def server():
    with Tavern.dev(CONFIG) as server:
        yield server


@pytest.fixture
def ann():
    return f"ann-{next(COUNT)}"


@pytest.fixture
def bob():
    return f"bob-{next(COUNT)}"


@pytest.fixture(scope="module")
def api(server):
    headers = {"authorization": f"Bearer {server.api_key('presence')}"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=5, trust_env=False) as api:
        yield api


def quoted(name):
    return urllib.parse.quote(name, safe="")


def summary(event):
    assert event["event"] == "status" and event["user"] == event["status"]["user"]
    status = event["status"]
    state = ("leaving" if status["leaving"] else "online") if status["online"] else "offline"
    return " ".join([state, "+".join(status["channels"]), event["change"]])


def test_a_follower_receives_status_changes(server, ann, bob):
    with Socket(server, user=bob) as follower, Socket(server, user=bob) as tab:
        follower.ok("follow", user=ann)
        assert summary(follower.event()) == summary(tab.event()) == "offline  none"
        with Socket(server, user=ann) as followee:
            followee.ok("join", channel="game#A")
            followee.ok("join", channel="activegame#A")
            followee.ok("leave", channel="activegame#A")
            expected = ["online  none", "online game#A in_game_channel", "online activegame#A+game#A started_game",
                        "online game#A ended_game"]
            for session in (follower, tab):
                assert [summary(session.event()) for _ in range(4)] == expected
            playing = followee.ok("join", channel="activegame#A") or follower.event()
            activities = [one["activity"] for one in playing["status"]["activities"]]
            assert activities == ["playing", "in_game_channel"], "the most specific activity first"
            followee.ok("bye")
        assert summary(follower.event()) == "offline  disconnected"
        assert follower.events_so_far() == []


def test_a_lost_tab_is_leaving_then_offline(server, ann, bob):
    with Socket(server, user=bob) as follower:
        followee = connect_online(server, ann)
        follower.ok("follow", user=ann)
        assert summary(follower.event()) == "online  none"
        began = time.monotonic()
        followee.drop()
        assert summary(follower.event()) == "leaving  none"
        assert summary(follower.event()) == "offline  disconnected"
        assert 1.6 <= time.monotonic() - began < 8


def test_a_page_switch_causes_no_status_event(server, ann, bob):
    with Socket(server, user=bob) as follower:
        page = connect_online(server, ann)
        follower.ok("follow", user=ann)
        assert summary(follower.event()) == "online  none"
        for _ in range(5):
            page.ok("bye")
            page = Socket(server, user=ann)
        page.ok("join", channel="game#last")
        assert summary(follower.event()) == "online game#last in_game_channel"
        page.close()


def test_hello_can_request_all_statuses_and_lists_are_paged(server, ann, bob):
    with Socket(server, user=bob) as follower, connect_online(server, ann):
        others = [f"{bob}-{name}" for name in "xyz"]
        for followee in [ann, *others]:
            follower.ok("follow", user=followee)
        follower.ok("follow", user=ann)
        assert follower.ok("following") == {"users": sorted([ann, *others])}
        part = follower.ok("following", limit=3)
        rest = follower.ok("following", after=part["next"])
        assert part["users"] + rest["users"] == sorted([ann, *others]) and "next" not in rest
        follower.ok("unfollow", user=others[0])
        with Socket(server, user=bob) as fresh:
            fresh.ok("hello", status=True)
            event = fresh.event()
            assert event["event"] == "statuses"
            assert [(one["user"], one["online"]) for one in event["statuses"]] == sorted(
                [(ann, True)] + [(other, False) for other in others[1:]])
        statuses = follower.ok("status", users=[ann, others[1]])["statuses"]
        assert [one["online"] for one in statuses] == [True, False]


def test_status_events_arrive_over_sse_and_poll(server, ann, bob):
    with Poller(server, user=bob) as poller:
        poller.poll(timeout_ms=0)
        poller.ok("follow", user=ann)
        with Stream(server, user=bob) as stream, Socket(server, user=ann) as followee:
            stream.greeting()
            followee.ok("join", channel="game#A")
            received = []
            while len(received) < 3:
                received += poller.take()
            assert [summary(event) for event in received] == ["offline  none", "online  none", "online game#A in_game_channel"]
            _, last = stream.event()
            while not last["status"]["channels"]:
                _, last = stream.event()
            assert summary(last) == "online game#A in_game_channel"


def test_last_seen_is_the_time_of_leaving_not_of_coming_online(server, ann, bob):
    def seen(asker):
        return asker.ok("status", users=[ann])["statuses"][0]["last_seen"]
    with Socket(server, user=bob) as asker:
        with Socket(server, user=ann) as session:
            assert seen(asker) is None
            before = time.time() * 1000
            session.ok("bye")
        # Written in the same commit as the departure.
        until(lambda: not asker.ok("status", users=[ann])["statuses"][0]["online"], "the user to be offline")
        # The server reads its clock once for all commands of a turn, which may have begun a little earlier.
        left = seen(asker)
        assert left >= before - 200
        with connect_online(server, ann) as back:
            assert seen(asker) is None, "online"
            assert seen(back) == left, "the end of their own last visit; coming online does not change it"
            rows = sqlite3.connect(f"file:{server.data}/tavern.db?mode=ro", uri=True).execute(
                "SELECT last_seen FROM user_presences WHERE user_id = ?", (ann,)).fetchall()
            assert rows == [(left,)]


def test_last_seen_is_not_written_during_the_grace_period(server, api, ann):
    """A return would have to undo it, but last_seen never moves backwards."""
    lost = Socket(server, user=ann)
    lost.ok("join", channel=f"game#{ann}")
    lost.drop()
    shown = lambda: api.get(f"/v1/users/{ann}").json()
    leaving = until(lambda: (answer := shown())["leaving"] and answer, "the user to be leaving")
    assert leaving["last_seen"] is None
    gone = until(lambda: not (answer := shown())["online"] and answer, "the grace period to end")
    assert gone["last_seen"] is not None


def test_a_hidden_user_is_offline_to_others_and_anonymous_in_channels(server, api, ann, bob):
    room = f"game#{ann}"
    friend = f"{bob}-friend"
    with connect_online(server, ann) as hiding, Socket(server, user=bob) as stranger, Socket(server, user=friend) as close:
        for session in (stranger, close):
            session.ok("follow", user=ann)
            assert summary(session.event()) == "online  none"
        hiding.ok("follow", user=friend)
        hiding.ok("visibility", value="followers_i_follow")
        assert summary(stranger.event()) == "offline  disconnected"
        watching = [session.ok("subscribe", channel=room, presence=True)["members"] for session in (stranger, close)]
        assert [members["count"] for members in watching] == [0, 0]
        hiding.ok("join", channel=room, state={"who": ann})
        statuses = [stranger.event() for _ in range(2)]
        assert [event["user"] for event in statuses] == [None, None] and ann not in json.dumps(statuses[1]["state"])
        named = [event for event in (close.event() for _ in range(3)) if event["event"] != "status"]
        assert [event["user"] for event in named] == [ann, ann]
        assert stranger.ok("who", channel=room)["users"][0]["user"] is None
        assert close.ok("who", channel=room)["users"][0]["user"] == ann
        assert api.get(f"/v1/channels/{quoted(room)}/presence").json()["users"][0]["user"] == ann
        assert stranger.ok("status", users=[ann])["statuses"][0]["online"] is False
        assert close.ok("status", users=[ann])["statuses"][0]["online"] is True
        hiding.ok("visibility", value="everyone")
        until(lambda: stranger.ok("who", channel=room)["users"][0]["user"] == ann, "the user to be visible")


def test_services_can_follow_on_behalf_of_users(server, api, ann, bob):
    url = f"/v1/users/{bob}/following/{ann}"
    with Socket(server, user=bob) as follower:
        for _ in range(2):
            assert api.put(url).json() == {}
        assert summary(follower.event()) == "offline  none" and follower.events_so_far() == []
        assert api.get(f"/v1/users/{bob}/following").json() == {"users": [ann]}
        assert api.get(f"/v1/users/{ann}/followers").json() == {"users": [bob]}
        with Socket(server, user=ann):
            assert summary(follower.event()) == "online  none"
            answer = api.put(f"/v1/users/{ann}/visibility", json={"value": "nobody"})
            assert answer.status_code == 200
            assert summary(follower.event()) == "offline  disconnected"
            shown = api.get(f"/v1/users/{ann}").json()
            assert (shown["online"], shown["visibility"]) == (True, "nobody")
        for _ in range(2):
            assert api.delete(url).status_code == 200
    assert api.get(f"/v1/users/{bob}/following").json() == {"users": []}
    assert api.put(f"/v1/users/{bob}/following/{bob}").status_code == 400
    assert api.put(f"/v1/users/{bob}/visibility", json={"value": "x"}).status_code == 400
    assert api.put(f"/v1/users/{bob}/visibility", content=b"[").status_code == 400
    answer = httpx.put(f"{server.url}{url}", timeout=5, trust_env=False)
    assert answer.status_code == 401


def test_the_cli_can_follow(server, ann, bob):
    with Socket(server, user=ann) as followee:
        followee.ok("join", channel="game#A")
        shown = server.run("follow", "--url", server.url, "--user", bob, ann)
        assert "online" in shown.stdout and "game#A" in shown.stdout, shown
        statuses = json.loads(server.run("follow", "--url", server.url, "--user", bob, "--json").stdout)
        assert [one["user"] for one in statuses] == [ann]
        lines = server.run("follow", "--url", server.url, "--user", bob, "--watch", "--count", "1").stdout.splitlines()
        assert json.loads(lines[0])["event"] == "statuses"
        server.run("follow", "--url", server.url, "--user", bob, "--stop", ann)
        assert json.loads(server.run("follow", "--url", server.url, "--user", bob, "--json").stdout) == []


def test_an_anonymous_client_cannot_follow():
    with Tavern.serve(CONFIG) as strict, Socket(strict, token=token(user=None)) as anonymous:
        for op, fields in [("follow", {"user": "ann"}), ("following", {}), ("visibility", {"value": "nobody"})]:
            assert anonymous.call(op, **fields)["error"]["code"] == "not_allowed"


def test_a_service_can_set_the_presence_of_a_user(server, api, ann, bob):
    game, active = f"game#{ann}", f"activegame#{ann}"
    url = f"/v1/channels/{quoted(active)}/presence/{ann}"
    with Socket(server, user=bob) as follower, connect_online(server, ann) as followee:
        follower.ok("follow", user=ann)
        assert summary(follower.event()) == "online  none"
        followee.ok("join", channel=game)
        for _ in range(2):
            assert api.put(url, json={"with": game}).json() == {}
        statuses = [summary(follower.event()) for _ in range(2)]
        assert statuses == [f"online {game} in_game_channel", f"online {active}+{game} started_game"]
        client = api.get(f"/v1/channels/{quoted(active)}/presence").json()["users"][0]["clients"][0]["client"]
        assert client == followee.hello["client"]
        assert api.delete(url).json() == {}
        assert summary(follower.event()) == f"online {game} ended_game"
        assert follower.events_so_far() == []


def test_app_set_presence_survives_a_restart_and_expires_by_ttl(ann):
    active = f"activegame#{ann}"
    url = f"/v1/channels/{quoted(active)}/presence"
    with Tavern.dev(CONFIG) as server:
        headers = {"authorization": f"Bearer {server.api_key('presence')}"}
        with httpx.Client(base_url=server.url, headers=headers, timeout=5, trust_env=False) as api:
            assert api.put(f"{url}/{ann}", json={"with": "game#X"}).status_code == 200
            assert api.put(f"{url}/timed", json={"ttl_s": 3}).status_code == 200
            assert [user["user"] for user in api.get(url).json()["users"]] == ["timed"]
        server.terminate()
        server.start()
        with httpx.Client(base_url=server.url, headers=headers, timeout=5, trust_env=False) as api:
            with Socket(server, user=ann) as socket:
                socket.ok("join", channel="game#X")
                until(lambda: {user["user"] for user in api.get(url).json()["users"]} >= {ann}, "the app-set presence")
                until(lambda: [user["user"] for user in api.get(url).json()["users"]] == [ann], "the TTL to expire", timeout=8)


@pytest.mark.parametrize("body, status", [
    ({"ttl_s": 0}, 400), ({"ttl_s": -1}, 400), ({"ttl_s": 10**9}, 400), ({"with": 7}, 400), ({"wiht": "game#A"}, 400),
    ({"with": "Bad Name"}, 400), ({"with": "activegame#bad"}, 400), ({"ttl_s": 1}, 200), ({"with": "user#x"}, 403),
])
def test_invalid_app_set_presence_is_refused(api, body, status):
    assert api.put("/v1/channels/activegame%23bad/presence/x", json=body).status_code == status
    assert api.put("/v1/channels/user%23x/presence/x", json=body).status_code in (status, 403)
