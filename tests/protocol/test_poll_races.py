"""Ten thousand times an event sets out just when its poll parks: no wake-up is lost, nothing comes twice.

Polls go over connections that stay open, one per session; one thread sends polls and words in the order of a drawn timetable, so
that a word leaves up to two milliseconds before or after its poll. Two shards: half of the words come from the other one.
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


class Line:
    """One session that polls over one connection."""

    def __init__(self, server, name):
        self.channel = f"race#{name}"
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=5)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.cursor = 0
        self.said = 0
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
        """A whole answer out of what has come, or None."""
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
def lines(server, request):
    lines = [Line(server, f"{request.node.name}-{number}") for number in range(SESSIONS)]
    yield lines
    for line in lines:
        line.socket.close()


@pytest.fixture
def speakers(server):
    """Consecutive connections are on different shards."""
    speakers = [RespConnection(server.resp_port) for _ in range(2)]
    yield speakers
    for speaker in speakers:
        speaker.close()


def run(lines, speakers, draw, timeout_ms):
    """One round: a poll and a word for each line. Returns the answers and the longest that one took."""
    timetable = []
    for line in lines:
        at = draw.uniform(0, 0.002)
        # Half of the races are close ones.
        spread = draw.choice([0.002, 0.0002])
        timetable.append((at, line, None))
        timetable.append((at + draw.uniform(-spread, spread), line, draw.choice(speakers)))
    timetable.sort(key=lambda entry: entry[0])
    sent, said = {}, {speaker: 0 for speaker in speakers}
    began = time.perf_counter() - timetable[0][0]
    for at, line, speaker in timetable:
        while time.perf_counter() - began < at:
            pass
        if speaker is None:
            sent[line] = time.perf_counter()
            line.send_poll(timeout_ms)
        else:
            line.said += 1
            speaker.send(pack("PUBLISH", line.channel, line.said))
            said[speaker] += 1
    answers, longest = {}, 0.0
    waiting = {line.socket.fileno(): line for line in lines}
    poll = select.poll()
    for number in waiting:
        poll.register(number, select.POLLIN)
    while waiting:
        ready = poll.poll(PATIENCE * 1000)
        late = {line.channel: line.said for line in waiting.values()}
        assert ready, f"no answer within {PATIENCE} s for {late}"
        for number, _ in ready:
            line = waiting[number]
            line.fill()
            if (answer := line.cut()) is not None:
                answers[line] = answer
                longest = max(longest, time.perf_counter() - sent[line])
                del waiting[number]
                poll.unregister(number)
    for speaker, count in said.items():
        assert [speaker.read() for _ in range(count)] == [1] * count
    return answers, longest


def take(line, answer):
    """The answer's events are exactly the next ones after the cursor."""
    assert not answer.get("gap") and not answer.get("reset") and not answer.get("superseded")
    numbers = [(event["seq"], event["data"]) for event in answer["events"]]
    expected = [(number, number) for number in range(line.cursor + 1, line.cursor + 1 + len(numbers))]
    assert numbers == expected, f"{line.channel} after {line.cursor}"
    assert answer["cursor"] == line.cursor + len(numbers)
    line.cursor = answer["cursor"]


def test_a_poll_that_parks_while_its_event_arrives_is_answered(lines, speakers):
    draw = random.Random(7)
    for _ in range(10_000 // SESSIONS):
        answers, longest = run(lines, speakers, draw, timeout_ms=20_000)
        for line, answer in answers.items():
            take(line, answer)
            assert line.cursor == line.said, "each poll brings the word of its round"
        assert longest < PATIENCE


def test_an_event_that_arrives_while_its_poll_ends_comes_once(lines, speakers):
    """The poll gives up after 0 to 3 ms, about when the word comes: it is in this answer or in the next."""
    draw = random.Random(8)
    empty = 0
    for _ in range(2_000 // SESSIONS):
        answers, longest = run(lines, speakers, draw, timeout_ms=draw.randrange(0, 4))
        for line, answer in answers.items():
            empty += not answer["events"]
            take(line, answer)
        assert longest < PATIENCE
    for line in lines:
        while line.cursor < line.said:
            line.send_poll(5_000)
            while (answer := line.cut()) is None:
                line.fill()
            take(line, answer)
            assert answer["events"], "a word was lost"
    assert empty > 0, "no poll ended before its word: the race was not run"
