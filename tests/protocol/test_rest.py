"""REST calls for messages and sessions, and the built-in pages."""
import httpx
import pytest

from support.json_client import Socket


@pytest.fixture
def api(dev):
    headers = {"authorization": f"Bearer {dev.key}"}
    with httpx.Client(base_url=dev.url, headers=headers, timeout=5, trust_env=False) as client:
        yield client


def quoted(channel):
    return channel.replace("#", "%23")


def test_a_posted_message_is_delivered(dev, api, user, channel):
    with Socket(dev, user=user) as socket:
        socket.ok("subscribe", channel=channel)
        answer = api.post(f"/v1/channels/{quoted(channel)}/messages", json={"data": {"a": 1}})
        assert answer.status_code == 200 and answer.json()["receivers"] == 1
        event = socket.event()
        assert event["channel"] == channel and event["data"] == {"a": 1}


def test_an_idempotency_key_dedupes_a_repeated_post(dev, api, user, channel):
    with Socket(dev, user=user) as socket:
        socket.ok("subscribe", channel=channel)
        answers = [
            api.post(f"/v1/channels/{quoted(channel)}/messages", json={"data": 1}, headers={"idempotency-key": channel})
            for _ in range(3)
        ]
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.text for answer in answers}) == 1
        assert len(socket.events_so_far()) == 1


def test_malformed_messages_are_rejected(api, channel):
    url = f"/v1/channels/{quoted(channel)}/messages"
    for body in ("", "{", "[]", "{}", "7", '{"data":' + "[" * 100 + "]" * 100 + "}"):
        answer = api.post(url, content=body)
        assert answer.status_code == 400, (body, answer.text)
        assert answer.json()["error"]["code"] == "bad_request"
    assert api.post("/v1/channels/Bad.Name/messages", json={"data": 1}).status_code == 400
    assert api.post(url, json={"data": "x" * 70_000}).status_code == 413


def test_channels_are_listed(dev, api, user, channel):
    with Socket(dev, user=user) as socket:
        socket.ok("subscribe", channel=channel)
        answer = api.get("/v1/channels")
        assert answer.status_code == 200
        assert channel in answer.text
        assert "next" in answer.json()


def test_a_session_is_described(dev, api, user):
    with Socket(dev, user=user) as socket:
        answer = api.get(f"/v1/sessions/{socket.hello['client']}")
        assert answer.status_code == 200
        session = answer.json()
        assert session["user"] == user
        assert socket.hello["session"] not in answer.text, "the session secret is not shown"
    assert api.get("/v1/sessions/nonsense").status_code == 404


def test_nodes_are_listed(api):
    answer = api.get("/v1/nodes")
    assert answer.status_code == 200
    here = [node for node in answer.json()["nodes"] if "here" in node]
    assert len(here) == 1 and here[0]["alive"] and 0 < here[0]["lease_ms"] <= 10_000
    assert here[0]["here"]["sessions"] >= 0


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
def test_health_endpoints_answer(dev, path):
    assert httpx.get(f"{dev.url}{path}", timeout=5, trust_env=False).status_code == 200


def test_metrics_are_prometheus_text(dev):
    answer = httpx.get(f"{dev.url}/metrics", timeout=5, trust_env=False)
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/plain")
    names = {line.split("{")[0].split(" ")[0] for line in answer.text.splitlines() if line and not line.startswith("#")}
    assert names and all(name.startswith(("tavern_", "process_")) for name in names)


def test_openapi_describes_the_routes(dev):
    answer = httpx.get(f"{dev.url}/openapi.json", timeout=5, trust_env=False)
    assert answer.status_code == 200
    paths = answer.json()["paths"]
    assert "/v1/channels/{channel}/messages" in paths and answer.json()["openapi"].startswith("3.")


def test_unknown_routes_and_methods_are_rejected(dev, api):
    answer = api.get("/v1/nosuch")
    assert answer.status_code == 404 and answer.json()["error"]["code"] == "not_found"
    assert api.get("/v1/command").status_code == 405
