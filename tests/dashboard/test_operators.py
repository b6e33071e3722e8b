"""Questions that an operator asks, each answered within three clicks; and the pages of topics, bans and the audit trail."""
import pytest

from events.endpoint import Answer, Endpoint, script
from pusher.raw_client import RawClient
from pusher.world import POSTING, App, Webhook
from support.json_client import Socket
from support.process import until
from support.tavern import Tavern

from .browser import INSIDE, violations
from .sample import CONFIG, SampleData, client, good


class Clicks:
    """Counts clicks from the overview."""

    def __init__(self, browser, server):
        self.browser, self.clicks = browser, 0
        browser.open(server)
        browser.sees("Users online")

    def __call__(self, at):
        self.clicks += 1
        self.browser.click(at)

    def find(self, text):
        """By the search; choosing the result counts."""
        self.browser.press("/")
        self.browser.type(text)
        self.browser.sees(text, "#found")
        self.clicks += 1
        self.browser.press("Enter")

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        assert failure[0] or self.clicks <= 3


@pytest.fixture(scope="module")
def shop():
    """A subscription that fails, one that works, and a user in a room with history."""
    config = CONFIG + "[kinds.chat]\nhistory_messages = 100\n"
    with Tavern.dev(config) as server, client(server) as api, Endpoint(Answer(500, body=b"database is down")) as broken, Endpoint() as works:
        for name, callback in (("billing", works.url), ("mail", broken.url)):
            good(api.put(f"/v1/subscriptions/{name}", json={"topics": ["orders"], "callback": callback, "timeout_ms": 0}))
        good(api.post("/v1/topics/orders/events", json=[{"type": "create", "data": {"order": 7001}}, {"type": "paid", "data": {"order": 7001}}]))
        until(lambda: good(api.get("/v1/subscriptions/mail"))["health"] == "failing", "a failing subscription")
        with Socket(server, user="zoe") as zoe:
            zoe.ok("join", channel="chat#help", state={"seat": 1})
            zoe.ok("publish", channel="chat#help", data="my order is late")
            yield server


def test_why_does_a_subscription_fail(browser, shop):
    with Clicks(browser, shop) as click:
        browser.sees("500 Internal Server Error", ".attention")
        click(".attention a:text-is('mail')")
        browser.sees("database is down", "table[aria-label=Attempts]")


def test_what_did_we_send_last(browser, shop):
    with Clicks(browser, shop) as click:
        click("nav a:text-is('Subscriptions')")
        click("main a:text-is('billing')")
        click("table[aria-label=Attempts] tbody button")
        browser.sees('"order": 7001', "#sheet")


def test_who_is_in_a_room_and_what_was_said(browser, shop):
    with Clicks(browser, shop) as click:
        click("nav a:text-is('Channels')")
        click("main a:text-is('chat#help')")
        browser.sees("zoe", "table[aria-label='Present users']")
        browser.sees("my order is late", "table[aria-label=Messages]")


def test_is_a_user_online_where_since_when_and_why(browser, shop):
    with Clicks(browser, shop) as click:
        click.find("zoe")
        browser.sees("Why online: ")
        for text in ("chat#help", "websocket"):
            browser.sees(text)
        browser.wait("document.querySelector('table[aria-label=Sessions] [data-name=Since]').innerText.match(/ago|just now/)")
        browser.wait("document.querySelector('table[aria-label=Sessions] [data-name=Node]').innerText.length > 0")


def test_which_key_published_an_event(browser, shop):
    with Clicks(browser, shop) as click:
        click("nav a:text-is('Topics')")
        click("main a:text-is('orders')")
        browser.wait("document.querySelector(\"table[aria-label=Events] [data-name='By key']\").innerText === 'admin'")
        browser.fill("input[placeholder^=Events]", "paid")
        browser.wait("document.querySelectorAll('table[aria-label=Events] tbody tr').length === 1")


def test_the_webhook_of_a_pusher_app_is_seen_and_its_last_request(browser):
    with Webhook(answer=script(Answer(500, body=b"queue is full"))) as hook:
        app = App(1, webhooks=[hook])
        with Tavern.dev(app.config + POSTING + "backoff_min_ms = 20\nbackoff_max_ms = 100\n") as server, RawClient(server, app) as ann:
            ann.established()
            ann.subscribe("orders")
            hook.waits("channel_occupied", "orders")
            with Clicks(browser, server) as click:
                click("nav a:text-is('Subscriptions')")
                click("main a:has-text('pusher-1-')")
                browser.sees("500 Internal Server Error")
                browser.sees("queue is full", "table[aria-label=Attempts]")
                click("table[aria-label=Attempts] tbody button")
                for said in (f"POST {hook.url}", "x-pusher-key: key-1", "channel_occupied", "orders"):
                    browser.sees(said, "#sheet")
                assert app.secret not in browser.text("#sheet")
            browser.leave()


def test_disconnect_a_user(browser, shop):
    with Socket(shop, user="rude") as rude, Clicks(browser, shop) as click:
        click.find("rude")
        click("main .actions button:has-text('Disconnect')")
        click("#sheet button.main")
        browser.sees("1 session ended", "#banner")
        assert rude.closing()[1] == 4006


def test_an_event_is_published_and_appears(browser):
    with Tavern.dev() as server, client(server) as api:
        good(api.post("/v1/topics/orders/events", json={"type": "create"}))
        browser.open(server, "#/topics/orders")
        browser.fill("main input[name=type]", "update")
        browser.fill("main input[name=data]", '{"order": 7002}')
        browser.click("main form button")
        browser.sees("Published with seq 2.", "#banner")
        browser.sees('{"order":7002}', "table[aria-label=Events]")
        browser.fill("main input[name=data]", "{broken")
        browser.click("main form button")
        browser.wait("document.getElementById('banner').className === 'bad'")
        good(api.post("/v1/keys", json={"name": "shop", "scopes": ["events"]}))
        shop = good(api.get("/v1/keys"))["keys"][0]["id"]
        good(api.put("/v1/topics/orders", json={"publisher": shop}))
        browser.sees(f"Only the key {shop} publishes to this topic")
        events = good(api.get("/v1/topics/orders/events", params={"before": 9}))["events"]
        assert [(event["seq"], event["publisher"]) for event in events] == [(2, "admin"), (1, "admin")]
        browser.leave()


def test_what_a_key_did_is_in_the_audit_trail(browser):
    with Tavern.dev() as server, client(server) as api:
        made = good(api.post("/v1/keys", json={"name": "support", "scopes": ["users"]}))
        with with_key(server, made["key"]) as support:
            good(support.put("/v1/users/rude/ban", json={"reason": "spam"}))
        browser.open(server, "#/keys")
        browser.click("a[aria-label='What support did']")
        browser.sees("user.ban", "table[aria-label=Actions]")
        assert "key.create" not in browser.text("table[aria-label=Actions]")
        browser.click("table[aria-label=Actions] a:text-is('rude')")
        browser.sees("banned until the ban is lifted: spam")
        browser.goto("#/bans")
        browser.sees("spam", "table[aria-label=Bans]")
        browser.click("table[aria-label=Bans] button:text-is('Lift')")
        browser.sees("Nobody is banned.")
        until(lambda: not good(api.get("/v1/users/rude"))["banned"], "the ban to be lifted")
        browser.leave()


def with_key(server, key):
    api = client(server)
    api.headers["authorization"] = f"Bearer {key}"
    return api


def test_users_are_filtered_by_presence_and_counted(browser):
    config = "[sessions]\nresume_ms = 0\n[kinds.default]\ngrace_ms = 0\n"
    with Tavern.dev(config) as server, client(server) as api, Socket(server, user="ann"):
        with Socket(server, user="igor"):
            until(lambda: good(api.get("/v1/users/igor"))["online"], "igor to be online")
        until(lambda: not good(api.get("/v1/users/igor"))["online"], "igor to be offline")
        assert [user["user"] for user in good(api.get("/v1/users"))["users"]] == ["ann", "igor"]
        assert [user["user"] for user in good(api.get("/v1/users", params={"online": "true"}))["users"]] == ["ann"]
        browser.open(server, "#/users")
        browser.sees("igor")
        browser.sees("1 user online in the whole cluster")
        browser.click("label.check input")
        browser.wait("!document.querySelector('table[aria-label=Users]').innerText.includes('igor')")
        browser.leave()


def test_each_page_links_to_its_documentation(browser, sample):
    browser.open(sample.server)
    browser.sees("Users online")
    addresses = browser.eval("import('/assets/keys.js').then(({ PAGES }) => PAGES.map(({ docs }) => docs))")
    for address in set(addresses):
        assert sample.api.get(f"/docs/{address}").status_code == 200, address
    browser.goto("#/subscriptions/mail")
    browser.wait("document.getElementById('explain').getAttribute('href') === '/docs/guides/webhooks'")


@pytest.mark.parametrize("width, height", [(1280, 900), (390, 844)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("locale", ["en-US", "de-DE"])
def test_the_pages_of_operators_pass_axe_and_fit(browser, sample, width, height, scheme, locale):
    browser.open(sample.server, width=width, height=height, scheme=scheme, locale=locale)
    browser.sees("Users online")
    for page, text in (("#/topics/orders", "refund"), ("#/audit", "subscription.put"), ("#/bans", "Nobody is banned"), ("#/subscriptions", "warehouse"), ("#/channels/lobby%23main", "gunnar"), ("#/users", "hana")):
        browser.goto(page)
        browser.sees(text)
        browser.wait("!document.querySelector('.loading')")
        scroll, wide = browser.eval(INSIDE)
        assert scroll <= width and wide == [], (page, scroll, wide)
        assert violations(browser) == [], page
    browser.goto("#/subscriptions/warehouse")
    browser.sees("connection refused")
    browser.click("table[aria-label=Attempts] tbody button")
    browser.sees("Request: POST", "#sheet")
    assert violations(browser) == [], "an attempt"
