"""What the checks of facts, followers and last_seen accept, and what they do not."""
from .story import broken, of, verdict

KEPT, SEEN, STATUS = "acknowledged facts are kept", "last seen never moves backwards", "followers have the final statuses"


def fact(*values, read, doubt=None, killed=()):
    known = [[None, False], *([float(at), value] for at, value in enumerate(values, 10))]
    line = {"what": "fact", "key": "follow ann bob", "values": known, "doubt": doubt, "read": {} if read is None else {"n1": read}}
    return broken(KEPT, line, *({"at": when, "what": "store_killed"} for when in killed))


def test_the_last_acknowledged_value_must_be_read():
    assert fact(True, read=True) == 0
    assert fact(True, read=False) == fact(True, False, read=True) == fact(read=True) == fact(True, read=None) == 1


def test_an_unanswered_change_may_or_may_not_apply():
    assert fact(True, doubt=False, read=True) == fact(True, doubt=False, read=False) == 0


def test_a_killed_store_may_lose_its_last_second_only():
    assert fact(True, read=False, killed=[11.0]) == 0
    assert fact(True, read=False, killed=[20.0]) == fact(True, read=False, killed=[9.0]) == 1


def seen(*lines, killed=()):
    lines = [{"what": "last_seen", "asked": asked, "at": at, "user": "ann", "value": value} for asked, at, value in lines]
    return broken(SEEN, *lines, *({"at": when, "what": "store_killed"} for when in killed))


def test_a_last_seen_that_moves_backwards_is_detected():
    assert seen((0.0, 1.0, 100), (2.0, 3.0, 90)) == seen((0.0, 1.0, 100), (2.0, 3.0, None), (4.0, 5.0, 90)) == 1
    assert seen((0.0, 1.0, 100), (2.0, 3.0, None), (4.0, 5.0, 100)) == 0, "null while they are online"
    assert seen((0.0, 1.0, 100), (2.0, 3.0, 90), killed=[2.5]) == 0
    assert seen((0.0, 4.0, 100), (2.0, 3.0, 90)) == 0, "at the same time"


def test_a_follower_with_a_wrong_status_is_detected():
    def follower(status, online, channels):
        told = [{"what": "status", "user": "bob", "status": status}] if status else []
        return broken(STATUS, *of("ann", *told),
                      {"what": "true_status", "follower": "ann", "user": "bob", "online": online, "channels": channels})

    here = {"online": True, "channels": ["stage#1"]}
    assert follower(here, True, ["stage#1"]) == 0
    assert follower(here, True, []) == follower(here, False, []) == follower(None, False, []) == 1


def test_a_status_after_following_again_is_allowed():
    lines = [{"what": "unfollowed", "user": "bob"}, {"what": "follows", "user": "bob"}, {"what": "status", "user": "bob", "status": {}}]
    assert verdict("no status after unfollow", *of("ann", *lines)).violations == []
