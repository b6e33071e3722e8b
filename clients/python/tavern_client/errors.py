"""What can go wrong, as one exception. Its code is one of the server's table, or one of the client's own below.

Must hold: `code` decides what to do next; `message` is for people.
"""
from __future__ import annotations

from typing import Any

# The client's own codes, beside those of the server.
CLOSED = "closed"  # this client was closed; make another
SUPERSEDED = "superseded"  # the session goes on elsewhere; do not come back
UNKNOWN_OUTCOME = "unknown_outcome"  # sent, and the link was lost before the answer: it may have happened
TIMEOUT = "timeout"  # no answer within the time that was given
OVERFLOW = "overflow"  # an iterator was read too slowly, and its oldest items are gone


class TavernError(Exception):
    """A refusal of the server, or the client's own reason for giving up."""

    def __init__(self, code: str, message: str, retry_after_ms: int | None = None, party: dict[str, Any] | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.retry_after_ms = retry_after_ms
        self.party = party

    @classmethod
    def from_wire(cls, error: Any) -> TavernError:
        """From the `error` member of a reply, whatever it holds."""
        known = error if isinstance(error, dict) else {}
        retry, party = known.get("retry_after_ms"), known.get("party")
        return cls(
            str(known.get("code", "internal")),
            str(known.get("message", "the server gave no reason")),
            int(retry) if isinstance(retry, (int, float)) else None,
            party if isinstance(party, dict) else None,
        )


class LinkLost(Exception):
    """The transport ended. `code` is the WebSocket close code if there was one; `unsent`: the server cannot have seen what was being sent."""

    def __init__(self, why: str, code: int | None = None, unsent: bool = False) -> None:
        super().__init__(why)
        self.code = code
        self.unsent = unsent


class LinkRefused(Exception):
    """Somebody answered, and not as this transport must be answered: another transport may fare better."""
