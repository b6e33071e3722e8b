"""Where a client is in the history of a channel. Pure.

Must hold: a message is delivered once and in the order of its offsets; missing ones are asked for.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Frame = dict[str, Any]


@dataclass(frozen=True, order=True)
class Position:
    """A place in the history of a channel: everything up to it is known."""

    epoch: int
    offset: int

    @classmethod
    def from_wire(cls, frame: Frame) -> Position | None:
        epoch, offset = frame.get("epoch"), frame.get("offset")
        return cls(epoch, offset) if isinstance(epoch, int) and isinstance(offset, int) else None

    def to_wire(self) -> Frame:
        return {"epoch": self.epoch, "offset": self.offset}


class HistoryCursor:
    def __init__(self) -> None:
        # Of the last message; only with history.
        self.position: Position | None = None
        # Missing messages were asked for; a gap was announced and any later message may follow.
        self._heals = self._jumps = False

    def take(self, place: Position | None) -> Literal["deliver", "drop", "heal"]:
        """What to do with a message."""
        known = self.position
        if place is None:
            return "deliver"
        if known is not None:
            if place <= known:
                return "drop"
            if place.epoch == known.epoch and place.offset > known.offset + 1 and not self._jumps:
                asked, self._heals = self._heals, True
                return "drop" if asked else "heal"
        self.position, self._jumps = place, False
        return "deliver"

    def replied(self, ok: Frame) -> None:
        """The reply to `subscribe`. Over HTTP messages may have arrived before it; then the position is theirs."""
        self._heals = False
        if self.position is None or ok.get("recovered") is False:
            self.position = Position.from_wire(ok)

    def failed(self) -> None:
        """The missing messages cannot be asked for at the moment."""
        self._heals = False

    def announce_gap(self) -> None:
        self._jumps = True

    def restart(self) -> Position | None:
        """A subscription begins elsewhere: any message may come first. Returns where it was."""
        since, self.position, self._heals = self.position, None, False
        return since
