"""The numbers of a server, told to a StatsD receiver and to the log: the same as its page shows."""
import collections
import json
import re
import socket

import pytest

from events.conftest import client
from events.endpoint import Endpoint
from events.office import publish, put
from support.process import free_port, until
from support.tavern import Tavern

LINE = re.compile(r"(?P<name>[a-z0-9_.]+):(?P<value>\d+)\|(?P<kind>[cg])\|#(?P<tags>.+)")


class Receiver:
    """Listens on UDP: adds up counters, keeps the last value of gauges."""

    def __init__(self, port=0):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", port))
        self.socket.settimeout(0)
        self.port = self.socket.getsockname()[1]
        self.numbers = collections.Counter()
        self.longest = 0

    def hear(self):
        """What was said until now."""
        try:
            while True:
                datagram = self.socket.recv(65_536)
                self.longest = max(self.longest, len(datagram))
                for line in datagram.decode().split("\n"):
                    found = LINE.fullmatch(line)
                    assert found, line
                    key = found["name"], frozenset(found["tags"].split(","))
                    self.numbers[key] = int(found["value"]) + (self.numbers[key] if found["kind"] == "c" else 0)
        except BlockingIOError:
            return self.numbers

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.socket.close()


def config(port, every_ms=100):
    return f"""
node = "inn"
log = "json"
[metrics]
statsd = "127.0.0.1:{port}"
statsd_prefix = "house."
statsd_ms = {every_ms}
log_ms = 200
"""


def lines(server):
    """The numbers that the log shows, one object for each line."""
    told = [json.loads(line) for line in server.log(1_000_000).splitlines() if line.startswith("{")]
    return [json.loads(one["fields"]["numbers"]) for one in told if one["target"] == "tavern::metrics"]


def is_nothing(line):
    """A counter that nothing was added to."""
    return line.split("{")[0].split()[0].endswith(("_total", "_sum", "_count")) and line.endswith(" 0")


def named(line):
    """What a line of the page is called over UDP."""
    name, _, labels = line.rsplit(" ", 1)[0].partition("{")
    tags = {tag.replace('="', ":").rstrip('"') for tag in labels.rstrip("}").split(",") if tag}
    return name.replace("tavern_", "house.", 1), frozenset(tags | {"node:inn"})


def work(server, endpoint, first=0):
    with client(server, server.key) as api:
        put(api, "billing", topics=["orders"], callback=endpoint.url, timeout_ms=0)
        publish(api, "orders", [{"type": "x", "id": str(first + n)} for n in range(20)])
        publish(api, "orders", {"type": "x", "id": str(first)})
        endpoint.until(lambda it: len(it.taken()) == first + 20)


def test_what_the_page_shows_is_told_by_udp_and_in_the_log():
    with Receiver() as receiver, Endpoint() as endpoint, Tavern.dev(config(receiver.port)) as server:
        work(server, endpoint)
        billing = frozenset({"node:inn", "subscription:billing"})
        until(lambda: receiver.hear()["house.subscription_events_total", billing] == 20, "the counters to arrive")
        orders = frozenset({"node:inn", "topic:orders"})
        numbers = receiver.hear()
        assert numbers["house.topic_events_total", orders] == 20
        assert numbers["house.topic_duplicates_total", orders] == 1
        assert numbers["house.store_up", frozenset({"node:inn"})] == 1
        assert numbers["house.deliveries_total", billing | {"outcome:delivered"}] >= 1
        assert 0 < receiver.longest <= 1_432
        # Every number of the page has its line, but for counters of which there is nothing to tell.
        shown = {named(line) for line in server.metrics().splitlines() if not line.startswith("#") and not is_nothing(line)}
        assert len(shown) > 20
        until(lambda: shown <= set(receiver.hear()), "all of the page to be told")
        told = until(lambda: [one for one in lines(server) if one.get('tavern_topic_events_total{topic="orders"}') == 20], "a line of the log")
        assert told[-1]["tavern_store_up"] == 1 and "tavern_webhooks_in_flight" in told[-1]


def test_a_receiver_that_is_not_there_is_missed_by_nobody():
    port = free_port()
    with Endpoint() as endpoint, Tavern.dev(config(port)) as server:
        work(server, endpoint)
        with Receiver(port) as receiver:
            until(lambda: receiver.hear()["house.store_up", frozenset({"node:inn"})] == 1, "the gauges to arrive")
            work(server, endpoint, first=20)
            billing = frozenset({"node:inn", "subscription:billing"})
            until(lambda: receiver.hear()["house.subscription_events_total", billing] >= 20, "what came later to arrive")


@pytest.mark.parametrize("wrong", ["metrics.statsd=8125", "metrics.statsd_prefix=a|b", "metrics.log_ms=5"])
def test_a_wrong_address_is_said(wrong):
    server = Tavern.dev()
    checked = server.run("check", "--dev", "--set", wrong)
    assert checked.returncode == 1 and wrong.split("=")[0] in checked.stderr
