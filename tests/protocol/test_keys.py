"""API keys: scopes over REST and over the Redis protocol."""
import httpx
import pytest

from support import tokens
from support.process import until
from support.resp import ErrorReply, RespConnection

SCOPES = ["publish", "events", "subscriptions", "presence", "parties", "admin"]


@pytest.fixture(scope="module")
def keys(serve):
    return {scope: serve.api_key(scope) for scope in SCOPES}


def post(server, channel, auth=None, headers=None):
    return httpx.post(
        f"{server.url}/v1/channels/{channel}/messages", json={"data": 1}, auth=auth, headers=headers, timeout=5,
        trust_env=False,
    )


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("how", ["bearer", "basic"])
def test_publishing_by_rest_requires_the_scope(serve, keys, scope, how):
    if how == "bearer":
        response = post(serve, "game%231", headers={"authorization": f"Bearer {keys[scope]}"})
    else:
        response = post(serve, "game%231", auth=(keys[scope], ""))
    if scope == "publish":
        assert response.status_code == 200, response.text
        assert response.json()["receivers"] == 0
    else:
        assert response.status_code == 403
        assert response.json()["error"]["code"] == "not_allowed"


@pytest.mark.parametrize("channel", ["user%23ann", "party%231", "tavern"])
def test_keys_cannot_publish_to_reserved_kinds(serve, keys, channel):
    for key in (keys["publish"], serve.key):
        response = post(serve, channel, headers={"authorization": f"Bearer {key}"})
        assert response.status_code == 403
        assert response.json()["error"]["code"] == "not_allowed"
        connection = RespConnection(serve.resp_port)
        assert connection.call("AUTH", key) == "OK"
        assert connection.call("PUBLISH", channel.replace("%23", "#"), "x").startswith("NOPERM")
        connection.close()


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer nonsense"},
        {"authorization": "Basic bm9uc2Vuc2U6"},
        {"authorization": "Basic !!"},
        {"authorization": "x"},
    ],
)
def test_rest_without_a_valid_key_is_401(serve, dev, headers):
    for server in (serve, dev):
        response = post(server, "game%231", headers=headers)
        assert response.status_code == 401, "required in dev mode too"
        assert response.json()["error"]["code"] == "unauthenticated"


def test_a_token_does_not_work_as_a_key(serve):
    response = post(serve, "game%231", headers={"authorization": f"Bearer {tokens.token()}"})
    assert response.status_code in (401, 403)


def test_a_revoked_key_is_refused(serve):
    options = ("--config", serve.config, "--data", serve.folder / "data")
    made = serve.run("key", "create", *options, "--name", "short-lived", "--scopes", "publish")
    assert made.returncode == 0, made.stderr
    key = made.stdout.strip()
    headers = {"authorization": f"Bearer {key}"}
    assert post(serve, "game%231", headers=headers).status_code == 200
    listed = serve.run("key", "list", *options)
    assert "short-lived" in listed.stdout and key not in listed.stdout, "the list shows no secrets"
    revoked = serve.run("key", "revoke", *options, key.split("_")[1])
    assert revoked.returncode == 0, revoked.stderr
    until(lambda: post(serve, "game%231", headers=headers).status_code == 401, "the revoked key to be refused")


@pytest.mark.parametrize("scope", SCOPES)
def test_publishing_over_redis_requires_the_scope(serve, keys, scope):
    connection = RespConnection(serve.resp_port)
    assert connection.call("AUTH", keys[scope]) == "OK"
    answer = connection.call("PUBLISH", "game#1", "x")
    if scope == "publish":
        assert answer == 0
    else:
        assert isinstance(answer, ErrorReply) and answer.startswith("NOPERM")
    connection.close()


ADMIN_COMMANDS = [
    ["CLIENT", "LIST"], ["CLIENT", "KILL", "ID", "999999"], ["CONFIG", "SET", "save", ""], ["DEBUG", "SLEEP", "0"],
    ["FLUSHALL"], ["FLUSHDB"],
]


@pytest.mark.parametrize("command", ADMIN_COMMANDS, ids=" ".join)
def test_admin_commands_over_redis_require_the_admin_scope(serve, keys, command):
    for login, allowed in ((tokens.token(), False), (keys["publish"], False), (keys["admin"], True), (serve.key, True)):
        connection = RespConnection(serve.resp_port)
        assert connection.call("AUTH", login) == "OK"
        answer = connection.call(*command)
        refused = isinstance(answer, ErrorReply) and answer.startswith("NOPERM")
        assert refused is not allowed, (answer, allowed)
        connection.close()
