"""The promises about the servers themselves find what is planted, and nothing where nothing is."""
import types

from torture.checks import health


def node(name="n1", **more):
    known = {"name": name, "life": 1, "crashes": [], "failed_starts": 0, "looks": [(100.0, 200)], "memory": [1],
             "panics": lambda: [], "slept_during": lambda began, ended: False}
    return types.SimpleNamespace(**(known | more))


def test_a_crash_a_panic_and_an_unclean_stop_are_found():
    assert health.servers_live([node()], []).violations == []
    assert health.servers_live([node(crashes=[(1.0, 101, "log")])], []).violations
    assert health.servers_live([node(panics=lambda: ["thread 'x' panicked at"])], []).violations
    assert health.servers_live([node()], [("n1", 1.0, None)]).violations


def test_a_command_without_an_answer_is_found_unless_the_server_slept():
    hang = [("join", "n1", 25.0, 10.0)]
    assert health.every_command_is_answered(7, hang, [node()]).violations
    assert health.every_command_is_answered(7, hang, [node(slept_during=lambda began, ended: True)]).violations == []


def test_commands_with_and_without_an_answer_are_looked_at():
    assert health.every_command_is_answered(7, [], [node()]).looked_at == 7
    assert health.every_command_is_answered(7, [("join", "n1", 25.0, 10.0)], [node()]).looked_at == 8


def test_a_refusal_that_does_not_say_when_to_return_is_found():
    known = {"unavailable"}
    assert health.refusals_say_when_to_return([("unavailable", 250)], known).violations == []
    assert health.refusals_say_when_to_return([("unavailable", None)], known).violations
    assert health.refusals_say_when_to_return([("not_allowed", None)], known).violations


def test_readiness_that_does_not_fail_or_does_not_come_back_is_found():
    away = [("n1", 10.0, 25.0)]
    looks = lambda status: [(11.0, 200), (18.0, status), (24.0, status), (100.0, 200)]
    check = lambda one: health.readiness_tells_the_truth([one], away, 50.0).violations
    assert check(node(looks=looks(503))) == []
    assert check(node(looks=looks(200)))
    assert check(node(looks=[(18.0, 503), (100.0, 503)]))


def test_memory_beyond_the_bound_is_found():
    assert health.memory_is_bounded([node()]).violations == []
    assert health.memory_is_bounded([node(memory=[health.MEMORY_BYTES + 1])]).violations


def canary(name, *entries):
    return types.SimpleNamespace(name=name, pinned=types.SimpleNamespace(name=name), log=list(entries))


def test_a_death_that_is_not_seen_in_time_is_found():
    came = (5.0, "told", 1, {"event": "client_online", "client": "c1", "channel": "canary#mine", "version": 1})
    dead = canary("n1", (1.0, "session", "c1", "n1", 1, True, 0))
    gone = lambda when: (when, "told", 2, {"event": "client_offline", "client": "c1", "channel": "canary#mine", "version": 2})
    check = lambda *more, late=0.0: health.death_is_seen([("n1", 20.0, late)], [dead, canary("n2", came, *more)], 3.0)
    assert check(gone(22.0)).violations == []
    assert check().violations and check(gone(40.0)).violations
    assert check(gone(28.0)).violations and check(gone(28.0), late=3.0).violations == []
    assert check((21.0, "down")).looked_at == 0, "it could not see anything itself"
    assert check(gone(15.0)).looked_at == 0, "it had gone before"


def test_a_server_that_slept_and_does_not_announce_its_clients_is_found():
    sleeper = canary("n1", (1.0, "session", "c1", "n1", 1, True, 0))
    event = lambda when, kind: (when, "told", 1, {"event": kind, "client": "c1", "channel": "canary#mine", "version": 1})
    check = lambda *entries: health.fenced_servers_come_back([("n1", 20.0)], [sleeper, canary("n2", *entries)])
    assert check(event(17.0, "client_offline"), event(20.5, "client_online")).violations == []
    assert check(event(17.0, "client_offline")).violations
    assert check(event(17.0, "client_offline"), event(40.0, "client_online")).violations
    assert check().looked_at == 0, "nobody was told that it was gone"
