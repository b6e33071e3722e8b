"""The user's party: its commands, and a snapshot kept up to date by party events.

Must hold: `current` is the last snapshot plus the events since; an event that does not apply reloads the snapshot instead of guessing.
"""
from __future__ import annotations

import copy
import uuid
from typing import Any

from .emitter import Emitter, report
from .errors import TavernError
from .session import Session

Snapshot = dict[str, Any]
PartyEvent = dict[str, Any]

def fold(party: Snapshot | None, event: PartyEvent, me: str | None) -> tuple[Snapshot | None, bool]:
    """The snapshot after an event, and whether it is complete. Otherwise it is the old one and must be reloaded."""
    cmd, uid = event.get("cmd"), event.get("uid")
    if party is None or event.get("party_id") != party["party_id"]:
        # Events of another party do not change ours.
        return party, cmd in ("invite", "invite_cancel", "kick", "disband", "decline", "leave")
    version = event.get("version", 0)
    if version <= party["version"]:
        return party, True
    if cmd in ("kick", "disband") or (cmd == "leave" and uid == me):
        return None, True
    new = copy.deepcopy(party)
    new["version"] = version
    if version != party["version"] + 1 or not change(new, event):
        return party, False
    settle(new)
    return new, True


def change(party: Snapshot, event: PartyEvent) -> bool:
    """Applies one event; False when the event does not say enough."""
    cmd, uid, members = event.get("cmd"), event.get("uid"), party["members"]
    if cmd in ("join", "accept"):
        # For a user without a display name the server sends their id.
        name = None if event.get("user") == uid else event.get("user")
        members.append({"user": uid, "name": name, "online": True, "since": event.get("ts")})
        drop_pending(party, uid)
    elif cmd == "invited":
        party["pending"].append({"user": event["invitee"], "by": uid, "expires_at": event.get("expires_at")})
    elif cmd in ("decline", "uninvited"):
        drop_pending(party, uid)
    elif cmd == "leave":
        party["members"] = [member for member in members if member["user"] != uid]
    elif cmd == "leader":
        members.sort(key=lambda member: member["user"] != uid)
        return bool(members) and members[0]["user"] == uid
    elif cmd == "data":
        party["data"] = event.get("data")
    elif cmd in ("online", "offline"):
        found = [member for member in members if member["user"] == uid]
        for member in found:
            member["online"] = cmd == "online"
        return bool(found)
    elif cmd in ("party_go", "ready"):
        party["go_id"], party["state"] = event["go_id"], event["state"]
    elif cmd in ("party_matched", "go_failed", "go_cancel"):
        party.pop("go_id", None)
        party["state"] = "idle"
    else:
        # An event of a newer server: reload.
        return False
    return True


def drop_pending(party: Snapshot, uid: Any) -> None:
    party["pending"] = [invite for invite in party["pending"] if invite["user"] != uid]


def settle(party: Snapshot) -> None:
    """Without a ticket, the state depends on the number of members."""
    if party.get("state") in ("forming", "idle"):
        party["state"] = "forming" if len(party["members"]) < 2 else "idle"


class Party(Emitter):
    """`current` is the live snapshot, or None. Emits each party event under its `cmd` and as `event`, `say` with a `Message` when
    a member sends one, and `change` when `current` has changed."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.current: Snapshot | None = None
        self._session = session
        self._asking = False

    # ---- commands

    async def get(self) -> Snapshot | None:
        return (await self._do("get")).get("party")

    async def invite(self, user: str) -> dict[str, Any]:
        return await self._do("invite", user=user)

    async def cancel_invite(self, user: str) -> dict[str, Any]:
        return await self._do("cancel_invite", user=user)

    async def accept(self, party_id: int) -> dict[str, Any]:
        return await self._do("accept", party_id=party_id)

    async def decline(self, party_id: int, message: str | None = None) -> dict[str, Any]:
        return await self._do("decline", party_id=party_id, message=message)

    async def kick(self, user: str, message: str | None = None) -> dict[str, Any]:
        return await self._do("kick", user=user, message=message)

    async def leave(self, message: str | None = None) -> dict[str, Any]:
        return await self._do("leave", message=message)

    async def promote(self, user: str) -> dict[str, Any]:
        return await self._do("promote", user=user)

    async def disband(self, message: str | None = None) -> dict[str, Any]:
        return await self._do("disband", message=message)

    async def set_data(self, data: dict[str, Any], if_version: int | None = None) -> dict[str, Any]:
        return await self._do("set_data", data=data, if_version=if_version)

    async def go(self, params: Any = None, if_version: int | None = None) -> dict[str, Any]:
        return await self._do("go", params=params, if_version=if_version)

    async def cancel_go(self) -> dict[str, Any]:
        return await self._do("cancel_go")

    async def ready(self, go_id: int) -> dict[str, Any]:
        return await self._do("ready", go_id=go_id)

    async def block(self, user: str) -> dict[str, Any]:
        return await self._do("block", user=user)

    async def unblock(self, user: str) -> dict[str, Any]:
        return await self._do("unblock", user=user)

    async def say(self, data: Any) -> dict[str, Any]:
        return await self._do("say", data=data)

    async def command(self, cmd: str, **members: Any) -> dict[str, Any]:
        """Any `party.…` command by its name."""
        return await self._do(cmd, **members)

    async def _do(self, cmd: str, **members: Any) -> dict[str, Any]:
        asked = {name: value for name, value in members.items() if value is not None}
        if cmd not in ("get", "say"):
            # The request id lets the server dedupe retries.
            asked.setdefault("rid", uuid.uuid4().hex)

        def answered(ok: dict[str, Any]) -> None:
            if "party" in ok:
                self.set_snapshot(ok["party"])
            elif cmd not in ("say", "block", "unblock"):
                self.refresh()

        try:
            return await self._session.ask(f"party.{cmd}", asked, repeatable=cmd != "say", on_ok=answered)
        except TavernError as refused:
            if refused.party is not None:
                self.set_snapshot(refused.party)
            raise

    # ---- called by the client

    def set_snapshot(self, party: Snapshot | None) -> None:
        old = self.current
        if party is not None and old is not None and party["party_id"] == old["party_id"] and party["version"] < old["version"]:
            # Older than the events that have arrived since.
            return
        self.current = party
        if party != old:
            self.emit("change", party)

    def apply_event(self, event: PartyEvent, me: str | None) -> None:
        old = self.current
        try:
            self.current, certain = fold(old, event, me)
        except (KeyError, TypeError, AttributeError) as surprise:
            report("cannot apply a party event", surprise)
            certain = False
        if not certain:
            self.refresh()
        self.emit(str(event.get("cmd")), event)
        self.emit("event", event)
        if self.current != old:
            self.emit("change", self.current)

    def refresh(self) -> None:
        """Reloads the snapshot; concurrent calls share one request."""
        if self._asking or self._session.ended is not None:
            return
        self._asking = True

        def answered(ok: dict[str, Any]) -> None:
            self._asking = False
            self.set_snapshot(ok.get("party"))

        command = self._session.begin("party.get", {}, on_ok=answered)
        command.answer.add_done_callback(lambda answer: setattr(self, "_asking", False))
