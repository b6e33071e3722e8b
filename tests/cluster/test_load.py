"""The load of the cluster over REST: every node tells its own, and what the others know of a node survives it."""
import time

import httpx

from support.json_client import Socket
from support.process import until

CONFIG = "[nodes]\nheartbeat_ms = 200\nlease_ms = 6000\n[sessions]\ndrain_ms = 1500\n"
POINTS = {"5m": (2_000, 150), "1h": (30_000, 120), "24h": (300_000, 288)}


def load(server, **query):
    answer = httpx.get(f"{server.url}/v1/load", params=query, headers={"authorization": f"Bearer {server.key}"}, timeout=10, trust_env=False)
    assert answer.status_code == 200, answer.text
    return answer.json()


def by_name(found):
    return {node["node"]: node for node in found["nodes"]}


def answering(server, count):
    """The load, once so many nodes answer and all of them know their figures."""
    def all_answer():
        found = load(server)
        nodes = [node for node in found["nodes"] if node["silent_ms"] is None and "cpu_percent" in node["figures"]]
        return len(nodes) == count and found
    return until(all_answer, f"{count} nodes to answer", 20)


def known(line):
    return [point for point in line if point is not None]


def test_every_node_shows_the_load_of_all(combination, channel):
    with combination.cluster(2, CONFIG) as (a, b), Socket(a, user="ann") as ann, Socket(b, user="bob") as bob:
        bob.ok("subscribe", channel=channel)
        answering(a, 2)
        for n in range(50):
            ann.ok("publish", channel=channel, data=n)
        # The rates are those of some steps of two seconds; their sum is what was published. The readings at the ends of a step are a
        # second more or less apart on a busy machine.
        rates = lambda server, name: 2 * sum(known(load(server, range="5m")["cluster"]["series"][name]))
        for server in (a, b):
            until(lambda: all(25 <= rates(server, name) <= 110 for name in ("published", "delivered")), "the rates of both nodes", 10)
            found = answering(server, 2)
            here, *others = found["nodes"]
            assert here["node"] == found["node"] and [node["silent_ms"] for node in others] == [None]
            assert all(node["alive"] and node["store_up"] and node["bus_up"] and not node["stopping"] for node in found["nodes"])
            until(lambda: load(server)["cluster"]["figures"]["users_online"] == 2, "both users to be counted", 10)
            assert [node["figures"]["sessions"] for node in load(server)["nodes"]] == [1, 1]
            figures = load(server)["cluster"]["figures"]
            assert figures["sessions"] == figures["websocket"] == 2 and figures["memory_bytes"] > 1 << 20
            until(lambda: load(server)["cluster"]["figures"].get("bus_p99_ms", 0) > 0, "the latency of the bus", 15)
            assert 0 < load(server)["cluster"]["figures"]["store_p99_ms"] < 5_000


def test_each_range_has_its_points(combination):
    with combination.cluster(1, CONFIG) as (server,):
        answering(server, 1)
        for name, (step, count) in POINTS.items():
            found = load(server, range=name)
            cluster = found["cluster"]
            assert cluster["step_ms"] == step and cluster["start"] % step == 0
            assert {len(line) for line in cluster["series"].values()} == {count}
            last = cluster["start"] + (count - 1) * step
            assert abs(found["now"] - last) <= step + 2_000
        assert load(server)["cluster"]["series"] == {}
        refused = httpx.get(f"{server.url}/v1/load?range=7d", headers={"authorization": f"Bearer {server.key}"}, timeout=5, trust_env=False)
        assert refused.status_code == 400 and "5m, 1h or 24h" in refused.json()["error"]["message"]


def test_a_suspended_node_is_silent_and_a_killed_one_has_died(combination):
    with combination.cluster(3, CONFIG) as (a, b, c):
        names = {server: answering(server, 3)["node"] for server in (a, b, c)}
        b.suspend()
        try:
            until(lambda: by_name(load(a))[names[b]]["silent_ms"], "the suspended node to be silent", 10)
            began = time.monotonic()
            found = by_name(load(a))
            assert time.monotonic() - began < 3, "an ask is bounded"
            assert found[names[b]]["figures"]["sessions"] == 0, "its last figures stay"
            assert found[names[c]]["silent_ms"] is None
        finally:
            b.resume()
        answering(a, 3)
        c.process.kill()
        c.process.wait()
        until(lambda: not by_name(load(a))[names[c]]["alive"], "its lease to end", 20)
        runs = lambda server: [(run["clean"], run["ended_at"] is not None) for run in load(server)["runs"] if run["node"] == names[c]]
        assert runs(a) == [(False, True)]
        assert b.terminate() == 0
        until(lambda: [run["clean"] for run in load(a)["runs"] if run["node"] == names[b] and run["ended_at"]][:1] == [True], "a clean stop", 10)


def test_a_node_that_starts_again_knows_the_users_online_of_before(combination):
    with combination.cluster(2, CONFIG) as (a, b), Socket(b, user="bob"):
        line = lambda server: load(server, range="5m")["cluster"]["series"]["users_online"]
        until(lambda: known(line(b)).count(1) >= 3, "some steps with a user", 15)
        assert a.terminate() == 0
        a.start()
        answering(a, 2)
        # Its own history is not as old.
        until(lambda: known(line(a)).count(1) >= 3 + 1, "the steps of before", 10)
        started = by_name(load(a))[load(a)["node"]]["uptime_ms"]
        found = load(a, range="5m")["cluster"]
        first = next(at for at, users in enumerate(found["series"]["users_online"]) if users is not None)
        assert load(a)["now"] - (found["start"] + first * 2_000) > started + 2_000
        until(lambda: any(run["ended_at"] and run["clean"] for run in load(a)["runs"]), "its stop to be known", 10)
