"""Metrics in StatsD and in the log have the same values as the metrics page."""
import collections
import json
import re
import socket

import pytest

from events.conftest import client
from events.endpoint import Endpoint
from events.topics_api import publish, put
from support.process import free_port, until
from support.tavern import Tavern

LINE = re.compile(r"(?P<name>[a-z0-9_.]+):(?P<value>[\d.e-]+)\|(?P<kind>[cg])\|#(?P<tags>.+)")


class Receiver:
    """A UDP receiver: sums counters, keeps the last value of gauges."""

    def __init__(self, port=0):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", port))
        self.socket.settimeout(0)
        self.port = self.socket.getsockname()[1]
        self.numbers = collections.Counter()
        self.longest = 0

    def values(self):
        """All values so far."""
        try:
            while True:
                datagram = self.socket.recv(65_536)
                self.longest = max(self.longest, len(datagram))
                for line in datagram.decode().split("\n"):
                    found = LINE.fullmatch(line)
                    assert found, line
                    key = found["name"], frozenset(found["tags"].split(","))
                    self.numbers[key] = float(found["value"]) + (self.numbers[key] if found["kind"] == "c" else 0)
        except BlockingIOError:
            return self.numbers

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.socket.close()


def config(port, every_ms=100):
    return f"""
node = "n1"
log = "json"
[metrics]
statsd = "127.0.0.1:{port}"
statsd_prefix = "tavern."
statsd_ms = {every_ms}
log_ms = 200
"""


def lines(server):
    """The metrics in the log, one object per line."""
    found = [json.loads(line) for line in server.log(1_000_000).splitlines() if line.startswith("{")]
    return [json.loads(one["fields"]["numbers"]) for one in found if one["target"] == "tavern::metrics"]


def is_nothing(line):
    """A counter that is zero."""
    return line.split("{")[0].split()[0].endswith(("_total", "_sum", "_count", "_bucket")) and line.endswith(" 0")


def named(line):
    """The StatsD name and tags of a line of the metrics page."""
    name, _, labels = line.rsplit(" ", 1)[0].partition("{")
    tags = {tag.replace('="', ":").rstrip('"') for tag in labels.rstrip("}").split(",") if tag}
    return f"tavern.{name.removeprefix('tavern_')}", frozenset(tags | {"node:n1"})


def work(server, endpoint, first=0):
    with client(server, server.key) as api:
        put(api, "billing", topics=["orders"], callback=endpoint.url, timeout_ms=0)
        publish(api, "orders", [{"type": "x", "id": str(first + n)} for n in range(20)])
        publish(api, "orders", {"type": "x", "id": str(first)})
        endpoint.until(lambda it: len(it.taken()) == first + 20)


def test_statsd_and_log_show_the_metrics_of_the_page():
    with Receiver() as receiver, Endpoint() as endpoint, Tavern.dev(config(receiver.port)) as server:
        work(server, endpoint)
        billing = frozenset({"node:n1", "subscription:billing"})
        until(lambda: receiver.values()["tavern.subscription_events_total", billing] == 20, "the counters to arrive")
        orders = frozenset({"node:n1", "topic:orders"})
        numbers = receiver.values()
        assert numbers["tavern.topic_events_total", orders] == 20
        assert numbers["tavern.topic_duplicates_total", orders] == 1
        assert numbers["tavern.store_up", frozenset({"node:n1"})] == 1
        assert numbers["tavern.deliveries_total", billing | {"outcome:delivered"}] >= 1
        assert 0 < receiver.longest <= 1_432
        # Every metric of the page is sent, except counters that are zero.
        shown = {named(line) for line in server.metrics().splitlines() if not line.startswith("#") and not is_nothing(line)}
        assert len(shown) > 20
        until(lambda: shown <= set(receiver.values()), "all metrics to arrive")
        found = until(lambda: [one for one in lines(server) if one.get('tavern_topic_events_total{topic="orders"}') == 20], "a log line")
        assert found[-1]["tavern_store_up"] == 1 and "tavern_webhooks_in_flight" in found[-1]


def test_a_missing_statsd_receiver_does_no_harm():
    port = free_port()
    with Endpoint() as endpoint, Tavern.dev(config(port)) as server:
        work(server, endpoint)
        with Receiver(port) as receiver:
            until(lambda: receiver.values()["tavern.store_up", frozenset({"node:n1"})] == 1, "the gauges to arrive")
            work(server, endpoint, first=20)
            billing = frozenset({"node:n1", "subscription:billing"})
            until(lambda: receiver.values()["tavern.subscription_events_total", billing] >= 20, "later values to arrive")


@pytest.mark.parametrize("wrong", ["metrics.statsd=8125", "metrics.statsd_prefix=a|b", "metrics.log_ms=5"])
def test_invalid_metrics_settings_are_rejected(wrong):
    server = Tavern.dev()
    checked = server.run("check", "--dev", "--set", wrong)
    assert checked.returncode == 1 and wrong.split("=")[0] in checked.stderr


def test_rows_of_a_deleted_subscription_leave_and_queues_are_counted(topic, name):
    def rows(server):
        return [line for line in server.metrics().splitlines() if f'subscription="{name}"' in line]

    def number(server, metric):
        found = [line for line in rows(server) if line.startswith(metric + "{")]
        return float(found[0].split()[-1]) if found else None

    with Tavern.dev("[events]\nbackoff_min_ms = 100\nbackoff_max_ms = 200\n") as server, Endpoint(503) as endpoint, \
            client(server, server.api_key("events", "subscriptions")) as api:
        put(api, name, topics=[topic], callback=endpoint.url, timeout_ms=0, max_events=2)
        publish(api, topic, [{"type": "a"}] * 5)
        until(lambda: number(server, "tavern_subscription_queued_events") == 5, "five queued events")
        assert number(server, "tavern_subscription_first_attempt_seconds_count") == 1, "it probes the first batch"
        assert number(server, "tavern_subscription_first_attempt_seconds_sum") < 5
        endpoint.status = 200
        endpoint.got(range(1, 6))
        until(lambda: number(server, "tavern_subscription_queued_events") in (0, None), "an empty queue")
        assert number(server, "tavern_subscription_first_attempt_seconds_count") == 3
        assert api.delete(f"/v1/subscriptions/{name}").status_code == 200
        until(lambda: rows(server) == [], "its rows to leave")
