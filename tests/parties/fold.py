"""The party as a client knows it from an old snapshot and the letters since then."""
import copy


def fold(party, letter):
    """The snapshot after a letter. Every change has one, so a version that is left out is seen."""
    cmd, uid = letter["cmd"], letter["uid"]
    if cmd in ("invite", "invite_cancel"):
        return party
    if party is None:
        return None
    assert letter["party_id"] == party["party_id"], letter
    assert letter["version"] == party["version"] + 1, f"after version {party['version']} comes {letter}"
    party = copy.deepcopy(party)
    party["version"] = letter["version"]
    members = party["members"]
    if cmd == "invited":
        party["pending"].append({"user": letter["invitee"], "by": uid, "expires_at": letter["expires_at"]})
    elif cmd in ("uninvited", "decline", "accept", "join"):
        party["pending"] = [one for one in party["pending"] if one["user"] != uid]
        if cmd in ("accept", "join"):
            name = letter["user"] if letter["user"] != uid else None
            members.append({"user": uid, "name": name, "online": True, "since": letter["ts"]})
    elif cmd == "leave":
        members[:] = [member for member in members if member["user"] != uid]
    elif cmd == "leader":
        members.sort(key=lambda member: member["user"] != uid)
    elif cmd in ("kick", "disband"):
        return None
    elif cmd == "data":
        party["data"] = letter["data"]
    elif cmd in ("party_go", "ready"):
        party["go_id"] = letter["go_id"]
        party["state"] = letter["state"]
    elif cmd in ("party_matched", "go_failed", "go_cancel"):
        party.pop("go_id", None)
        party["state"] = "idle"
    elif cmd in ("offline", "online"):
        for member in members:
            if member["user"] == uid:
                member["online"] = cmd == "online"
    else:
        raise AssertionError(f"nobody knows {letter}")
    if "go_id" not in party:
        party["state"] = "idle" if len(members) > 1 else "forming"
    return party
