"""`admin_listen`: metrics, dashboard and admin API at an address of their own; names in metrics only there or with a key."""
import httpx
import pytest

from events.conftest import client
from events.endpoint import Endpoint
from events.topics_api import publish, put
from support.process import free_port, until
from support.tavern import Tavern

OPERATORS = ["/", "/assets/app.js", "/metrics", "/v1/overview", "/v1/load", "/v1/settings", "/v1/nodes"]
EVERYBODY = ["/readyz", "/docs", "/client.js", "/openapi.json", "/v1/users", "/v1/topics"]


@pytest.fixture(scope="module")
def server():
    admin = free_port()
    with Tavern.serve(f'admin_listen = "127.0.0.1:{admin}"\n[events]\nallow_http = true\nallow_private = true\n') as server:
        server.admin_url = f"http://127.0.0.1:{admin}"
        yield server


def get(url, key=None):
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return httpx.get(url, headers=headers, timeout=10, trust_env=False, follow_redirects=True)


@pytest.mark.parametrize("path", OPERATORS)
def test_what_is_for_operators_is_on_the_admin_address_only(server, path):
    public = get(server.url + path, server.key)
    assert public.status_code == 404 and "admin_listen" in public.json()["error"]["message"]
    assert get(server.admin_url + path, server.key).status_code == 200


@pytest.mark.parametrize("path", EVERYBODY)
def test_the_rest_is_on_both(server, path):
    for url in (server.url, server.admin_url):
        assert get(url + path, server.key).status_code == 200


def deliver(server):
    with Endpoint() as endpoint, client(server, server.key) as api:
        put(api, "secret-name", topics=["secret-topic"], callback=endpoint.url, timeout_ms=0)
        publish(api, "secret-topic", {"type": "x"})
        endpoint.got([1])


def test_the_admin_address_shows_names_without_a_key(server):
    deliver(server)
    until(lambda: 'tavern_subscription_events_total{subscription="secret-name"} 1' in get(server.admin_url + "/metrics").text, "the row")


def test_names_are_shown_to_a_key_only():
    with Tavern.serve("[events]\nallow_http = true\nallow_private = true\n") as server:
        deliver(server)
        full = 'tavern_subscription_events_total{subscription="secret-name"} 1'
        until(lambda: full in get(server.url + "/metrics", server.key).text, "the row")
        for page in (get(server.url + "/metrics").text, get(server.url + "/metrics", server.api_key("presence")).text):
            assert "secret-name" not in page and "secret-topic" not in page
            assert "tavern_subscription_events_total 1\n" in page and "tavern_topic_events_total 1\n" in page
        assert full in get(server.url + "/metrics", server.api_key("subscriptions")).text
        assert get(server.url + "/metrics", "tvk_wrong").status_code == 401


@pytest.mark.parametrize("wrong", ["admin_listen=everywhere", "admin_listen=127.0.0.1:7400"])
def test_a_wrong_address_is_refused(wrong):
    checked = Tavern.dev().run("check", "--dev", "--set", wrong)
    assert checked.returncode == 1 and "admin_listen" in checked.stderr
