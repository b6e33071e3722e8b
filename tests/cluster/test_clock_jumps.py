"""The wall clock of one of three servers jumps: nothing is lost, nobody is refused for longer than the jump lasts."""
import contextlib

import httpx
import pytest

from support import tokens
from support.clock import JumpingClock
from support.json_client import Socket
from support.process import until

DAY = 86_400
JUMPS = {"+5 minutes": 300, "-5 minutes": -300, "+3 weeks": 21 * DAY, "-3 weeks": -21 * DAY}
# Events are deleted after an hour, and presences have a short grace period.
CONFIG = """
[events]
retention_ms = 3600000
[kinds.game]
grace_ms = 2000
"""


@pytest.fixture
def three(combination):
    with combination.settings() as settings, contextlib.ExitStack() as stack:
        config = f'prefix = "{settings.prefix}"\n{CONFIG}'
        first = stack.enter_context(JumpingClock("serve", config, settings.options, data=settings.data))
        others = [settings.server(CONFIG) for _ in range(2)]
        for server in others:
            server.mode = "serve"
            stack.enter_context(server)
        yield first, *others


def api(server):
    headers = {"authorization": f"Bearer {server.key}"}
    return httpx.Client(base_url=server.url, headers=headers, timeout=10, trust_env=False)


def users_in(socket, room):
    return sorted(user["user"] for user in socket.ok("who", channel=room)["users"])


@pytest.mark.parametrize("jump", JUMPS.values(), ids=JUMPS)
def test_a_jump_on_one_server_loses_nothing(three, room, jump):
    wrong, right, third = three
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(api(right))
        name = f"jump{abs(jump)}{'a' if jump > 0 else 'b'}"
        client.put(f"/v1/subscriptions/{name}", json={"topics": [name], "pull": True}).raise_for_status()
        client.post(f"/v1/topics/{name}/events", json={"type": "t", "data": 1}).raise_for_status()
        ann = stack.enter_context(Socket(wrong, token=tokens.token("ann")))
        bob = stack.enter_context(Socket(right, token=tokens.token("bob")))
        for socket in (ann, bob):
            socket.ok("subscribe", channel=room)
            socket.ok("join", channel=room)
        before = wrong.metric("tavern_clock_jumps_total")
        wrong.jump(jump)
        until(lambda: wrong.metric("tavern_clock_jumps_total") > before, "the jump to be noticed")
        assert "clock jumped" in wrong.log()
        # Meanwhile everything goes on, on all servers.
        bob.ok("publish", channel=room, data="during")
        until(lambda: any(event.get("data") == "during" for event in ann.events_so_far()), "the message")
        stack.enter_context(api(wrong)).post(f"/v1/topics/{name}/events", json={"type": "t", "data": 2}).raise_for_status()
        assert users_in(bob, room) == ["ann", "bob"]
        wrong.jump(0)
        until(lambda: wrong.metric("tavern_clock_ahead_seconds") == 0, "the clock to agree again")
        for server in (wrong, right, third):
            with Socket(server, token=tokens.token("cid", ttl=60)) as cid:
                assert cid.hello["user"] == "cid", "a fresh token is accepted at once"
                assert users_in(cid, room) == ["ann", "bob"]
        pulled = client.get(f"/v1/subscriptions/{name}/events", params={"wait_ms": 1000}).json()["events"]
        assert [event["data"] for event in pulled] == [1, 2], "undelivered events are there"
        assert "ok" in ann.call("ping") and "ok" in bob.call("ping")
