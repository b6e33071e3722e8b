"""Remembered responses: only of requests that succeeded, apart for each API key, and bounded in bytes."""
import httpx
import pytest

from support.tavern import Tavern

MIB = 1 << 20


def post(server, path, body, once, key=None, **query):
    headers = {"idempotency-key": once} | ({} if query else {"authorization": f"Bearer {key or server.key}"})
    return httpx.post(server.url + path, json=body, headers=headers, params=query, timeout=60, trust_env=False)


@pytest.mark.parametrize("path, wrong, right", [
    ("/v1/publish", {"messages": [{"channel": "party#1", "data": 1}]}, {"messages": [{"channel": "game#1", "data": 1}]}),
    ("/v1/broadcast", {"channels": ["party#1"], "data": 1}, {"channels": ["game#1"], "data": 1}),
])
def test_a_failure_is_not_remembered(serve, path, wrong, right):
    refused = post(serve, path, wrong, "again")
    assert "error" in refused.text, refused.text
    succeeded = post(serve, path, right, "again")
    assert succeeded.status_code == 200 and "error" not in succeeded.text, succeeded.text
    assert post(serve, path, wrong, "again").text == succeeded.text, "a success is"


def test_two_keys_may_choose_the_same(serve, user):
    keys = [serve.api_key("publish") for _ in range(2)]
    path = f"/v1/users/{user}/messages"
    first = [post(serve, path, {"data": n}, "same", token=key).json()["message_id"] for n, key in enumerate(keys)]
    assert first[0] != first[1]
    # However a key is sent, it is the same one.
    again = [post(serve, path, {"data": n}, "same", key).json()["message_id"] for n, key in enumerate(keys)]
    assert again == first


@pytest.mark.alone
def test_remembered_responses_are_bounded_in_bytes_and_a_flood_spares_others():
    with Tavern.serve("[limits]\nidempotency_bytes = 4194304\n") as server:
        flooding = server.api_key("publish")
        first = post(server, "/v1/channels/game:1/messages", {"data": 1}, "mine")
        channels = [f"game#{'x' * 200}{number}" for number in range(1000)]
        for number in range(10):
            post(server, "/v1/broadcast", {"channels": channels, "data": 1}, f"warm-{number}", flooding)
        before = server.resident_bytes()
        for number in range(200):
            assert post(server, "/v1/broadcast", {"channels": channels, "data": 1}, f"flood-{number}", flooding).status_code == 200
        grown = server.resident_bytes() - before
        assert grown < 24 * MIB, f"grew by {grown / MIB:.0f} MiB"
        # Other data: a repeated response, or an error.
        repeated = post(server, "/v1/channels/game:1/messages", {"wrong": 1}, "mine")
        assert repeated.status_code == 400
        assert post(server, "/v1/channels/game:1/messages", {"data": 2}, "mine").text == first.text
