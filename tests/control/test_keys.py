"""API keys over HTTP and on the command line, and the audit trail."""
import time

import pytest

from control.service import Service
from support.process import until


def test_a_key_is_created_used_and_revoked(serve, service):
    made = service.call("POST", "/keys", 201, name="ci", scopes=["users", "presence"])
    assert made["key"].startswith(f"tvk_{made['id']}_") and made["scopes"] == ["presence", "users"]
    with Service(serve, made["key"]) as holder:
        holder.stats()
        assert holder.sessions("nobody") == []
        assert holder.refused("GET", "/keys", 403) == "not_allowed"
        listed = {key["id"]: key for key in service.call("GET", "/keys")["keys"]}
        assert listed[made["id"]]["name"] == "ci" and "key" not in listed[made["id"]]
        until(lambda: {key["id"]: key for key in service.call("GET", "/keys")["keys"]}[made["id"]]["last_used_at"], "the use to be written", 20)
        assert service.call("DELETE", f"/keys/{made['id']}")["revoked_at"] is not None
        until(lambda: holder.http.get("/stats").status_code == 401, "the key to be refused", 5)
    assert service.refused("DELETE", "/keys/unknown", 404) == "not_found"


def test_an_expired_key_is_refused(serve, service):
    made = service.call("POST", "/keys", 201, name="short", scopes=["presence"], expires_at=int(time.time() * 1000) + 1500)
    with Service(serve, made["key"]) as holder:
        holder.stats()
        until(lambda: holder.http.get("/stats").status_code == 401, "the key to expire", 10)


@pytest.mark.parametrize("body", [
    {"name": "", "scopes": ["presence"]}, {"name": "x", "scopes": []}, {"name": "x", "scopes": ["fly"]},
    {"name": "x", "scopes": ["presence"], "expires_at": 1},
])
def test_a_wrong_key_is_refused(service, body):
    assert service.refused("POST", "/keys", 400, **body) == "bad_request"


def test_the_command_line_manages_keys_over_http_and_in_the_store(serve, service):
    url = ["--url", serve.url, "--key", serve.key]
    made = serve.run("key", "create", "--name", "remote", "--scopes", "presence", "--expires", "2099-01-01T00:00:00Z", *url)
    assert made.stdout.startswith("tvk_"), made.stderr
    listed = serve.run("key", "list", *url)
    assert "remote" in listed.stdout and "2099-01-01" in listed.stdout
    assert serve.run("key", "revoke", made.stdout.strip(), *url).returncode == 0
    local = serve.api_key("presence")
    with Service(serve, local) as holder:
        holder.stats()
    assert serve.run("key", "revoke", local, "--config", serve.config, "--data", serve.data).returncode == 0
    both = serve.run("key", "list", "--url", serve.url, "--data", serve.data)
    assert both.returncode == 2 and "cannot be used with" in both.stderr


def test_administrative_actions_leave_a_trail(serve, service, user):
    service.call("POST", f"/users/{user}/disconnect")
    service.call("PUT", f"/users/{user}/ban", reason="x")
    service.call("DELETE", f"/users/{user}/ban")
    service.refused("DELETE", "/keys/missing", 404)
    serve.api_key("presence")
    trail = service.audit()
    mine = [(entry["action"], entry["status"]) for entry in trail if entry["target"] == user]
    assert mine == [("user.disconnect", 200), ("user.ban", 200), ("user.unban", 200)]
    entry = next(entry for entry in trail if entry["target"] == user)
    assert (entry["key"], entry["from"]) == ("admin", "127.0.0.1")
    assert any(entry["action"] == "key.revoke" and entry["status"] == 404 for entry in trail)
    assert any(entry["action"] == "key.create" and entry["key"] == "command line" for entry in trail)
    assert "action=\"user.ban\"" in serve.log() or "user.ban" in serve.log()


def test_only_an_admin_reads_the_trail(serve, service):
    made = service.call("POST", "/keys", 201, name="sub", scopes=["subscriptions"])
    with Service(serve, made["key"]) as holder:
        assert holder.refused("GET", "/topics/tavern.audit/events", 403) == "not_allowed"
        body = {"topics": ["tavern.audit"], "pull": True}
        assert holder.refused("PUT", "/subscriptions/spy", 403, **body) == "not_allowed"
    service.call("PUT", "/subscriptions/trail", 201, topics=["tavern.audit"], pull=True)
