"""A history that kept every guarantee, and violations planted into it: each is found, by the check that it belongs to."""
import json
import pathlib
import subprocess
import sys

import pytest
from judge import GUARANTEES, judge

from .story import CHAT, ROOM, RUN, change, history, members, message, of, position, publish, session, stored, subscribed

JUDGE = pathlib.Path(__file__).resolve().parents[2] / "tools" / "judge"
CAME = (change("user_online", 11, user="cid", seq=3), change("client_online", 12, user="cid", client="c1", state=None, seq=4))
WHOLE = {"bob": {"b1": 1}, "cid": {"c1": None}}
CANARY = "canary#mine"


def canary(server, own, *lines):
    started = subscribed(CANARY, members(1, a={"k1": 1}, b={"k2": 1})) | {"at": 1.0}
    return of(f"canary-{server}", session(own, server) | {"at": 0.5}, started, *lines)


def told(when, what, client, version, seq):
    return {"at": when, "what": what, "channel": CANARY, "user": "a", "client": client, "state": 1, "version": version, "seq": seq}


# Each line on its own, so that a test can take one away or change it.
GOOD = [
    *of("ann", session(), subscribed(), message(1, 0), message(2, 1), {"what": "down"}, session(server="n2", fresh=False), message(3, 2)),
    *[publish(number) for number in (0, 1, 2)],
    *of("eve", session("e1"), position([7, 0]), stored(1, seq=1), stored(2, seq=2), position([7, 2], [7, 2], True), stored(3, seq=3)),
    *of("fox", session("f1"), position([7, 1]), stored(2, seq=1), stored(3, seq=2)),
    *[publish(number, of="h.0", channel=CHAT, position=[7, number]) for number in (1, 2, 3)],
    *of("wat", session("w1"), subscribed(ROOM, members(10, bob={"b1": 1})), {"what": "other", "seq": 1}, {"what": "other", "seq": 2}, *CAME,
        {"what": "who", "channel": ROOM, "members": members(12, **WHOLE), "known": 12}),
    {"what": "truth", "channel": ROOM, "users": WHOLE},
    {"what": "shows", "server": "n1", "channel": ROOM, "users": WHOLE},
    # A server is killed at 20 s; another is suspended from 40 s to 45 s.
    *[{"what": "canary", "server": server, "client": f"canary-{server}"} for server in ("n1", "n2")],
    {"at": 20.0, "until": 20.0, "what": "fault", "kind": "node kill", "servers": ["n1"], "effect": "killed"},
    {"at": 40.0, "until": 45.0, "what": "fault", "kind": "node pause", "servers": ["n1"], "effect": "suspended past its lease"},
    *canary("n1", "k1", session("k3", "n1") | {"at": 26.0}),
    *canary("n2", "k2", told(23.0, "client_offline", "k1", 2, 1), told(26.0, "client_online", "k3", 3, 2),
            told(43.0, "client_offline", "k3", 4, 3), told(46.0, "client_online", "k3", 5, 4)),
    {"what": "fact", "key": "follow ann bob", "values": [[None, False], [10.0, True]], "doubt": None, "read": {"n1": True}},
    *[{"what": "last_seen", "asked": at - 1, "at": at, "user": "bob", "value": value} for at, value in ((1.0, 90), (3.0, 100))],
    *of("fol", session("o1"), {"what": "follows", "user": "bob"},
        {"what": "status", "seq": 1, "user": "bob", "status": {"online": True, "channels": ["stage#1"]}},
        {"what": "status", "seq": 2, "user": "dan", "status": {"online": True, "channels": []}}, {"what": "unfollowed", "user": "dan"}),
    {"what": "true_status", "follower": "fol", "user": "bob", "online": True, "channels": ["stage#1"]},
]


def without(what, **fields):
    """Takes the first line with these fields away."""
    def plant(lines):
        at = next(at for at, line in enumerate(lines) if line["what"] == what and fields.items() <= line.items())
        return lines[:at] + lines[at + 1:]
    return plant


def changed(what, changes, **fields):
    def plant(lines):
        at = next(at for at, line in enumerate(lines) if line["what"] == what and fields.items() <= line.items())
        return [*lines[:at], lines[at] | changes, *lines[at + 1:]]
    return plant


PLANTED = {
    "an event is missing in the mailbox": ("sequence numbers have no holes", without("other", seq=1)),
    "an event comes twice": ("sequence numbers have no holes", changed("other", {"seq": 1}, seq=2)),
    "a message comes twice": ("messages arrive once and in order", lambda lines: lines + of("ann", message(4, 2))),
    "messages change their order": ("messages arrive once and in order", lambda lines: lines + of("ann", message(4, 1))),
    "a message is lost": ("no acknowledged message is lost without a gap", changed("message", {"of": "x.0"}, who="ann", number=1)),
    "the last message is lost": ("no acknowledged message is lost without a gap", lambda lines: lines + [publish(3)]),
    "a stored message is skipped": ("stored messages follow each other", changed("position", {"position": [7, 0]}, who="fox")),
    "a recovery starts too late": ("stored messages follow each other", changed("position", {"since": [7, 1]}, recovered=True)),
    "a position is not recovered": ("stored messages follow each other", changed("position", {"recovered": False}, recovered=True)),
    "two readers see different messages": ("stored messages have one order for all", changed("message", {"number": 9}, who="fox", number=2)),
    "the publisher was given another position": ("stored messages have one order for all", changed("publish", {"number": 8}, position=[7, 1])),
    "the end of a history is missing": (
        "acknowledged stored messages reach everybody", lambda lines: lines + [publish(4, of="h.0", channel=CHAT, position=[7, 4])]),
    "a presence version is skipped": ("watchers get every change in order", changed("user_online", {"version": 12})),
    "a client joins twice": ("watchers get every change in order", changed("client_online", {"user": "bob", "client": "b1"}, user="cid")),
    "a snapshot forgets a user": ("snapshots equal the changes before them", changed("who", {"members": members(12, bob={"b1": 1})})),
    "a server shows a ghost": ("views and servers agree at the end", changed("shows", {"users": WHOLE | {"gus": {"g1": 1}}})),
    "a server forgets a user": ("views and servers agree at the end", changed("shows", {"users": {}})),
    "the users of a killed server stay": ("users of a dead server go offline", changed("client_offline", {"at": 35.0}, at=23.0)),
    "a suspended server keeps silent": ("suspended servers announce their clients", changed("client_online", {"at": 70.0}, at=46.0)),
    "an acknowledged follow is gone": ("acknowledged facts are kept", changed("fact", {"read": {"n1": False}})),
    "last seen moves back": ("last seen never moves backwards", changed("last_seen", {"value": 80}, value=100)),
    "a follower has an old status": (
        "followers have the final statuses", changed("status", {"status": {"online": False, "channels": []}}, user="bob")),
    "a status comes after unfollow": (
        "no status after unfollow", lambda lines: lines + of("fol", {"what": "status", "seq": 3, "user": "dan", "status": {}})),
}


def test_the_good_history_has_no_violation_and_every_check_looks_at_it():
    for verdict in judge(history(*GOOD)):
        assert verdict.violations == [] and verdict.checked > 0, verdict


@pytest.mark.parametrize("what", PLANTED)
def test_a_planted_violation_is_found(what):
    name, plant = PLANTED[what]
    found = [verdict.name for verdict in judge(history(*plant(GOOD))) if verdict.violations]
    assert found == [name]


def test_a_violation_is_planted_for_every_guarantee():
    assert {name for name, _ in PLANTED.values()} == {name for name, _, _ in GUARANTEES}


def test_every_check_cites_the_page_of_guarantees():
    page = " ".join((JUDGE.parents[1] / "docs/reference/guarantees.md").read_text().split())
    missing = [sentence for _, sentence, _ in GUARANTEES if sentence not in page]
    assert missing == []


def test_the_judge_is_small_and_imports_only_the_standard_library():
    texts = [path.read_text() for path in JUDGE.glob("*.py")]
    assert sum(text.count("\n") for text in texts) <= 700
    imported = {line.split()[1].split(".")[0] for text in texts for line in text.splitlines() if line.startswith(("import ", "from "))}
    assert imported - {"", "judge"} <= set(sys.stdlib_module_names)


def run(path, lines):
    path.write_text("".join(json.dumps({"at": float(at), **line}) + "\n" for at, line in enumerate([RUN, *lines])))
    return subprocess.run([sys.executable, JUDGE, path], capture_output=True, text=True)


def test_the_program_prints_violations_and_exits_with_1(tmp_path):
    good = run(tmp_path / "good.jsonl", GOOD)
    assert good.returncode == 0 and "NOT" not in good.stdout, good
    bad = run(tmp_path / "bad.jsonl", GOOD + [publish(3)])
    assert bad.returncode == 1 and "ann never received s.0 3 on shared#all" in bad.stdout, bad
