"""The options of a client, and the lifetime of its token."""
from __future__ import annotations

import base64
import json
import ssl as tls
import time
from dataclasses import dataclass, field
from typing import Awaitable, Callable, Sequence

from .address import Address
from .backoff import Backoff

# How long a command may take, reconnects included, and an attempt to connect up to the reply to hello.
COMMAND_S, CONNECT_S = 30.0, 10.0

TokenSource = Callable[[], "str | Awaitable[str]"]


@dataclass
class Settings:
    addresses: Sequence[Address]
    transports: Sequence[str] = ("websocket", "sse", "poll")
    token: str | None = None
    get_token: TokenSource | None = None
    user: str | None = None
    statuses: bool = False
    context: tls.SSLContext | None = None
    command_s: float = COMMAND_S
    connect_s: float = CONNECT_S
    backoff: Backoff = field(default_factory=Backoff)


def remaining(token: str | None) -> float | None:
    """Seconds until a token expires, if it contains `exp`."""
    try:
        claims = (token or "").split(".")[1]
        ends = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"]
        return float(ends) - time.time()
    except (IndexError, ValueError, KeyError, TypeError):
        return None
