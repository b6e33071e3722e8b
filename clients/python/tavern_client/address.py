"""The address of a server, for WebSocket and HTTP.

Must hold: http, https, ws and wss URLs all give both forms; an invalid address is rejected before anything is sent.
"""
from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, urlencode, urlsplit

SCHEMES = {"http": False, "ws": False, "https": True, "wss": True}


@dataclass(frozen=True)
class Address:
    secure: bool
    host: str
    port: int
    # Prefix before /v1/… when a proxy serves Tavern under a path: "" or "/prefix" without a trailing slash.
    path: str = ""

    @classmethod
    def parse(cls, url: str) -> Address:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in SCHEMES:
            raise ValueError(f"{url!r}: the scheme must be http, https, ws or wss")
        if not parts.hostname:
            raise ValueError(f"{url!r} has no host")
        if parts.query or parts.fragment or parts.username is not None:
            raise ValueError(f"{url!r}: only scheme, host, port and path are allowed; pass the token as an argument")
        secure = SCHEMES[parts.scheme]
        try:
            port = parts.port
        except ValueError:
            raise ValueError(f"{url!r}: the port must be a number below 65536") from None
        path = parts.path.rstrip("/").removesuffix("/v1/connect")
        return cls(secure, parts.hostname, port or (443 if secure else 80), quote(path, safe="/%"))

    @property
    def authority(self) -> str:
        """Host and port as written in a URL or the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"

    def target(self, path: str, query: dict[str, str] | None = None) -> str:
        """Path and query of a request."""
        return self.path + path + (f"?{urlencode(query, quote_via=quote)}" if query else "")

    def websocket(self, query: dict[str, str] | None = None) -> str:
        return f"{'wss' if self.secure else 'ws'}://{self.authority}{self.target('/v1/connect', query)}"
