"""SSRF protection outside dev mode: webhooks cannot reach the server itself, its network or cloud metadata, not by any spelling of
an address, a DNS name, plain HTTP or a redirect."""
import pytest

from events.conftest import client
from events.endpoint import Endpoint
from events.topics_api import code, publish, put, report
from support.process import until
from support.tavern import Tavern

QUICK = "[events]\nbackoff_min_ms = 5\nbackoff_max_ms = 20\n"

PRIVATE = [
    "127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "017700000001", "0x7F.0x0.0x0.0x1",
    "127.0.0.1.", "127.255.255.254", "0", "0.0.0.0", "0.0.0.0.", "10.0.0.1", "10.1", "167772161", "172.16.0.1", "172.31.255.255",
    "192.168.0.1", "192.168.1", "0xc0a80001", "169.254.169.254", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "100.64.0.1",
    "198.18.0.1", "224.0.0.1", "255.255.255.255", "[::1]", "[0:0:0:0:0:0:0:1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:a9fe:a9fe]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[64:ff9b::169.254.169.254]", "[2002:7f00:1::]",
    "[fc00::1]", "[fd00:ec2::254]", "[fe80::1]", "[FE80::1]", "[ff02::1]", "[2001:db8::1]", "[::ffff:0:127.0.0.1]",
]
STRANGE = [
    "https://user@example.com/", "https://user:pw@example.com/", "https://example.com@127.0.0.1/", "https://127.0.0.1#@example.com/",
    "https://127.0.0.1\\@example.com/", "https://exa mple.com/", "https://example.com:0/", "https://example.com:99999/", "https://",
    "https:///x", "ftp://example.com/", "file:///etc/passwd", "//example.com/", "example.com", "https://[fe80::1%25eth0]/",
    "https://[::1/", "https://127.0.0.256/", "https://1.2.3.4.5/", "https://①②⑦.0.0.1/", "https://127。0。0。1/",
    "https://example..com/", f"https://{'a' * 64}.com/", f"https://example.com/{'x' * 2_048}", "gopher://127.0.0.1/", "javascript:1", "https://localhost./",
]


@pytest.fixture(scope="module")
def strict():
    """Production settings."""
    with Tavern.serve(QUICK) as server, client(server, server.api_key("events", "subscriptions")) as api:
        api.server = server
        yield api


@pytest.fixture(scope="module")
def plain():
    """Plain HTTP allowed, private addresses not."""
    with Tavern.serve(f"{QUICK}allow_http = true\n") as server, client(server, server.api_key("events", "subscriptions")) as api:
        api.server = server
        yield api


@pytest.mark.parametrize("scheme", ["https", "http"])
def test_a_private_address_is_refused_in_every_spelling(strict, plain, name, scheme):
    for api in (strict, plain):
        for host in PRIVATE:
            for callback in (f"{scheme}://{host}/hook", f"{scheme}://{host}:8443", f"{scheme.upper()}://{host}?x=1"):
                answer = api.put(f"/v1/subscriptions/{name}", json={"topics": [], "callback": callback})
                assert code(answer) == (400, "bad_request"), callback
        assert api.get(f"/v1/subscriptions/{name}").status_code == 404, "a refused subscription is not created"


def test_a_malformed_url_is_refused(strict, name):
    for callback in STRANGE:
        answer = strict.put(f"/v1/subscriptions/{name}", json={"topics": [], "callback": callback})
        assert code(answer) == (400, "bad_request"), callback
    assert strict.get(f"/v1/subscriptions/{name}").status_code == 404


def test_plain_http_is_refused_unless_allowed(strict, plain, name):
    settings = {"topics": [], "callback": "http://example.com/hook"}
    assert code(strict.put(f"/v1/subscriptions/{name}", json=settings)) == (400, "bad_request")
    assert put(plain, name, **settings)["created"]
    assert put(strict, name, topics=[], callback="https://example.com/hook")["created"]
    before = report(strict, name)
    assert code(strict.put(f"/v1/subscriptions/{name}", json={"callback": "https://10.0.0.1/", "timeout_ms": 9})) == (400, "bad_request")
    assert report(strict, name) == before, "the existing subscription is unchanged"


@pytest.mark.parametrize("host", ["localhost", "LocalHost"])
def test_a_dns_name_with_a_private_address_is_not_dialled(plain, topic, name, host):
    with Endpoint() as endpoint:
        put(plain, name, topics=[topic], callback=f"http://{host}:{endpoint.port}/hook", timeout_ms=0)
        publish(plain, topic, {"type": "a"})
        until(lambda: report(plain, name)["failures"] >= 3, "three failed attempts")
        assert endpoint.posts == [] and endpoint.strays == []
        assert report(plain, name)["health"] == "failing" and report(plain, name)["queued"] == 1


def test_private_addresses_are_called_where_allowed(topic, name):
    config = f"{QUICK}allow_http = true\nallow_private = true\n"
    with Tavern.serve(config) as server, client(server, server.api_key("events", "subscriptions")) as api, Endpoint() as endpoint:
        for host in ("127.0.0.1", "localhost"):
            put(api, name, topics=[topic], callback=f"http://{host}:{endpoint.port}/hook", timeout_ms=0)
            publish(api, topic, {"type": host})
            endpoint.until(lambda it: it.taken() and it.taken()[-1]["type"] == host)
