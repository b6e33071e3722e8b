"""For backends: the server API with an API key, signing tokens, verifying webhooks. Synchronous, without dependencies.

    backend = Backend("http://127.0.0.1:7400", key="tvk_…")
    backend.publish("game#1", {"move": "e4"})
    backend.disconnect("ann", reason="signed out")

Must hold: every request has a timeout; secrets are compared in constant time and are in no error.
"""
from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .errors import TavernError

TIMEOUT_S = 30.0
PULL_WAIT_MS = 10_000
# How far the clocks of sender and receiver may differ.
WEBHOOK_TOLERANCE_S = 300


class Backend:
    """The server API with an API key."""

    def __init__(self, url: str, key: str, timeout_s: float = TIMEOUT_S) -> None:
        self._url = url.rstrip("/")
        self._key = key
        self._timeout_s = timeout_s

    def publish(self, channel: str, data: Any) -> dict[str, Any]:
        """Publishes one message."""
        return self._call("POST", ["channels", channel, "messages"], {"data": data})

    def broadcast(self, channels: Iterable[str], data: Any) -> list[dict[str, Any]]:
        """Publishes the same data to several channels; gives a result for each."""
        return list(self._call("POST", ["broadcast"], {"channels": list(channels), "data": data})["results"])

    def publish_many(self, messages: Iterable[tuple[str, Any]]) -> list[dict[str, Any]]:
        """Publishes several messages; gives a result for each."""
        items = [{"channel": channel, "data": data} for channel, data in messages]
        return list(self._call("POST", ["publish"], {"messages": items})["results"])

    def send_to_inbox(self, user: str, data: Any) -> None:
        """Sends an inbox message to a user."""
        self._call("POST", ["users", user, "messages"], {"data": data})

    def who(self, channel: str, *, after: str | None = None, limit: int | None = None) -> dict[str, Any]:
        """A page of who is present in a channel."""
        return self._call("GET", ["channels", channel, "presence"], query={"after": after, "limit": limit})

    def post_events(self, topic: str, events: Iterable[dict[str, Any]]) -> dict[str, Any]:
        """Posts events `{id?, type, url?, data?, time?}` to a topic: all of them are stored, or none."""
        return self._call("POST", ["topics", topic, "events"], list(events))

    def pull_events(self, subscription: str, *, after: int | None = None, wait_ms: int = 0, limit: int = 100) -> dict[str, Any]:
        """The next events of a subscription. `after` acknowledges all events up to it."""
        query = {"after": after, "wait_ms": wait_ms, "limit": limit}
        return self._call("GET", ["subscriptions", subscription, "events"], query=query, wait_s=wait_ms / 1000)

    def events(self, subscription: str) -> Iterator[dict[str, Any]]:
        """Every event of a subscription, as they come. A batch is acknowledged when all its events were taken."""
        after = 0
        while True:
            batch = self.pull_events(subscription, after=after, wait_ms=PULL_WAIT_MS)
            yield from batch["events"]
            after = batch["next_after"]

    def stats(self) -> dict[str, Any]:
        """How many users, sessions and connections there are."""
        return self._call("GET", ["stats"])

    def sessions(self, user: str) -> list[dict[str, Any]]:
        """The sessions of a user on all servers."""
        return list(self._call("GET", ["users", user, "sessions"])["sessions"])

    def disconnect(self, user: str, *, code: int | None = None, reason: str | None = None,
                   keep: Iterable[str] = (), allow_resume: bool = False) -> dict[str, Any]:
        """Ends the sessions of a user, except those of the clients in `keep`."""
        body = {"code": code, "reason": reason, "except": list(keep), "allow_resume": allow_resume}
        return self._call("POST", ["users", user, "disconnect"], body)

    def ban(self, user: str, reason: str = "", until_ms: int | None = None) -> dict[str, Any]:
        """Lets a user open no session until then, or until the ban is lifted."""
        return self._call("PUT", ["users", user, "ban"], {"reason": reason, "until": until_ms})

    def unban(self, user: str) -> None:
        """Lifts the ban of a user."""
        self._call("DELETE", ["users", user, "ban"])

    def _call(
        self, method: str, path: list[str], body: Any = None, query: Mapping[str, int | str | None] | None = None, wait_s: float = 0.0
    ) -> dict[str, Any]:
        """`wait_s`: how long the server may wait."""
        target = "/".join(urllib.parse.quote(segment, safe="") for segment in path)
        given = {name: value for name, value in (query or {}).items() if value is not None}
        target += f"?{urllib.parse.urlencode(given)}" if given else ""
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}/v1/{target}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s + wait_s) as answer:
                content: dict[str, Any] = json.load(answer)
                return content
        except urllib.error.HTTPError as refused:
            try:
                error = json.load(refused).get("error")
            except (ValueError, AttributeError):
                error = {"message": f"answered {refused.code}; is this a Tavern server?"}
            raise TavernError.from_wire(error) from None
        except OSError as failure:
            raise TavernError("unreachable", str(failure)) from failure


def sign_token(secret: str, user: str, *, ttl_s: int = 3600, allow: Mapping[str, list[str]] | None = None,
               name: str | None = None) -> str:
    """A token for a user, signed with the server's secret (HS256)."""
    claims: dict[str, Any] = {"sub": user, "exp": int(time.time()) + ttl_s}
    if allow is not None:
        claims["allow"] = dict(allow)
    if name is not None:
        claims["name"] = name
    text = ".".join(_part(json.dumps(part).encode()) for part in ({"alg": "HS256", "typ": "JWT"}, claims))
    return f"{text}.{_part(hmac.new(secret.encode(), text.encode(), hashlib.sha256).digest())}"


def verify_webhook(secret: str, headers: Mapping[str, str], body: bytes, now_s: float | None = None) -> bool:
    """Whether a webhook is signed with this secret (`whsec_…`) and not too old."""
    given = {name.lower(): value for name, value in headers.items()}
    number, sent = given.get("webhook-id", ""), given.get("webhook-timestamp", "")
    now = time.time() if now_s is None else now_s
    if not sent.isdigit() or abs(now - int(sent)) > WEBHOOK_TOLERANCE_S:
        return False
    key = base64.b64decode(secret.removeprefix("whsec_"))
    expected = base64.b64encode(hmac.new(key, f"{number}.{sent}.".encode() + body, hashlib.sha256).digest())
    signatures = given.get("webhook-signature", "").split()
    return any(hmac.compare_digest(f"v1,{expected.decode()}".encode(), one.encode()) for one in signatures)


def _part(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
