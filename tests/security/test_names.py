"""Names that cannot be told apart, or that a path would swallow, are refused everywhere."""
import http.client

import httpx
import pytest

from support import tokens
from support.json_client import Socket, Stream
from support.resp import RespConnection

INVISIBLE = {
    "zero-width space": "an\u200bn", "zero-width joiner": "ann\u200d", "right-to-left override": "\u202enna",
    "isolate": "\u2066ann", "byte order mark": "\ufeffann", "soft hyphen": "a\u00adnn", "dot": ".", "two dots": "..",
}


@pytest.fixture(params=INVISIBLE)
def name(request):
    return INVISIBLE[request.param]


def test_a_token_with_such_a_user_is_refused(serve, name):
    token = tokens.token(name)
    with Socket(serve) as socket:
        assert socket.call("hello", token=token)["error"]["code"] == "unauthenticated"
    with Stream(serve, token=token) as stream:
        assert stream.status == 401
    redis = RespConnection(serve.resp_port)
    assert redis.call("AUTH", token).startswith("WRONGPASS")
    redis.close()
    headers = {"authorization": f"Bearer {token}"}
    answer = httpx.post(f"{serve.url}/v1/command", json={"op": "hello"}, headers=headers, trust_env=False)
    assert answer.status_code == 401


def test_such_a_user_is_refused_in_commands_and_paths(serve, name):
    with Socket(serve, token=tokens.token("ann")) as socket:
        for op in ("follow", "party.invite"):
            reply = socket.call(op, user=name)
            assert reply["error"]["code"] == "bad_request", (op, reply)


def request(server, method, path):
    """Without a client that would normalise the path."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    try:
        connection.request(method, path, headers={"authorization": f"Bearer {server.key}"})
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("segment", [".", "..", "%2e", "%2E%2e", ".%2e"])
@pytest.mark.parametrize("path", ["/v1/users/{}", "/v1/topics/{}", "/v1/subscriptions/{}", "/v1/users/ann/following/{}"])
def test_dots_are_not_names_in_paths(serve, path, segment):
    method = "PUT" if "following" in path else "GET"
    assert request(serve, method, path.format(segment)) in (400, 404)
    if "following" not in path and "users" not in path:
        assert request(serve, "PUT", path.format(segment)) in (400, 404)


def test_a_dev_user_with_an_invisible_character_is_refused(dev):
    answer = httpx.get(f"{dev.url}/v1/stream", params={"user": "an\u200bn"}, timeout=5, trust_env=False)
    assert answer.status_code in (400, 401), answer.text
