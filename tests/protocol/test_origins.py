"""Web origins: which pages may connect, on every route that browsers use."""
import httpx
import pytest
import websockets.exceptions

from support import tokens
from support.json_client import Socket
from support.tavern import Tavern

GOOD = "https://play.example"
BAD = "https://evil.example"


@pytest.fixture(scope="module")
def server():
    with Tavern.serve(f'origins = ["{GOOD}"]\n') as server:
        yield server


def connects(server, origin, **how):
    try:
        with Socket(server, origin=origin, **how) as socket:
            return "ok" in socket.call("ping")
    except websockets.exceptions.InvalidStatus as refusal:
        assert refusal.response.status_code == 403
        return False


def test_websockets_are_accepted_from_listed_origins_only(server):
    assert connects(server, GOOD, token=tokens.token())
    assert not connects(server, BAD, token=tokens.token())
    assert not connects(server, "null", token=tokens.token())
    assert not connects(server, f"{GOOD}.evil.example", token=tokens.token())
    assert not connects(server, GOOD.replace("https", "http"), token=tokens.token())


def test_a_client_without_an_origin_may_connect(server):
    assert connects(server, None, token=tokens.token())


def test_dev_mode_accepts_loopback_origins_only(dev):
    assert connects(dev, "http://localhost:5173", user="ann")
    assert connects(dev, "http://127.0.0.1:8080", user="ann")
    assert not connects(dev, BAD, user="ann")
    assert not connects(dev, "http://localhost.evil.example", user="ann")


@pytest.mark.parametrize("path", ["/v1/command", "/v1/poll"])
def test_cors_headers_are_sent_to_listed_origins_only(server, path):
    def post(origin):
        headers = {"origin": origin, "authorization": f"Bearer {tokens.token()}"}
        body = {"op": "hello"} if path == "/v1/command" else {"timeout_ms": 0}
        return httpx.post(f"{server.url}{path}", json=body, headers=headers, timeout=5, trust_env=False)

    good = post(GOOD)
    assert good.status_code == 200
    assert good.headers["access-control-allow-origin"] == GOOD
    bad = post(BAD)
    assert bad.status_code == 403
    assert "access-control-allow-origin" not in bad.headers


@pytest.mark.parametrize("path", ["/v1/command", "/v1/poll", "/v1/stream"])
def test_preflight_requests_are_answered(server, path):
    def ask(origin):
        headers = {
            "origin": origin, "access-control-request-method": "POST",
            "access-control-request-headers": "authorization,content-type",
        }
        return httpx.options(f"{server.url}{path}", headers=headers, timeout=5, trust_env=False)

    good = ask(GOOD)
    assert good.status_code in (200, 204)
    assert good.headers["access-control-allow-origin"] == GOOD
    assert "authorization" in good.headers["access-control-allow-headers"].lower()
    assert "access-control-allow-origin" not in ask(BAD).headers


def test_a_stream_from_an_unlisted_origin_is_refused(server):
    url = f"{server.url}/v1/stream?token={tokens.token()}"
    assert httpx.get(url, headers={"origin": BAD}, timeout=5, trust_env=False).status_code == 403
    with httpx.stream("GET", url, headers={"origin": GOOD}, timeout=5, trust_env=False) as response:
        assert response.status_code == 200
        assert response.headers["access-control-allow-origin"] == GOOD


def test_dns_rebinding_is_refused_in_dev_mode(dev):
    """After DNS rebinding the page's origin equals the Host header, and dev mode needs no credentials."""
    host = f"evil.example:{dev.port}"
    headers = {"host": host, "origin": f"http://{host}"}
    body = {"op": "hello"}
    response = httpx.post(f"{dev.url}/v1/command?user=ann", json=body, headers=headers, timeout=5, trust_env=False)
    assert response.status_code == 403


def test_requests_that_pages_of_other_sites_cause_are_refused_in_dev_mode(dev):
    def get(path, **headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx.get(f"{dev.url}{path}", headers=headers, timeout=5, trust_env=False).status_code

    for path in ("/v1/users", "/metrics", "/party/ping", "/v1/stream?user=ann"):
        assert get(path, sec_fetch_site="cross-site") == 403, path
    assert get("/metrics", sec_fetch_site="same-origin") == 200
    # What everybody may read, and pages whose origin is allowed: localhost and 127.0.0.1 are two sites.
    for path in ("/", "/client.js", "/docs/"):
        assert get(path, sec_fetch_site="cross-site") == 200, path
    assert get("/metrics", sec_fetch_site="cross-site", origin="http://localhost:3000") == 200
    assert get("/metrics", sec_fetch_site="cross-site", origin=BAD) == 403


def test_a_page_from_disk_may_connect_in_dev_mode_only(dev, server):
    assert connects(dev, "null", user="ann")
    headers = {"origin": "null", "sec-fetch-site": "cross-site"}
    answer = httpx.post(f"{dev.url}/v1/command?user=ann", json={"op": "hello"}, headers=headers, timeout=5, trust_env=False)
    assert answer.status_code == 200 and answer.headers["access-control-allow-origin"] == "null"
    assert not connects(server, "null", token=tokens.token())
