"""Web origins: which pages may connect, on every route a browser reaches."""
import httpx
import pytest
import websockets.exceptions

from support import tokens
from support.json_client import Socket
from support.tavern import Tavern

GOOD = "https://play.example"
BAD = "https://evil.example"


@pytest.fixture(scope="module")
def guarded():
    with Tavern.serve(f'origins = ["{GOOD}"]\n') as server:
        yield server


def connects(server, origin, **how):
    try:
        with Socket(server, origin=origin, **how) as socket:
            return "ok" in socket.call("ping")
    except websockets.exceptions.InvalidStatus as refusal:
        assert refusal.response.status_code == 403
        return False


def test_a_websocket_from_a_listed_page(guarded):
    assert connects(guarded, GOOD, token=tokens.token())
    assert not connects(guarded, BAD, token=tokens.token())
    assert not connects(guarded, "null", token=tokens.token())
    assert not connects(guarded, f"{GOOD}.evil.example", token=tokens.token())
    assert not connects(guarded, GOOD.replace("https", "http"), token=tokens.token())


def test_a_program_sends_no_origin_and_may_connect(guarded):
    assert connects(guarded, None, token=tokens.token())


def test_dev_mode_takes_any_page_on_loopback_and_no_other(dev):
    assert connects(dev, "http://localhost:5173", user="ann")
    assert connects(dev, "http://127.0.0.1:8080", user="ann")
    assert not connects(dev, BAD, user="ann")
    assert not connects(dev, "http://localhost.evil.example", user="ann")


@pytest.mark.parametrize("path", ["/v1/command", "/v1/poll"])
def test_requests_carry_cors_for_listed_pages_only(guarded, path):
    def post(origin):
        headers = {"origin": origin, "authorization": f"Bearer {tokens.token()}"}
        body = {"op": "hello"} if path == "/v1/command" else {"timeout_ms": 0}
        return httpx.post(f"{guarded.url}{path}", json=body, headers=headers, timeout=5, trust_env=False)

    good = post(GOOD)
    assert good.status_code == 200
    assert good.headers["access-control-allow-origin"] == GOOD
    bad = post(BAD)
    assert bad.status_code == 403
    assert "access-control-allow-origin" not in bad.headers


@pytest.mark.parametrize("path", ["/v1/command", "/v1/poll", "/v1/stream"])
def test_the_question_before_a_request_is_answered(guarded, path):
    def ask(origin):
        headers = {
            "origin": origin, "access-control-request-method": "POST",
            "access-control-request-headers": "authorization,content-type",
        }
        return httpx.options(f"{guarded.url}{path}", headers=headers, timeout=5, trust_env=False)

    good = ask(GOOD)
    assert good.status_code in (200, 204)
    assert good.headers["access-control-allow-origin"] == GOOD
    assert "authorization" in good.headers["access-control-allow-headers"].lower()
    assert "access-control-allow-origin" not in ask(BAD).headers


def test_a_stream_from_another_page_is_refused(guarded):
    url = f"{guarded.url}/v1/stream?token={tokens.token()}"
    assert httpx.get(url, headers={"origin": BAD}, timeout=5, trust_env=False).status_code == 403
    with httpx.stream("GET", url, headers={"origin": GOOD}, timeout=5, trust_env=False) as response:
        assert response.status_code == 200
        assert response.headers["access-control-allow-origin"] == GOOD


def test_a_page_whose_name_was_pointed_at_loopback_is_refused_in_dev_mode(dev):
    """The page's own host then equals the Host header, and dev mode would take any name in the address."""
    host = f"evil.example:{dev.port}"
    headers = {"host": host, "origin": f"http://{host}"}
    body = {"op": "hello"}
    response = httpx.post(f"{dev.url}/v1/command?user=ann", json=body, headers=headers, timeout=5, trust_env=False)
    assert response.status_code == 403
