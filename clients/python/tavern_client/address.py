"""Where a server is: one address for WebSocket and HTTP.

Must hold: whatever of http, https, ws and wss was given, both forms of it are known; a wrong address is refused before anything is sent.
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
    # What stands before /v1/…, for a server behind a path of a proxy; "" or begins with a slash and does not end with one.
    path: str = ""

    @classmethod
    def parse(cls, url: str) -> Address:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in SCHEMES:
            raise ValueError(f"{url!r}: an address begins with http, https, ws or wss")
        if not parts.hostname:
            raise ValueError(f"{url!r} names no host")
        if parts.query or parts.fragment or parts.username is not None:
            raise ValueError(f"{url!r}: an address is only scheme, host, port and path; give the token beside it")
        secure = SCHEMES[parts.scheme]
        try:
            port = parts.port
        except ValueError:
            raise ValueError(f"{url!r}: the port is not a number below 65536") from None
        path = parts.path.rstrip("/").removesuffix("/v1/connect")
        return cls(secure, parts.hostname, port or (443 if secure else 80), quote(path, safe="/%"))

    @property
    def authority(self) -> str:
        """Host and port as they stand in a URL or the Host field."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"

    def target(self, path: str, query: dict[str, str] | None = None) -> str:
        """Path and query of a request."""
        return self.path + path + (f"?{urlencode(query, quote_via=quote)}" if query else "")

    def websocket(self, query: dict[str, str] | None = None) -> str:
        return f"{'wss' if self.secure else 'ws'}://{self.authority}{self.target('/v1/connect', query)}"
