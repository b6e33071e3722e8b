"""A session that is ended over another transport than the one it has."""
from support.json_client import Poller, Socket, Stream


def test_its_socket_is_told_to_come_back(dev):
    with Socket(dev, user="ann") as socket, Poller(dev, user="ann", session=socket.hello["session"]) as other:
        assert "ok" in other.command("bye")
        assert socket.closing() == ([], 4503)


def test_its_stream_is_told_that_it_has_ended(dev):
    with Stream(dev, user="ann") as stream:
        session = stream.greeting()["session"]
        with Poller(dev, user="ann", session=session) as other:
            assert "ok" in other.command("bye")
        _, last = stream.event()
        assert last["error"]["code"] == "gone"
        assert stream.event() is None
