"""SSE: event ids, one data line per event, commands by separate requests."""
import httpx

from support.json_client import Poller, Socket, Stream
from support.tavern import Tavern


def test_the_sse_id_is_the_seq(dev, user, channel):
    with Stream(dev, user=user) as stream, Socket(dev, user=f"{user}-publisher") as publisher:
        hello = stream.greeting()
        with Poller(dev, user=user, session=hello["session"]) as commands:
            assert "ok" in commands.command("subscribe", channel=channel)
            for message in ("a", {"b": [1, 2]}, None):
                publisher.ok("publish", channel=channel, data=message)
            received = [stream.event() for _ in range(3)]
            assert [number for number, _ in received] == [1, 2, 3]
            assert [frame["data"] for _, frame in received] == ["a", {"b": [1, 2]}, None]
            assert all(number == frame["seq"] for number, frame in received)


def test_a_line_break_between_tokens_becomes_a_space(dev, user, channel):
    with Stream(dev, user=user) as stream, Socket(dev, user=f"{user}-publisher") as publisher:
        session = stream.greeting()["session"]
        with Poller(dev, user=user, session=session) as commands:
            assert "ok" in commands.command("subscribe", channel=channel)
            publisher.send('{"op":"publish","channel":"%s","data":{\n"a":\r\n1}}' % channel)
            assert stream.event()[1]["data"] == {"a": 1}


def test_a_stream_without_a_token_is_refused(serve):
    response = httpx.get(f"{serve.url}/v1/stream", timeout=5, trust_env=False)
    assert response.status_code == 401
    assert response.json()["error"]["code"] == "unauthenticated"


def test_an_idle_stream_gets_keep_alive_comments():
    with Tavern.dev("[sessions]\nheartbeat_ms = 300\n") as server:
        with httpx.stream("GET", f"{server.url}/v1/stream?user=ann", timeout=5, trust_env=False) as response:
            lines = response.iter_lines()
            assert any(line.startswith(":") for line in lines)
