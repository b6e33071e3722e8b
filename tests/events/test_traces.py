"""Traces: a collector that speaks OTLP gets publishes, commands with their commits, and events from POST to webhook."""
import httpx
import pytest

from events.conftest import client
from events.endpoint import Endpoint, script
from events.topics_api import publish, put
from support.json_client import Socket, connect_online
from support.otlp_collector import Collector
from support.process import free_port, until
from support.tavern import Tavern

QUICK = "\n[events]\nbackoff_min_ms = 20\nbackoff_max_ms = 100\n"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
HEADER = {"traceparent": f"00-{TRACE}-{PARENT}-01"}


@pytest.fixture(scope="module")
def collector():
    with Collector() as collector:
        yield collector


@pytest.fixture(scope="module")
def traced(collector):
    with Tavern.dev(f'node = "n1"\notlp_url = "{collector.url}"{QUICK}') as server:
        yield server


@pytest.fixture(scope="module")
def api(traced):
    with client(traced, traced.key) as api:
        yield api


def test_an_event_is_one_trace_from_its_post_to_the_webhook(collector, traced, api):
    with Endpoint(script(500)) as endpoint:
        put(api, "billing", topics=["orders"], callback=endpoint.url, timeout_ms=0)
        answer = api.post("/v1/topics/orders/events", json={"type": "created"}, headers=HEADER)
        assert answer.status_code == 202
        endpoint.got([1])
        attempts = collector.named("webhook attempt", 2)
    post = next(span for span in collector.named("POST /v1/topics/{}/events") if span.trace == TRACE)
    assert (post.parent, post.kind, post.attributes["http.response.status_code"]) == (PARENT, 2, 202)
    assert post.resource["service.name"] == "tavern" and post.resource["service.instance.id"] == "n1"
    commits = [span for span in collector.named("commit") if span.parent == post.id]
    assert commits and all(span.trace == TRACE for span in commits)
    failed, delivered = attempts
    assert {span.trace for span in attempts} == {TRACE} and {span.parent for span in attempts} == {post.id}
    assert (failed.attributes["http.response.status_code"], failed.error) == (500, "500 Internal Server Error")
    assert (delivered.attributes["http.response.status_code"], delivered.error) == (200, None)
    assert delivered.attributes["tavern.subscription"] == "billing" and delivered.attributes["tavern.attempt"] == 2
    # The endpoint goes on with the trace; the event says where it came from.
    sent = endpoint.posts[-1]
    assert sent.headers["traceparent"] == f"00-{TRACE}-{delivered.id}-01"
    assert sent.body["events"][0]["traceparent"] == f"00-{TRACE}-{post.id}-01"
    assert set(collector.requests) == {("/v1/traces", "application/x-protobuf")}


def test_a_batch_of_several_traces_links_them(collector, api):
    with Endpoint() as endpoint:
        put(api, "mail", topics=["letters"], callback=endpoint.url, timeout_ms=500)
        for digit in "123":
            headers = {"traceparent": f"00-{digit * 32}-{PARENT}-01"}
            assert api.post("/v1/topics/letters/events", json={"type": "x"}, headers=headers).status_code == 202
        endpoint.got([1, 2, 3])
        spans = until(lambda: [span for span in list(collector.spans) if span.attributes.get("tavern.subscription") == "mail"], "the attempt", 20)
    assert sorted([spans[0].trace, *spans[0].links]) == ["1" * 32, "2" * 32, "3" * 32]


def test_a_publish_over_rest(collector, api):
    trace = "a" * 32
    headers = {"traceparent": f"00-{trace}-{PARENT}-01"}
    assert api.post("/v1/channels/room%231/messages", json={"data": 1}, headers=headers).status_code == 200
    request = next(span for span in collector.named("POST /v1/channels/{}/messages") if span.trace == trace)
    publish_ = next(span for span in collector.named("publish") if span.trace == trace)
    assert publish_.parent == request.id and publish_.attributes["messaging.destination.name"] == "room#1"


def test_a_command_with_its_commit(collector, traced):
    with Socket(traced, user="ann") as ann, connect_online(traced, "bob"):
        ann.ok("join", channel="room#1")
        ann.ok("party.invite", user="bob")
    command = collector.named("command party")[0]
    assert command.attributes["tavern.op"] == "party" and command.parent == ""
    until(lambda: any(span.parent == command.id and span.name == "commit" for span in list(collector.spans)), "its commit", 20)
    joined = collector.named("command join")[0]
    until(lambda: any(span.trace == joined.trace and span.name == "commit" for span in list(collector.spans)), "its commit", 20)


def test_the_caller_decides_whether_its_trace_is_recorded(collector, api):
    trace = "b" * 32
    with Endpoint() as endpoint:
        put(api, "quiet", topics=["quiet"], callback=endpoint.url, timeout_ms=0)
        headers = {"traceparent": f"00-{trace}-{PARENT}-00"}
        assert api.post("/v1/topics/quiet/events", json={"type": "x"}, headers=headers).status_code == 202
        sent = endpoint.posted(1)[0]
    assert sent.headers["traceparent"] == f"00-{trace}-{PARENT}-00", "it is passed on as it came"
    publish(api, "quiet", {"type": "y"})
    collector.named("POST /v1/topics/{}/events")
    assert not [span for span in list(collector.spans) if span.trace == trace]


def test_spans_are_counted(collector, traced):
    exported = 'tavern_trace_spans_total{outcome="exported"}'
    until(lambda: traced.metric(exported) >= 1, "exported spans", 20)
    assert traced.metric('tavern_trace_spans_total{outcome="dropped"}') == 0


def test_a_sample_of_nothing_records_nothing_that_begins_here():
    with Collector() as collector, Tavern.dev(f'otlp_url = "{collector.url}/"\notlp_sample_percent = 0\n') as server:
        with client(server, server.key) as api:
            publish(api, "orders", {"type": "x"})
            assert api.post("/v1/topics/orders/events", json={"type": "x"}, headers=HEADER).status_code == 202
        collector.named("POST /v1/topics/{}/events")
        assert {span.trace for span in collector.spans} == {TRACE}


def test_a_collector_that_fails_does_no_harm():
    with Tavern.dev(f'otlp_url = "http://127.0.0.1:{free_port()}"\n') as server, client(server, server.key) as api:
        publish(api, "orders", {"type": "x"})
        until(lambda: server.metric('tavern_trace_spans_total{outcome="failed"}') >= 1, "the failure to be counted", 30)
        assert "cannot send traces to otlp_url" in server.log()
        publish(api, "orders", {"type": "x"})


def test_without_a_collector_there_are_no_traces():
    with Tavern.dev() as server, Endpoint() as endpoint, client(server, server.key) as api:
        assert "tavern_trace_spans_total" not in server.metrics()
        put(api, "plain", topics=["orders"], callback=endpoint.url, timeout_ms=0)
        publish(api, "orders", {"type": "x"})
        sent = endpoint.posted(1)[0]
        assert "traceparent" not in sent.headers and "traceparent" not in sent.body["events"][0]


def test_a_wrong_address_is_refused():
    checked = Tavern.dev().run("check", "--dev", "--set", "otlp_url=collector:4318")
    assert checked.returncode == 1 and "otlp_url" in checked.stderr
