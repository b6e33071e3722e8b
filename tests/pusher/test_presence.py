"""Presence channels: members are users, one list with Tavern's presence, through reloads."""
import httpx

from pusher.world import GRACE_S
from support.json_client import Socket
from support.process import until
from support import tokens

ALLOW = {"pusher-1#*": ["subscribe", "publish", "join", "presence"]}


def member(client, app, server, user, info=None):
    data = {"user_id": user} | ({} if info is None else {"user_info": info})
    return client.client(app, server, user=data).connected()


def test_members_come_and_go_once_for_each_user(clients, api, app, server, room):
    channel = f"presence-{room}"
    ann = member(clients, app, server, "ann", {"name": "Ann"}).subscribe(channel)
    assert ann.members(channel) == {"users": {"ann": {"name": "Ann"}}, "count": 1, "me": "ann"}
    bob = member(clients, app, server, 7).subscribe(channel)
    assert bob.members(channel) == {"users": {"ann": {"name": "Ann"}, "7": None}, "count": 2, "me": 7}
    assert ann.waits("pusher:member_added", channel) == {"id": "7", "info": None}
    tab = member(clients, app, server, 7).subscribe(channel)
    assert tab.members(channel)["count"] == 2
    bob.do("unsubscribe", channel=channel)
    # Events are in order: nothing came for the second tab, and nothing while one of both is there.
    ann.trigger(channel, "client-barrier", "x")
    tab.waits("client-barrier", channel)
    tab.do("unsubscribe", channel=channel)
    assert ann.waits("pusher:member_removed", channel)["id"] == "7"
    assert len(ann.events("pusher:member_added")) == 1
    assert ann.members(channel)["count"] == 1


def test_a_socket_may_be_a_different_user_in_each_channel(clients, api, app, server, room):
    first, second = f"presence-{room}-1", f"presence-{room}-2"
    users = {first: {"user_id": "ann"}, second: {"user_id": "zoe"}}
    watcher = member(clients, app, server, "bob").subscribe(first).subscribe(second)
    clients.client(app, server, users=users).connected().subscribe(first).subscribe(second)
    watcher.has_members(first, "ann", "bob")
    watcher.has_members(second, "bob", "zoe")


def test_a_reload_is_not_visible(clients, api, app, server, room):
    channel = f"presence-{room}"
    ann = member(clients, app, server, "ann").subscribe(channel)
    bob = member(clients, app, server, "bob", {"n": 1}).subscribe(channel)
    ann.has_members(channel, "ann", "bob")
    bob.do("disconnect")
    member(clients, app, server, "bob", {"n": 1}).subscribe(channel)
    # Longer than the grace period: who goes shows that it has ended.
    gone = member(clients, app, server, "gone").subscribe(channel)
    gone.do("disconnect")
    assert ann.waits("pusher:member_removed", channel, timeout=GRACE_S + 20)["id"] == "gone"
    assert [event["data"]["id"] for event in ann.events("pusher:member_added")] == ["bob", "gone"]
    ann.has_members(channel, "ann", "bob")


def test_those_who_join_at_once_see_each_other(clients, api, app, server, room):
    channel = f"presence-{room}"
    everybody = [member(clients, app, server, f"user-{number}") for number in range(8)]
    for one in everybody:
        one.do("subscribe", channel=channel)
    names = [f"user-{number}" for number in range(8)]
    for one in everybody:
        one.waits("pusher:subscription_succeeded", channel)
        one.has_members(channel, *names)


def test_presence_is_one_list_with_tavern_clients(clients, api, app, server, room):
    channel = f"presence-{room}"
    ann = member(clients, app, server, "ann", {"name": "Ann"}).subscribe(channel)
    with Socket(server, token=tokens.token("1:tina", allow=ALLOW)) as tina:
        members = tina.ok("subscribe", channel=app.channel(channel), presence=True)["members"]
        assert [(user["user"], user["clients"][0]["state"]) for user in members["users"]] == [("1:ann", {"name": "Ann"})]
        tina.ok("join", channel=app.channel(channel), state={"level": 3})
        assert ann.waits("pusher:member_added", channel) == {"id": "tina", "info": {"level": 3}}
        bob = member(clients, app, server, "bob").subscribe(channel)
        assert bob.members(channel)["users"] == {"ann": {"name": "Ann"}, "tina": {"level": 3}, "bob": None}
        tina.ok("leave", channel=app.channel(channel))
        assert ann.waits("pusher:member_removed", channel)["id"] == "tina"
        # A user who is not of the app cannot pass for one of its users.
        with Socket(server, token=tokens.token("ann", allow=ALLOW)) as other:
            other.ok("join", channel=app.channel(channel))
            ann.has_members(channel, "ann", "bob", "tavern:ann")


def test_wrong_channel_data_is_refused(clients, api, app, server, room):
    channel = f"presence-{room}"
    for data in ({"user_id": ""}, {"user_id": "a\nb"}, {"user_id": "x" * 200}, {"user_id": "a", "user_info": "x" * 5000}):
        ann = clients.client(app, server, user=data).connected()
        ann.do("subscribe", channel=channel)
        assert ann.waits("pusher:subscription_error", channel)["status"] in (400, 413), data
        ann.subscribe(room)
    assert api.get(f"/channels/{channel}/users") == {"users": []}


def test_servers_ask_who_is_there(clients, api, app, server, room):
    channel = f"presence-{room}"
    for user in ("ann", "bob"):
        member(clients, app, server, user).subscribe(channel)
    member(clients, app, server, "bob").subscribe(channel)
    assert sorted(user["id"] for user in api.get(f"/channels/{channel}/users")["users"]) == ["ann", "bob"]
    asked = api.get(f"/channels/{channel}", info="user_count,subscription_count")
    assert asked == {"occupied": True, "user_count": 2, "subscription_count": 3}
    listed = api.get("/channels", filter_by_prefix=f"presence-{room}", info="user_count")
    assert listed == {"channels": {channel: {"user_count": 2}}}
    assert api.trigger(channel, "x", "y", info="user_count") == {"channels": {channel: {"user_count": 2}}}
    assert api.get(f"/channels/{room}-empty")["occupied"] is False
    assert channel in api.get("/channels")["channels"]


def test_a_ban_ends_connections_and_keeps_users_out(clients, api, app, server, room):
    channel = f"presence-{room}"
    ann = member(clients, app, server, "ann").subscribe(channel)
    eve = member(clients, app, server, f"eve-{room}").subscribe(channel)
    ann.has_members(channel, "ann", f"eve-{room}")
    url = f"{server.url}/v1/users/1:eve-{room}/ban"
    headers = {"authorization": f"Bearer {server.key}"}
    assert httpx.put(url, headers=headers, json={"reason": "spam"}, trust_env=False).status_code == 200
    until(lambda: eve.do("state")["state"] in ("disconnected", "failed"), f"eve to be closed: {eve.do('seen')}")
    again = member(clients, app, server, f"eve-{room}")
    again.do("subscribe", channel=channel)
    assert again.waits("pusher:subscription_error", channel)["status"] == 403
    assert httpx.delete(url, headers=headers, trust_env=False).status_code == 200
