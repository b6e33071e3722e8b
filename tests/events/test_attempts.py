"""Attempts: what an endpoint did, in the same words over REST, on the command line and in the log; test events, secret
rotation, browsing a topic."""
import json
import socket
import ssl
import subprocess
import threading

import pytest
import standardwebhooks

from events.conftest import client
from events.endpoint import HANG, Answer, Endpoint, script
from events.topics_api import code, command, events, publish, put, report
from support.process import free_port, until
from support.tavern import Tavern

QUICK = """
[events]
backoff_min_ms = 20
backoff_max_ms = 200
request_timeout_ms = 1000
connect_timeout_ms = 500
attempts_kept = 5
"""


@pytest.fixture(scope="module")
def quick():
    with Tavern.dev(QUICK) as server:
        yield server


@pytest.fixture(scope="module")
def key(quick):
    return quick.api_key("events", "subscriptions")


@pytest.fixture(scope="module")
def api(quick, key):
    with client(quick, key) as api:
        yield api


def attempts(api, name, **query):
    answer = api.get(f"/v1/subscriptions/{name}/attempts", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()["attempts"]


def first_attempt(api, name):
    until(lambda: attempts(api, name), "an attempt")
    return attempts(api, name)[-1]


class TlsEndpoint:
    """Accepts TLS connections with an untrusted certificate."""

    def __init__(self, folder):
        cert, key = folder / "cert.pem", folder / "key.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
             "-keyout", key, "-out", cert, "-subj", "/CN=nobody", "-addext", "subjectAltName=IP:127.0.0.1"],
            check=True, capture_output=True, timeout=20,
        )
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(cert, key)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self.serve, daemon=True)

    @property
    def url(self):
        return f"https://127.0.0.1:{self.listener.getsockname()[1]}/hook"

    def serve(self):
        while True:
            try:
                socket_, _ = self.listener.accept()
            except OSError:
                return
            try:
                self.context.wrap_socket(socket_, server_side=True).close()
            except OSError:
                pass

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *failure):
        self.listener.close()


def said_everywhere(quick, key, api, name, error):
    """The error, word for word, in the subscription, in the list of attempts and on the command line."""
    found = first_attempt(api, name)
    assert found["error"] == error and found["outcome"] == "failed", found
    assert report(api, name)["last_error"]["error"] == error
    printed = quick.run("events", "attempts", name, "--failed", "--url", quick.url, "--key", key)
    assert printed.returncode == 0 and error in printed.stdout, printed
    listed = quick.run("events", "list", "--url", quick.url, "--key", key)
    assert f"failing: {error}" in listed.stdout, listed
    return found


def test_an_answer_of_500_is_stored_with_its_body(quick, key, api, topic, name):
    answer = Answer(500, {"content-type": "text/plain", "server": "shop/1", "set-cookie": "secret"}, b"database is down\n" + b"x" * 4000)
    with Endpoint(answer) as endpoint:
        put(api, name, topics=[topic], callback=f"{endpoint.url}?token=hidden", timeout_ms=0)
        publish(api, topic, [{"type": "a"}, {"type": "b"}])
        found = said_everywhere(quick, key, api, name, "500 Internal Server Error")
    assert (found["status"], found["url"], found["batch"], found["attempt"]) == (500, endpoint.url, 1, 1)
    assert (found["first_seq"], found["last_seq"], found["events"]) == (1, 2, 2)
    assert found["headers"]["content-type"] == "text/plain" and "set-cookie" not in found["headers"]
    assert found["body"].startswith("database is down") and len(found["body"]) == 2048 and found["body_truncated"]
    assert "hidden" not in json.dumps(attempts(api, name))


def test_one_attempt_shows_the_request_that_was_sent(quick, key, api, topic, name):
    with Endpoint(script(Answer(500))) as endpoint:
        secrets = {"headers": {"X-Shop": "hidden-value"}, "format": "routemaster", "uuid": "hidden-user"}
        put(api, name, topics=[topic], callback=endpoint.url, timeout_ms=0, **secrets)
        publish(api, topic, [{"type": "a", "url": "https://x/1"}, {"type": "b", "url": "https://x/2"}])
        first_attempt(api, name)
        posted = endpoint.posted(1)[0]
        answer = api.get(f"/v1/subscriptions/{name}/attempts/1")
        assert answer.status_code == 200, answer.text
        request = answer.json()["request"]
        assert request["body"].encode() == posted.raw and request["bytes"] == len(posted.raw) and request["format"] == "routemaster"
        assert request["headers"]["x-shop"] == request["headers"]["authorization"] == "(hidden)"
        sent = {name: value for name, value in request["headers"].items() if value != "(hidden)"}
        assert sent.items() <= {name.lower(): value for name, value in posted.headers.items()}.items() and "webhook-signature" in sent
        assert "hidden-" not in answer.text and "ranges" not in answer.text
        assert "body" not in first_attempt(api, name)["request"], "not in the list"
        printed = quick.run("events", "attempts", name, "--number", "1", "--url", quick.url, "--key", key)
        assert printed.returncode == 0 and "x-shop: (hidden)" in printed.stdout and "https://x/2" in printed.stdout, printed
        assert code(api.get(f"/v1/subscriptions/{name}/attempts/99")) == (404, "not_found")
        assert code(api.get(f"/v1/subscriptions/{name}/attempts/x")) == (400, "bad_request")


def test_a_refused_connection(quick, key, api, topic, name):
    put(api, name, topics=[topic], callback=f"http://127.0.0.1:{free_port()}/hook", timeout_ms=0)
    publish(api, topic, {"type": "a"})
    found = said_everywhere(quick, key, api, name, "connection refused")
    assert found["status"] is None and found["body"] == ""


def test_an_endpoint_that_hangs(quick, key, api, topic, name):
    with Endpoint(HANG) as endpoint:
        put(api, name, topics=[topic], callback=endpoint.url, timeout_ms=0)
        publish(api, topic, {"type": "a"})
        found = said_everywhere(quick, key, api, name, "timeout after 1 s")
    assert found["duration_ms"] >= 1000


def test_a_wrong_certificate(quick, key, api, topic, name, tmp_path):
    with TlsEndpoint(tmp_path) as endpoint:
        put(api, name, topics=[topic], callback=endpoint.url, timeout_ms=0)
        publish(api, topic, {"type": "a"})
        said_everywhere(quick, key, api, name, "TLS: certificate not trusted: self-signed")


def test_a_redirect_is_refused(quick, key, api, topic, name):
    with Endpoint(Answer(302, {"location": "/other"})) as endpoint:
        put(api, name, topics=[topic], callback=endpoint.url, timeout_ms=0)
        publish(api, topic, {"type": "a"})
        found = said_everywhere(quick, key, api, name, "redirect refused (302 Found)")
    assert found["headers"]["location"] == "/other"


def test_only_the_last_attempts_are_kept_newest_first(api, topic, name):
    with Endpoint(script(500, 500, 500)) as endpoint:
        put(api, name, topics=[topic], callback=endpoint.url, timeout_ms=0)
        publish(api, topic, {"type": "a"})
        endpoint.got([1])
        for seq in range(2, 7):
            publish(api, topic, {"type": "a"})
            endpoint.got(range(1, seq + 1))
    until(lambda: attempts(api, name)[0]["number"] == 9, "the last attempt")
    assert [(one["number"], one["last_seq"]) for one in attempts(api, name)] == [(9, 6), (8, 5), (7, 4), (6, 3), (5, 2)]
    page = api.get(f"/v1/subscriptions/{name}/attempts", params={"limit": 2}).json()
    assert [one["number"] for one in page["attempts"]] == [9, 8] and page["next"] == "8"
    assert [one["number"] for one in attempts(api, name, after=8)] == [7, 6, 5]
    assert attempts(api, name, failed=True) == []
    # Deleted with the subscription.
    assert api.delete(f"/v1/subscriptions/{name}").status_code == 200
    put(api, name, topics=[topic], callback="http://127.0.0.1:9/", timeout_ms=0)
    assert attempts(api, name) == []
    assert code(api.get("/v1/subscriptions/nothing/attempts")) == (404, "not_found")


def test_the_log_has_one_line_per_change_of_state(quick, api, topic, name):
    with Endpoint(script(500, 500, 500)) as endpoint:
        put(api, name, topics=[topic], callback=endpoint.url, timeout_ms=0)
        publish(api, topic, {"type": "a"})
        endpoint.got([1])
        until(lambda: report(api, name)["health"] == "healthy", "the recovery")
    lines = [line for line in quick.log().splitlines() if name in line]
    assert sum("webhook attempt failed; retrying with backoff" in line for line in lines) == 1, lines
    assert sum("endpoint accepts events again" in line for line in lines) == 1, lines
    assert any("500 Internal Server Error" in line for line in lines)


def test_attempts_are_on_every_engine_and_node(nodes, ann, topic, name):
    with Endpoint(script(500)) as endpoint:
        put(ann, name, topics=[topic], callback=endpoint.url, timeout_ms=0)
        publish(ann, topic, {"type": "a"})
        endpoint.got([1])
        until(lambda: len(attempts(ann, name)) == 2, "both attempts")
        with client(nodes[1], ann.headers["authorization"].split()[1]) as other:
            assert attempts(other, name) == attempts(ann, name)


def test_a_test_event_is_sent_at_once_and_changes_nothing(quick, key, api, topic, name):
    with Endpoint(script(Answer(503, body=b"closed"))) as endpoint:
        secret = put(api, name, topics=[topic], callback=endpoint.url)["secret"]
        failed = command(api, name, "test")
        assert (failed["error"], failed["status"], failed["body"]) == ("503 Service Unavailable", 503, "closed")
        assert (failed["number"], failed["reason"], failed["events"]) == (0, "test", 1)
        run = quick.run("events", "test", name, "--url", quick.url, "--key", key)
        assert run.returncode == 0 and endpoint.url in run.stdout, run
        first, second = endpoint.posts
        assert [event["type"] for event in first.body["events"]] == ["test"] and first.id != second.id
        standardwebhooks.Webhook(secret).verify(second.raw, second.headers)
        assert report(api, name)["health"] == "healthy" and attempts(api, name) == []
    put(api, name, topics=[topic], pull=True)
    assert code(api.post(f"/v1/subscriptions/{name}/test")) == (400, "bad_request")
    assert code(api.post("/v1/subscriptions/nothing/test")) == (404, "not_found")


def test_a_rotated_secret_signs_beside_the_old_one(quick, key, api, topic, name):
    with Endpoint() as endpoint:
        old = put(api, name, topics=[topic], callback=endpoint.url)["secret"]
        answer = command(api, name, "rotate")
        assert answer["secret"] != old and answer["created"] is False and answer["former_secret_until"] > 0
        newest = quick.run("events", "rotate", name, "--url", quick.url, "--key", key).stdout.strip()
        command(api, name, "test")
        post = endpoint.posted(1)[0]
        assert len(post.headers["webhook-signature"].split()) == 2
        for secret in (answer["secret"], newest):
            standardwebhooks.Webhook(secret).verify(post.raw, post.headers)
    assert code(api.post(f"/v1/subscriptions/{name}/rotate", json={"secret": "short"})) == (400, "bad_request")


def test_a_topic_is_browsed_without_acknowledging(quick, key, api, topic, name):
    put(api, name, topics=[topic], pull=True)
    publish(api, topic, [{"type": str(n), "id": f"e{n}", "data": n} for n in range(1, 6)])
    page = api.get(f"/v1/topics/{topic}/events", params={"limit": 3}).json()
    assert [(event["seq"], event["id"], event["type"], event["data"]) for event in events(page)] == [
        (n, f"e{n}", str(n), n) for n in (1, 2, 3)]
    rest = api.get(f"/v1/topics/{topic}/events", params={"after": page["next"]}).json()
    assert [event["seq"] for event in events(rest)] == [4, 5] and rest["next"] is None
    assert report(api, name)["queued"] == 5
    run = quick.run("events", "browse", topic, "--limit", "2", "--url", quick.url, "--key", key)
    assert [json.loads(line)["id"] for line in run.stdout.splitlines()] == ["e1", "e2"] and "--after" in run.stderr
    assert code(api.get("/v1/topics/no-such-topic/events")) == (404, "not_found")


def test_a_new_subscription_is_answered_with_201(api, topic, name):
    settings = {"topics": [topic], "pull": True}
    assert api.put(f"/v1/subscriptions/{name}", json=settings).status_code == 201
    assert api.put(f"/v1/subscriptions/{name}", json=settings).status_code == 200
