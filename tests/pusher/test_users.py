"""Users who sign in: their own channel, the end of their connections, watchlists."""
import httpx

from pusher.world import GRACE_S
from support.process import until


def signed_in(clients, app, server, user, watchlist=()):
    account = {"id": user, "watchlist": list(watchlist)}
    client = clients.client(app, server, account=account, user={"user_id": user}).connected()
    client.do("signin")
    return client


def receives(api, client, user, text):
    """Until the user's own channel is there: pusher-js tells nobody when."""
    def arrived():
        api.call("sendToUser", user, text, {"n": 1})
        return client.events(f"user:{text}")

    until(arrived, f"{user} to get {text}: {client.do('seen')}")


def test_a_user_gets_what_a_server_sends_to_them_alone(clients, api, app, server, room):
    ann, other = f"ann-{room}", f"bob-{room}"
    first, second = (signed_in(clients, app, server, ann) for _ in range(2))
    bob = signed_in(clients, app, server, other)
    for client in (first, second):
        receives(api, client, ann, f"hello-{client.name}")
    receives(api, bob, other, "end")
    assert all(not event["event"].startswith("user:hello") for event in bob.do("seen"))
    assert first.events("user:end") == []


def test_only_the_user_listens_to_their_channel(clients, api, app, server, room):
    ann = f"ann-{room}"
    bob = signed_in(clients, app, server, f"bob-{room}")
    receives(api, bob, f"bob-{room}", "ready")
    # pusher-js refuses such a name itself; another library may not.
    bob.do("send", frame='{"event":"pusher:subscribe","data":{"channel":"#server-to-user-%s"}}' % ann)
    api.call("sendToUser", ann, "secret", "x")
    receives(api, bob, f"bob-{room}", "end")
    assert bob.events("user:secret") == [] and all("secret" not in event["event"] for event in bob.do("seen"))


def test_a_forged_sign_in_closes_the_connection_for_good(clients, api, app, server, room):
    frame = '{"event":"pusher:signin","data":{"auth":"key-1:00","user_data":"{\\"id\\":\\"ann\\"}"}}'
    ann = clients.client(app, server).connected()
    ann.do("send", frame=frame)
    until(lambda: ann.do("state")["state"] == "disconnected", "the connection to end")
    assert ann.error_codes() == {4009}


def test_a_server_ends_the_connections_of_a_user(clients, api, app, server, room):
    ann = f"ann-{room}"
    both = [signed_in(clients, app, server, ann) for _ in range(2)]
    bob = signed_in(clients, app, server, f"bob-{room}")
    for client in both:
        receives(api, client, ann, f"ready-{client.name}")
    assert api.call("terminateUserConnections", ann)["status"] == 200
    for client in both:
        until(lambda: client.do("state")["state"] == "disconnected", f"the end: {client.do('seen')}")
        assert client.error_codes() == {4009}
    receives(api, bob, f"bob-{room}", "alive")


def test_a_watchlist_tells_who_is_online(clients, api, app, server, room):
    ann, bob, cat = (f"{name}-{room}" for name in ("ann", "bob", "cat"))
    here = signed_in(clients, app, server, bob)
    receives(api, here, bob, "ready")
    watcher = signed_in(clients, app, server, ann, [bob, cat])
    assert watcher.waits("watchlist:online")["user_ids"] == [bob]
    there = signed_in(clients, app, server, cat)
    assert watcher.waits("watchlist:online", count=2)["user_ids"] == [cat]
    there.do("disconnect")
    assert watcher.waits("watchlist:offline", timeout=GRACE_S + 20)["user_ids"] == [cat]
    # Nothing is stored about who watches whom.
    answer = httpx.get(f"{server.url}/v1/users/1:{ann}/following", headers={"authorization": f"Bearer {server.key}"}, trust_env=False)
    assert answer.status_code == 404 or answer.json()["users"] == []
