"""Several servers: a message published on one reaches the subscribers on all, once and in order."""
import base64
import concurrent.futures
import json

import pytest

from cluster.combination import FOLDER
from support.json_client import Poller, Socket, Stream
from support.process import until
from support.resp import Push, RespConnection


on_the_folder = pytest.mark.only(FOLDER, reason="tests processes that share a folder")


def redis_listener(server, command, name):
    redis = RespConnection(server.resp_port)
    redis.call(command, name)
    return redis


def publish_on_folder(server, channel, payload):
    done = server.run("publish", "--data", server.data, channel, payload)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_every_subscriber_receives_every_message_once(combination, nodes, channel):
    a, b, c = nodes
    with Socket(a, user="ann") as socket, Poller(b, user="bob") as poller, Stream(c, user="cid") as stream:
        redis = redis_listener(b, "SUBSCRIBE", channel)
        by_pattern = redis_listener(c, "PSUBSCRIBE", channel + "*")
        socket.ok("subscribe", channel=channel)
        poller.ok("hello")
        poller.ok("subscribe", channel=channel)
        session = stream.greeting()["session"]
        with Poller(c, user="cid", session=session) as hand:
            hand.ok("subscribe", channel=channel)
        with Socket(b, user="bea") as publisher:
            publisher.ok("publish", channel=channel, data="from-b")
        assert RespConnection(a.resp_port).call("PUBLISH", channel, "from-a") == 1, "only local subscriptions are counted"
        expected = {"from-a", "from-b"}
        if combination.name == FOLDER:
            publish_on_folder(a, channel, "from-folder")
            expected.add("from-folder")
        count = len(expected)
        received = {"socket": {socket.event()["data"] for _ in range(count)}}
        taken = []
        while len(taken) < count:
            taken += poller.take()
        received["poll"] = {event["data"] for event in taken}
        received["stream"] = {stream.event()[1]["data"] for _ in range(count)}
        received["redis"] = {redis.read()[2].decode().strip('"') for _ in range(count)}
        received["pattern"] = {by_pattern.read()[3].decode().strip('"') for _ in range(count)}
        assert received == dict.fromkeys(received, expected)
        assert socket.events_so_far() == [] and redis.frames_so_far() == [] and by_pattern.frames_so_far() == []
        assert poller.take(timeout_ms=0) == []


@on_the_folder
def test_a_subscriber_on_the_folder_receives_from_the_servers(nodes, channel):
    import subprocess
    from support.tavern import program
    subscriber = subprocess.Popen(
        [program(), "subscribe", "--data", nodes[0].data, channel, "--pattern", channel + "*", "--count", "4"],
        stdout=subprocess.PIPE, text=True, env=nodes[0].environment(),
    )
    try:
        processes = lambda: json.loads(
            nodes[0].run("local", "stat", "--data", nodes[0].data, "--json").stdout)["processes"]
        listens = lambda process: process["pid"] == subscriber.pid and process["patterns"] == 1 and process["channels"] == 1
        until(lambda: any(map(listens, processes())), "the subscriber to be connected")
        with Socket(nodes[0], user="ann") as ann:
            ann.ok("publish", channel=channel, data={"n": 1})
        RespConnection(nodes[1].resp_port).call("PUBLISH", channel, "two")
        lines = [json.loads(line) for line in subscriber.communicate(timeout=20)[0].splitlines()]
        assert subscriber.returncode == 0
    finally:
        subscriber.kill()
        subscriber.wait()
    # There is no order between two servers; each message arrives by name and by pattern.
    assert sorted(str(line["data"]) for line in lines) == sorted([str({"n": 1})] * 2 + ["two"] * 2)
    assert [line.get("pattern") is not None for line in lines] == [False, True, False, True]


def test_from_is_carried_across_servers(nodes, channel):
    with Socket(nodes[0], user="ann") as ann, Socket(nodes[1], user="bob") as bob:
        ann.ok("subscribe", channel=channel)
        data = {"n": 1.5, "text": "ü"}
        bob.ok("publish", channel=channel, data=data)
        event = ann.event()
        assert event["from"] == {"user": "bob", "client": bob.hello["client"]}
        assert event["data"] == data


def test_binary_payloads_cross_servers_and_arrive_as_base64_in_json(nodes, channel):
    with Socket(nodes[0], user="ann") as ann:
        ann.ok("subscribe", channel=channel)
        redis = redis_listener(nodes[2], "SUBSCRIBE", channel)
        RespConnection(nodes[1].resp_port).call("PUBLISH", channel, b"\xff\x00")
        event = ann.event()
        assert base64.b64decode(event["data"]) == b"\xff\x00" and event["encoding"] == "base64"
        assert redis.read()[2] == b"\xff\x00"


@pytest.mark.parametrize("name", [b"", b"News Sport", b"a\x00b", b"\xff\xfe", b"game#", b"game", b"x" * 512])
def test_any_redis_channel_name_works_across_servers(nodes, name):
    listener = redis_listener(nodes[0], "SUBSCRIBE", name)
    RespConnection(nodes[1].resp_port).call("PUBLISH", name, "x")
    assert listener.read() == [b"message", name, b"x"]


def test_shard_channels_cross_servers_and_stay_separate(nodes, channel):
    sharded, plain = redis_listener(nodes[0], "SSUBSCRIBE", channel), redis_listener(nodes[0], "SUBSCRIBE", channel)
    publisher = RespConnection(nodes[1].resp_port)
    publisher.call("SPUBLISH", channel, "s")
    publisher.call("PUBLISH", channel, "p")
    assert sharded.read() == [b"smessage", channel.encode(), b"s"]
    assert plain.read() == [b"message", channel.encode(), b"p"]
    assert sharded.frames_so_far() == []


def test_one_publisher_has_one_order_on_every_server(nodes, channel):
    count = 5_000
    listeners = [redis_listener(server, "SUBSCRIBE", channel) for server in nodes]
    # A channel and a pattern subscription on the same server must not duplicate the message.
    patterns = [redis_listener(server, "PSUBSCRIBE", channel[:-1] + "[x]") for server in nodes]
    publishers = [RespConnection(server.resp_port) for server in nodes]

    def publish_all(at):
        for n in range(0, count, 100):
            from support.resp import pack
            publishers[at].send(b"".join(pack("PUBLISH", channel, f"{at}:{m}") for m in range(n, n + 100)))
            for _ in range(100):
                publishers[at].read(timeout=20)

    def listen(redis):
        received = [[] for _ in nodes]
        for _ in range(count * len(nodes)):
            at, _, n = redis.read(timeout=30)[2].partition(b":")
            received[int(at)].append(int(n))
        return received

    with concurrent.futures.ThreadPoolExecutor() as pool:
        listening = [pool.submit(listen, redis) for redis in listeners]
        list(pool.map(publish_all, range(len(nodes))))
        for received in listening:
            for numbers in received.result():
                holes = [(a, b) for a, b in zip(numbers, numbers[1:]) if b != a + 1]
                assert (len(numbers), holes[:5]) == (count, [])
    assert [listener.frames_so_far() for listener in listeners] == [[]] * len(nodes)
    assert all(b"pmessage" in listener.frame() for listener in patterns)


def test_a_confirmed_subscription_misses_no_later_message(nodes):
    publisher = RespConnection(nodes[1].resp_port)
    with Socket(nodes[0], user="ann") as ann:
        for n in range(200):
            ann.ok("subscribe", channel=f"race#{n}")
            publisher.call("PUBLISH", f"race#{n}", n)
            assert ann.event()["data"] == n
    listener = RespConnection(nodes[2].resp_port)
    for n in range(200):
        assert listener.call("SUBSCRIBE", f"sprint#{n}") == [b"subscribe", f"sprint#{n}".encode(), n + 1]
        publisher.call("PUBLISH", f"sprint#{n}", n)
        assert listener.read() == [b"message", f"sprint#{n}".encode(), str(n).encode()]


def test_many_names_in_one_subscribe_are_confirmed_in_order(nodes):
    listener = RespConnection(nodes[0].resp_port)
    names = [f"many#{n}" for n in range(50)]
    from support.resp import pack
    listener.send(pack("SUBSCRIBE", *names) + pack("PING"))
    for n, name in enumerate(names):
        assert listener.read() == [b"subscribe", name.encode(), n + 1]
    assert listener.read() == [b"pong", b""]


def test_a_stream_with_channels_in_its_url_receives_from_other_servers(nodes, channel):
    class Browser(Stream):
        def __init__(self, server):
            import support.json_client as client
            original = client.address
            client.address = lambda url, **query: original(url, **query) + f"&channel={channel.replace('#', '%23')}"
            try:
                super().__init__(server, user="eve")
            finally:
                client.address = original

    with Browser(nodes[0]) as stream:
        stream.greeting()
        assert "ok" in stream.event()[1]
        RespConnection(nodes[1].resp_port).call("PUBLISH", channel, "hi")
        assert stream.event()[1]["data"] == "hi"


def test_subscribe_works_inside_multi_exec(nodes, channel):
    listener = RespConnection(nodes[0].resp_port)
    assert listener.call("MULTI") == "OK"
    assert listener.call("SUBSCRIBE", channel) == "QUEUED"
    assert listener.call("EXEC") is not None
    publisher = RespConnection(nodes[1].resp_port)

    def received():
        publisher.call("PUBLISH", channel, "x")
        return [frame for frame in listener.frames_so_far() if b"message" in frame]

    until(received, "the bus subscription, which EXEC cannot wait for")


def test_resp3_receives_pushes_from_other_servers(nodes, channel):
    listener = RespConnection(nodes[0].resp_port)
    listener.call("HELLO", "3")
    listener.call("SUBSCRIBE", channel)
    RespConnection(nodes[1].resp_port).call("PUBLISH", channel, "x")
    message = listener.read()
    assert isinstance(message, Push) and message == [b"message", channel.encode(), b"x"]


@on_the_folder
def test_the_folder_cannot_publish_to_reserved_channels(nodes):
    with Socket(nodes[0], user="ann") as ann:
        ann.ok("subscribe", channel="user#ann")
        ann.ok("subscribe", channel="room#after")
        publish_on_folder(nodes[0], "user#ann", "forged")
        publish_on_folder(nodes[0], "room#after", "plain")
        assert ann.event()["channel"] == "room#after"


@on_the_folder
def test_publish_on_the_folder_returns_the_number_of_receiving_processes(nodes, channel):
    assert publish_on_folder(nodes[0], channel, "x") == 0
    with Socket(nodes[0], user="ann") as ann, Socket(nodes[1], user="bob") as bob:
        ann.ok("subscribe", channel=channel)
        bob.ok("subscribe", channel=channel)
        assert publish_on_folder(nodes[0], channel, "x") == 2
