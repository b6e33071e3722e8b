"""The checks of servers detect planted violations and accept valid histories."""
import types

from torture import health


def node(name="n1", **more):
    known = {"name": name, "process_number": 1, "crashes": [], "failed_starts": 0, "looks": [(100.0, 200)], "memory": [1],
             "panics": lambda: [], "slept_during": lambda began, ended: False}
    return types.SimpleNamespace(**(known | more))


def test_a_crash_a_panic_and_an_unclean_stop_are_detected():
    assert health.servers_stay_up([node()], []).violations == []
    assert health.servers_stay_up([node(crashes=[(1.0, 101, "log")])], []).violations
    assert health.servers_stay_up([node(panics=lambda: ["thread 'x' panicked at"])], []).violations
    assert health.servers_stay_up([node()], [("n1", 1.0, None)]).violations


def test_a_server_may_fail_to_stop_while_its_store_is_out():
    check = lambda code, *outages: health.servers_stay_up([node()], [("n1", 10.0, code)], outages).violations
    assert check(1, ("n1", 9.0, 17.0)) == []
    assert check(1, ("n1", 9.0, 12.0)) and check(1, ("n2", 9.0, 17.0)) and check(101, ("n1", 9.0, 17.0))


def test_a_command_without_a_reply_is_detected_unless_the_server_was_suspended():
    hang = [("join", "n1", 25.0, 10.0)]
    assert health.every_command_is_answered(7, hang, [node()]).violations
    assert health.every_command_is_answered(7, hang, [node(slept_during=lambda began, ended: True)]).violations == []


def test_commands_with_and_without_a_reply_are_counted():
    assert health.every_command_is_answered(7, [], [node()]).checked == 7
    assert health.every_command_is_answered(7, [("join", "n1", 25.0, 10.0)], [node()]).checked == 8


def test_a_refusal_without_retry_after_is_detected():
    known = {"unavailable"}
    check = lambda code, retry, *clocks_ahead: health.refusals_say_when_to_return([(code, retry, 15.0)], known, clocks_ahead).violations
    assert check("unavailable", 250) == []
    assert check("unavailable", None)
    assert check("not_allowed", None)
    assert check("unauthenticated", None) and check("unauthenticated", None, (20.0, 25.0))
    assert check("unauthenticated", None, (14.0, 16.0)) == []


def test_readiness_that_does_not_fail_or_recover_is_detected():
    away = [("n1", 10.0, 25.0)]
    looks = lambda status: [(11.0, 200), (18.0, status), (24.0, status), (100.0, 200)]
    check = lambda one: health.readiness_is_correct([one], away, 50.0).violations
    assert check(node(looks=looks(503))) == []
    assert check(node(looks=looks(200)))
    assert check(node(looks=[(18.0, 503), (100.0, 503)]))


def test_memory_beyond_the_limit_is_detected():
    assert health.memory_is_bounded([node()]).violations == []
    assert health.memory_is_bounded([node(memory=[health.MEMORY_BYTES + 1])]).violations


def test_a_credential_that_lives_on_is_detected():
    node = types.SimpleNamespace(name="n1", slept_during=lambda began, ended: False)
    refused, greeted = ("n1", {"error": {"code": "unauthenticated"}}), ("n1", {"ok": {}})
    assert health.credentials_end([refused], [("n1", 10.0, 12.0)], [node]).violations == []
    assert health.credentials_end([greeted], [], [node]).violations
    assert health.credentials_end([], [("n1", 10.0, 30.0)], [node]).violations
    asleep = types.SimpleNamespace(name="n1", slept_during=lambda began, ended: True)
    assert health.credentials_end([], [("n1", 10.0, 30.0)], [asleep]).violations == []


def test_a_revoked_key_that_lives_on_is_detected():
    node = types.SimpleNamespace(name="n1", slept_during=lambda began, ended: False)
    check = lambda answered, slow=(): health.revoked_keys_end([("n1", 10.0, answered)], [node], slow).violations
    assert check(14.0) == []
    assert check(30.0)
    assert check(30.0, [("n1", 12.0, 20.0)]) == [] and check(30.0, [("n2", 12.0, 20.0)])
