"""Using the dashboard: the API key, keyboard, subscription controls, Try it, server outages, size and load time."""
import json
import pathlib
import time

import httpx
import pytest

from events.endpoint import HANG, Answer, Endpoint, script
from events.test_attempts import TlsEndpoint
from support import tokens
from support.process import free_port, until
from support.tavern import Tavern

from .sample import CONFIG, SampleData, good

FOLDER = pathlib.Path(__file__).parents[2] / "dashboard"


@pytest.fixture(scope="module")
def own():
    """Sample data that a test may change."""
    with Tavern.dev(CONFIG) as server, SampleData(server) as sample:
        sample.create_subscriptions()
        yield sample


def ask(server, where, **headers):
    return httpx.get(f"{server.url}{where}", headers=headers, timeout=5, trust_env=False)


def test_no_requests_without_a_key(browser, empty):
    browser.open(empty, key=False)
    browser.sees("The dashboard needs an API key")
    browser.sees("tavern key create")
    # Whether a proxy has signed the user in.
    assert browser.eval("performance.getEntriesByType('resource').map(({ name }) => name).filter((name) => name.includes('/v1/'))") == [f"{empty.url}/v1/whoami"]


def test_a_wrong_key_is_reported_and_a_valid_one_works(browser, empty):
    browser.open(empty, "#/users", key=False)
    browser.sees("API key")
    browser.type("tvk_wrong_key")
    browser.press("Enter")
    browser.sees("This key is not valid")
    browser.expect_errors("401")
    assert browser.eval("sessionStorage.length") == 0
    browser.type(empty.key)
    browser.press("Enter")
    browser.sees("There are no users yet")
    browser.do("reload")
    browser.sees("There are no users yet")
    browser.click("#forget")
    browser.sees("The dashboard needs an API key")
    assert browser.eval("sessionStorage.length") == 0


def test_the_key_is_removed_from_the_url(browser, empty):
    browser.open(empty)
    browser.sees("Overview")
    assert browser.eval("location.href") == f"{empty.url}/#/"
    assert browser.eval("localStorage.length") == 0 and browser.eval("document.cookie") == ""


def test_a_key_with_fewer_scopes_sees_only_its_pages(browser):
    with Tavern.serve() as server:
        server.key = server.api_key("presence")
        browser.open(server)
        # The overview needs more: the first page that the key may see is shown.
        browser.sees("There are no channels yet")
        assert browser.eval("[...document.querySelectorAll('nav a')].map((one) => one.textContent)") == ["Channels", "Users", "Try it"]
        browser.goto("#/users")
        browser.sees("There are no users yet")
        browser.goto("#/users/ann")
        browser.sees("Why offline")
        assert browser.eval("document.querySelectorAll('main button').length") == 0
        assert "Inbox" not in browser.text() and "Sessions" not in browser.text()
        browser.goto("#/keys")
        browser.sees("This page needs an API key with the scope admin")
        browser.quiet()
        browser.leave()


def test_the_dashboard_can_be_used_by_keyboard(browser, sample):
    browser.open(sample.server)
    browser.sees("Overview")
    browser.press("/")
    browser.type("dmi")
    browser.sees("dmitri", "#found")
    browser.press("Enter")
    browser.sees("Why online")
    assert browser.eval("location.hash") == "#/users/dmitri"
    browser.press("g", "s")
    browser.sees("warehouse")
    browser.press("j")
    assert browser.eval("document.activeElement.textContent") == "analytics"
    browser.press("ArrowDown", "j", "k", "End")
    assert browser.eval("document.activeElement.textContent") == "mail"
    browser.press("Home", "j")
    assert browser.eval("document.activeElement.textContent") == "warehouse"
    assert browser.eval("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    browser.press("Enter")
    browser.sees("Failing since")
    browser.press("Backspace")
    browser.sees("Progress, queue and health")
    for key, text in {"o": "Overview", "c": "Channels", "u": "Users", "p": "Parties", "t": "Topics", "n": "Nodes", "e": "Settings", "y": "Try it"}.items():
        browser.press("g", key)
        browser.wait(f"document.querySelector('h1')?.textContent === {json.dumps(text)}")
    browser.press("?")
    browser.sees("Search everything", "dialog")
    browser.press("Escape")
    browser.wait("!document.querySelector('dialog').open")
    browser.press("/")
    browser.type("back")
    browser.sees("events.backoff_min_ms", "#found")
    browser.press("Escape")
    browser.wait("document.getElementById('found').hidden")


def test_every_link_and_field_is_reachable_by_tab(browser, sample):
    browser.open(sample.server, "#/subscriptions/mail")
    browser.sees("Retry all")
    wanted = browser.eval("[...document.querySelectorAll('a, button, input')].filter((one) => one.getClientRects().length && !one.disabled).length")
    seen = set()
    browser.eval("document.activeElement.blur()")
    for _ in range(wanted + 3):
        browser.press("Tab")
        seen.add(browser.eval("[...document.querySelectorAll('a, button, input')].indexOf(document.activeElement)"))
    assert len(seen - {-1}) >= wanted


def health(own, name):
    return good(own.api.get(f"/v1/subscriptions/{name}"))["health"]


def test_a_subscription_can_be_disabled_enabled_and_replayed(browser, own):
    browser.open(own.server, "#/subscriptions/billing")
    browser.sees("healthy")
    browser.do("click", at="main .actions button:first-child")
    browser.sees("disabled by an operator")
    assert health(own, "billing") == "disabled"
    browser.do("click", at="main .actions button:first-child")
    browser.sees("healthy")
    browser.click("main .actions button:has-text('Replay')")
    browser.sees("Events are delivered again", "dialog")
    browser.press("Enter")
    browser.sees("Replaying from seq 1", "#banner")
    until(lambda: good(own.api.get("/v1/subscriptions/billing"))["acknowledged"] == 17, "all events to be delivered again", 10)


def test_dead_letters_can_be_retried(browser, own):
    browser.open(own.server, "#/subscriptions/mail")
    browser.sees("Retry all")
    browser.click("table[aria-label='Dead letters'] tr:first-child button")
    browser.sees("1 dead letter will be retried", "#banner")
    browser.click("main .tools button:has-text('Retry all')")
    browser.sees("will be retried", "#banner")


def test_a_failed_command_is_reported(browser, own):
    good(own.api.put("/v1/subscriptions/gone", json={"topics": ["orders"], "pull": True}))
    browser.open(own.server, "#/subscriptions/gone")
    browser.sees("healthy")
    good(own.api.delete("/v1/subscriptions/gone"))
    browser.do("click", at="main .actions button:first-child")
    browser.sees("gone", "#banner.bad")
    browser.expect_errors("404")


def test_try_it_publishes_receives_and_joins(browser, sample):
    browser.open(sample.server, "#/try/room%23tried")
    browser.sees("Connect")
    browser.fill("[name=user]", "visitor")
    browser.press("Enter")
    browser.sees("visitor over websocket")
    browser.wait("document.activeElement.name === 'text'")
    browser.type('{"hello": "world"}')
    browser.press("Enter")
    browser.sees('{"hello":"world"}', ".log")
    sample.connect("ann").ok("publish", channel="room#tried", data="from ann")
    browser.sees("from ann", ".log")
    browser.click(".send button:last-child")
    browser.sees("Present in room#tried", "#banner")
    found = good(sample.api.get("/v1/channels/room%23tried/presence"))
    assert [one["user"] for one in found["users"]] == ["visitor"]


def test_try_it_with_a_token(browser):
    with Tavern.serve() as server:
        browser.open(server, "#/try")
        browser.sees("Token")
        browser.fill("[name=token]", "a.b.c")
        browser.press("Enter")
        browser.sees("closed:")
        browser.fill("[name=token]", tokens.token("tester"))
        browser.press("Enter")
        browser.sees("tester over websocket")
        browser.quiet()
        browser.leave()


def test_a_hidden_page_sends_no_requests(browser, empty):
    browser.open(empty)
    browser.sees("Nothing needs attention")
    asked = "performance.getEntriesByType('resource').filter(({ name }) => name.includes('/v1/')).length"
    before = browser.eval(asked)
    browser.wait(f"{asked} > {before}")
    browser.eval("Object.defineProperty(document, 'hidden', { get: () => window.unseen, configurable: true }), (window.unseen = true)")
    time.sleep(0.5)  # Pending requests finish.
    before = browser.eval(asked)
    time.sleep(1.5)
    assert browser.eval(asked) == before
    browser.eval("window.unseen = false")
    browser.wait(f"{asked} > {before}")


def test_a_stored_key_gets_live_events(browser):
    with Tavern.serve() as server:
        server.key = server.api_key("admin", "presence", "subscriptions")
        browser.open(server, "#/channels/room%23keyed")
        browser.sees("live")
        browser.quiet()
        browser.leave()


def test_the_page_recovers_after_a_server_outage(browser):
    with Tavern.dev() as server:
        browser.open(server, "#/channels/room%23back")
        browser.sees("0 users present")
        server.terminate()
        browser.sees("The server does not answer", "#banner")
        browser.sees("room#back")
        server.start()
        browser.wait("document.getElementById('banner').hidden", 15_000)
        with SampleData(server) as sample:
            sample.connect("late", "room#back")
            browser.do("wait", js="document.querySelector('main').textContent.includes('1 user present')", ms=15_000)
            browser.goto("#/users")
            browser.sees("late")
        browser.expect_errors("ERR_CONNECTION_REFUSED")
        browser.leave()


def test_the_size_is_limited(empty):
    script = ask(empty, "/client.js").content
    files = sum(file.stat().st_size for file in FOLDER.iterdir())
    assert len(script) + files <= 260 * 1024, f"{files} bytes of files and {len(script)} of the client"


@pytest.mark.alone
def test_first_paint_is_fast(browser, empty):
    paints = []
    for _ in range(3):
        browser.open(empty, fresh=True)
        browser.sees("Overview")
        browser.wait("performance.getEntriesByName('first-contentful-paint').length > 0")
        paints.append(browser.eval("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
    assert min(paints) < 300, paints


@pytest.mark.parametrize("where, kind", [("/", "text/html"), ("/assets/app.js", "text/javascript"), ("/assets/style.css", "text/css"), ("/assets/icon.svg", "image/svg+xml")])
def test_assets_have_security_headers(empty, where, kind):
    answer = ask(empty, where)
    assert answer.status_code == 200 and answer.headers["content-type"].startswith(kind)
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'" and policy["frame-ancestors"] == "'none'"
    assert all(policy[one] == "'self'" for one in ("script-src", "style-src", "connect-src", "img-src"))
    assert policy["require-trusted-types-for"] == "'script'"
    assert answer.headers["x-content-type-options"] == "nosniff" and answer.headers["referrer-policy"] == "no-referrer"
    again = ask(empty, where, **{"if-none-match": answer.headers["etag"]})
    assert again.status_code == 304 and again.content == b"" and "content-security-policy" in again.headers
    assert ask(empty, "/assets/none.js").status_code == 404


def test_attempts_are_shown_in_words_and_filtered(browser):
    with Tavern.dev("[events]\nbackoff_min_ms = 20\nbackoff_max_ms = 100\n") as server, SampleData(server) as sample:
        with Endpoint(script(Answer(500, body=b"database is down"))) as endpoint:
            good(sample.api.put("/v1/subscriptions/shop", json={"topics": ["orders"], "callback": endpoint.url, "timeout_ms": 0, "headers": {"x-shop": "secret"}}))
            good(sample.api.post("/v1/topics/orders/events", json={"type": "create"}))
            endpoint.got([1])
            browser.open(server, "#/subscriptions/shop")
            browser.sees("500 Internal Server Error")
            browser.sees("database is down")
            browser.wait("document.querySelectorAll('table[aria-label=Attempts] tbody tr').length === 2")
            chart = "document.querySelector('[data-chart=delivered] .plot').getAttribute('aria-label')"
            browser.wait(f"/ delivered: now \\d, from 0 to 1; failed: now \\d, from 0 to 1\\. /.test({chart})")
            browser.click("label.check input")
            browser.wait("document.querySelectorAll('table[aria-label=Attempts] tbody tr').length === 1")
            browser.click("table[aria-label=Attempts] tbody button")
            for said in ("database is down", f"POST {endpoint.url}", "webhook-signature: v1,", "x-shop: (hidden)", '"type": "create"'):
                browser.sees(said, "#sheet")
            assert "secret" not in browser.text("#sheet")
            browser.click("#sheet button.main")
            browser.fill("input[placeholder^=Attempts]", "refused")
            browser.sees("No attempt matches the filter")
            browser.leave()


def test_every_kind_of_failure_is_said_in_words(browser, tmp_path):
    config = "[events]\nbackoff_min_ms = 20\nbackoff_max_ms = 100\nrequest_timeout_ms = 1000\n"
    with Tavern.dev(config) as server, SampleData(server) as sample, TlsEndpoint(tmp_path) as untrusted, \
            Endpoint(Answer(500, body=b"database is down")) as broken, Endpoint(HANG) as hangs, Endpoint(Answer(302, {"location": "/other"})) as moved:
        failures = {
            "broken": (broken.url, "500 Internal Server Error"),
            "closed": (f"http://127.0.0.1:{free_port()}/hook", "connection refused"),
            "hangs": (hangs.url, "timeout after 1 s"),
            "untrusted": (untrusted.url, "TLS: certificate not trusted: self-signed"),
            "moved": (moved.url, "redirect refused (302 Found)"),
        }
        for name, (url, _) in failures.items():
            good(sample.api.put(f"/v1/subscriptions/{name}", json={"topics": ["orders"], "callback": url, "timeout_ms": 0}))
        good(sample.api.post("/v1/topics/orders/events", json={"type": "create"}))
        browser.open(server, "#/subscriptions")
        for name, (_, words) in failures.items():
            until(lambda: (sample.api.get(f"/v1/subscriptions/{name}").json()["last_error"] or {}).get("error") == words, words)
            browser.goto("#/subscriptions")
            browser.sees(words)
            browser.goto(f"#/subscriptions/{name}")
            browser.wait(f"document.querySelector('h1')?.textContent.startsWith({json.dumps(name)})")
            browser.sees(words, "table[aria-label=Attempts]")
        browser.leave()


def test_a_secret_is_rotated(browser):
    with Tavern.dev() as server, SampleData(server) as sample, Endpoint() as endpoint:
        good(sample.api.put("/v1/subscriptions/mail", json={"topics": ["orders"], "callback": endpoint.url}))
        browser.open(server, "#/subscriptions/mail")
        browser.click("main .actions button:has-text('Replace secret')")
        browser.click("#sheet button.main")
        browser.sees("whsec_", "#sheet")
        good(sample.api.post("/v1/subscriptions/mail/test"))
        assert len(endpoint.posted(1)[0].headers["webhook-signature"].split()) == 2
        browser.click("#sheet button.main")
        browser.leave()


def test_a_subscription_is_created_tested_changed_and_deleted(browser):
    with Tavern.dev() as server, SampleData(server) as sample, Endpoint() as endpoint:
        browser.open(server, "#/subscriptions")
        browser.click("main .actions button")
        browser.fill("#sheet input[name=name]", "mail")
        browser.fill("#sheet input[name=topics]", "orders, parcels")
        browser.fill("#sheet input[name=callback]", endpoint.url)
        browser.click("#sheet button.main")
        browser.sees("whsec_", "#sheet")
        browser.click("#sheet button.main")
        browser.goto("#/subscriptions/mail")
        browser.sees("orders, parcels")
        for label, then in (("Send a test", "Test event"), ("Edit …", "Change mail")):
            browser.click(f"main .actions button:has-text('{label}')")
            browser.sees(then, "#sheet")
            if label == "Edit …":
                browser.fill("#sheet input[name=max_events]", "7")
            browser.click("#sheet button.main")
        browser.sees("up to 7 events")
        assert [event["type"] for event in endpoint.posted(1)[0].body["events"]] == ["test"]
        browser.click("main .actions button:has-text('Delete')")
        browser.sees("cannot be undone", "#sheet")
        browser.click("#sheet button.main")
        browser.sees("There are no subscriptions yet")
        assert sample.api.get("/v1/subscriptions").json()["subscriptions"] == []
        browser.leave()


def test_a_failing_subscription_is_retried_now(browser):
    with Tavern.dev("[events]\nbackoff_min_ms = 600000\nbackoff_max_ms = 600000\n") as server, SampleData(server) as sample, Endpoint(500) as endpoint:
        good(sample.api.put("/v1/subscriptions/shop", json={"topics": ["orders"], "callback": endpoint.url, "timeout_ms": 0}))
        good(sample.api.post("/v1/topics/orders/events", json={"type": "create"}))
        browser.open(server, "#/subscriptions/shop")
        browser.sees("failing")
        endpoint.status = 200
        browser.click("main .actions button:text-is('Retry now')")
        browser.sees("healthy")
        browser.wait("document.querySelector('main .actions button:nth-child(2)').hidden")
        browser.leave()
