"""A command that is waiting to be sent or answered."""
from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Callable

from .transports import Frame

# A command to send in a new session: op, members, and a callback for its ok.
RestoreCommand = tuple[str, Frame, "Callable[[Frame], None] | None"]


@dataclass
class Command:
    id: int
    op: str
    # The frame as it is sent: later changes of the given values change nothing.
    text: str
    answer: asyncio.Future[Frame]
    # Idempotent: may be retried.
    repeatable: bool
    # Called with the ok before any later frame is processed.
    on_ok: Callable[[Frame], None] | None = None
    sent: bool = False
    tries: int = 0

    def fail(self, why: Exception) -> None:
        """Fails the command. Reading the exception suppresses the asyncio warning when nothing awaits the reply, as for an ack."""
        if not self.answer.done():
            self.answer.set_exception(why)
            self.answer.exception()
