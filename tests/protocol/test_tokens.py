"""Invalid tokens are rejected on every transport."""
import httpx
import pytest
import websockets.exceptions

from support import tokens
from support.json_client import Poller, Socket, Stream
from support.resp import ErrorReply, RespConnection

BAD = tokens.refused()


@pytest.fixture(params=BAD)
def bad(request):
    return BAD[request.param]


@pytest.fixture(params=[name for name, token in BAD.items() if token])
def bad_and_present(request):
    """Without the empty token: in a URL it means no token, and a WebSocket may still send hello."""
    return BAD[request.param]


def test_an_invalid_token_in_hello_is_rejected(serve, bad, channel):
    with Socket(serve) as socket:
        assert socket.call("hello", token=bad)["error"]["code"] == "unauthenticated"
        assert socket.call("subscribe", channel=channel)["error"]["code"] == "unauthenticated"


def refused_socket(server, **how):
    """Whether the handshake is refused, or the first frame is an error and nothing follows."""
    try:
        with Socket(server, greet=False, **how) as socket:
            assert socket.frame()["error"]["code"] == "unauthenticated"
            return True
    except websockets.exceptions.InvalidStatus as refusal:
        return refusal.response.status_code == 401


def test_an_invalid_token_in_a_websocket_url_is_rejected(serve, bad_and_present):
    assert refused_socket(serve, token=bad_and_present)


def test_an_invalid_token_in_a_websocket_header_is_rejected(serve, bad_and_present):
    assert refused_socket(serve, headers={"authorization": f"Bearer {bad_and_present}"})


@pytest.mark.parametrize("path", ["/v1/command", "/v1/poll"])
def test_an_invalid_token_in_a_request_header_is_rejected(serve, bad_and_present, path):
    body = {"op": "hello"} if path == "/v1/command" else {}
    headers = {"authorization": f"Bearer {bad_and_present}"}
    response = httpx.post(f"{serve.url}{path}", json=body, headers=headers, timeout=5, trust_env=False)
    assert response.status_code == 401
    assert response.json()["error"]["code"] == "unauthenticated"


@pytest.mark.parametrize("path", ["/v1/command", "/v1/poll"])
def test_an_invalid_token_in_a_request_url_is_rejected(serve, bad, path):
    body = {"op": "hello"} if path == "/v1/command" else {}
    response = httpx.post(f"{serve.url}{path}", params={"token": bad}, json=body, timeout=5, trust_env=False)
    assert response.status_code == 401


def test_an_invalid_token_on_a_stream_is_rejected(serve, bad_and_present):
    for how in ({"params": {"token": bad_and_present}}, {"headers": {"authorization": f"Bearer {bad_and_present}"}}):
        assert httpx.get(f"{serve.url}/v1/stream", timeout=5, trust_env=False, **how).status_code == 401


def test_an_invalid_token_in_redis_auth_is_rejected(serve, bad):
    connection = RespConnection(serve.resp_port)
    for command in (["AUTH", bad], ["AUTH", "default", bad], ["HELLO", "3", "AUTH", "default", bad]):
        answer = connection.call(*command)
        assert isinstance(answer, ErrorReply) and answer.startswith("WRONGPASS"), (command, answer)
    assert connection.call("PUBLISH", "game#1", "x").startswith("NOAUTH")
    connection.close()


def test_an_invalid_token_is_rejected_as_an_api_key(serve, bad_and_present):
    headers = {"authorization": f"Bearer {bad_and_present}"}
    url = f"{serve.url}/v1/channels/game%231/messages"
    assert httpx.post(url, json={"data": 1}, headers=headers, timeout=5, trust_env=False).status_code == 401


def test_an_invalid_token_is_rejected_in_dev_mode(dev, bad_and_present):
    assert refused_socket(dev, token=bad_and_present)


def test_a_session_is_closed_when_its_token_expires(serve, channel):
    with Socket(serve, token=tokens.token("ann", ttl=2)) as socket:
        session = socket.hello["session"]
        frames, code = socket.closing(timeout=10)
        assert code is not None, "closed with a code"
        with Socket(serve, token=tokens.token("ann")) as back:
            assert back.ok("hello", session=session, seq=0)["resumed"] is False


def test_a_renewed_token_keeps_the_session(serve, channel):
    with Socket(serve, token=tokens.token("ann", ttl=3)) as socket:
        again = socket.ok("hello", token=tokens.token("ann", ttl=3600))
        assert again["session"] == socket.hello["session"]
        with pytest.raises(TimeoutError):
            socket.frame(timeout=4.5)
        assert "ok" in socket.call("subscribe", channel=channel)


def test_a_token_of_another_user_starts_another_session(serve):
    with Socket(serve, token=tokens.token("ann")) as socket:
        reply = socket.call("hello", token=tokens.token("bob"))
        assert "error" in reply or reply["ok"]["session"] != socket.hello["session"]


@pytest.fixture
def attacker(serve):
    """A client that knows the session of another user and uses its own token."""
    with Poller(serve, token=tokens.token("ann")) as ann, Poller(serve, token=tokens.token("bob")) as bob:
        bob.session = ann.ok("hello")["session"]
        bob.borrowed = True
        yield bob


def test_a_command_with_the_token_of_another_user_is_refused(attacker, channel):
    assert "error" in attacker.command("subscribe", channel=channel)


def test_a_poll_with_the_token_of_another_user_does_not_get_the_mailbox(attacker):
    session = attacker.session
    answer = attacker.poll_response(timeout_ms=0).json()
    assert "error" in answer or answer["session"] != session


def test_a_stream_with_the_token_of_another_user_does_not_get_the_mailbox(serve, attacker):
    with Stream(serve, token=tokens.token("bob"), session=attacker.session, seq=0) as stream:
        assert stream.status in (401, 403) or stream.greeting()["resumed"] is False


@pytest.mark.parametrize("header, says", [
    ("Bearer", "Authorization: Bearer TOKEN"),
    ("Bearer not-a-token", "neither a token"),
    (f"Bearer {BAD['expiry in milliseconds']}", "in seconds"),
    (f"Bearer {BAD['expiry is text']}", "the claim exp must be a number"),
    (f"Bearer {tokens.token(7)}", "the claim sub must be text"),
    (f"Bearer {tokens.token(allow=['join'])}", "the claim allow must be an object"),
])
def test_a_refusal_says_what_to_do(serve, header, says):
    answer = httpx.post(f"{serve.url}/v1/command", headers={"authorization": header}, json={"op": "hello"}, timeout=5, trust_env=False)
    assert answer.status_code == 401 and says in answer.json()["error"]["message"], answer.text
    assert "API key is unknown" not in answer.text


def test_a_token_without_rights_is_told_so(serve, channel):
    with Socket(serve, token=tokens.token("ann", allow={})) as socket:
        error = socket.call("subscribe", channel=channel)["error"]
        assert error["code"] == "not_allowed" and "the token gives no rights" in error["message"]
    with Socket(serve, token=tokens.token("ann", allow={"other": ["join"]})) as socket:
        assert "gives no rights" not in socket.call("subscribe", channel=channel)["error"]["message"]


@pytest.mark.parametrize("path", ["/ws", "/socket.io/?EIO=4&transport=polling"])
def test_the_addresses_of_other_servers_lead_to_ours(serve, path):
    answer = httpx.get(serve.url + path, timeout=5, trust_env=False)
    assert answer.status_code == 404 and "/v1/connect" in answer.json()["error"]["message"]


def test_http_on_the_redis_port_is_told_where_it_is(serve):
    answer = httpx.get(f"http://127.0.0.1:{serve.resp_port}/v1/connect", timeout=5, trust_env=False)
    assert answer.status_code == 400 and "Redis protocol" in answer.text
