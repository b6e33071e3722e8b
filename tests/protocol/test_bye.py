"""The end of a session: over its own connection or another one, and what arrives after it."""
from parties.party_user import session_count
from support.json_client import Poller, Socket, Stream, address
from support.process import until


def test_its_websocket_is_closed_with_a_retry_code(dev, user):
    with Socket(dev, user=user) as socket, Poller(dev, user=user, session=socket.hello["session"]) as other:
        assert "ok" in other.command("bye")
        assert socket.closing() == ([], 4503)


def test_its_stream_ends(dev, user):
    with Stream(dev, user=user) as stream:
        session = stream.greeting()["session"]
        with Poller(dev, user=user, session=session) as other:
            assert "ok" in other.command("bye")
        _, last = stream.event()
        assert last["error"]["code"] == "gone"
        assert stream.event() is None


def test_a_poll_that_arrives_after_bye_begins_no_session(dev, user):
    """Its client sent it before bye took effect. With a new session the user would be online again."""
    with Poller(dev, user=user) as poller:
        session = poller.ok("hello")["session"]
        poller.ok("bye")
        late = poller.poll_response(0, session=session)
        assert (late.status_code, late.json()["error"]["code"]) == (410, "gone")
        late = poller.command_response("subscribe", channel="game#A", session=session)
        assert (late.status_code, late.json()["error"]["code"]) == (410, "gone")
        late = poller.http.get(address("/v1/stream", user=user, session=session))
        assert (late.status_code, late.json()["error"]["code"]) == (410, "gone")
        until(lambda: session_count(dev, user) == 0, f"{user} to be offline")
        assert poller.ok("hello", session=session)["resumed"] is False
