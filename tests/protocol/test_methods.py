"""Methods and query parameters of HTTP: HEAD where GET works, 405 with Allow, wrong parameters refused by name."""
import socket

import httpx
import pytest

from support.json_client import Socket

GETS = [
    "/livez", "/readyz", "/metrics", "/openapi.json", "/client.js", "/", "/demo", "/docs", "/v1/channels", "/v1/nodes",
    "/v1/overview", "/v1/settings", "/v1/users", "/v1/users/ann", "/v1/users/ann/following", "/v1/users/ann/party",
    "/v1/parties", "/v1/topics", "/v1/subscriptions", "/v1/channels/room%231/presence",
]


@pytest.fixture(scope="module")
def api(dev):
    headers = {"authorization": f"Bearer {dev.key}"}
    with httpx.Client(base_url=dev.url, headers=headers, timeout=10, trust_env=False) as api:
        yield api


@pytest.mark.parametrize("path", GETS)
def test_head_has_the_headers_of_get_and_no_body(api, path):
    got, head = api.get(path), api.head(path)
    assert (head.status_code, head.content) == (got.status_code, b"")
    assert got.is_success or got.is_redirect, path
    same = ("content-type", "cache-control", "etag", "location")
    assert [head.headers.get(name) for name in same] == [got.headers.get(name) for name in same]


def test_head_sends_no_body_on_the_wire(dev):
    with socket.create_connection(("127.0.0.1", dev.port), timeout=5) as connection:
        connection.sendall(b"HEAD /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        answer = b""
        while piece := connection.recv(4096):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 200 ") and b"content-length: 3\r\n" in answer and answer.endswith(b"\r\n\r\n")


def test_head_opens_no_stream_and_takes_no_events(dev, api, user):
    answer = httpx.head(f"{dev.url}/v1/stream", params={"user": user}, timeout=5, trust_env=False)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream")
    assert api.get(f"/v1/users/{user}").json()["online"] is False
    with Socket(dev, user=user):
        ping = httpx.head(f"{dev.url}/party/ping", params={"user": user}, timeout=5, trust_env=False)
    assert ping.status_code == 200
    api.put("/v1/subscriptions/head", json={"topics": ["head"], "pull": True})
    api.post("/v1/topics/head/events", json={"type": "x"})
    assert api.head("/v1/subscriptions/head/events", params={"after": 1}).status_code == 200
    assert len(api.get("/v1/subscriptions/head/events").json()["events"]) == 1, "HEAD acknowledges nothing"


@pytest.mark.parametrize("method, path, allowed", [
    ("POST", "/livez", "GET, HEAD, OPTIONS"),
    ("GET", "/v1/poll", "POST, OPTIONS"),
    ("PUT", "/v1/command", "POST, OPTIONS"),
    ("POST", "/v1/connect", "GET, HEAD, OPTIONS"),
    ("DELETE", "/v1/parties/1", "GET, HEAD, OPTIONS"),
    ("PATCH", "/v1/topics/x", "GET, PUT, DELETE, HEAD, OPTIONS"),
    ("GET", "/party", "POST, OPTIONS"),
])
def test_wrong_method_is_refused_with_those_that_work(api, method, path, allowed):
    answer = api.request(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    assert answer.json()["error"]["code"] == "method_not_allowed"


@pytest.mark.parametrize("query, member", [
    ("limit=1001", "limit"), ("limit=0", "limit"), ("limit=null", "limit"), ("limit=", "limit"), ("limit=ten", "limit"),
    ("limit=-1", "limit"), ("limit=1.5", "limit"), ("limit=1&limit=1", "limit"), ("present=null", "present"),
    ("present=1", "present"), ("present=", "present"), (f"prefix={'x' * 256}", "prefix"), ("after=a&after=b", "after"),
])
def test_wrong_parameter_is_refused_by_name(api, query, member):
    answer = api.get(f"/v1/channels?{query}")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "bad_request") and f"`{member}`" in error["message"]


@pytest.mark.parametrize("path", [
    "/v1/topics?limit=1001", "/v1/subscriptions?limit=1001", "/v1/parties?limit=1001", "/v1/users?limit=1001",
    "/v1/users/ann/followers?limit=1001", "/v1/channels/room%231/presence?limit=1001",
    "/v1/channels/room%231/presence?counts_only=null", "/v1/subscriptions/x/events?limit=1001",
    "/v1/subscriptions/x/events?wait_ms=30001", "/v1/users/%01", "/v1/users/%FF", "/v1/channels?after=%FF",
])
def test_value_beyond_its_limit_is_refused(api, path):
    assert api.get(path).status_code == 400
