"""Every granted and every missing right on every transport: a matrix from one table of grants."""
import pytest

from support import tokens
from support.json_client import Poller, Socket, Stream
from support.resp import ErrorReply, RespConnection
from support.tavern import Tavern

GRANTS = {
    "game#*": ["subscribe", "publish"],
    "read#1": ["subscribe"],
    "write#1": ["publish"],
    "set#[ab]": ["subscribe", "publish"],
    "join#*": ["join", "presence"],
    # Rights on reserved kinds do not allow publishing there.
    "user#*": ["subscribe", "publish"],
    "party#*": ["subscribe", "publish"],
    "tavern*": ["subscribe", "publish"],
}

# (verb, target, allowed)
CASES = [
    ("subscribe", "game#1", True),
    ("subscribe", "game#", True),
    ("subscribe", "game", False),
    ("subscribe", "games#1", False),
    ("subscribe", "read#1", True),
    ("subscribe", "read#10", False),
    ("subscribe", "write#1", False),
    ("subscribe", "set#a", True),
    ("subscribe", "set#c", False),
    ("subscribe", "join#1", False),
    ("subscribe", "other#1", False),
    ("pattern", "game#*", True),
    ("pattern", "game#1*", True),
    ("pattern", "game#?[x]", True),
    ("pattern", "game*", False),
    ("pattern", "g*", False),
    ("pattern", "*", False),
    ("pattern", "?ame#1", False),
    ("pattern", "[g]ame#*", False),
    ("pattern", "read#1", True),
    ("pattern", "read#*", False),
    ("pattern", "write#*", False),
    ("pattern", "set#[ab]", True),
    ("pattern", "set#*", False),
    ("pattern", "join#*", False),
    ("publish", "game#1", True),
    ("publish", "write#1", True),
    ("publish", "write#2", False),
    ("publish", "read#1", False),
    ("publish", "set#b", True),
    ("publish", "set#d", False),
    ("publish", "join#1", False),
    ("publish", "other#1", False),
    ("publish", "user#tester", False),
    ("publish", "user", False),
    ("publish", "party#1", False),
    ("publish", "tavern", False),
    ("publish", "tavern#x", False),
]


def fields(verb, target):
    return {
        "subscribe": ("subscribe", {"channel": target}),
        "pattern": ("subscribe", {"pattern": target}),
        "publish": ("publish", {"channel": target, "data": 1}),
    }[verb]


class OverSocket:
    def __init__(self, server, token):
        self.client = Socket(server, token=token)

    def ask(self, verb, target):
        op, more = fields(verb, target)
        return "ok" if "ok" in (reply := self.client.call(op, **more)) else reply["error"]["code"]

    def close(self):
        self.client.close()


class OverCommand:
    def __init__(self, server, token):
        self.client = Poller(server, token=token)
        self.client.ok("hello")

    def ask(self, verb, target):
        op, more = fields(verb, target)
        response = self.client.command_response(op, **more)
        reply = response.json()
        if "ok" in reply:
            assert response.status_code == 200
            return "ok"
        assert response.status_code == 403
        return reply["error"]["code"]

    def close(self):
        self.client.close()


class OverStream(OverCommand):
    def __init__(self, server, token):
        self.stream = Stream(server, token=token)
        self.client = Poller(server, token=token, session=self.stream.greeting()["session"])

    def close(self):
        self.stream.close()
        self.client.close()


class OverRedis:
    """`how` logs in: AUTH with the token alone, or HELLO 3 AUTH."""

    def __init__(self, server, token, how):
        self.connection = RespConnection(server.resp_port)
        how(self.connection, token)

    def ask(self, verb, target):
        command = {
            "subscribe": ["SUBSCRIBE", target], "pattern": ["PSUBSCRIBE", target], "publish": ["PUBLISH", target, "x"],
        }[verb]
        answer = self.connection.call(*command)
        while isinstance(answer, list) and answer[0] in (b"message", b"pmessage"):
            answer = self.connection.read()
        if isinstance(answer, ErrorReply):
            assert answer.startswith("NOPERM"), answer
            return "not_allowed"
        if verb == "pattern":
            self.connection.call("PUNSUBSCRIBE", target)
        if verb == "subscribe":
            self.connection.call("UNSUBSCRIBE", target)
        return "ok"

    def close(self):
        self.connection.close()


def auth(connection, token):
    assert connection.call("AUTH", token) == "OK"


def auth_with_name(connection, token):
    assert connection.call("AUTH", "anyname", token) == "OK"


def hello(connection, token):
    assert connection.call("HELLO", "3", "AUTH", "default", token)[b"proto"] == 3


TRANSPORTS = {
    "WebSocket": OverSocket,
    "command": OverCommand,
    "stream": OverStream,
    "Redis AUTH": lambda server, token: OverRedis(server, token, auth),
    "Redis AUTH with a name": lambda server, token: OverRedis(server, token, auth_with_name),
    "Redis HELLO AUTH": lambda server, token: OverRedis(server, token, hello),
}


def user_token(name, allow):
    """A token of a user of its own: the commands of one user are limited per second."""
    return tokens.token(f"rights-{name.replace(' ', '-')}", allow=allow)


@pytest.fixture(scope="module")
def clients(serve):
    made = {}

    def get(transport):
        if transport not in made:
            made[transport] = TRANSPORTS[transport](serve, user_token(transport, GRANTS))
        return made[transport]

    yield get
    for client in made.values():
        client.close()


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("verb, target, allowed", CASES)
def test_the_token_decides_each_right(clients, transport, verb, target, allowed):
    assert clients(transport).ask(verb, target) == ("ok" if allowed else "not_allowed")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_token_without_rights_is_refused_everything(serve, transport):
    client = TRANSPORTS[transport](serve, user_token(f"{transport} without rights", {}))
    for verb in ("subscribe", "pattern", "publish"):
        assert client.ask(verb, "game#1") == "not_allowed"
    client.close()


def test_the_configuration_grants_default_rights(serve_with_defaults):
    server = serve_with_defaults
    with Socket(server, token=tokens.token("ann", allow={})) as socket:
        assert "ok" in socket.call("subscribe", channel="lobby#1")
        assert socket.call("publish", channel="lobby#1", data=1)["error"]["code"] == "not_allowed"
        assert "ok" in socket.call("publish", channel="chat#1", data=1)
        assert socket.call("subscribe", channel="game#1")["error"]["code"] == "not_allowed"


@pytest.fixture(scope="module")
def serve_with_defaults():
    with Tavern.serve('[kinds.lobby]\nallow = ["subscribe"]\n[kinds.chat]\nallow = ["subscribe", "publish"]\n') as server:
        yield server
