"""Refusals: each of them, in the order in which they are checked; each holds the caller's party, and changes nothing."""
import contextlib

from parties.guest import CLIENTS, plain, windows
from support import tokens
from support.json_client import Socket
from support.process import until


def refusals(*cases):
    """Each case fails in the named way, though it would fail in every later way it could too."""
    wrong = []
    for code, guest, op, fields in cases:
        before = guest.get()
        reply = guest.party(op, **fields)
        found = reply.get("error", {}).get("code", reply)
        if found != code:
            wrong.append(f"{plain(guest.user)}: {op} {fields} is {found}, not {code}")
            continue
        if reply["error"]["party"] != before:
            wrong.append(f"{plain(guest.user)}: {op} {fields} shows {reply['error']['party']}, not {before}")
        if guest.get() != before:
            wrong.append(f"{plain(guest.user)}: {op} {fields} was refused and has changed {before} to {guest.get()}")
    assert wrong == []


def test_refusals_come_in_their_order(table):
    ann, bob = table.party("ann bob")
    cid, dan = table.party("cid dan")
    eve, fay = table.seats("eve fay")
    gus = table.seat("gus")
    gus.bye()
    until(lambda: windows(gus.server, gus.user) == 0, "gus to be gone")
    number, other = ann.get()["party_id"], cid.get()["party_id"]
    never, long = table.name("nobody"), "x" * 257
    refusals(
        # What cannot be understood comes before everything about the party.
        ("bad_request", bob, "kick", {"user": bob.user, "message": long, "party_id": 1}),
        ("bad_request", bob, "kick", {"user": bob.user, "message": "a\u0007b"}),
        ("bad_request", eve, "leave", {"message": "two\nlines"}),
        ("bad_request", eve, "decline", {"party_id": number, "message": long}),
        ("bad_request", bob, "disband", {"message": long}),
        ("bad_request", bob, "invite", {}),
        ("bad_request", bob, "invite", {"user": ""}),
        ("bad_request", bob, "invite", {"user": "x" * 300}),
        ("bad_request", eve, "accept", {}),
        ("bad_request", eve, "accept", {"party_id": "x"}),
        ("bad_request", eve, "ready", {}),
        ("bad_request", bob, "set_data", {"data": {f"k{n}": n for n in range(31)}}),
        ("bad_request", bob, "set_data", {"data": {"k": "x" * 4100}}),
        ("bad_request", bob, "set_data", {"data": [1]}),
        ("bad_request", bob, "go", {"params": "x" * 4100}),
        ("bad_request", bob, "kick", {"user": bob.user, "rid": "x" * 300}),
        ("bad_request", eve, "frobnicate", {}),
        # A party that is not there, then one that is another's, then one that is led by another.
        ("no_such_party", bob, "kick", {"user": bob.user, "party_id": 1, "if_version": 0}),
        ("no_such_party", eve, "invite", {"user": eve.user, "party_id": 1}),
        ("no_such_party", eve, "accept", {"party_id": 1}),
        ("no_such_party", ann, "decline", {"party_id": 1}),
        ("not_member", eve, "kick", {"user": eve.user, "party_id": number}),
        ("not_member", bob, "invite", {"user": bob.user, "party_id": other, "if_version": 0}),
        ("not_member", eve, "leave", {}),
        ("not_member", eve, "cancel_invite", {"user": eve.user}),
        ("not_member", eve, "promote", {"user": eve.user}),
        ("not_member", eve, "disband", {}),
        ("not_member", eve, "set_data", {"data": {}}),
        ("not_member", eve, "go", {}),
        ("not_member", eve, "cancel_go", {}),
        ("not_member", eve, "ready", {"go_id": 1}),
        ("not_leader", bob, "invite", {"user": bob.user, "if_version": 0}),
        ("not_leader", bob, "cancel_invite", {"user": bob.user, "if_version": 0}),
        ("not_leader", bob, "kick", {"user": bob.user, "if_version": 0}),
        ("not_leader", bob, "promote", {"user": bob.user, "if_version": 0}),
        ("not_leader", bob, "disband", {"if_version": 0}),
        ("not_leader", bob, "set_data", {"data": {}, "if_version": 0}),
        ("not_leader", bob, "go", {"if_version": 0}),
        ("not_leader", bob, "cancel_go", {"if_version": 0}),
        ("version_conflict", ann, "invite", {"user": ann.user, "if_version": 1}),
        ("version_conflict", ann, "cancel_invite", {"user": ann.user, "if_version": 1}),
        ("version_conflict", ann, "kick", {"user": ann.user, "if_version": 1}),
        ("version_conflict", ann, "promote", {"user": ann.user, "if_version": 1}),
        ("version_conflict", ann, "disband", {"if_version": 1}),
        ("version_conflict", ann, "set_data", {"data": {}, "if_version": 1}),
        ("version_conflict", ann, "go", {"if_version": 1}),
        ("version_conflict", ann, "cancel_go", {"if_version": 1}),
        ("no_such_go", ann, "cancel_go", {}),
        ("no_such_go", bob, "ready", {"go_id": 1}),
        # About the target.
        ("self_target", ann, "invite", {"user": ann.user}),
        ("self_target", ann, "cancel_invite", {"user": ann.user}),
        ("self_target", ann, "kick", {"user": ann.user}),
        ("self_target", ann, "promote", {"user": ann.user}),
        ("self_target", eve, "block", {"user": eve.user}),
        ("no_such_user", ann, "invite", {"user": never}),
        ("no_such_user", ann, "kick", {"user": never}),
        ("no_such_user", ann, "promote", {"user": never}),
        ("no_such_user", ann, "cancel_invite", {"user": never}),
        ("no_such_user", ann, "block", {"user": never}),
        ("target_not_member", ann, "kick", {"user": eve.user}),
        ("target_not_member", ann, "promote", {"user": gus.user}),
        ("user_not_logged", ann, "invite", {"user": gus.user}),
        ("already_member", ann, "invite", {"user": bob.user}),
        ("already_member", bob, "accept", {"party_id": number}),
        ("already_member", ann, "decline", {"party_id": number}),
        ("user_in_party", ann, "invite", {"user": cid.user}),
        ("user_in_party", ann, "accept", {"party_id": other}),
        ("no_invite", ann, "cancel_invite", {"user": eve.user}),
        ("no_invite", eve, "accept", {"party_id": number}),
        ("no_invite", eve, "decline", {"party_id": number}),
    )
    ann.invite(eve)
    ann.invite(fay)
    refusals(
        ("user_not_logged", ann, "invite", {"user": gus.user}),
        ("already_member", ann, "invite", {"user": bob.user}),
        ("user_in_party", ann, "invite", {"user": dan.user}),
        ("party_full", ann, "invite", {"user": table.seat("hal").user}),
    )
    go = ann.ok("go")["go_id"]
    refusals(
        ("version_conflict", ann, "promote", {"user": ann.user, "if_version": 1}),
        ("no_such_go", bob, "ready", {"go_id": go + 1}),
        ("busy", ann, "invite", {"user": ann.user}),
        ("busy", ann, "promote", {"user": ann.user}),
        ("busy", ann, "go", {}),
    )


def test_a_party_that_forms_cannot_go(table):
    ann, bob = table.seats("ann bob")
    ann.invite(bob)
    refusals(("busy", ann, "go", {}))


def test_somebody_without_a_name_has_no_party(calm_nodes, combination):
    with Socket(calm_nodes[0], token=tokens.token(None)) as socket:
        for op, fields in (("get", {}), ("invite", {"user": "ann"}), ("invite", {}), ("leave", {}), ("say", {"data": 1})):
            reply = socket.call(f"party.{op}", **fields)
            assert (reply["error"]["code"], reply["error"]["party"]) == ("unauthenticated", None)


def test_an_invite_finds_somebody_who_said_hello_a_moment_ago(calm_nodes, combination):
    """A hello does not wait for the store; nobody is told that a person is not there who just came."""
    with contextlib.ExitStack() as stack:
        ann = stack.enter_context(CLIENTS["socket"](calm_nodes[0], f"ann-{combination.name}"))
        for n in range(5):
            user = f"fresh-{combination.name}-{n}"
            with CLIENTS["socket"](calm_nodes[1], user):
                ann.ok("invite", user=user)
                ann.ok("cancel_invite", user=user)
