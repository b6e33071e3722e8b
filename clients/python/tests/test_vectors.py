"""The vectors that every client runs (clients/vectors), against the pure parts of this one."""
import json
import pathlib

import pytest

from tavern_client import emitter, http, presence as presences, rules, session, settings
from tavern_client.backoff import Backoff
from tavern_client.glob import matches
from tavern_client.history import HistoryCursor, Position
from tavern_client.me import Statuses
from tavern_client.party import fold
from tavern_client.presence import Presence

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "vectors"


def presence(case):
    asks = []
    room = Presence("game#1", lambda: asks.append(1))
    for step in case["steps"]:
        if "snapshot" in step:
            room.restore(step["snapshot"])
        elif "event" in step:
            room.apply(step["event"])
        else:
            room.lose()
    gives = dict(case["gives"])
    for user, wanted in gives.pop("users", {}).items():
        seen = {"name": room.users[user].name, "leaving": room.users[user].leaving, "clients": states(room.users[user].clients)}
        assert seen | wanted == seen
    if "users" in case["gives"]:
        assert set(room.users) == set(case["gives"]["users"])
    if "anonymous" in gives:
        assert states(room.anonymous) == gives.pop("anonymous")
    seen = {"count": room.count, "version": room.version, "mode": room.mode, "asks": len(asks)}
    assert seen | gives == seen


def states(clients):
    return {client: present.state for client, present in clients.items()}


def party(case):
    gives, certain = fold(case["party"], case["event"], case["me"])
    assert (gives, not certain) == (case["gives"], case["asks"])


def status(case):
    statuses = Statuses()
    for step in case["steps"]:
        if "statuses" in step:
            statuses.replace(step["statuses"])
        elif "status" in step:
            statuses.take(step["status"])
        else:
            statuses.unfollowed(step["unfollowed"])
    assert statuses.users == case["gives"]


def replies(case):
    error = case["error"]
    given = {name: case[name] for name in ("repeatable", "renews", "retries")}
    after = rules.after_reply(case["op"], error["code"], error.get("retry_after_ms"), **given)
    assert (after.then, after.wait_ms) == (case["then"], case.get("wait_ms"))


def lost(case):
    assert rules.after_loss(case["op"], repeatable=case["repeatable"], sent=case["sent"]) == case["then"]


def hello(case):
    error = case["error"]
    after = rules.after_hello(error["code"], error.get("retry_after_ms"), renews=case["renews"], fresh=case["fresh"])
    assert (after.then, after.wait_ms) == (case["then"], case.get("wait_ms"))


def close(case):
    after = rules.after_close(case["code"], renews=case["renews"])
    assert (after.then, after.error) == (case["then"], case.get("error"))


def backoff(case):
    waits = Backoff(rand=lambda: case["chance"])
    waits.tries = case["attempt"] - 1
    assert waits.next(case["retry_after_ms"]) * 1000 == pytest.approx(case["wait_ms"])


def gaps(case):
    cursor = HistoryCursor()
    for step in case["steps"]:
        before = cursor.position
        if "reply" in step:
            cursor.replied(step["reply"])
        elif "gap" in step:
            cursor.announce_gap()
        elif "restart" in step:
            assert wire(cursor.restart()) == step["since"]
        else:
            assert cursor.take(Position.from_wire(step["message"] or {})) == step["then"]
        if step.get("then") == "heal":
            assert wire(before) == step["since"]
    assert wire(cursor.position) == case["position"]


def wire(position):
    return position and position.to_wire()


def glob(case):
    assert matches(case["pattern"], case["name"]) is case["matches"]


def repeatable(case):
    assert rules.is_repeatable(case["op"], case["members"]) is case["repeatable"]


def token(case):
    assert rules.renew_after_ms(case["left_ms"]) == case["renew_after_ms"]


def bounds(case):
    own = {
        "waiting_commands": session.WAITING, "unread_events": emitter.STREAM_ITEMS, "kept_changes": presences.BUFFERED, "answer_bytes": http.BODY_BYTES,
        "command_ms": settings.COMMAND_S * 1000, "connect_ms": settings.CONNECT_S * 1000, "bye_ms": session.BYE_S * 1000, "token_ms": session.TOKEN_S * 1000,
        "steady_ms": session.STEADY_S * 1000, "stand_in_ms": session.STAND_IN_S * 1000, "second_half_ms": presences.SECOND_S * 1000,
        "failures": session.REFUSALS, "failures_worked": session.REFUSALS_WORKED,
    }
    assert own[case["name"]] == case["value"]


RUN = {one.__name__: one for one in (presence, party, status, replies, lost, hello, close, backoff, gaps, glob, repeatable, token, bounds)}
CASES = [(name, case) for name in RUN for case in json.loads((FOLDER / f"{name}.json").read_text())["cases"]]


def test_every_file_of_vectors_has_a_runner():
    assert {path.stem for path in FOLDER.glob("*.json")} == set(RUN)


@pytest.mark.parametrize(("name", "case"), CASES, ids=[f"{name}-{case.get('says', at)}" for at, (name, case) in enumerate(CASES)])
def test_vector(name, case):
    RUN[name](case)
