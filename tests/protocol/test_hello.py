"""Hello: authentication and session start on each transport."""
import pytest

from support import tokens
from support.json_client import Poller, Socket, Stream
from support.resp import RespConnection

FIELDS = {"session", "client", "user", "node", "epoch", "resumed", "seq", "heartbeat_ms"}


def check(hello, user):
    assert FIELDS <= set(hello), f"missing: {FIELDS - set(hello)}"
    assert "party" in hello
    assert hello["user"] == user
    assert hello["resumed"] is False
    assert hello["seq"] == 0
    assert hello["session"] != hello["client"], "the secret is not the public id"


def test_the_first_frame_is_the_reply_to_the_implicit_hello(dev, user):
    with Socket(dev, user=user, greet=False) as socket:
        frame = socket.frame()
        assert "id" not in frame
        check(frame["ok"], user)


def test_a_token_in_the_url_is_an_implicit_hello(dev):
    with Socket(dev, token=tokens.token("ann")) as socket:
        check(socket.hello, "ann")


def test_a_token_in_the_header_is_an_implicit_hello(dev):
    with Socket(dev, headers={"authorization": f"Bearer {tokens.token('ann')}"}) as socket:
        check(socket.hello, "ann")


def test_a_token_in_hello_authenticates(serve):
    with Socket(serve) as socket:
        check(socket.ok("hello", token=tokens.token("ann")), "ann")


def test_a_token_without_a_subject_is_anonymous(serve):
    with Socket(serve, token=tokens.token(None)) as socket:
        assert socket.hello["user"] is None


def test_a_command_before_hello_is_refused(serve, channel):
    with Socket(serve) as socket:
        assert socket.call("subscribe", channel=channel)["error"]["code"] == "unauthenticated"
        assert "ok" in socket.call("hello", token=tokens.token())
        assert "ok" in socket.call("subscribe", channel=channel)


def test_a_user_name_in_the_url_works_only_in_dev_mode(serve):
    with Poller(serve, user="ann") as poller:
        response = poller.command_response("hello")
        assert response.status_code == 401
        assert response.json()["error"]["code"] == "unauthenticated"


def test_hello_by_command_creates_a_session(dev, user, channel):
    with Poller(dev, user=user) as poller:
        check(poller.ok("hello"), user)
        poller.ok("subscribe", channel=channel)


def test_the_first_poll_creates_a_session(dev, user, channel):
    with Poller(dev, user=user) as poller:
        answer = poller.poll(timeout_ms=0)
        assert answer["events"] == [] and answer["cursor"] == 0
        assert "party" in answer
        poller.ok("subscribe", channel=channel)


def test_a_stream_starts_with_the_reply_to_hello(dev, user):
    with Stream(dev, user=user) as stream:
        assert stream.status == 200
        assert stream.response.headers["content-type"].startswith("text/event-stream")
        check(stream.greeting(), user)


def test_a_second_hello_keeps_the_session(dev, user):
    with Socket(dev, user=user) as socket:
        again = socket.ok("hello")
        assert again["session"] == socket.hello["session"]
        assert again["client"] == socket.hello["client"]


def test_a_command_without_a_session_over_http_is_refused(dev, user, channel):
    with Poller(dev, user=user) as poller:
        reply = poller.command("subscribe", channel=channel)
        assert "error" in reply


@pytest.mark.parametrize("session", ["nonsense", "", "a" * 500])
def test_a_command_for_an_unknown_session_is_refused(dev, user, channel, session):
    with Poller(dev, user=user, session=session) as poller:
        response = poller.command_response("subscribe", channel=channel)
        assert "error" in response.json()
        assert 400 <= response.status_code < 500


def test_redis_needs_auth_in_serve_mode(serve):
    connection = RespConnection(serve.resp_port)
    assert connection.call("PUBLISH", "x", "y").startswith("NOAUTH")
    assert connection.call("PING").startswith("NOAUTH")
    assert connection.call("AUTH", tokens.token()) == "OK"
    assert connection.call("PUBLISH", "game#x", "y") == 0
    connection.close()


def test_redis_hello_may_carry_the_token(serve):
    connection = RespConnection(serve.resp_port)
    assert connection.call("HELLO", "3").startswith("NOAUTH")
    answer = connection.call("HELLO", "3", "AUTH", "default", tokens.token())
    assert answer[b"proto"] == 3
    assert connection.call("PUBLISH", "game#x", "y") == 0
    connection.close()
