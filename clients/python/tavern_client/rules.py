"""What a client does after a refusal or a loss: the tables of clients/spec.md. Pure."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Mapping

RETRIES = 5
AGAIN_MS = 125
LATER = frozenset(["rate_limited", "busy", "unavailable", "internal", "gone", "conflict", "blocked"])
SUPERSEDED_CODE, TOKEN_EXPIRED_CODE, STOP_TO = 4000, 4001, 4499


@dataclass(frozen=True)
class Next:
    """What to do, after which wait, or with which error."""

    then: str
    wait_ms: int | None = None
    error: str | None = None


def is_repeatable(op: str, members: Mapping[str, object]) -> bool:
    """Whether a command may be sent again when its outcome is unknown."""
    return "message_id" in members if op == "publish" else op not in ("party.say", "bye")


def after_reply(op: str, code: str, retry_after_ms: int | None, *, repeatable: bool, renews: bool, retries: int) -> Next:
    """After an error reply: `retry`, `reconnect` (it was not executed) or `report`."""
    if retries < RETRIES:
        if (code == "gone" or (code == "unauthenticated" and renews)) and op not in ("hello", "bye"):
            return Next("reconnect")
        # Rate limits of party commands are reported to the app.
        limited = code == "rate_limited" and not op.startswith("party.")
        if repeatable and (limited or code == "unavailable"):
            return Next("retry", AGAIN_MS * 2 ** (retries + 1) if retry_after_ms is None else retry_after_ms)
    return Next("report")


def after_loss(op: str, *, repeatable: bool, sent: bool) -> Literal["keep", "resend", "drop", "unknown_outcome"]:
    """After a lost connection."""
    if op in ("ack", "ping"):
        return "drop"
    if not sent:
        return "keep"
    return "resend" if repeatable else "unknown_outcome"


def after_hello(code: str, retry_after_ms: int | None, *, renews: bool, fresh: bool) -> Next:
    """After a refused hello: `retry`, `new_token` or `close`. `fresh`: the token was fetched for this attempt."""
    if code == "unauthenticated" and renews and not fresh:
        return Next("new_token")
    return Next("retry", retry_after_ms) if code in LATER else Next("close")


def after_close(code: int | None, *, renews: bool) -> Next:
    """After a close code: `reconnect`, `new_token` or `close`."""
    if code == SUPERSEDED_CODE:
        return Next("close", error="superseded")
    if code == TOKEN_EXPIRED_CODE:
        return Next("new_token") if renews else Next("close", error="unauthenticated")
    if code is not None and TOKEN_EXPIRED_CODE < code <= STOP_TO:
        return Next("close", error="gone")
    return Next("reconnect")


def renew_after_ms(left_ms: float) -> float:
    """When a token with this much time left is renewed."""
    return max(500, left_ms - min(60_000, left_ms / 4))
