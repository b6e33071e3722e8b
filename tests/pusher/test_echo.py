"""Laravel Echo, unmodified, on pusher-js: the events of a Laravel application have the names of their classes."""
CREATED = "App\\Events\\OrderCreated"


def test_echo_listens_whispers_and_sees_who_is_here(clients, api, app, server, room):
    def echo(user):
        client = clients.client(app, server, user={"user_id": user, "user_info": {"name": user}}).connected()
        for kind in ("channel", "private"):
            client.do("echo", kind=kind, channel=room, events=["OrderCreated", ".order.paid"], whispers=["typing"])
            # Echo names both channels alike; the library below does not.
            client.waits("subscribed", room, count=1 if kind == "channel" else 2)
        client.do("echo", kind="join", channel=room)
        client.waits("here", room)
        return client

    ann, bob = echo("ann"), echo("bob")
    assert ann.waits("here") == [{"name": "ann"}]
    assert sorted(user["name"] for user in bob.waits("here")) == ["ann", "bob"]
    assert ann.waits("joining") == {"name": "bob"}
    api.trigger(room, CREATED, {"order": 7})
    api.trigger(f"private-{room}", "order.paid", {"order": 8})
    assert bob.waits("OrderCreated") == {"order": 7} and bob.waits(".order.paid") == {"order": 8}
    ann.do("whisper", kind="private", channel=room, event="typing", data={"on": True})
    assert bob.waits("whisper typing") == {"on": True}
    assert ann.events("whisper typing") == []
    bob.do("leave", channel=room)
    assert ann.waits("leaving") == {"name": "bob"}
