"""What each client logs on request: enough to see what happened, and no secret."""
import pytest

from .scenarios import Run, clients

SCENARIO = {
    "mode": "serve",
    "actors": {"ann": {}},
    "steps": [
        {"as": "ann", "do": "connect"},
        {"as": "ann", "do": "subscribe", "channel": "game#1"},
        {"as": "ann", "do": "ticket", "save": "ticket"},
        {"server": "kill"},
        {"as": "ann", "expect": {"type": "reconnecting"}},
        {"as": "ann", "expect": {"type": "error"}},
        {"server": "start"},
        {"as": "ann", "expect": {"type": "reset"}, "within_ms": 30000},
        {"as": "ann", "do": "ticket", "save": "next"},
    ],
}


@pytest.mark.parametrize("client", clients())
def test_the_log_shows_the_steps_of_the_connection_and_no_secret(client, monkeypatch):
    monkeypatch.setenv("TAVERN_DEBUG", "1")
    with Run(SCENARIO, client) as run:
        given = run.drivers["ann"].minter
        tokens, mint = [], given.answer
        given.answer = lambda: tokens.append(mint()) or tokens[-1]
        run.play()
        log = "\n".join(run.drivers["ann"].stderr)
        secrets = [run.saved[name]["session"] for name in ("ticket", "next")] + [answer["token"] for answer in tokens]
    assert len(secrets) >= 3
    for secret in secrets:
        assert secret not in log
    for step in ("websocket", "lost"):
        assert step in log.lower(), f"{step} is missing in: {log}"
