"""Applies party events to a snapshot, as clients do."""
import copy


def fold(party, event):
    """The snapshot after an event. Every change has an event, so a skipped version is detected."""
    cmd, uid = event["cmd"], event["uid"]
    if cmd in ("invite", "invite_cancel"):
        return party
    if party is None:
        return None
    assert event["party_id"] == party["party_id"], event
    assert event["version"] == party["version"] + 1, f"unexpected event after version {party['version']}: {event}"
    party = copy.deepcopy(party)
    party["version"] = event["version"]
    members = party["members"]
    if cmd == "invited":
        party["pending"].append({"user": event["invitee"], "by": uid, "expires_at": event["expires_at"]})
    elif cmd in ("uninvited", "decline", "accept", "join"):
        party["pending"] = [one for one in party["pending"] if one["user"] != uid]
        if cmd in ("accept", "join"):
            name = event["user"] if event["user"] != uid else None
            members.append({"user": uid, "name": name, "online": True, "since": event["ts"]})
    elif cmd == "leave":
        members[:] = [member for member in members if member["user"] != uid]
    elif cmd == "leader":
        members.sort(key=lambda member: member["user"] != uid)
    elif cmd in ("kick", "disband"):
        return None
    elif cmd == "data":
        party["data"] = event["data"]
    elif cmd in ("party_go", "ready"):
        party["go_id"] = event["go_id"]
        party["state"] = event["state"]
    elif cmd in ("party_matched", "go_failed", "go_cancel"):
        party.pop("go_id", None)
        party["state"] = "idle"
    elif cmd in ("offline", "online"):
        for member in members:
            if member["user"] == uid:
                member["online"] = cmd == "online"
    else:
        raise AssertionError(f"unknown event {event}")
    if "go_id" not in party:
        party["state"] = "idle" if len(members) > 1 else "forming"
    return party
