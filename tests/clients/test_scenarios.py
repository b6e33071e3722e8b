"""Every client passes every scenario of clients/scenarios."""
import pytest

from .network import Network
from .scenarios import Run, clients, load, matches, play, scenarios

SERVER_ACTIONS = {"kill", "start", "restart", "stop", "publish", "inbox", "end_session"}


def test_clients_and_scenarios_are_found():
    assert "js" in clients()
    assert len(scenarios()) > 15


@pytest.mark.parametrize("scenario", scenarios())
@pytest.mark.parametrize("client", clients())
def test_client_passes_scenario(client, scenario):
    play(load(scenario), client)


@pytest.mark.parametrize("name", scenarios())
def test_scenario_is_well_formed(name):
    scenario = load(name)
    assert set(scenario) <= {"says", "mode", "nodes", "config", "actors", "steps"}
    for actor in scenario["actors"].values():
        assert set(actor) <= {"user", "node", "transports", "token_ttl_s", "allow"}
    for step in scenario["steps"]:
        assert step.get("as", next(iter(scenario["actors"]))) in scenario["actors"]
        assert callable(getattr(Network, step.get("link", "cut"), None))
        assert step.get("server", "kill") in SERVER_ACTIONS


@pytest.mark.parametrize("pattern, value, fits", [
    ({"a": 1}, {"a": 1, "b": 2}, True), ({"a": 1}, {"a": 2}, False), ({"a": "*"}, {"a": None}, False), ({"a": "*"}, {"a": 0}, True),
    ([1, {"x": 1}], [1, {"x": 1, "y": 2}], True), ([1], [1, 2], False), ("*", "x", True), (True, 1, False), (None, None, True),
    ({"a": []}, {}, False), (1, 1.0, True),
])
def test_pattern_matching(pattern, value, fits):
    assert matches(pattern, value) is fits


@pytest.mark.parametrize("step", [
    {"as": "ann", "expect": {"type": "message"}, "within_ms": 200},
    {"as": "ann", "never": {"type": "open"}},
    {"as": "ann", "messages": "room#1", "data": [1], "within_ms": 200},
    {"as": "ann", "do": "publish", "channel": "room#1", "data": 1, "gives": {"receivers": 7}},
    {"as": "ann", "do": "publish", "channel": "room#1", "data": 1, "fails": "not_allowed"},
])
def test_a_wrong_expectation_fails_the_scenario(step):
    scenario = {"actors": {"ann": {}}, "steps": [{"as": "ann", "do": "connect"}, {"as": "ann", "expect": {"type": "open"}}, step]}
    with Run(scenario, "js") as run, pytest.raises(AssertionError, match="step 3"):
        run.play()
