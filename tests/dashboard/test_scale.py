"""The dashboard of a busy server: ten thousand users, a thousand channels, a thousand messages a second."""
import concurrent.futures
import http.client
import json
import time

import pytest

from support.json_client import Socket
from support.process import until
from support.tavern import Tavern

from .sample import client, good

USERS, ROOMS = 10_000, 1_000
# How long the page may be busy at a stretch, in a browser on a machine that tests use as well.
BUSY_MS = 400
WATCH = """window.longest = 0, new PerformanceObserver((list) => {
  for (const { duration } of list.getEntries()) window.longest = Math.max(window.longest, duration);
}).observe({ type: 'longtask' }), 0"""


def arrive(server, numbers):
    """Users with a session each, every one in a room."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)

    def command(user, **body):
        connection.request("POST", f"/v1/command?user={user}", json.dumps(body))
        reply = json.loads(connection.getresponse().read())
        assert "ok" in reply, reply
        return reply["ok"]

    for number in numbers:
        user = f"user-{number:05}"
        session = command(user, op="hello")["session"]
        command(user, op="join", channel=f"room#{number % ROOMS:04}", session=session)
    connection.close()


@pytest.fixture(scope="module")
def town():
    with Tavern.dev("[sessions]\npoll_idle_ms = 3600000\n") as server:
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            list(pool.map(lambda part: arrive(server, range(part, USERS, 32)), range(32)))
        yield server


@pytest.mark.alone
def test_ten_thousand_users_and_a_thousand_channels_are_listed_smoothly(browser, town):
    with client(town) as api:
        until(lambda: good(api.get("/v1/stats"))["cluster"]["users_online"] == USERS, "everybody to be online", 20)
    for page, label in (("#/users", "Users"), ("#/channels", "Channels")):
        browser.open(town, page)
        shown = f"document.querySelectorAll('table[aria-label={label}] tbody tr').length"
        browser.wait(f"{shown} === 100", 15_000)
        browser.eval(WATCH)
        for rows in range(200, 1001, 100):
            browser.click("main button:text-is('Show more')")
            browser.wait(f"{shown} === {rows}", 15_000)
        # Every row is compared each two seconds.
        browser.click("thead button:has-text('Present')" if label == "Channels" else "thead button:has-text('User')")
        browser.fill("main .filter", "room#0123" if label == "Channels" else "user-01234")
        browser.wait(f"{shown} === 1", 15_000)
        longest = browser.eval("window.longest")
        assert longest < BUSY_MS, f"{label}: busy for {longest} ms"
    browser.goto("#/")
    browser.wait(f"document.querySelector('.hero')?.textContent.replace(/\\D/g, '') === '{USERS}'", 15_000)


@pytest.mark.alone
@pytest.mark.parametrize("page, text", [("#/", "Users online"), ("#/traffic", "Messages and commands of"), ("#/channels/lobby%23main", "live")])
def test_the_heap_stays_flat_at_a_thousand_messages_a_second(browser, sample, page, text):
    browser.open(sample.server, page)
    browser.sees(text)
    with Socket(sample.server, user="pulse") as pulse:

        def busy(seconds):
            begin = time.monotonic()
            for batch in range(seconds * 10):
                for n in range(100):
                    pulse.send(json.dumps({"id": n, "op": "publish", "channel": "lobby#main", "data": {"n": n, "text": "a message"}}))
                for _ in range(100):
                    pulse.frame()
                time.sleep(max(0, begin + (batch + 1) / 10 - time.monotonic()))
            took = time.monotonic() - begin
            assert took < seconds * 1.2, f"{seconds * 1000} messages took {took:.1f} s"
            return browser.do("heap")

        # Until the page has as many lines as it keeps.
        before = busy(8)
        assert busy(20) < before + (1 << 20)
