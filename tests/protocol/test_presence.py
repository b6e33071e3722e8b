"""Presence in channels on one server: join, state, leave, grace periods."""
import json
import time

import pytest

from support.json_client import Poller, Socket, Stream
from support.process import until
from support.tavern import Tavern

GRACE, RESUME = 2.0, 0.8
CONFIG = """
[sessions]
resume_ms = 800
[kinds.game]
grace_ms = 2000
[kinds.short]
grace_ms = 0
"""


@pytest.fixture(scope="module")
def server():
    with Tavern.dev(CONFIG) as server:
        yield server


@pytest.fixture
def room(channel):
    return channel.replace("room#", "game#")


@pytest.fixture
def watcher(server, room):
    with Socket(server, user="watcher") as socket:
        socket.members = socket.ok("subscribe", channel=room, presence=True)["members"]
        yield socket


def next_events(socket, count):
    """The next events as short strings; checks that versions have no gaps."""
    events = [socket.event() for _ in range(count)]
    versions = [event["version"] for event in events]
    assert versions == list(range(versions[0], versions[0] + count)), versions
    return [summary(event) for event in events]


def summary(event):
    parts = [event["event"], event["user"]]
    parts += [str(event[name]) for name in ("state", "explicit", "reason") if name in event]
    return " ".join(str(part) for part in parts)


def test_join_update_and_leave_are_reported(server, room, watcher):
    assert (watcher.members["users"], watcher.members["count"]) == ([], 0)
    with Socket(server, user="ann") as ann:
        ann.ok("join", channel=room, state={"x": 1})
        ann.ok("join", channel=room, state={"x": 1.0})
        ann.ok("join", channel=room)
        ann.ok("update", channel=room, state={"x": 2})
        ann.ok("leave", channel=room)
        ann.ok("leave", channel=room)
        assert next_events(watcher, 5) == [
            "user_online ann", "client_online ann {'x': 1}", "client_updated ann {'x': 2}",
            "client_offline ann True left", "user_offline ann left",
        ]
        assert watcher.events_so_far() == [], "commands without a change cause no event"


def test_two_tabs_are_one_user(server, room, watcher):
    with Socket(server, user="ann") as one, Socket(server, user="ann") as two:
        one.ok("join", channel=room)
        two.ok("join", channel=room)
        one.ok("leave", channel=room)
        assert next_events(watcher, 4) == [
            "user_online ann", "client_online ann None", "client_online ann None", "client_offline ann True left"]
        who = watcher.ok("who", channel=room)
        assert who["count"] == 1 and [client["client"] for client in who["users"][0]["clients"]] == [two.hello["client"]]


def test_a_lost_client_goes_offline_after_the_resume_window_and_its_user_after_the_grace_period(server, room, watcher):
    ann = Socket(server, user="ann")
    ann.ok("join", channel=room)
    next_events(watcher, 2)
    ann.drop()
    lost = time.monotonic()
    assert next_events(watcher, 1) == ["client_offline ann False lost"]
    assert RESUME - 0.1 < time.monotonic() - lost < RESUME + 2
    who = watcher.ok("who", channel=room)
    assert who["users"][0]["leaving"] is True and who["users"][0]["clients"] == [] and who["count"] == 1
    assert next_events(watcher, 1) == ["user_offline ann lost"]
    assert GRACE - 0.1 < time.monotonic() - lost < GRACE + 3
    assert watcher.ok("who", channel=room)["count"] == 0


def test_a_resume_within_the_window_causes_no_event(server, room, watcher):
    ann = Socket(server, user="ann")
    ann.ok("join", channel=room)
    next_events(watcher, 2)
    session = ann.hello["session"]
    ann.drop()
    with Socket(server, greet=False) as back:
        from support import tokens
        assert back.call("hello", token=tokens.token("ann"), session=session, seq=0)["ok"]["resumed"]
        time.sleep(GRACE + RESUME)
        assert watcher.events_so_far() == []
        back.ok("leave", channel=room)
        assert next_events(watcher, 2) == ["client_offline ann True left", "user_offline ann left"]


def test_a_late_resume_restores_presence_with_its_state(server, room, watcher):
    ann = Socket(server, user="ann")
    ann.ok("join", channel=room, state="busy")
    next_events(watcher, 2)
    session = ann.hello["session"]
    ann.drop()
    assert next_events(watcher, 1) == ["client_offline ann False lost"]
    with Socket(server, greet=False) as back:
        from support import tokens
        assert back.call("hello", token=tokens.token("ann"), session=session, seq=0)["ok"]["resumed"]
        assert next_events(watcher, 1) == ["client_online ann busy"], "the user stayed online"
        time.sleep(GRACE)
        assert watcher.events_so_far() == []


def test_another_tab_ends_the_grace_period(server, room, watcher):
    ann = Socket(server, user="ann")
    ann.ok("join", channel=room)
    ann.drop()
    assert next_events(watcher, 3)[-1] == "client_offline ann False lost"
    with Socket(server, user="ann") as other:
        other.ok("join", channel=room)
        assert next_events(watcher, 1) == ["client_online ann None"]
        other.ok("leave", channel=room)
        assert next_events(watcher, 2) == ["client_offline ann True left", "user_offline ann left"]


def test_bye_leaves_all_channels(server, room, watcher):
    with Socket(server, user="ann") as ann:
        ann.ok("join", channel=room)
        ann.ok("join", channel=room + "-two")
        ann.ok("bye")
    assert next_events(watcher, 4)[2:] == ["client_offline ann True bye", "user_offline ann bye"]
    until(lambda: watcher.ok("who", channel=room + "-two")["count"] == 0, "the other channel to be empty")


def test_without_a_grace_period_a_lost_user_goes_offline_with_the_window(server):
    with Socket(server, user="watcher") as watcher:
        watcher.ok("subscribe", channel="short#1", presence=True)
        ann = Socket(server, user="ann")
        ann.ok("join", channel="short#1")
        ann.drop()
        assert next_events(watcher, 4)[2:] == ["client_offline ann False lost", "user_offline ann lost"]


def test_pollers_and_streams_can_join(server, room, watcher):
    with Poller(server, user="pia") as pia, Stream(server, user="stu") as stu:
        pia.ok("hello")
        pia.ok("join", channel=room, state=1)
        session = stu.greeting()["session"]
        with Poller(server, user="stu", session=session) as commands:
            commands.ok("join", channel=room)
            commands.ok("subscribe", channel=room, presence=True)
        assert next_events(watcher, 4) == ["user_online pia", "client_online pia 1", "user_online stu", "client_online stu None"]
        pia.ok("leave", channel=room)
        assert [stu.event()[1]["event"] for _ in range(2)] == ["client_offline", "user_offline"]


def test_a_snapshot_plus_later_events_equals_the_next_snapshot(server, room):
    users = [Socket(server, user=f"flap-{n}") for n in range(10)]
    with Socket(server, user="watcher") as watcher:
        for user in users[:5]:
            user.ok("join", channel=room, state=0)
        members = watcher.ok("subscribe", channel=room, presence=True)["members"]
        known = {user["user"]: {c["client"]: c["state"] for c in user["clients"]} for user in members["users"]}
        version = members["version"]
        for turn in range(1, 6):
            for at, user in enumerate(users):
                if (at + turn) % 3 == 0:
                    user.ok("leave", channel=room)
                else:
                    user.ok("join", channel=room, state=turn)
        for event in watcher.events_so_far():
            assert event["version"] == version + 1
            version = event["version"]
            if event["event"] == "user_online":
                known[event["user"]] = {}
            elif event["event"] == "user_offline":
                assert known.pop(event["user"]) == {}
            elif event["event"] == "client_offline":
                del known[event["user"]][event["client"]]
            else:
                known[event["user"]][event["client"]] = event["state"]
        who = watcher.ok("who", channel=room)
        assert who["version"] == version
        assert {user["user"]: {c["client"]: c["state"] for c in user["clients"]} for user in who["users"]} == known
    for user in users:
        user.close()


def test_invalid_presence_commands_are_refused(server, room):
    with Socket(server, user="ann") as ann:
        code = lambda op, **fields: ann.call(op, **fields)["error"]["code"]
        assert code("update", channel=room, state=1) == "not_found"
        assert code("join", channel=room, state="x" * 5000) == "too_large"
        assert code("join", channel="user#bob") == "not_allowed"
        assert code("join", channel="No Name") == "bad_request"
        assert code("subscribe", pattern="game#*", presence=True) == "bad_request"


def test_who_is_paged_and_can_count_only(server, room):
    users = [Socket(server, user=f"user-{n}") for n in range(5)]
    for user in users:
        user.ok("join", channel=room)
    first = users[0].ok("who", channel=room, limit=3)
    assert [user["user"] for user in first["users"]] == ["user-0", "user-1", "user-2"] and first["count"] == 5
    rest = users[0].ok("who", channel=room, limit=3, after=first["next"])
    assert [user["user"] for user in rest["users"]] == ["user-3", "user-4"] and "next" not in rest
    assert users[0].ok("who", channel=room, counts_only=True) == {"version": first["version"], "count": 5}
    for user in users:
        user.close()


def test_presence_commands_require_rights():
    from support import tokens
    with Tavern.serve() as server:
        token = tokens.token("ann", allow={"game#1": ["subscribe", "join"], "game#2": ["subscribe", "presence"]})
        with Socket(server, token=token) as ann:
            code = lambda op, **fields: ann.call(op, **fields).get("error", {}).get("code")
            assert code("join", channel="game#1") is None
            assert code("join", channel="game#2") == "not_allowed"
            assert code("who", channel="game#1") == "not_allowed"
            assert code("who", channel="game#2") is None
            assert code("subscribe", channel="game#1", presence=True) == "not_allowed"
            assert code("subscribe", channel="game#2", presence=True) is None


def test_a_graceful_restart_causes_no_event():
    with Tavern.dev(CONFIG.replace("2000", "8000")) as server:
        from support import tokens
        ann, watcher = Socket(server, user="ann"), Socket(server, user="watcher")
        ann.ok("join", channel="game#R", state="here")
        members = watcher.ok("subscribe", channel="game#R", presence=True)["members"]
        sessions = {"ann": ann.hello["session"], "watcher": watcher.hello["session"]}
        assert server.terminate() == 0
        server.start()
        back = {}
        for user, session in sessions.items():
            back[user] = Socket(server, greet=False)
            assert back[user].call("hello", token=tokens.token(user), session=session, seq=0)["ok"]["resumed"]
        time.sleep(3.5)
        assert back["watcher"].events_so_far() == []
        assert back["watcher"].ok("who", channel="game#R")["version"] == members["version"]
        back["ann"].ok("leave", channel="game#R")
        assert next_events(back["watcher"], 2) == ["client_offline ann True left", "user_offline ann left"]
        for socket in back.values():
            socket.close()


def test_after_kill_9_and_restart_old_clients_are_lost():
    with Tavern.dev(CONFIG.replace("2000", "2500")) as server:
        ann = Socket(server, user="ann")
        ann.ok("join", channel="game#K")
        server.process.kill()
        server.process.wait()
        server.start()
        with Socket(server, user="watcher") as watcher:
            members = watcher.ok("subscribe", channel="game#K", presence=True)["members"]
            assert members["count"] == 1, "in the grace period"
            events = []
            while not events or events[-1]["event"] != "user_offline":
                events.append(watcher.event(timeout=8))
            assert events[-1]["reason"] == "node_down"
            assert watcher.ok("who", channel="game#K")["count"] == 0


def test_rest_and_cli_list_the_members_of_a_channel(server, room):
    import httpx
    with Socket(server, user="ann") as ann, Socket(server, user="bob") as bob:
        ann.ok("join", channel=room, state={"mood": "good"})
        bob.ok("join", channel=room)
        url = f"{server.url}/v1/channels/{room.replace('#', '%23')}/presence"
        ask = lambda key, **query: httpx.get(url, params=query, headers={"authorization": f"Bearer {key}"}, trust_env=False)
        assert ask(server.key).json() == ann.ok("who", channel=room)
        assert ask(server.key, limit=1).json()["next"] == "ann"
        assert [user["user"] for user in ask(server.key, after="ann").json()["users"]] == ["bob"]
        assert "users" not in ask(server.key, counts_only="true").json()
        assert ask(server.api_key("publish")).json()["error"]["code"] == "not_allowed"
        shown = server.run("who", room, "--url", server.url)
        assert "ann" in shown.stdout and '"mood":"good"' in shown.stdout, shown.stderr
        told_by_key = server.run("who", room, "--json", "--url", server.url, "--key", server.key)
        assert '"count":2' in told_by_key.stdout, told_by_key.stderr


CROWDS = CONFIG + "[presence]\ntick_ms = 200\ncoalesce_at = 5\ncounts_at = 20\n"


def follow(known, event):
    """Applies a coalesced event as a client does."""
    for gone in event["left"]:
        if "client" in gone:
            del known[gone["user"]][gone["client"]]
        else:
            del known[gone["user"]]
    for entry in event["joined"] + event["updated"]:
        clients = known.setdefault(entry["user"], {})
        if "client" in entry:
            clients[entry["client"]] = entry["state"]


def shown(members):
    return {user["user"]: {c["client"]: c["state"] for c in user["clients"]} for user in members["users"]}


def test_a_growing_channel_switches_to_coalesced_and_then_to_counts():
    with Tavern.dev(CROWDS) as server, Socket(server, user="watcher") as watcher:
        assert watcher.ok("subscribe", channel="game#C", presence=True)["members"]["count"] == 0
        users = [Socket(server, user=f"user-{n:02}") for n in range(22)]
        for user in users[:5]:
            user.ok("join", channel="game#C", state=0)
        events = watcher.events_so_far()
        assert [event["event"] for event in events] == ["user_online", "client_online"] * 5 + ["presence_mode"]
        assert events[-1]["mode"] == "coalesced" and events[-1]["version"] == events[-2]["version"]

        with Socket(server, user="newcomer") as newcomer:
            known = shown(newcomer.ok("subscribe", channel="game#C", presence=True)["members"])
            version = events[-1]["version"]
            users[5].ok("join", channel="game#C", state=0)
            users[6].ok("join", channel="game#C", state=0)
            users[6].ok("leave", channel="game#C")
            users[0].ok("update", channel="game#C", state=1)
            late = newcomer.ok("who", channel="game#C")
            event = newcomer.event()
            assert event["event"] == "presence" and event["from_version"] == version and event["count"] == 6
            assert {entry["user"] for entry in event["joined"]} == {"user-05"}, "a user who came and went is not reported"
            follow(known, event)
            assert known == shown(late) and event["version"] == late["version"]
            assert watcher.event() | {"seq": 0} == event | {"seq": 0}, "the same event for all watchers"

        for user in users[7:22]:
            user.ok("join", channel="game#C", state=0)
        while (event := watcher.event())["event"] != "presence_mode":
            assert event["event"] == "presence"
        assert event["mode"] == "counts"
        with Socket(server, user="late") as late:
            members = late.ok("subscribe", channel="game#C", presence=True)["members"]
            assert "users" not in members and members["count"] >= 20
        for user in users[7:22]:
            user.ok("leave", channel="game#C")
        event = watcher.event()
        while event["event"] == "presence":
            assert "joined" not in event and event["count"] > 0
            event = watcher.event()
        assert (event["event"], event["mode"]) == ("presence_mode", "coalesced")
        until(lambda: watcher.ok("who", channel="game#C")["count"] == 6, "six users to be left")
        for user in users:
            user.close()


def test_join_and_leave_within_a_tick_cause_no_event():
    config = CONFIG + "presence_mode = \"coalesced\"\n[presence]\ntick_ms = 300\n"
    config = config.replace("grace_ms = 0\npresence_mode", "grace_ms = 0\n[kinds.crowd]\npresence_mode")
    with Tavern.dev(config) as server, Socket(server, user="watcher") as watcher, Socket(server, user="ann") as ann:
        watcher.ok("subscribe", channel="crowd#1", presence=True)
        ann.ok("join", channel="crowd#1")
        ann.ok("leave", channel="crowd#1")
        time.sleep(0.6)
        assert watcher.events_so_far() == []
        ann.ok("join", channel="crowd#1", state="x")
        event = watcher.event()
        assert (event["event"], event["count"], event["joined"][0]["state"]) == ("presence", 1, "x")


def test_the_presence_tables_are_consistent_at_every_moment(server):
    import sqlite3
    import threading
    over, faults, looks = threading.Event(), [], [0]

    def look():
        database = sqlite3.connect(f"file:{server.data}/tavern.db?mode=ro", uri=True)
        while not over.is_set():
            database.execute("BEGIN")
            looks[0] += 1
            empty = database.execute(
                "SELECT channel_name FROM channel_presences c WHERE users <> (SELECT count(*) FROM presences p "
                "WHERE p.channel_name = c.channel_name) OR version = 0").fetchall()
            orphans = database.execute(
                "SELECT channel_name, user_id FROM presences p WHERE NOT EXISTS (SELECT 1 FROM channel_presences c WHERE "
                "c.channel_name = p.channel_name) OR NOT EXISTS (SELECT 1 FROM user_channel_presences u WHERE "
                "u.channel_name = p.channel_name AND u.user_id = p.user_id)").fetchall()
            strays = database.execute(
                "SELECT channel_name, user_id FROM user_channel_presences u WHERE NOT EXISTS (SELECT 1 FROM presences p "
                "WHERE p.channel_name = u.channel_name AND p.user_id = u.user_id)").fetchall()
            database.execute("COMMIT")
            faults.extend(empty + orphans + strays)

    reader = threading.Thread(target=look)
    reader.start()
    users = [Socket(server, user=f"table-{n}") for n in range(8)]
    try:
        for turn in range(60):
            for at, user in enumerate(users):
                channel = f"game#T{(turn + at) % 3}"
                user.ok("leave" if (turn * 7 + at) % 2 else "join", channel=channel)
    finally:
        over.set()
        reader.join()
    for user in users:
        user.close()
    assert faults == [] and looks[0] > 100


def test_a_waiting_command_counts_once_towards_the_rate_limit():
    from support import tokens
    with Tavern.serve(CONFIG + "[limits]\ncommands_per_second = 5\n") as server, Socket(server, token=tokens.token("ann")) as ann:
        # Sent together: on a slow machine the rate would otherwise suffice for all of them.
        ann.send("\n".join(json.dumps({"id": n, "op": "join", "channel": f"game#{n}"}) for n in range(1000, 1040)))
        answers = {}
        while len(answers) < 40:
            frame = ann.frame()
            if frame.get("id", 0) >= 1000:
                answers[frame["id"]] = frame.get("error", {}).get("code")
        codes = [answers[n] for n in sorted(answers)]
        # A burst of ten; hello was one of them.
        assert codes[:9] == [None] * 9 and "rate_limited" in codes, codes


def test_rest_and_cli_explain_why_a_user_is_online(server, room):
    import httpx
    ask = lambda name: httpx.get(f"{server.url}/v1/users/{name}", headers={"authorization": f"Bearer {server.key}"}, trust_env=False)
    assert ask("zoe").json() == {
        "user": "zoe", "online": False, "leaving": False, "activities": [], "channels": [], "last_seen": None, "visibility": "everyone", "party": None, "invites": [], "banned": False,
        "why": "no client is present, and no grace period is running"}
    zoe = Socket(server, user="zoe")
    zoe.ok("join", channel=room, state=7)
    zoe.ok("join", channel="lobby#puzzles")
    shown = ask("zoe").json()
    assert shown["online"] and not shown["leaving"] and "3 client presences" in shown["why"]
    assert [one["activity"] for one in shown["activities"]] == ["in_game_channel", "solving_puzzles"]
    client = next(one for one in shown["channels"] if one["channel"] == room)["clients"][0]
    assert client["client"] == zoe.hello["client"] and client["node"] == zoe.hello["node"] and client["state"] == 7
    text = server.run("user", "zoe", "--url", server.url, "--key", server.key).stdout
    assert text.startswith("zoe is online") and room in text
    assert "API key" in server.run("user", "zoe", "--url", server.url).stderr
    zoe.drop()
    until(lambda: ask("zoe").json()["leaving"], "the user to be leaving")
    shown = ask("zoe").json()
    assert "grace period ends" in shown["why"] and all("gone_in_ms" in one for one in shown["channels"])


def test_an_anonymous_user_is_counted_and_never_named(server, room, watcher):
    from support import tokens
    ghost = Socket(server, token=tokens.token(None))
    ghost.ok("join", channel=room)
    assert watcher.ok("who", channel=room)["users"][0]["user"] is None
    ghost.drop()
    events = [watcher.event() for _ in range(4)]
    assert [event["event"] for event in events] == ["user_online", "client_online", "client_offline", "user_offline"]
    assert {event["user"] for event in events} == {None}


def test_a_display_name_survives_the_loss_of_another_tab(server, room, watcher):
    from support import tokens
    named = tokens.token("ann", name="Ann")
    one, two = Socket(server, token=named), Socket(server, token=named)
    one.ok("join", channel=room)
    two.ok("join", channel=room)
    one.drop()
    assert next_events(watcher, 4)[-1] == "client_offline ann False lost"
    time.sleep(GRACE + 0.3)
    assert watcher.ok("who", channel=room)["users"][0]["name"] == "Ann"
    two.close()


def test_concurrent_who_commands_each_get_their_own_reply(server, room):
    sockets = [Socket(server, user=f"member{n:02}") for n in range(12)]
    for member in sockets:
        member.ok("join", channel=room)
    askers = [Socket(server, user=f"asker{n}") for n in range(20)]
    for n, asker in enumerate(askers):
        # Sent without waiting, so that all are in flight together.
        asker.send(json.dumps({"id": f"who-{n}", "op": "who", "channel": room, "limit": n % 12 + 1}))
        asker.send(json.dumps({"id": f"watch-{n}", "op": "subscribe", "channel": room, "presence": True}))
    for n, asker in enumerate(askers):
        who, watch = asker.frame(), asker.frame()
        assert (who["id"], watch["id"]) == (f"who-{n}", f"watch-{n}")
        assert [user["user"] for user in who["ok"]["users"]] == [f"member{at:02}" for at in range(n % 12 + 1)]
        assert who["ok"]["count"] == watch["ok"]["members"]["count"] == len(watch["ok"]["members"]["users"]) == 12
        assert who["ok"]["version"] == watch["ok"]["members"]["version"]
    # A socket that still receives events would not close before it has read them.
    for socket in askers + sockets:
        socket.close()
