"""Two apps of one server: nothing of one reaches the other. And requests that are not signed as they must be."""
import hashlib
import hmac
import json
import time

import httpx
import pytest

from pusher.world import App
from support.process import until
from support.tavern import Tavern


def test_apps_never_see_each_other(clients, api, app, other_app, server, room):
    """Every way in which a client or a server of one app could meet the other."""
    other_api = clients.server(other_app, server)
    channel, cache, private = f"presence-{room}", f"cache-{room}", f"private-{room}"
    user = f"ann-{room}"
    def connect(app):
        account = {"id": user, "watchlist": [f"watched-{room}"]}
        client = clients.client(app, server, user={"user_id": user}, account=account).connected()
        return client.subscribe(channel).subscribe(room).subscribe(private)

    ours, theirs = connect(app), connect(other_app)
    # Members, and their counts.
    assert theirs.members(channel)["count"] == 1 and ours.events("pusher:member_added") == []
    assert api.get(f"/channels/{channel}", info="user_count,subscription_count") == {
        "occupied": True, "user_count": 1, "subscription_count": 1,
    }
    # Lists of channels.
    api.trigger(f"{room}-nobody", "x", "y")
    only_ours = clients.client(app, server).connected().subscribe(f"{room}-ours")
    assert f"{room}-ours" in api.get("/channels")["channels"]
    assert f"{room}-ours" not in other_api.get("/channels")["channels"]
    assert other_api.get(f"/channels/{room}-ours")["occupied"] is False
    # Events of servers and of clients; the last events of cache channels.
    for each in (room, private, channel, cache):
        api.trigger(each, "ours", "x")
    ours.trigger(private, "client-ours", "x")
    theirs.subscribe(cache)
    theirs.waits("pusher:cache_miss", cache)
    # A user's own channel, watchlists, and the end of connections.
    ours.do("signin")
    theirs.do("signin")
    watched = clients.client(app, server, account={"id": f"watched-{room}"}).connected()
    watched.do("signin")
    ours.waits("watchlist:online")

    def arrived():
        api.call("sendToUser", user, "ours", "x")
        return ours.events("user:ours")

    until(arrived, "our user to get their event")
    api.call("terminateUserConnections", user)
    until(lambda: ours.do("state")["state"] == "disconnected", "our connections to end")
    # A ban.
    key = {"authorization": f"Bearer {server.key}"}
    banned = httpx.put(f"{server.url}/v1/users/{app.id}:{user}/ban", json={"reason": "spam"}, headers=key, trust_env=False)
    assert banned.status_code == 200, banned.text
    kept_out = connect_only(clients, app, server, user)
    until(lambda: kept_out.do("state")["state"] == "disconnected", f"the ban: {kept_out.do('seen')}")
    # What comes last is all that has come.
    other_api.trigger([room, private, channel, cache], "theirs", "y")
    for each in (room, private, channel, cache):
        theirs.waits("theirs", each)
    names = {event["event"] for event in theirs.do("seen")}
    assert names.isdisjoint({"ours", "client-ours", "user:ours", "watchlist:online", "pusher:member_removed"}), names
    assert theirs.do("state")["state"] == "connected"
    assert only_ours.events("theirs") == []


PREFIXES = [access + cache for access in ("", "private-", "private-encrypted-", "presence-") for cache in ("", "cache-")]


def test_no_question_about_one_app_tells_of_the_other(clients, api, app, other_app, server, room):
    """Each kind of channel and each question, asked about both apps with the same names: only one of them is in use."""
    other_api, user = clients.server(other_app, server), f"ann-{room}"
    ann = clients.client(app, server, user={"user_id": user}, account={"id": user}).connected()
    ann.do("signin")
    names = [prefix + room for prefix in PREFIXES]
    for name in names:
        ann.subscribe(name)
        if not name.startswith("private-encrypted-"):
            api.trigger(name, "secret", "x")
    for name in names:
        info = ["subscription_count", *(["user_count"] if name.startswith("presence-") else []), *(["cache"] if "cache-" in name else [])]
        ours, theirs = (each.get(f"/channels/{name}", info=",".join(info)) for each in (api, other_api))
        assert ours["occupied"] and ours["subscription_count"] == 1, ours
        assert theirs == {"occupied": False, "subscription_count": 0} | ({"user_count": 0} if "user_count" in info else {}), theirs
        listed = other_api.get("/channels", filter_by_prefix=name)
        assert listed == {"channels": {}} and name in api.get("/channels", filter_by_prefix=name)["channels"]
        if name.startswith("presence-"):
            assert api.get(f"/channels/{name}/users") == {"users": [{"id": user}]}
            assert other_api.get(f"/channels/{name}/users") == {"users": []}
    # The same in Tavern's own API: users, members, sessions, bans and statistics have the id of their app.
    ask = lambda path: httpx.get(f"{server.url}/v1/{path}", headers={"authorization": f"Bearer {server.key}"}, trust_env=False)
    until(lambda: ask(f"users/1:{user}/sessions").json().get("sessions"), "the sessions of the user")
    assert {session["transport"] for session in ask(f"users/1:{user}/sessions").json()["sessions"]} == {"pusher"}
    assert not ask(f"users/2:{user}/sessions").json().get("sessions")
    members = lambda owner: {one["user"] for one in ask(f"channels/{owner.channel(f'presence-{room}').replace('#', '%23')}/presence").json()["users"]}
    assert (members(app), members(other_app)) == ({f"1:{user}"}, set())
    channels = json.dumps(ask("channels?limit=1000").json())
    assert f"pusher-1#{room}" in channels and f"pusher-2#{room}" not in channels
    bans = lambda: {one["user"] for one in ask("bans").json()["bans"]}
    httpx.put(f"{server.url}/v1/users/1:{user}/ban", json={"reason": "spam"}, headers={"authorization": f"Bearer {server.key}"}, trust_env=False)
    until(lambda: f"1:{user}" in bans(), "the ban")
    assert f"2:{user}" not in bans()
    theirs = clients.client(other_app, server, user={"user_id": user}, account={"id": user}).connected()
    theirs.do("signin")
    theirs.subscribe(f"presence-{room}")
    theirs.has_members(f"presence-{room}", user)


@pytest.mark.parametrize("method, rest", [
    ("POST", "events"), ("POST", "batch_events"), ("GET", "channels"), ("GET", "channels/room"), ("GET", "channels/presence-room/users"),
    ("POST", "users/ann/terminate_connections"),
])
def test_each_request_needs_the_signature_of_its_own_app(app, other_app, server, method, rest):
    bodies = {"events": event(), "batch_events": json.dumps({"batch": [{"name": "a", "channel": "b", "data": ""}]}).encode()}
    path, body = f"/apps/{app.id}/{rest}", bodies.get(rest, b"")
    status = lambda params: send(server, method, path, params, body).status_code
    assert status(signed(app, method, path, body)) == 200
    # The secret of the other app, with its key and with ours; a replay after the window; a request for the other app.
    assert status(signed(other_app, method, path, body)) == 401
    assert status(signed(app, method, path, body, secret=other_app.secret)) == 401
    assert status(signed(app, method, path, body, auth_timestamp=str(int(time.time()) - 601))) == 401
    assert status(signed(app, method, path.replace("/1/", "/2/"), body)) == 401


def connect_only(clients, app, server, user):
    """A client that signs in as this user."""
    client = clients.client(app, server, account={"id": user}).connected()
    client.do("signin")
    return client


def signed(app, method, path, body=b"", secret=None, **change):
    """The parameters of a request; `change` replaces some of them after signing."""
    fields = {"auth_key": app.key, "auth_timestamp": str(int(time.time())), "auth_version": "1.0"}
    fields |= {name: change.pop(name) for name in ("auth_timestamp", "auth_version") if name in change}
    if body:
        fields["body_md5"] = hashlib.md5(body).hexdigest()
    text = "\n".join([method, path, "&".join(f"{name}={fields[name]}" for name in sorted(fields))])
    fields["auth_signature"] = hmac.new((secret or app.secret).encode(), text.encode(), hashlib.sha256).hexdigest()
    return fields | change


def send(server, method, path, params, body=b""):
    return httpx.request(method, f"{server.url}{path}", params=params, content=body, trust_env=False, timeout=20, verify=server.trust or True)


def event(channel="room", name="a", data="x", **more):
    return json.dumps({"name": name, "channels": [channel], "data": data} | more).encode()


def test_requests_must_be_signed(app, other_app, server):
    path, body = f"/apps/{app.id}/events", event()
    post = lambda params, body=body, path=path: send(server, "POST", path, params, body).status_code
    assert post(signed(app, "POST", path, body)) == 200
    assert post({}) == 401
    assert post(signed(app, "POST", path, body), event(data="changed")) == 401
    assert post(signed(app, "POST", path, body, secret="wrong")) == 401
    assert post(signed(other_app, "POST", path, body)) == 401
    assert post(signed(app, "GET", path, body)) == 401
    assert post(signed(app, "POST", path, body, auth_timestamp=str(int(time.time()) - 700))) == 401
    assert post(signed(app, "POST", path, body, auth_timestamp=str(int(time.time()) + 700))) == 401
    assert post(signed(app, "POST", path, body, auth_version="2.0")) == 401
    assert post(signed(app, "POST", path, body, auth_timestamp="x")) == 401
    assert post(signed(app, "POST", path, body, auth_signature="ü")) == 401
    assert post(signed(app, "POST", path, body, info="user_count")) == 401
    assert post(signed(app, "POST", "/apps/7/events", body), path="/apps/7/events") == 404
    # The one refusal that helps with a wrong secret says so.
    answer = send(server, "POST", path, signed(app, "POST", path, body, secret="wrong"), body)
    assert "secret" in answer.json()["error"]


@pytest.mark.parametrize("body, status", [
    (b"nonsense", 400), (b"[]", 400), (b"{}", 400), (b"\xff", 400),
    (event(name="a" * 201), 400), (event(name=""), 400), (event(name="pusher:x"), 400),
    (event(channel="a b"), 400), (event(channel="a" * 201), 400), (event(channel="#x"), 400),
    (event(data="x" * 10241), 413), (event(socket_id="x"), 400), (event(info="x"), 400),
    (json.dumps({"name": "a", "channels": ["a"] * 101, "data": ""}).encode(), 400),
    (b"x" * 300_000, 413),
])
def test_bad_events_are_refused_with_a_reason(app, server, body, status):
    path = f"/apps/{app.id}/events"
    answer = send(server, "POST", path, signed(app, "POST", path, body), body)
    assert answer.status_code == status and answer.json()["error"], answer.text


def test_bad_batches_and_paths_are_refused(app, server):
    batch = {"batch": [{"name": "a", "channel": "b", "data": ""}] * 11}
    for method, rest, body, status in [
        ("POST", "batch_events", json.dumps(batch).encode(), 400),
        ("GET", "channels/a%20b", b"", 400),
        ("GET", "channels/room/users", b"", 400),
        ("POST", "users/%0A/terminate_connections", b"", 400),
        ("GET", "events", b"", 404),
        ("POST", "nothing", b"{}", 404),
    ]:
        path = f"/apps/{app.id}/{rest}"
        answer = send(server, method, path, signed(app, method, path, body), body)
        assert answer.status_code == status, (rest, answer.text)


def test_both_secrets_work_while_one_is_replaced(tmp_path):
    fresh = App(1)
    secrets = tmp_path / "secrets"
    secrets.write_text("brand-new-secret\n" + fresh.secret + "\n")
    config = fresh.config.replace(f'secret = "{fresh.secret}"', f'secret_file = "{secrets}"')
    with Tavern.serve(config) as server:
        path, body = "/apps/1/events", event()
        for secret in ("brand-new-secret", fresh.secret):
            assert send(server, "POST", path, signed(fresh, "POST", path, body, secret=secret), body).status_code == 200
        assert send(server, "POST", path, signed(fresh, "POST", path, body, secret="other"), body).status_code == 401


def test_nothing_is_served_without_an_app():
    with Tavern.serve() as server:
        assert send(server, "GET", "/app/key-1", {"protocol": 7}).status_code == 404
        assert send(server, "GET", "/apps/1/channels", {}).status_code == 404
