"""What the client sends, receives and decides, for the logger `tavern_client` at the level DEBUG.

Must hold: no secret is logged; while it is off it costs one check.
"""
from __future__ import annotations

import json
import logging
from typing import Any

LOGGER = logging.getLogger("tavern_client")
SECRETS = frozenset(["session", "token"])


def trace(what: str, detail: object = "") -> None:
    """`detail` is a frame, its text, or any other text."""
    if not LOGGER.isEnabledFor(logging.DEBUG):
        return
    text = detail if isinstance(detail, str) else json.dumps(detail)
    if text.startswith("{"):
        text = json.dumps(json.loads(text, object_hook=_without_secrets), ensure_ascii=False)
    LOGGER.debug("%s %s", what, text)


def _without_secrets(members: dict[str, Any]) -> dict[str, Any]:
    return {name: "…" if name in SECRETS else value for name, value in members.items()}
