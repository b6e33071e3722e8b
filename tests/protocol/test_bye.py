"""Ending a session over another transport than its own."""
from support.json_client import Poller, Socket, Stream


def test_its_websocket_is_closed_with_a_retry_code(dev):
    with Socket(dev, user="ann") as socket, Poller(dev, user="ann", session=socket.hello["session"]) as other:
        assert "ok" in other.command("bye")
        assert socket.closing() == ([], 4503)


def test_its_stream_ends(dev):
    with Stream(dev, user="ann") as stream:
        session = stream.greeting()["session"]
        with Poller(dev, user="ann", session=session) as other:
            assert "ok" in other.command("bye")
        _, last = stream.event()
        assert last["error"]["code"] == "gone"
        assert stream.event() is None
