"""Ten thousand events that arrive just as their poll parks: no wake-up is lost, no event is delivered twice.

Each session polls over its own keep-alive connection. One thread sends polls and messages in a random schedule: a message is sent
up to two milliseconds before or after its poll. Two shards: half of the messages come from the other shard.
"""
import json
import random
import select
import socket
import time

import pytest

from support.resp import RespConnection, pack
from support.tavern import Tavern

pytestmark = pytest.mark.alone
SESSIONS = 50
PATIENCE = 1.0


@pytest.fixture(scope="module")
def server():
    with Tavern.dev("threads = 2\n") as server:
        yield server


class PollSession:
    """A session that polls over one connection."""

    def __init__(self, server, name):
        self.channel = f"race#{name}"
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=5)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.cursor = 0
        self.published = 0
        self.path = f"?user=racer-{name}"
        self.session = self.ask("/v1/command", {"op": "hello"})["ok"]["session"]
        assert "ok" in self.ask("/v1/command", {"op": "subscribe", "channel": self.channel, "session": self.session})

    def send(self, path, body):
        text = json.dumps(body).encode()
        head = f"POST {path}{self.path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(text)}\r\n\r\n"
        self.socket.sendall(head.encode() + text)

    def send_poll(self, timeout_ms):
        self.send("/v1/poll", {"session": self.session, "cursor": self.cursor, "timeout_ms": timeout_ms})

    def cut(self):
        """A complete response from the buffer, or None."""
        head, found, rest = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return None
        assert head.startswith(b"HTTP/1.1 200"), head
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        if len(rest) < length:
            return None
        self.buffer = rest[length:]
        return json.loads(rest[:length])

    def fill(self):
        data = self.socket.recv(65_536)
        assert data, "the server closed the connection"
        self.buffer += data

    def ask(self, path, body):
        self.send(path, body)
        while (answer := self.cut()) is None:
            self.fill()
        return answer


@pytest.fixture
def sessions(server, request):
    sessions = [PollSession(server, f"{request.node.name}-{number}") for number in range(SESSIONS)]
    yield sessions
    for session in sessions:
        session.socket.close()


@pytest.fixture
def publishers(server):
    """Consecutive connections go to different shards."""
    publishers = [RespConnection(server.resp_port) for _ in range(2)]
    yield publishers
    for publisher in publishers:
        publisher.close()


def run(sessions, publishers, draw, timeout_ms):
    """One round: a poll and a message for each session. Returns the responses and the longest wait."""
    timetable = []
    for session in sessions:
        at = draw.uniform(0, 0.002)
        # Half of the races are within 0.2 ms.
        spread = draw.choice([0.002, 0.0002])
        timetable.append((at, session, None))
        timetable.append((at + draw.uniform(-spread, spread), session, draw.choice(publishers)))
    timetable.sort(key=lambda entry: entry[0])
    sent, published = {}, {publisher: 0 for publisher in publishers}
    began = time.perf_counter() - timetable[0][0]
    for at, session, publisher in timetable:
        while time.perf_counter() - began < at:
            pass
        if publisher is None:
            sent[session] = time.perf_counter()
            session.send_poll(timeout_ms)
        else:
            session.published += 1
            publisher.send(pack("PUBLISH", session.channel, session.published))
            published[publisher] += 1
    answers, longest = {}, 0.0
    waiting = {session.socket.fileno(): session for session in sessions}
    poll = select.poll()
    for number in waiting:
        poll.register(number, select.POLLIN)
    while waiting:
        ready = poll.poll(PATIENCE * 1000)
        late = {session.channel: session.published for session in waiting.values()}
        assert ready, f"no answer within {PATIENCE} s for {late}"
        for number, _ in ready:
            session = waiting[number]
            session.fill()
            if (answer := session.cut()) is not None:
                answers[session] = answer
                longest = max(longest, time.perf_counter() - sent[session])
                del waiting[number]
                poll.unregister(number)
    for publisher, count in published.items():
        assert [publisher.read() for _ in range(count)] == [1] * count
    return answers, longest


def take(session, answer):
    """Checks that the events are exactly the next ones after the cursor."""
    assert not answer.get("gap") and not answer.get("reset") and not answer.get("superseded")
    numbers = [(event["seq"], event["data"]) for event in answer["events"]]
    expected = [(number, number) for number in range(session.cursor + 1, session.cursor + 1 + len(numbers))]
    assert numbers == expected, f"{session.channel} after {session.cursor}"
    assert answer["cursor"] == session.cursor + len(numbers)
    session.cursor = answer["cursor"]


def test_a_poll_that_parks_while_its_event_arrives_returns_it(sessions, publishers):
    draw = random.Random(7)
    for _ in range(10_000 // SESSIONS):
        answers, longest = run(sessions, publishers, draw, timeout_ms=20_000)
        for session, answer in answers.items():
            take(session, answer)
            assert session.cursor == session.published, "each poll returns the message of its round"
        assert longest < PATIENCE


def test_an_event_that_arrives_while_its_poll_times_out_is_delivered_once(sessions, publishers):
    """The poll times out after 0 to 3 ms, about when the message arrives: it is in this response or in the next."""
    draw = random.Random(8)
    empty = 0
    for _ in range(2_000 // SESSIONS):
        answers, longest = run(sessions, publishers, draw, timeout_ms=draw.randrange(0, 4))
        for session, answer in answers.items():
            empty += not answer["events"]
            take(session, answer)
        assert longest < PATIENCE
    for session in sessions:
        while session.cursor < session.published:
            session.send_poll(5_000)
            while (answer := session.cut()) is None:
                session.fill()
            take(session, answer)
            assert answer["events"], "a message was lost"
    assert empty > 0, "no poll timed out before its message: the race never happened"
