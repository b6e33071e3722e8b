"""The pub/sub behaviour of Redis, conversation by conversation, with the real redis-server as the oracle."""
import pytest

from support.redis_server import RedisServer
from support.tavern import Tavern

from .conversation import Stage, load
from .normal import normal

ALL = load()
CASES = [(conversation, protocol) for conversation in ALL for protocol in conversation.protocols]

# One thread: commands apply in arrival order across connections, as in Redis.
CONFIG = """
threads = 1
[limits]
channels_per_session = 5000
"""


@pytest.fixture(scope="module")
def oracle(redis_oracle):
    stage = Stage(redis_oracle.resp_port)
    yield stage
    stage.close()


@pytest.fixture(scope="module")
def subject(request):
    with RedisServer() if request.config.getoption("--subject") == "redis" else Tavern.dev(CONFIG) as server:
        stage = Stage(server.resp_port)
        yield stage
        stage.close()


def name(case):
    conversation, protocol = case
    return f"{conversation.source}: {conversation.title} (RESP{protocol})"


def test_there_are_at_least_150_conversations():
    assert len(ALL) >= 150
    titles = [(c.source, c.title) for c in ALL]
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize("case", CASES, ids=name)
def test_as_redis_does(case, oracle, subject, request):
    conversation, protocol = case
    if "redis72" in conversation.options:
        if request.config.getoption("--subject") == "redis":
            pytest.skip("the installed redis-server is older than the behaviour")
        assert conversation.reason, "a hand-written expectation says why"
        expected = [step.expected for step in conversation.steps]
    else:
        expected = oracle.hold(conversation, protocol)
    wanted = [{who: len(frames) for who, frames in step.items()} for step in expected]
    heard = subject.hold(conversation, protocol, at_least=wanted)
    rules = conversation.normalisations
    for step, right, got in zip(conversation.steps, expected, heard):
        for who in sorted(set(right) | set(got)):
            right_frames, got_frames = right.get(who, []), got.get(who, [])
            # Not `assert`: pytest would add its own long account of two lists of bytes.
            if normal(got_frames, rules) != normal(right_frames, rules):
                pytest.fail(
                    f"after {step.text[:200]}\nconnection {who} heard  {str(got_frames)[:1500]}\n"
                    f"instead of          {str(right_frames)[:1500]}", pytrace=False,
                )
