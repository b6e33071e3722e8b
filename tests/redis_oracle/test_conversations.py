"""Scripted conversations compared with a real redis-server as the oracle."""
import pytest

from support.redis_server import RedisServer
from support.tavern import Tavern

from .conversation import Replay, load
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
    replay = Replay(redis_oracle.resp_port)
    yield replay
    replay.close()


@pytest.fixture(scope="module")
def subject(request):
    with RedisServer() if request.config.getoption("--subject") == "redis" else Tavern.dev(CONFIG) as server:
        replay = Replay(server.resp_port)
        yield replay
        replay.close()


def name(case):
    conversation, protocol = case
    return f"{conversation.source}: {conversation.title} (RESP{protocol})"


def test_at_least_150_conversations_are_found():
    assert len(ALL) >= 150
    titles = [(c.source, c.title) for c in ALL]
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize("case", CASES, ids=name)
def test_conversation_matches_redis(case, oracle, subject, request):
    conversation, protocol = case
    if "redis72" in conversation.options:
        if request.config.getoption("--subject") == "redis":
            pytest.skip("the installed redis-server is older than this behaviour")
        assert conversation.reason, "a hand-written expectation needs a reason"
        expected = [step.expected for step in conversation.steps]
    else:
        expected = oracle.run(conversation, protocol)
    wanted = [{who: len(frames) for who, frames in step.items()} for step in expected]
    received = subject.run(conversation, protocol, at_least=wanted)
    rules = conversation.normalisations
    for step, right, got in zip(conversation.steps, expected, received):
        for who in sorted(set(right) | set(got)):
            right_frames, got_frames = right.get(who, []), got.get(who, [])
            # Not `assert`: pytest would add a long diff of two lists of bytes.
            if normal(got_frames, rules) != normal(right_frames, rules):
                pytest.fail(
                    f"after {step.text[:200]}\nconnection {who} received {str(got_frames)[:1500]}\n"
                    f"expected          {str(right_frames)[:1500]}", pytrace=False,
                )
