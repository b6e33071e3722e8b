"""Every error of party commands, in the order of the checks; each reply contains the caller's party, and nothing changes."""
import contextlib

from parties.party_user import CLIENTS, plain, session_count
from support import tokens
from support.json_client import Socket
from support.process import until


def refusals(*cases):
    """Each case fails with the given code, although it would also fail later checks."""
    wrong = []
    for code, member, op, fields in cases:
        before = member.get()
        reply = member.party(op, **fields)
        found = reply.get("error", {}).get("code", reply)
        if found != code:
            wrong.append(f"{plain(member.user)}: {op} {fields} is {found}, not {code}")
            continue
        if reply["error"]["party"] != before:
            wrong.append(f"{plain(member.user)}: {op} {fields} shows {reply['error']['party']}, not {before}")
        if member.get() != before:
            wrong.append(f"{plain(member.user)}: {op} {fields} was refused but changed {before} to {member.get()}")
    assert wrong == []


def test_errors_are_checked_in_order(users):
    ann, bob = users.party("ann bob")
    cid, dan = users.party("cid dan")
    eve, fay = users.connect_all("eve fay")
    gus = users.connect("gus")
    gus.bye()
    until(lambda: session_count(gus.server, gus.user) == 0, "gus to be offline")
    number, other = ann.get()["party_id"], cid.get()["party_id"]
    never, long = users.name("nobody"), "x" * 257
    refusals(
        # Malformed commands come before all checks of the party.
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
        # No party, then another user's party, then a party led by another user.
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
        # Checks of the target.
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
        ("party_full", ann, "invite", {"user": users.connect("hal").user}),
    )
    go = ann.ok("go")["go_id"]
    refusals(
        ("version_conflict", ann, "promote", {"user": ann.user, "if_version": 1}),
        ("no_such_go", bob, "ready", {"go_id": go + 1}),
        ("busy", ann, "invite", {"user": ann.user}),
        ("busy", ann, "promote", {"user": ann.user}),
        ("busy", ann, "go", {}),
    )


def test_a_forming_party_cannot_go(users):
    ann, bob = users.connect_all("ann bob")
    ann.invite(bob)
    refusals(("busy", ann, "go", {}))


def test_an_anonymous_user_has_no_party(calm_nodes, combination):
    with Socket(calm_nodes[0], token=tokens.token(None)) as socket:
        for op, fields in (("get", {}), ("invite", {"user": "ann"}), ("invite", {}), ("leave", {}), ("say", {"data": 1})):
            reply = socket.call(f"party.{op}", **fields)
            assert (reply["error"]["code"], reply["error"]["party"]) == ("unauthenticated", None)


def test_a_user_can_be_invited_right_after_hello(calm_nodes, combination):
    """Hello does not wait for the store; still the user must not be reported as offline."""
    with contextlib.ExitStack() as stack:
        ann = stack.enter_context(CLIENTS["socket"](calm_nodes[0], f"ann-{combination.name}"))
        for n in range(5):
            user = f"fresh-{combination.name}-{n}"
            with CLIENTS["socket"](calm_nodes[1], user):
                ann.ok("invite", user=user)
                ann.ok("cancel_invite", user=user)
