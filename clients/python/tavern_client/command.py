"""A command on its way, and what is told with it."""
from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Callable

from .lines import Frame

# A command that a new session must be told, and what its ok is given to.
Wanted = tuple[str, Frame, "Callable[[Frame], None] | None"]


@dataclass
class Command:
    id: int
    frame: Frame
    answer: asyncio.Future[Frame]
    # May be carried out twice without harm.
    repeatable: bool
    # Called with the ok before any later frame is read.
    on_ok: Callable[[Frame], None] | None = None
    sent: bool = False
    tries: int = 0

    def fail(self, why: Exception) -> None:
        """Nobody may be waiting: an acknowledgement that was refused is no failure of the program."""
        if not self.answer.done():
            self.answer.set_exception(why)
            self.answer.exception()
