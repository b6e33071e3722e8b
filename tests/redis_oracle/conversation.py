"""A scripted conversation: several named connections, steps in sequence, and what each connection receives.

    ## a title that states a fact                 one conversation; words in [brackets] after it are its options
    a> SUBSCRIBE x y                              connection `a` sends a command (quotes and \\xNN as in redis-cli)
    a> PING ; ECHO hi                             several commands in one write
    a= "PING\\r\\n"                               raw bytes
    a< "+PONG\\r\\n"                              the bytes that `a` must receive, where the oracle cannot tell
    -- text                                       reason

Options: [resp2] or [resp3] (only that protocol), [redis72] (the expected bytes are written here), and the names of
normalisations (`normal.py`). Must hold: no waiting by time. A step is over when the server has answered later pings on a separate
connection and every connection has only complete frames.
"""
import dataclasses
import pathlib
import re

from support.process import until
from support.resp import CLOSED, RespConnection, pack

HERE = pathlib.Path(__file__).parent
STEP = re.compile(r"^([a-z])([>=<]) (.*)$")
OPTIONS = {"resp2", "resp3", "redis72"}


@dataclasses.dataclass
class Step:
    who: str
    data: bytes
    text: str
    expected: dict


@dataclasses.dataclass
class Conversation:
    title: str
    source: str
    options: set
    steps: list
    reason: str

    @property
    def protocols(self):
        return [p for p in (2, 3) if not self.options & {"resp2", "resp3"} or f"resp{p}" in self.options]

    @property
    def normalisations(self):
        return sorted(self.options - OPTIONS)


def unquote(text):
    """Converts a quoted or bare word to bytes, with \\xNN, \\r, \\n, \\\\ and \\" inside double quotes."""
    if not text.startswith('"'):
        return text.encode()
    body = text[1:-1].encode("utf-8").decode("latin-1")
    escape = re.compile(r'\\(x[0-9a-fA-F]{2}|.)', re.S)
    plain = {"r": "\r", "n": "\n", "t": "\t", "0": "\0"}

    def one(match):
        code = match.group(1)
        return chr(int(code[1:], 16)) if code[0] == "x" and len(code) == 3 else plain.get(code, code)

    return escape.sub(one, body).encode("latin-1")


def words(text):
    """Splits at spaces outside double quotes. `{name*count}` gives count words, `<char*count>` one long word."""
    for word in re.findall(r'"(?:[^"\\]|\\.)*"|\S+', text):
        if many := re.fullmatch(r"\{(.+)\*(\d+)\}", word):
            yield from (f"{many[1]}{i}".encode() for i in range(int(many[2])))
        elif long := re.fullmatch(r"<(.)\*(\d+)>", word):
            yield long[1].encode() * int(long[2])
        else:
            yield unquote(word)


def load():
    found = []
    for path in sorted((HERE / "conversations").glob("*.txt")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            line = line.rstrip()
            if line.startswith("## "):
                options = set(re.findall(r"\[([a-z0-9]+)\]", line))
                title = re.sub(r"\s*\[[a-z0-9]+\]", "", line[3:]).strip()
                found.append(Conversation(title, path.stem, options, [], ""))
            elif line.startswith("-- "):
                found[-1].reason += line[3:] + " "
            elif line and not line.startswith("# "):
                read_step(found[-1], line, f"{path.name}:{number}")
    return found


def read_step(conversation, line, place):
    match = STEP.match(line)
    if not match:
        raise ValueError(f"{place}: not a step: {line}")
    who, kind, text = match.groups()
    if kind == "<":
        conversation.steps[-1].expected.setdefault(who, []).append(b"".join(words(text)))
        return
    if kind == "=":
        data = b"".join(words(text))
    else:
        data = b"".join(pack(*words(command)) for command in re.split(r" ; ", text))
    conversation.steps.append(Step(who, data, line, {}))


class Replay:
    """Replays conversations on one server."""

    def __init__(self, port):
        self.port = port
        self.control = RespConnection(port)

    def run(self, conversation, protocol, at_least=None):
        """Per step: the frames that each connection received. `at_least` is the number of frames from the other server, so
        that a multi-threaded server gets the time to send as many."""
        connections, results = {}, []
        try:
            for name in sorted({step.who for step in conversation.steps}):
                connections[name] = RespConnection(self.port)
                if protocol == 3:
                    connections[name].call("HELLO", "3")
            self.settle()
            for number, step in enumerate(conversation.steps):
                connections[step.who].send(step.data)
                self.settle(len(step.data))
                received = {name: c.frames_so_far() for name, c in connections.items()}
                if at_least:
                    self.wait(connections, received, at_least[number])
                results.append({name: frames for name, frames in received.items() if frames})
        finally:
            for connection in connections.values():
                connection.close()
            self.empty()
        return results

    def settle(self, size=0):
        # The first reply may belong to the same event loop turn as the step; the second cannot. A large command is read
        # in several turns, 16 KiB each in Redis.
        for _ in range(2 + size // 4096):
            assert self.control.call("PING") == "PONG"

    def wait(self, connections, received, wanted):
        def enough():
            for name, count in wanted.items():
                known = received.setdefault(name, [])
                if len(known) < count and CLOSED not in known:
                    known += connections[name].frames_so_far()
            return all(len(received[n]) >= count or CLOSED in received[n] for n, count in wanted.items())

        try:
            until(enough, "as many frames as the oracle sent", timeout=1.0)
        except TimeoutError:
            pass  # The comparison shows which are missing.

    def empty(self):
        """Waits until no subscriptions are left from the last conversation."""
        def unused():
            return (
                self.control.call("PUBSUB", "CHANNELS") == []
                and self.control.call("PUBSUB", "SHARDCHANNELS") == []
                and self.control.call("PUBSUB", "NUMPAT") == 0
            )

        until(unused, "the connections of the last conversation to close")

    def close(self):
        self.control.close()
