"""The page of live traffic, and rooms too large to be shown at once."""
import concurrent.futures
import json

import pytest

from support.json_client import Socket
from support.tavern import Tavern

from .browser import INSIDE, violations
from .sample import client, good

LINES = "[...document.querySelectorAll('table[aria-label=Traffic] tbody tr')].map((one) => one.innerText)"


def test_live_traffic_is_filtered_paused_and_audited(browser):
    with Tavern.dev() as server, Socket(server, user="ann") as ann:
        browser.open(server)
        browser.click("nav a:text-is('Live traffic')")
        browser.sees("Nothing has happened yet.")
        browser.wait("document.querySelector('.sub').innerText.includes('0 seen')")
        ann.ok("publish", channel="game#1", data={"move": "e4"})
        browser.sees('{"move":"e4"}', "table[aria-label=Traffic]")
        assert "error" in ann.call("join", channel="user#bob")
        browser.sees("user#bob", "table[aria-label=Traffic]")
        browser.eval("document.querySelector('main select').value = 'messages', document.querySelector('main select').dispatchEvent(new Event('change'))")
        browser.fill("input[placeholder^=Channels]", "game#*")
        browser.wait("document.querySelector('.sub [data-channel]')?.dataset.channel === 'game#*'")
        browser.sees("Nothing has happened yet.")
        ann.ok("publish", channel="room#1", data="another kind")
        ann.ok("publish", channel="game#2", data="of that kind")
        browser.sees("of that kind", "table[aria-label=Traffic]")
        assert len(browser.eval(LINES)) == 1
        browser.click("main button:text-is('Pause')")
        ann.ok("publish", channel="game#2", data="later")
        browser.wait("document.querySelector('.sub').innerText.includes('2 seen')")
        assert len(browser.eval(LINES)) == 1
        browser.click("main button:text-is('Continue')")
        browser.sees("later", "table[aria-label=Traffic]")
        browser.fill("input[placeholder^=Lines]", "LATER")
        browser.wait(f"{LINES}.length === 1")
        browser.click("table[aria-label=Traffic] a:text-is('game#2')")
        browser.wait("document.querySelector('h1')?.textContent === 'game#2'")
        browser.goto("#/audit")
        browser.sees("traffic.watch", "table[aria-label=Actions]")
        browser.sees("game#*", "table[aria-label=Actions]")
        browser.leave()


def test_switched_off_traffic_says_so(browser):
    with Tavern.dev("[dashboard]\ntraffic = false\n") as server:
        browser.open(server, "#/traffic")
        browser.sees("dashboard.traffic = false")
        browser.expect_errors("403")
        browser.leave()


def test_the_page_of_traffic_comes_back_after_a_restart(browser):
    with Tavern.dev() as server:
        browser.open(server, "#/traffic")
        browser.sees("live")
        server.terminate()
        browser.sees("not connected")
        server.start()
        browser.wait("document.querySelector('.sub').innerText.includes('live')", 15_000)
        with Socket(server, user="ann") as ann:
            ann.ok("publish", channel="game#1", data="after the restart")
            browser.sees("after the restart")
        # Refused, or cut off within the response.
        browser.expect_errors("ERR_")
        browser.leave()


@pytest.mark.parametrize("width, height", [(1280, 900), (390, 844)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("locale", ["en-US", "de-DE"])
def test_the_page_of_traffic_passes_axe_and_fits(browser, sample, width, height, scheme, locale):
    browser.open(sample.server, "#/traffic", width=width, height=height, scheme=scheme, locale=locale)
    browser.sees("Messages and commands of")
    ann = sample.connect("ann")
    ann.ok("publish", channel="lobby#main", data={"text": "wide " * 60})
    ann.call("join", channel="user#bob")
    browser.sees("wide wide")
    browser.sees("user#bob")
    scroll, wide = browser.eval(INSIDE)
    assert scroll <= width and wide == [], (scroll, wide)
    assert violations(browser) == []


@pytest.mark.parametrize("counts_at", [200, 5000])
def test_a_large_room_is_shown_in_pages(browser, counts_at):
    """The same whether the server names everybody to the page or tells only how many there are."""
    with Tavern.dev(f"[presence]\ncounts_at = {counts_at}\n") as server, client(server) as api:
        hold = lambda n: good(api.put(f"/v1/channels/hall%23a/presence/user-{n:03}", json={"ttl_s": 600}))
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            list(pool.map(hold, range(250)))
        names = "[...document.querySelectorAll(\"table[aria-label='Present users'] tbody th\")].map((one) => one.textContent)"
        page = lambda first, last: browser.wait(f"JSON.stringify([{names}.at(0), {names}.at(-1)]) === {json.dumps(json.dumps([first, last], separators=(',', ':')))}")
        browser.open(server, "#/channels/hall%23a")
        browser.sees("250 users present")
        page("user-000", "user-099")
        browser.click("main .pages button:text-is('Next')")
        browser.click("main .pages button:text-is('Next')")
        page("user-200", "user-249")
        assert browser.eval("document.querySelector('.pages button:nth-child(2)').disabled")
        browser.sees("user-200 to user-249, of 250 users")
        browser.click("main .pages button:text-is('Previous')")
        page("user-100", "user-199")
        browser.fill("input[placeholder^='Users from']", "user-17")
        page("user-170", "user-249")
        good(api.put("/v1/channels/hall%23a/presence/user-17", json={"ttl_s": 600}))
        page("user-17", "user-249")
        browser.sees("251 users present")
        assert violations(browser) == []
        browser.leave()
