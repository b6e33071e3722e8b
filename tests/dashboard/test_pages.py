"""The dashboard in Chromium: every page with something on it and with nothing, names that would do harm, both colour schemes, a phone."""
import pytest

from support.json_client import Socket
from support.process import until

from .town import HOSTILE, HOSTILE_CHANNEL, path

# Where, and what must be seen there.
PAGES = {
    "#/": ["Messages published", "Needs somebody", "warehouse", "Since the start"],
    "#/channels": ["lobby#main", "game#1048", HOSTILE_CHANNEL],
    "#/channels/lobby%23main": ["live", "8 users present", "gunnar", '{"level":3}'],
    "#/users": ["ann", "hana", HOSTILE],
    "#/users/ann": ["Why online", "game#1048", "Party ", "Followed by", "carla", HOSTILE],
    "#/users/igor": ["Why offline", "a red scarf", HOSTILE],
    "#/parties": ["Party ", "ann", "bob", "idle"],
    "#/topics": ["orders", "payments", "signups", "ledger"],
    "#/subscriptions": ["analytics", "healthy", "failing", "disabled", "http://127.0.0.1"],
    "#/subscriptions/mail": ["Acknowledged", "Dead letters", "refused", "Send all again", HOSTILE],
    "#/subscriptions/warehouse": ["Under way", "Failed in a row", "Failing since", "Next attempt"],
    "#/nodes": ["alive", "here", "1 shard"],
    "#/settings": ["events.backoff_min_ms", "tavern.toml", "default", "--listen"],
    "#/try": ["Connect", "Nothing was heard yet"],
}

# Every element ends inside the window, but for what may be scrolled by itself.
INSIDE = """(() => {
  const wide = [...document.querySelectorAll('body *')].filter((one) => {
    if (one.closest('.skip, .log, svg') || !one.getClientRects().length) return false;
    return one.getBoundingClientRect().right > innerWidth + 0.5;
  });
  return [document.documentElement.scrollWidth, wide.slice(0, 3).map((one) => one.outerHTML.slice(0, 120))];
})()"""


@pytest.mark.parametrize("width, scheme", [(1280, "light"), (360, "dark")])
def test_every_page_shows_what_is_there(browser, town, width, scheme):
    browser.open(town.server, width=width, scheme=scheme)
    for page, words in PAGES.items():
        browser.goto(page)
        for word in words:
            browser.sees(word)
        scroll, wide = browser.eval(INSIDE)
        assert scroll <= width and wide == [], f"{page} is wider than {width}: {scroll} {wide}"
        browser.quiet()


def test_a_party(browser, town):
    browser.open(town.server, f"#/parties/{town.party}")
    for word in ["idle", "2 members", "leads", "carla"]:
        browser.sees(word)
    browser.goto("#/parties/999")
    browser.sees("It is not there")
    browser.complained("404")


def test_a_session_tells_why(browser, town):
    browser.open(town.server, "#/users/ann")
    browser.sees("game#1048")
    browser.click("main .client a")
    browser.sees("a websocket transport is attached")
    browser.sees("lobby#main")


EMPTY = {
    "#/": ["All is well", "tavern events subscribe"],
    "#/channels": ["Nobody listens anywhere yet", "tavern subscribe"],
    "#/channels/game%23none": ["Nobody is present here", "Nothing was said", "curl"],
    "#/users": ["Nobody has been here yet", "websocat"],
    "#/users/nobody": ["never seen here", "He is nowhere", "The inbox is empty", "Nobody follows"],
    "#/parties": ["There is no party", "party.invite"],
    "#/topics": ["There is no topic yet", "tavern events publish"],
    "#/subscriptions": ["Nobody subscribes", "tavern events subscribe"],
    "#/nowhere": ["There is no such page"],
}


def test_where_nothing_is_it_says_what_to_do(browser, empty):
    browser.open(empty, width=360, scheme="light")
    for page, words in EMPTY.items():
        browser.goto(page)
        for word in words:
            browser.sees(word)
        scroll, wide = browser.eval(INSIDE)
        assert scroll <= 360 and wide == [], f"{page}: {wide}"


def test_what_is_not_there_is_told(browser, town):
    browser.open(town.server, "#/subscriptions/none")
    browser.sees("It is not there")
    browser.sees("Try again")
    browser.goto("#/sessions/zzzz")
    browser.sees("It is not there")
    browser.complained("404")


def harmless(browser):
    """Nothing of a name became an element; the one picture is ours."""
    assert browser.eval("[...document.images].map((one) => one.getAttribute('src'))") == ["/assets/icon.svg"]
    assert browser.eval("document.querySelectorAll('main script, main b b, [onerror]').length") == 0


def test_names_do_no_harm(browser, town):
    browser.open(town.server)
    for page in [f"#/users/{path(HOSTILE)}", f"#/channels/{path(HOSTILE_CHANNEL)}", "#/users/ann", "#/users/igor", "#/channels"]:
        browser.goto(page)
        browser.sees(HOSTILE)
        harmless(browser)
    town.come(HOSTILE).ok("publish", channel=HOSTILE_CHANNEL, data=HOSTILE)
    browser.goto(f"#/channels/{path(HOSTILE_CHANNEL)}")
    browser.sees("live")
    town.come(HOSTILE).ok("publish", channel=HOSTILE_CHANNEL, data={"say": HOSTILE})
    browser.wait("document.querySelectorAll('.log li').length > 0")
    harmless(browser)
    browser.press("/")
    browser.type("<im")
    browser.sees(HOSTILE, "#found")
    harmless(browser)


ADDRESSES = [
    (f"#/topics/{path(HOSTILE)}", f"No topic holds “{HOSTILE}”"),
    (f"#/subscriptions/{path(HOSTILE)}", HOSTILE),
    (f"#/parties/{path(HOSTILE)}", HOSTILE),
    ("#/users/%", "Why offline"),
    (f"#/{path(HOSTILE)}", "There is no such page"),
]


def test_an_address_does_no_harm(browser, town):
    browser.open(town.server)
    for page, word in ADDRESSES:
        browser.goto(page)
        browser.sees(word)
        harmless(browser)
    browser.complained("40")


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
def test_both_colour_schemes_can_be_read(browser, town, scheme, dark):
    browser.open(town.server, scheme=scheme)
    for page in ["#/", "#/users/ann", "#/subscriptions/mail", "#/settings", "#/try"]:
        browser.goto(page)
        browser.sees(PAGES[page][0])
        assert browser.eval(FAINT) == [], page
    back = browser.eval("(() => {" + LUMINANCE + " return luminance(behind(document.body)); })()")
    assert (back < 0.2) == dark


def test_who_comes_and_speaks_is_seen_at_once(browser, town):
    browser.open(town.server, "#/channels/room%23live")
    browser.sees("0 users present")
    with Socket(town.server, user="zoe") as zoe:
        zoe.ok("join", channel="room#live", state={"mood": "good"})
        browser.sees("1 user present")
        browser.sees('{"mood":"good"}')
        zoe.ok("publish", channel="room#live", data="good evening")
        browser.sees("good evening")
        zoe.ok("leave", channel="room#live")
        browser.sees("0 users present")


def test_lists_follow_what_happens_and_keep_the_focus(browser, town):
    browser.open(town.server, "#/channels")
    browser.sees("lobby#main")
    browser.press("j", "j")
    here = browser.eval("document.activeElement.textContent")
    with Socket(town.server, user="yan") as yan:
        yan.ok("subscribe", channel="aaa#first")
        browser.sees("aaa#first")
        assert browser.eval("document.activeElement.textContent") == here
    browser.wait("![...document.querySelectorAll('tbody th')].some((one) => one.textContent === 'aaa#first')")


def test_rates_and_lines_move(browser, town):
    browser.open(town.server)
    number = "Number(document.querySelector('[data-tile=published] strong').textContent)"
    browser.wait(f"{number} === 0")
    ann = town.come("ann")

    def speak():
        for n in range(20):
            ann.ok("publish", channel="room#rates", data=n)
        return browser.eval(number) > 0

    until(speak, "the rate to show it", 8)
    assert browser.eval("document.querySelectorAll('svg.spark .line').length") == 8
    assert "L" in browser.eval("document.querySelector('[data-tile=published] .line').getAttribute('d')")


def test_filters_ask_the_server(browser, town):
    browser.open(town.server, "#/channels")
    browser.sees("lobby#main")
    browser.press("f")
    browser.type("game#")
    browser.wait("document.querySelectorAll('tbody tr').length === 1")
    browser.type("zzz")
    browser.sees("No channel begins with “game#zzz”")
    browser.goto("#/settings")
    browser.sees("sessions.resume_ms")
    browser.press("f")
    browser.type("backoff_min")
    browser.wait("document.querySelectorAll('tbody tr').length === 1")
