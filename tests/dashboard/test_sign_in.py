"""Signing in to the dashboard: by a link that works once, and through a proxy that authenticates."""
import httpx
import pytest

from support.clock import JumpingClock
from support.process import until
from support.tavern import Tavern

from .sample import client, good

PROXY = 'trusted_proxies = ["127.0.0.1"]\n[dashboard]\nproxy_header = "X-Forwarded-User"\nproxy_scopes = ["presence", "users"]\n'


def link(server):
    made = server.run("dashboard", "--url", server.url, "--key", server.key)
    assert made.returncode == 0, made
    address = made.stdout.strip()
    assert address.startswith(f"{server.url}/#code=tvl_")
    return address


def exchange(server, code):
    return httpx.post(f"{server.url}/v1/dashboard/sign-in", json={"code": code}, trust_env=False)


def test_a_link_opens_the_dashboard_once(browser):
    with Tavern.serve() as server:
        address = link(server)
        code = address.split("#code=")[1]
        assert client_with(server, code).get("/v1/overview").status_code == 401, "a code is no key"
        browser.do("open", url=address)
        browser.sees("cluster healthy")
        assert browser.eval("location.href") == f"{server.url}/#/"
        key = browser.eval("sessionStorage.getItem('tavern.key')")
        again = exchange(server, code)
        assert (again.status_code, again.json()["error"]["code"]) == (401, "unauthenticated")
        browser.do("open", url=address, fresh=True)
        browser.sees("this link was used already")
        browser.expect_errors("401")
        assert code not in server.log() and key not in server.log()
        with client(server) as api:
            assert [one["name"] for one in good(api.get("/v1/keys"))["keys"]] == ["dashboard: signed in by a link"]
            trail = good(api.get("/v1/topics/tavern.audit/events"))["events"]
            assert [event["type"] for event in trail] == ["dashboard.link"]
        browser.leave()


def test_a_link_works_for_a_minute(browser):
    with JumpingClock("serve", "[clock]\nconfirm_ms = 1000\n") as server:
        code = link(server).split("#code=")[1]
        with client(server) as api:
            begun = good(api.get("/v1/overview"))["now"]
            server.jump(61)
            until(lambda: good(api.get("/v1/overview"))["now"] >= begun + 60_000, "the jump to be accepted", 20)
            assert exchange(server, code).status_code == 401
            # The next link removes what is left of it.
            link(server)
            assert len(good(api.get("/v1/keys"))["keys"]) == 1


@pytest.mark.parametrize("body", [{}, {"code": "tvl_"}, {"code": "x"}, {"code": 1}, {"code": "tvl_x", "more": 1}])
def test_an_invalid_code_is_refused(empty, body):
    answer = httpx.post(f"{empty.url}/v1/dashboard/sign-in", json=body, trust_env=False)
    assert answer.status_code in (400, 401), answer.text


def test_only_an_admin_key_gets_a_link():
    with Tavern.serve() as server:
        assert client_with(server, server.api_key("users")).post("/v1/dashboard/links").status_code == 403


def client_with(server, key=None, **headers):
    """Without a key, through the proxy."""
    return httpx.Client(base_url=server.url, headers={**({"authorization": f"Bearer {key}"} if key else {}), **headers}, timeout=10, trust_env=False)


def test_a_proxy_signs_its_users_in(browser):
    with Tavern.serve(PROXY) as server:
        browser.open(server, key=False, headers={"x-forwarded-user": "eve@shop"})
        browser.sees("There are no channels yet")
        assert browser.eval("[...document.querySelectorAll('nav a')].map((one) => one.textContent)") == ["Channels", "Users", "Bans", "Try it"]
        browser.goto("#/users/rude")
        browser.click("main .actions button:has-text('Ban')")
        browser.click("#sheet button.main")
        browser.sees("banned until the ban is lifted")
        browser.leave()
        with client(server) as api:
            trail = good(api.get("/v1/topics/tavern.audit/events"))["events"]
            assert [(event["type"], event["data"]["key"]) for event in trail] == [("user.ban", "proxy:eve@shop")]


def test_only_a_page_of_this_server_writes_through_the_proxy():
    with Tavern.serve(PROXY) as server:
        status = lambda method, path, **headers: client_with(server, **{"x-forwarded-user": "eve", **headers}).request(method, path, json={}).status_code
        disconnect = ("POST", "/v1/users/ann/disconnect")
        assert status(*disconnect) == 403, "no origin"
        assert status(*disconnect, **{"sec-fetch-site": "cross-site"}) == 403
        assert status(*disconnect, **{"sec-fetch-site": "same-origin"}) == 200
        assert status(*disconnect, origin=server.url) == 200
        assert status("GET", "/v1/users") == 200
        assert status("GET", "/v1/users", **{"sec-fetch-site": "cross-site"}) == 403
        assert status("GET", "/v1/overview") == 403, "a scope that the proxy's users do not have"


@pytest.mark.parametrize("config", [
    PROXY.replace("127.0.0.1", "10.0.0.0/8"),
    'trusted_proxies = ["127.0.0.1"]\n',
])
def test_the_header_of_others_counts_for_nothing(config):
    with Tavern.serve(config) as server, client_with(server, **{"x-forwarded-user": "eve"}) as api:
        assert api.get("/v1/users").status_code == 401
        assert api.get("/v1/whoami").json() == {"key": None, "scopes": []}


def test_wrong_settings_are_reported(empty):
    for settings in (["dashboard.proxy_header=X-User"], ["dashboard.proxy_scopes=admin,root"], ["dashboard.proxy_header=a b", "trusted_proxies=127.0.0.1"]):
        checked = empty.run("check", "--dev", *[part for one in settings for part in ("--set", one)])
        assert checked.returncode != 0 and "dashboard.proxy_" in checked.stdout + checked.stderr, settings
