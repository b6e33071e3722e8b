"""Every way in asks whether the user is banned."""
import json

import httpx
import pytest
import websockets.exceptions

from security.operations import ask, operations
from support import tokens
from support.json_client import Socket
from support.resp import RespConnection

BLOCKED = "this user is banned: spam"


@pytest.fixture
def banned(serve, user):
    """The token of a user who is banned."""
    with httpx.Client(base_url=serve.url, headers={"authorization": f"Bearer {serve.key}"}, trust_env=False) as service:
        assert service.put(f"/v1/users/{user}/ban", json={"reason": "spam"}).status_code == 200
        yield tokens.token(user)
        assert service.delete(f"/v1/users/{user}/ban").status_code == 200


def test_no_operation_does_anything_for_a_banned_user(serve, banned):
    blocked = set()
    for method, path in sorted(operations(serve)):
        if path == "/v1/connect":
            continue
        body = {"json": {}} if method in ("POST", "PUT") else {}
        answer = ask(serve, method, path, banned, **body)
        if answer.status_code == 403 and "banned" in answer.text:
            blocked.add(path)
        else:
            # What everybody gets, with a token or without.
            assert (answer.status_code, answer.text[:20]) == (lambda same: (same.status_code, same.text[:20]))(
                ask(serve, method, path, **body)), f"{method} {path}: {answer.text}"
    assert {"/v1/command", "/v1/poll", "/v1/stream", "/v1/publish", "/v1/users/1/party"} <= blocked


@pytest.mark.parametrize("form", [
    {"cmd": "create"}, {"cmd": "invite", "invite_login": "bob"}, {"cmd": "set_data", "data": "{}"},
    {"cmd": "kick", "target_uid": "bob", "user_msg": "some text"},
])
def test_the_form_of_older_party_servers_is_closed(serve, banned, form):
    answer = ask(serve, "POST", "/party", banned, data={"action": "party"} | form)
    assert answer.status_code == 403 and BLOCKED in answer.text, answer.text


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_the_ping_of_older_party_servers_is_closed(serve, banned, method):
    answer = ask(serve, method, "/party/ping", banned)
    assert answer.status_code == 403 and BLOCKED in answer.text, answer.text


def test_a_token_in_the_url_or_in_the_body_is_refused_too(serve, banned):
    for answer in [
        ask(serve, "GET", f"/v1/stream?token={banned}"),
        ask(serve, "POST", f"/v1/command?token={banned}", json={"op": "hello"}),
        ask(serve, "POST", "/v1/command", json={"op": "hello", "token": banned}),
        ask(serve, "POST", "/v1/poll", json={"token": banned, "timeout_ms": 0}),
    ]:
        assert answer.json()["error"]["code"] == "blocked", answer.text


def test_a_websocket_is_refused(serve, banned):
    with pytest.raises(websockets.exceptions.InvalidStatus) as refused:
        Socket(serve, token=banned)
    assert json.loads(refused.value.response.body)["error"]["code"] == "blocked"
    with Socket(serve) as socket:
        assert socket.call("hello", token=banned)["error"]["code"] == "blocked"


@pytest.mark.parametrize("command", [["AUTH"], ["AUTH", "default"], ["HELLO", "3", "AUTH", "default"]])
def test_a_redis_connection_is_refused(serve, banned, command):
    connection = RespConnection(serve.resp_port)
    assert "BLOCKED" in str(connection.call(*command, banned))
    assert "BLOCKED" not in str(connection.call("AUTH", tokens.token("somebody")))
