"""Expired tokens and revoked keys end what they opened, on every transport, also on another node."""
import contextlib
import time

import httpx
import pytest

from support import tokens
from support.json_client import Poller, Socket, Stream
from support.process import until
from support.resp import CLOSED, ErrorReply, RespConnection, parse
from support.tavern import Tavern

# Everything must end within this many seconds.
SOON = 5.0
TTL = 3


def read_until_closed(connection, timeout=SOON + TTL + 2):
    """What a Redis connection receives until it is closed."""
    values, end = [], time.monotonic() + timeout
    while time.monotonic() < end:
        frame = connection.frame(end - time.monotonic())
        if frame == CLOSED:
            return values
        values.append(parse(frame)[0])
    raise TimeoutError("the connection was not closed")


@contextlib.contextmanager
def ends_in_time(ttl=TTL):
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    assert took < ttl + SOON, f"it took {took:.1f} s"


def test_a_websocket_of_an_expired_token_is_closed(serve):
    with Socket(serve, token=tokens.token("ann", ttl=TTL)) as socket, ends_in_time():
        assert socket.closing(timeout=TTL + SOON)[1] == 4001


def test_a_stream_of_an_expired_token_ends(serve):
    with Stream(serve, token=tokens.token("ann", ttl=TTL)) as stream, ends_in_time():
        stream.greeting()
        _, last = stream.event(TTL + SOON)
        assert last["error"]["code"] == "unauthenticated"
        assert stream.event() is None


def test_a_parked_poll_of_an_expired_token_is_refused(serve):
    with Poller(serve, token=tokens.token("ann", ttl=TTL)) as poller, ends_in_time():
        poller.ok("hello")
        answer = poller.poll_response(timeout_ms=20_000)
        assert answer.status_code == 401


def test_a_silent_redis_subscriber_of_an_expired_token_is_closed(serve, channel):
    connection = RespConnection(serve.resp_port)
    assert connection.call("AUTH", tokens.token("ann", ttl=TTL)) == "OK"
    assert connection.call("SUBSCRIBE", channel)
    with ends_in_time():
        *_, last = read_until_closed(connection)
    assert isinstance(last, ErrorReply) and "expired" in last, last


def test_a_silent_redis_connection_of_an_expired_token_is_closed(serve):
    connection = RespConnection(serve.resp_port)
    assert connection.call("HELLO", "3", "AUTH", "default", tokens.token("ann", ttl=TTL))
    with ends_in_time():
        *_, last = read_until_closed(connection)
    assert isinstance(last, ErrorReply) and "expired" in last, last


def test_a_detached_session_of_an_expired_token_is_discarded(serve, channel):
    ann = Socket(serve, token=tokens.token("ann", ttl=TTL))
    session = ann.hello["session"]
    ann.drop()
    time.sleep(TTL + 2)
    with Socket(serve, headers={"authorization": f"Bearer {tokens.token('ann')}"}, greet=False) as back:
        back.frame()
        reply = back.ok("hello", session=session, seq=0)
        assert reply["resumed"] is False


@pytest.fixture
def pair(tmp_path):
    """Two servers on one folder."""
    data = tmp_path / "data"
    with Tavern.serve(data=data) as one, Tavern.serve(data=data) as two:
        yield one, two


def revoke(server, key):
    done = server.run("key", "revoke", "--config", server.config, "--data", server.data, key)
    assert done.returncode == 0, done.stderr


def test_a_revoked_key_ends_everything_on_all_nodes(pair, channel):
    one, two = pair
    key = one.api_key("publish", "presence", "admin")
    header = {"authorization": f"Bearer {key}"}
    with contextlib.ExitStack() as stack:
        socket = stack.enter_context(Socket(two, headers=header))
        stream = stack.enter_context(Stream(two, headers=header))
        stream.greeting()
        poller = stack.enter_context(Poller(two, headers=header))
        poller.ok("hello")
        redis = RespConnection(two.resp_port)
        assert redis.call("AUTH", key) == "OK"
        assert redis.call("SUBSCRIBE", channel)
        revoke(one, key)
        with ends_in_time(0):
            frames, code = socket.closing(timeout=SOON)
            assert code == 4004
            *_, last = read_until_closed(redis)
            assert isinstance(last, ErrorReply) and "revoked" in last
            while (event := stream.event(SOON)) is not None:
                last = event
            assert last[1]["error"]["code"] == "unauthenticated"
            until(lambda: poller.poll_response(timeout_ms=0).status_code == 401, "the poll to be refused", SOON)
            until(lambda: poller.command_response("ping").status_code == 401, "the command to be refused", SOON)
    answer = httpx.get(f"{two.url}/v1/nodes", headers=header, timeout=5, trust_env=False)
    assert answer.status_code == 401


def test_a_parked_poll_of_a_revoked_key_is_refused(serve):
    key = serve.api_key("presence")
    with Poller(serve, headers={"authorization": f"Bearer {key}"}) as poller:
        poller.ok("hello")
        revoke(serve, key)
        with ends_in_time(0):
            assert poller.poll_response(timeout_ms=20_000).status_code == 401


class TestResuming:
    """The session secret alone does not act for a session that a token opened."""

    @pytest.fixture
    def owner(self, serve):
        with Socket(serve, token=tokens.token("ann")) as socket:
            yield socket
            assert "ok" in socket.call("ping"), "the owner's connection is untouched"

    def test_a_poll_without_a_token_is_refused(self, serve, owner):
        body = {"session": owner.hello["session"], "cursor": 0, "timeout_ms": 0}
        assert httpx.post(f"{serve.url}/v1/poll", json=body, trust_env=False).status_code == 401

    def test_a_stream_without_a_token_is_refused(self, serve, owner):
        with Stream(serve, session=owner.hello["session"], seq=0) as stream:
            assert stream.status == 401

    def test_a_command_without_a_token_is_refused(self, serve, owner, channel):
        body = {"op": "subscribe", "channel": channel, "session": owner.hello["session"]}
        assert httpx.post(f"{serve.url}/v1/command", json=body, trust_env=False).status_code == 401

    def test_a_hello_without_a_token_is_refused(self, serve, owner):
        with Socket(serve) as other:
            assert other.call("hello", session=owner.hello["session"])["error"]["code"] == "unauthenticated"
        body = {"op": "hello", "session": owner.hello["session"]}
        assert httpx.post(f"{serve.url}/v1/command", json=body, trust_env=False).status_code == 401

    def test_an_expired_token_is_refused(self, serve, owner):
        headers = {"authorization": f"Bearer {tokens.token('ann', ttl=-60)}"}
        body = {"session": owner.hello["session"], "cursor": 0, "timeout_ms": 0}
        assert httpx.post(f"{serve.url}/v1/poll", json=body, headers=headers, trust_env=False).status_code == 401

    def test_a_key_does_not_resume_the_session_of_another_key(self, serve):
        first, second = serve.api_key("presence"), serve.api_key("presence")
        with Poller(serve, headers={"authorization": f"Bearer {first}"}) as owner:
            session = owner.ok("hello")["session"]
            body = {"op": "ping", "session": session}
            url, other = f"{serve.url}/v1/command", {"authorization": f"Bearer {second}"}
            assert httpx.post(url, json=body, headers=other, trust_env=False).status_code == 403
            assert "ok" in owner.command("ping")

    def test_a_fresh_token_of_the_same_user_resumes(self, serve, channel):
        with Poller(serve, token=tokens.token("ann")) as first:
            session = first.ok("hello")["session"]
            with Stream(serve, headers={"authorization": f"Bearer {tokens.token('ann')}"}, session=session, seq=0) as stream:
                assert stream.greeting()["resumed"] is True

    def test_an_anonymous_session_resumes_by_its_secret(self, serve):
        with Poller(serve, token=tokens.token(None)) as first:
            session = first.ok("hello")["session"]
            body = {"op": "ping", "session": session}
            assert "ok" in httpx.post(f"{serve.url}/v1/command", json=body, trust_env=False).json()

    def test_a_dev_session_resumes_by_its_secret(self, dev):
        with Poller(dev, user="ann") as first:
            session = first.ok("hello")["session"]
            body = {"session": session, "cursor": 0, "timeout_ms": 0}
            answer = httpx.post(f"{dev.url}/v1/poll", json=body, trust_env=False)
            assert answer.status_code == 200 and answer.json()["session"] == session

    def test_a_session_on_another_node_is_not_moved_by_its_secret(self, pair, channel):
        one, two = pair
        with Socket(one, token=tokens.token("ann")) as owner:
            body = {"session": owner.hello["session"], "cursor": 0, "timeout_ms": 0}
            assert httpx.post(f"{two.url}/v1/poll", json=body, trust_env=False).status_code in (401, 410)
            assert "ok" in owner.call("ping")
