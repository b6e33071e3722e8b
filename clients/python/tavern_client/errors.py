"""Exceptions. The code of a `TavernError` is one of the server's error codes or one of the client's own below.

Must hold: `code` is for programs; `message` is for people.
"""
from __future__ import annotations

from typing import Any

# The client's own codes.
CLOSED = "closed"  # the client is closed; create a new one
SUPERSEDED = "superseded"  # another connection took over the session; do not reconnect
UNKNOWN_OUTCOME = "unknown_outcome"  # the connection was lost before the reply; the command may have been executed
TIMEOUT = "timeout"  # no reply in time
UNREACHABLE = "unreachable"  # nothing answered at the address, or something else than Tavern
FAILED = "failed"  # an unexpected exception in the client, which is its `__cause__`; create a new client
OVERFLOW = "overflow"  # an iterator was read too slowly; its oldest items were dropped


class TavernError(Exception):
    """An error reply of the server, or the client's reason for giving up."""

    def __init__(self, code: str, message: str, retry_after_ms: int | None = None, party: dict[str, Any] | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.retry_after_ms = retry_after_ms
        self.party = party

    @classmethod
    def from_wire(cls, error: Any) -> TavernError:
        """From the `error` member of a reply; tolerates any content."""
        known = error if isinstance(error, dict) else {}
        retry, party = known.get("retry_after_ms"), known.get("party")
        return cls(
            str(known.get("code", "internal")),
            str(known.get("message", "the server gave no reason")),
            int(retry) if isinstance(retry, (int, float)) else None,
            party if isinstance(party, dict) else None,
        )


class LinkLost(Exception):
    """The connection ended. `code` is the WebSocket close code, if any; `unsent`: the server cannot have received the last command."""

    def __init__(self, why: str, code: int | None = None, unsent: bool = False) -> None:
        super().__init__(why)
        self.code = code
        self.unsent = unsent


class LinkRefused(Exception):
    """Something answered, but not as this transport requires (a proxy, for example). Another transport may work."""
