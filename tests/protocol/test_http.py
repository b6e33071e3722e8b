"""HTTP as clients and proxies expect it: HTTP/2 with and without TLS, compressed files, HEAD, aliases, statuses."""
import asyncio
import gzip
import json
import pathlib
import socket
import subprocess

import httpx
import pytest

from support.browser import MODULES
from support.tavern import Tavern
from support.tls_server import TlsServer

FILES = ["/", "/client.js", "/docs", "/assets/app.js", "/demo", "/openapi.json"]


@pytest.fixture(scope="module")
def plain():
    with Tavern.dev("[limits]\nhttp_header_ms = 1500\n") as server:
        yield server


@pytest.fixture(scope="module")
def tls():
    with TlsServer() as server:
        yield server


def curl(*arguments):
    done = subprocess.run(["curl", "-sS", "--noproxy", "*", "--max-time", "10", *arguments], capture_output=True, timeout=20)
    assert done.returncode == 0, done.stderr
    return done.stdout


def bearer(server):
    return {"authorization": f"Bearer {server.key}"}


@pytest.fixture
def h2(tls):
    with httpx.Client(http2=True, base_url=tls.url, headers=bearer(tls), verify=tls.trust, timeout=10, trust_env=False) as client:
        yield client


def test_curl_speaks_http2_with_prior_knowledge(plain):
    version = curl("--http2-prior-knowledge", "-o", "/dev/null", "-w", "%{http_version} %{http_code}", f"{plain.url}/readyz")
    assert version == b"2 200"
    published = curl(
        "--http2-prior-knowledge", "-H", f"authorization: Bearer {plain.key}", "-d", '{"data":1}', f"{plain.url}/v1/channels/game:1/messages")
    assert json.loads(published) == {"receivers": 0}
    # The others of the same port.
    assert curl("--http1.1", "-o", "/dev/null", "-w", "%{http_version}", f"{plain.url}/readyz") == b"1.1"


def test_tls_negotiates_http2_for_rest_and_pages(h2):
    for path in ["/v1/nodes", "/", "/docs", "/client.js"]:
        answer = h2.get(path)
        assert (answer.http_version, answer.status_code) == ("HTTP/2", 200), path
    # WebSocket stays on HTTP/1.1.
    assert h2.get("/v1/connect").status_code == 400


def test_sse_over_http2_shares_one_connection(tls):
    """Nine streams and the publish to them on one connection."""
    async def listen(h2, number):
        async with h2.stream("GET", "/v1/stream", params={"user": f"h{number}", "channel": "game:h2"}) as answer:
            assert answer.http_version == "HTTP/2"
            async for line in answer.aiter_lines():
                if "hello over h2" in line:
                    return number

    async def publish(h2):
        """Once all listen."""
        while True:
            channels = (await h2.get("/v1/channels", headers=bearer(tls))).json()["channels"]
            if any(channel["channel"] == "game#h2" and channel["subscriptions"] == 9 for channel in channels):
                await h2.post("/v1/channels/game:h2/messages", json={"data": "hello over h2"}, headers=bearer(tls))
                return len(h2._transport._pool.connections)
            await asyncio.sleep(0.02)

    async def run():
        async with httpx.AsyncClient(http2=True, base_url=tls.url, verify=tls.trust, timeout=20, trust_env=False) as h2:
            await h2.get("/livez")
            return await asyncio.wait_for(asyncio.gather(publish(h2), *(listen(h2, number) for number in range(9))), 30)

    assert asyncio.run(run()) == [1, *range(9)]


def test_seven_sse_tabs_in_one_browser(tls):
    """Over HTTP/1.1 a browser has six connections to one server."""
    script = pathlib.Path(__file__).with_name("sse_tabs.mjs")
    run = subprocess.run(["node", str(script), str(MODULES), tls.url, tls.key, "7"], capture_output=True, text=True, timeout=90)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found == {"published": 200, "received": [True] * 7, "protocols": ["h2"]}


def test_an_http2_connection_without_requests_ends(plain):
    with socket.create_connection(("127.0.0.1", plain.port), timeout=10) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        while connection.recv(65536):
            pass
    with socket.create_connection(("127.0.0.1", plain.port), timeout=10) as connection:
        connection.sendall(b"P")
        try:
            assert connection.recv(100) == b""
        except ConnectionResetError:
            pass  # It ends with a byte that was not read.


@pytest.mark.parametrize("path", FILES)
def test_files_are_compressed_and_have_tags(plain, path):
    url = f"{plain.url}{path}"
    whole = httpx.get(url, headers={"accept-encoding": "identity"}, trust_env=False)
    assert "content-encoding" not in whole.headers and "accept-encoding" in whole.headers["vary"]
    with httpx.stream("GET", url, headers={"accept-encoding": "gzip"}, trust_env=False) as answer:
        raw = b"".join(answer.iter_raw())
        assert answer.headers["content-encoding"] == "gzip" and len(raw) == int(answer.headers["content-length"])
    assert gzip.decompress(raw) == whole.content and len(raw) < 0.7 * len(whole.content)
    assert curl("--compressed", "-H", "accept-encoding: br", url) == whole.content
    best = httpx.head(url, headers={"accept-encoding": "gzip, br"}, trust_env=False)
    assert best.headers["content-encoding"] == "br" and int(best.headers["content-length"]) <= len(raw)
    tags = {whole.headers["etag"], answer.headers["etag"], best.headers["etag"]}
    assert len(tags) == 3, "each form has its own"
    known = httpx.get(url, headers={"accept-encoding": "gzip, br", "if-none-match": best.headers["etag"]}, trust_env=False)
    assert known.status_code == 304 and known.content == b""


def test_head_works_where_get_does_on_both_versions(plain, tls, h2):
    with httpx.Client(base_url=plain.url, headers=bearer(plain), trust_env=False) as h1:
        for client in (h1, h2):
            for path in ("/readyz", "/healthz", "/livez", "/v1/nodes", "/v1/topics", "/client.js", "/docs"):
                head, get = client.head(path), client.get(path)
                assert head.status_code == get.status_code == 200 and head.content == b"", path
                if path not in ("/v1/nodes",):
                    assert head.headers["content-length"] == get.headers["content-length"], path


def test_a_colon_stands_for_the_hash_in_urls_and_a_lost_hash_is_explained(plain):
    with httpx.Client(base_url=plain.url, headers=bearer(plain), trust_env=False) as api:
        assert api.put("/v1/channels/game:room/presence/ann", json={"ttl_s": 60}).status_code == 200
        users = [api.get(f"/v1/channels/{name}/presence").json() for name in ("game:room", "game%23room")]
        assert users[0] == users[1] and "ann" in json.dumps(users)
        # What a client sends for /v1/channels/game#room/presence.
        lost = api.get("/v1/channels/game")
        assert lost.status_code == 404 and "%23" in lost.json()["error"]["message"]
