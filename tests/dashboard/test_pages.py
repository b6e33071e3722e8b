"""The dashboard in Chromium: every page with data and without, hostile names, both colour schemes, a phone screen."""
import pytest

from support.json_client import Socket

from .browser import INSIDE, violations
from .sample import HOSTILE, HOSTILE_CHANNEL, path

# Pages, and texts that must be visible.
PAGES = {
    "#/": ["Users online", "cluster healthy", "Needs attention", "warehouse", "Slowest subscription"],
    "#/channels": ["lobby#main", "game#1048", HOSTILE_CHANNEL],
    "#/channels/lobby%23main": ["live", "8 users present", "gunnar", '{"level":3}'],
    "#/users": ["ann", "hana", HOSTILE],
    "#/users/ann": ["Why online", "game#1048", "Party ", "Followed by", "carla", HOSTILE],
    "#/users/igor": ["Why offline", "a red scarf", HOSTILE],
    "#/parties": ["ann, bob", "idle"],
    "#/topics": ["orders", "payments", "signups", "billing"],
    "#/topics/orders": ["Publisher", "analytics", "refund", "7004", HOSTILE],
    "#/keys": ["There are no stored keys", "New key"],
    "#/audit": ["subscription.put", "old-crm", "admin_key", "127.0.0.1"],
    "#/bans": ["Nobody is banned"],
    "#/subscriptions": ["analytics", "healthy", "failing", "disabled", "http://127.0.0.1"],
    "#/subscriptions/mail": ["Acknowledged", "Dead letters", "refused", "Retry all", HOSTILE],
    "#/subscriptions/warehouse": ["In flight", "Consecutive failures", "Failing since", "Next attempt"],
    "#/nodes": ["alive", "This node is", "Memory", "The last day", "started"],
    "#/settings": ["events.backoff_min_ms", "tavern.toml", "default", "--listen"],
    "#/try": ["Connect", "No messages yet"],
}


@pytest.mark.parametrize("width, scheme", [(1280, "light"), (360, "dark")])
def test_every_page_shows_its_data(browser, sample, width, scheme):
    browser.open(sample.server, width=width, scheme=scheme)
    for page, texts in PAGES.items():
        browser.goto(page)
        for text in texts:
            browser.sees(text)
        scroll, wide = browser.eval(INSIDE)
        assert scroll <= width and wide == [], f"{page} overflows {width}: {scroll} {wide}"
        assert violations(browser) == [], page
        browser.quiet()


def test_a_party_shows_members_and_invites(browser, sample):
    browser.open(sample.server, f"#/parties/{sample.party}")
    for text in ["idle", "2 members", "leader", "carla"]:
        browser.sees(text)
    browser.goto("#/parties/999")
    browser.sees("Not found")
    browser.expect_errors("404")


def test_a_session_shows_why_it_is_online(browser, sample):
    browser.open(sample.server, "#/users/ann")
    browser.sees("game#1048")
    browser.click("main .client a")
    browser.sees("connected by websocket")
    browser.sees("lobby#main")


EMPTY = {
    "#/": ["Nothing needs attention", "tavern events subscribe"],
    "#/channels": ["There are no channels yet", "tavern subscribe"],
    "#/channels/game%23none": ["No users are present", "No messages since", "curl"],
    "#/users": ["There are no users yet", "websocat"],
    "#/users/nobody": ["never seen", "not present anywhere", "The inbox is empty", "has no followers"],
    "#/parties": ["There are no parties", "party.invite"],
    "#/topics": ["There are no topics yet", "tavern events publish"],
    "#/subscriptions": ["There are no subscriptions yet", "tavern events subscribe"],
    "#/nowhere": ["Page not found"],
}


def test_empty_pages_say_what_to_do(browser, empty):
    browser.open(empty, width=360, scheme="light")
    for page, texts in EMPTY.items():
        browser.goto(page)
        for text in texts:
            browser.sees(text)
        scroll, wide = browser.eval(INSIDE)
        assert scroll <= 360 and wide == [], f"{page}: {wide}"


def test_missing_items_are_reported(browser, sample):
    browser.open(sample.server, "#/subscriptions/none")
    browser.sees("Not found")
    browser.sees("Try again")
    browser.goto("#/sessions/zzzz")
    browser.sees("Not found")
    browser.expect_errors("404")


def harmless(browser):
    """No part of a name became an element; the only image is the icon."""
    assert browser.eval("[...document.images].map((one) => one.getAttribute('src'))") == ["/assets/icon.svg"]
    assert browser.eval("document.querySelectorAll('main script, main b b, [onerror]').length") == 0


def test_hostile_names_are_shown_as_text(browser, sample):
    browser.open(sample.server)
    for page in [f"#/users/{path(HOSTILE)}", f"#/channels/{path(HOSTILE_CHANNEL)}", "#/users/ann", "#/users/igor", "#/channels"]:
        browser.goto(page)
        browser.sees(HOSTILE)
        harmless(browser)
    sample.connect(HOSTILE).ok("publish", channel=HOSTILE_CHANNEL, data=HOSTILE)
    browser.goto(f"#/channels/{path(HOSTILE_CHANNEL)}")
    browser.sees("live")
    sample.connect(HOSTILE).ok("publish", channel=HOSTILE_CHANNEL, data={"say": HOSTILE})
    browser.wait("document.querySelectorAll('table[aria-label=Messages] tbody tr').length > 0")
    harmless(browser)
    browser.press("/")
    browser.type("<im")
    browser.sees(HOSTILE, "#found")
    harmless(browser)


ADDRESSES = [
    (f"#/topics/{path(HOSTILE)}", HOSTILE),
    (f"#/subscriptions/{path(HOSTILE)}", HOSTILE),
    (f"#/parties/{path(HOSTILE)}", HOSTILE),
    ("#/users/%", "Why offline"),
    (f"#/{path(HOSTILE)}", "Page not found"),
]


def test_hostile_urls_do_no_harm(browser, sample):
    browser.open(sample.server)
    for page, text in ADDRESSES:
        browser.goto(page)
        browser.sees(text)
        harmless(browser)
    browser.expect_errors("40")


LUMINANCE = """
const channel = (c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
const luminance = (text) => { const [r, g, b] = text.match(/[\\d.]+/g).map(Number); return 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b); };
const behind = (one) => { for (; one; one = one.parentElement) { const back = getComputedStyle(one).backgroundColor; if (!/, 0\\)$/.test(back)) return back; } return 'rgb(255, 255, 255)'; };
const contrast = (one) => { const [a, b] = [luminance(getComputedStyle(one).color), luminance(behind(one))].sort((a, b) => b - a); return (a + 0.05) / (b + 0.05); };
"""
FAINT = "(() => {" + LUMINANCE + """
  const texts = [...document.querySelectorAll('body *')].filter((one) => one.getClientRects().length && !one.closest('svg, .skip, :disabled') && [...one.childNodes].some((child) => child.nodeType === 3 && child.data.trim()));
  return texts.map((one) => [contrast(one), one.outerHTML.slice(0, 80)]).filter(([ratio]) => ratio < 4.5);
})()"""


@pytest.mark.parametrize("scheme, dark", [("light", False), ("dark", True)])
def test_both_colour_schemes_have_enough_contrast(browser, sample, scheme, dark):
    browser.open(sample.server, scheme=scheme)
    for page in ["#/", "#/users/ann", "#/subscriptions/mail", "#/settings", "#/try"]:
        browser.goto(page)
        browser.sees(PAGES[page][0])
        assert browser.eval(FAINT) == [], page
    back = browser.eval("(() => {" + LUMINANCE + " return luminance(behind(document.body)); })()")
    assert (back < 0.2) == dark


def test_presence_and_messages_appear_live(browser, sample):
    browser.open(sample.server, "#/channels/room%23live")
    browser.sees("0 users present")
    with Socket(sample.server, user="zoe") as zoe:
        zoe.ok("join", channel="room#live", state={"mood": "good"})
        browser.sees("1 user present")
        browser.sees('{"mood":"good"}')
        zoe.ok("publish", channel="room#live", data="good evening")
        browser.sees("good evening")
        browser.wait("/; 0?[.,]?[0-9]+ messages\\/s in the last [0-9]+ second/.test(document.querySelector('.sub').innerText)")
        zoe.ok("leave", channel="room#live")
        browser.sees("0 users present")


def test_lists_update_and_keep_the_focus(browser, sample):
    browser.open(sample.server, "#/channels")
    browser.sees("lobby#main")
    browser.press("j", "j")
    here = browser.eval("document.activeElement.textContent")
    with Socket(sample.server, user="yan") as yan:
        yan.ok("subscribe", channel="aaa#first")
        browser.sees("aaa#first")
        assert browser.eval("document.activeElement.textContent") == here
    browser.wait("![...document.querySelectorAll('tbody th')].some((one) => one.textContent === 'aaa#first')")


def test_filters_query_the_server(browser, sample):
    browser.open(sample.server, "#/channels")
    browser.sees("lobby#main")
    browser.press("f")
    browser.type("game#")
    browser.wait("document.querySelectorAll('tbody tr').length === 1")
    browser.type("zzz")
    browser.sees("No channel starts with “game#zzz”")
    browser.goto("#/settings")
    browser.sees("sessions.resume_ms")
    browser.press("f")
    browser.type("backoff_min")
    browser.wait("document.querySelectorAll('tbody tr').length === 1")
