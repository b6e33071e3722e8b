"""A thousand subscriptions whose endpoints are dead or hang stand beside one that is well: its events are delivered about as
soon as without them."""
import time

import pytest

from events.conftest import client
from events.endpoint import Endpoint, Silence
from events.office import publish, put, report
from events.workers import connections
from support.process import free_port, until
from support.tavern import Tavern

CROWD = 1_000
# They hang for as long as they may, and are tried again all the time.
CONFIG = """
[events]
request_timeout_ms = 3000
backoff_max_ms = 20000
"""
SAMPLES = 200
# What the machine adds to a hundredth of the times without anybody's doing.
NOISE_S = 0.040
ROUNDS = 4


def p99(api, topic, endpoint):
    """From the request that publishes to the arrival of the post, in a hundredth of the cases longer than this."""
    times = []
    for _ in range(SAMPLES):
        seen, began = len(endpoint.posts), time.monotonic()
        publish(api, topic, {"type": "x"})
        times.append(endpoint.posted(seen + 1)[-1].at - began)
    return sorted(times)[SAMPLES * 99 // 100 - 1]


@pytest.fixture(scope="module")
def scene():
    """The healthy one, its time alone, and the crowd, every one of which was tried."""
    with Tavern.dev(CONFIG) as server, client(server, server.key) as api, Endpoint() as endpoint, Silence() as silence:
        put(api, "healthy", topics=["mine", "shared"], callback=endpoint.url, timeout_ms=0)
        p99(api, "mine", endpoint)
        alone = min(p99(api, "mine", endpoint) for _ in range(2))
        dead = f"http://127.0.0.1:{free_port()}/hook"
        for n in range(CROWD):
            put(api, f"crowd-{n}", topics=["shared"], callback=silence.url if n % 2 else dead, timeout_ms=0, max_events=10_000)
        publish(api, "shared", [{"type": "x"}] * 10)
        until(lambda: connections(silence.port) == CROWD // 2, "half of them to hang", 30)
        until(lambda: report(api, f"crowd-{CROWD - 1}")["health"] == "failing", "the first to be given up", 30)
        yield api, endpoint, alone
        told = [report(api, f"crowd-{n}") for n in range(0, CROWD, 100)]
        assert all(one["health"] == "failing" and one["queued"] > 10 for one in told), "they were broken all the time"


@pytest.mark.alone
@pytest.mark.parametrize("topic", ["mine", "shared"])
def test_a_thousand_broken_endpoints_do_not_delay_a_healthy_one(scene, topic):
    api, endpoint, alone = scene
    # The rest of the machine can only make it slower.
    beside = []
    while len(beside) < ROUNDS and (not beside or min(beside) > 2 * alone + NOISE_S):
        beside.append(p99(api, topic, endpoint))
    assert min(beside) <= 2 * alone + NOISE_S, f"alone {alone:.3f} s, beside the crowd {beside}"
