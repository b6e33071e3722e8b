"""Questions about a cluster that an operator asks the dashboard, each answered within three clicks; and how its charts are used."""
import contextlib
import os
import signal
import time

import pytest

from events.endpoint import Endpoint
from support.clock import JumpingClock
from support.json_client import Socket
from support.nats_server import NatsServer
from support.process import until
from support.proxy import TcpProxy
from support.redis_server import RedisServer
from support.tavern import Tavern

from .browser import INSIDE, violations
from .sample import CONFIG, SampleData, client, good

NODES = "[nodes]\nheartbeat_ms = 200\nlease_ms = 12000\n"


def hero(browser, users):
    browser.wait(f"document.querySelector('.hero')?.textContent === '{users}'", 15_000)


def shown(browser):
    """The sample users are online; other tests have more."""
    browser.wait("Number(document.querySelector('.hero')?.textContent) >= 9", 15_000)


def load(server, **query):
    with client(server) as api:
        return good(api.get("/v1/load", params=query))


def test_how_many_users_are_online_now_and_an_hour_ago(browser):
    # Shortly before a step of 30 seconds ends.
    offset = 22 - time.time() % 30
    with JumpingClock("dev", CONFIG + "[clock]\nconfirm_ms = 1000\n", offset=offset) as server, contextlib.ExitStack() as users:
        connect = lambda name: users.enter_context(Socket(server, user=name))
        [connect(name) for name in ("ann", "bob", "carla")]
        until(lambda: 3 in load(server, range="1h")["cluster"]["series"]["users_online"][:-1], "a step with three users", 40)
        server.jump(offset + 58 * 60)
        now = time.time() + offset
        until(lambda: load(server)["now"] / 1000 > now + 57 * 60, "the jump to be accepted", 15)
        [connect(name) for name in ("dmitri", "emeka")]
        browser.open(server)
        hero(browser, 5)
        browser.wait(r"/^3 5[89] min ago, \+2$/m.test(document.querySelector('.then').innerText)", 15_000)
        browser.sees("from 3 to 5 in the last hour", ".then")
        browser.leave()


def test_the_range_of_the_charts_is_chosen(browser, sample):
    browser.open(sample.server)
    shown(browser)
    for name, words in (("5m", "last five minutes"), ("24h", "last day"), ("1h", "last hour")):
        browser.click(f"[data-range='{name}']")
        browser.sees(words, ".then")
        assert browser.eval("document.querySelector('[aria-pressed=true]').dataset.range") == name
    browser.goto("#/nodes")
    browser.sees("This node is")
    browser.click("nav a[href='#/']")
    browser.sees("last hour", ".then")


class SlowProxy(TcpProxy):
    """Each piece of an answer comes late."""

    @staticmethod
    def carry(near, far):
        real = far.recv

        class Late:
            def __getattr__(self, name):
                return getattr(far, name)

            def __enter__(self):
                return self

            def __exit__(self, *_):
                far.close()

            def recv(self, size):
                time.sleep(0.06)
                return real(size)

        TcpProxy.carry(near, Late())


def test_which_node_is_slow(browser):
    with RedisServer() as redis, SlowProxy(redis.resp_port) as proxy, contextlib.ExitStack() as stack:
        start = lambda name, url: stack.enter_context(Tavern.dev(NODES, ["--node", name, "--store", url, "--bus", redis.url]))
        quick, slow = start("quick", redis.url), start("slow", redis.url.replace(f":{redis.resp_port}", f":{proxy.port}"))
        until(lambda: len(load(quick)["nodes"]) == 2, "both nodes to answer", 15)
        browser.open(quick)
        browser.click("nav a[href='#/nodes']")
        browser.sees("slow")
        browser.click("table[aria-label=Nodes] thead button:text-is('Store')")
        browser.wait("document.querySelector('table[aria-label=Nodes] tbody th')?.innerText === 'slow'", 15_000)
        late = browser.eval("document.querySelector('table[aria-label=Nodes] tbody [data-name=Store]').innerText")
        assert late.endswith(" s") or int(late.split()[0]) >= 50, late
        browser.quiet()
        browser.leave()


def test_is_my_cluster_healthy(browser):
    with NatsServer() as bus, TcpProxy(bus.port) as proxy, contextlib.ExitStack() as stack:
        first = Tavern.dev(NODES, ["--node", "n1", "--bus", f"nats://127.0.0.1:{proxy.port}"])
        stack.enter_context(first)
        others = [stack.enter_context(Tavern.dev(NODES, ["--node", name, "--bus", bus.url], data=first.data)) for name in ("n2", "n3")]
        browser.open(first)
        healthy = lambda: browser.wait("document.querySelector('.health').innerText.includes('cluster healthy')", 30_000)
        browser.wait("document.querySelector('.health')?.innerText.includes('3 of 3 nodes answer')", 30_000)
        healthy()
        # A node is suspended.
        os.kill(others[0].process.pid, signal.SIGSTOP)
        try:
            browser.wait("document.querySelector('.attention')?.innerText.includes('no answer')", 15_000)
            assert "n2" in browser.text(".attention") and "cluster unhealthy" in browser.text(".health")
            assert "2 of 3 nodes answer" in browser.text(".health")
            browser.goto("#/nodes")
            browser.wait("document.querySelector('tr.stale')?.innerText.includes('n2')", 15_000)
            browser.goto("#/")
        finally:
            os.kill(others[0].process.pid, signal.SIGCONT)
        healthy()
        # The bus of the node that is looked at is cut.
        proxy.cut()
        browser.wait("document.querySelector('.attention')?.innerText.includes('its bus does not answer')", 30_000)
        assert "cluster unhealthy" in browser.text(".health")
        proxy.restore()
        healthy()
        # A node is killed, and starts again.
        others[1].process.kill()
        others[1].process.wait()
        browser.wait("document.querySelector('.attention')?.innerText.includes('node died')", 30_000)
        assert "n3" in browser.text(".attention")
        browser.click(".attention a")
        browser.wait("document.querySelector(\"table[aria-label='Starts and ends']\")?.innerText.includes('died')")
        others[1].start()
        browser.click("nav a[href='#/']")
        browser.wait("document.querySelector('.attention')?.innerText.includes('died and restarted')", 30_000)
        healthy()
        browser.quiet()
        browser.leave()


def test_a_session_of_another_node_is_named_and_not_linked(browser):
    """A node describes its own sessions only."""
    with Tavern.dev(NODES, ["--node", "n1"]) as first, Tavern.dev(NODES, ["--node", "n2"], data=first.data) as second:
        with Socket(first, user="ann") as here, Socket(second, user="ann") as there:
            browser.open(first, "#/users/ann")
            browser.wait("document.querySelector('table[aria-label=Sessions] tbody')?.innerText.includes('n2')", 15_000)
            linked = browser.eval("JSON.stringify([...document.querySelectorAll('main a[href^=\"#/sessions/\"]')].map((one) => one.hash))")
            assert here.hello["client"] in linked and there.hello["client"] not in linked, linked
            browser.quiet()
            browser.leave()


def test_how_far_behind_the_slowest_subscription_is(browser):
    with Tavern.dev(CONFIG) as server, client(server) as api, Endpoint(lambda _: 500) as broken, Endpoint() as works:
        for name, callback in (("works", works.url), ("stuck", broken.url)):
            good(api.put(f"/v1/subscriptions/{name}", json={"topics": ["orders"], "callback": callback, "timeout_ms": 0}))
        good(api.post("/v1/topics/orders/events", json=[{"type": "create"}] * 3))
        until(lambda: good(api.get("/v1/subscriptions/works"))["queued"] == 0, "the other one to be done")
        browser.open(server)
        browser.wait("/stuck 3 events, .*behind/.test(document.querySelector('.totals').innerText.replaceAll('\\n', ' '))")
        browser.wait("document.querySelector('.attention')?.innerText.includes('500 Internal Server Error')")
        browser.wait("document.querySelector('[data-chart=events_queued] strong').textContent === '3'", 15_000)
        browser.click(".totals a")
        browser.sees("Acknowledged")
        assert browser.eval("location.hash") == "#/subscriptions/stuck"
        browser.leave()


def test_a_chart_shows_single_times(browser, sample):
    browser.open(sample.server)
    shown(browser)
    browser.click("[data-range='5m']")
    browser.sees("last five minutes", ".then")
    browser.wait("document.querySelector('.online .line').getAttribute('d').includes('L')", 15_000)
    when = "document.querySelector('.online .when').textContent"
    assert browser.eval(when) == ""
    browser.eval("document.querySelector('.online .plot').focus()")
    browser.press("ArrowLeft", "ArrowLeft")
    before = browser.eval(when)
    assert before.count(":") == 2 and int(browser.eval("document.querySelector('.online .chart strong').textContent")) >= 9
    browser.press("Home")
    assert browser.eval(when) not in ("", before)
    browser.press("Escape")
    assert browser.eval(when) == ""
    width = browser.eval("document.querySelector('.online .plot').clientWidth")
    browser.do("hover", at=".online .plot", x=width - 8, y=60)
    browser.wait(f"{when} !== ''")
    said = browser.eval("document.querySelector('.online .plot').getAttribute('aria-label')")
    assert said.startswith("Users online. Users online: now ") and ", from " in said, said


def test_rates_reach_the_charts(browser, sample):
    browser.open(sample.server)
    browser.click("[data-range='5m']")
    number = "parseFloat(document.querySelector('[data-chart=published] strong').textContent)"
    browser.wait(f"{number} === 0", 15_000)
    ann = sample.connect("ann")

    def publish():
        for n in range(20):
            ann.ok("publish", channel="room#rates", data=n)
        return browser.eval(number) > 0

    until(publish, "the rate to be updated", 15)
    assert browser.eval("document.querySelectorAll('.charts svg.plot').length") == 10


def test_nodes_are_sorted_by_keyboard(browser, sample):
    browser.open(sample.server, "#/nodes")
    browser.sees("This node is")
    for header in ("CPU", "Memory", "Up", "Version"):
        browser.eval(f"[...document.querySelectorAll('thead button')].find((one) => one.textContent === '{header}').focus()")
        browser.press("Enter")
        first = browser.eval("document.activeElement.closest('th').getAttribute('aria-sort')")
        browser.press("Enter")
        assert {first, browser.eval("document.activeElement.closest('th').getAttribute('aria-sort')")} == {"ascending", "descending"}


@pytest.mark.parametrize("width, height", [(1280, 900), (390, 844)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("locale", ["en-US", "de-DE"])
def test_the_cluster_pages_pass_axe_and_fit(browser, sample, width, height, scheme, locale):
    browser.open(sample.server, width=width, height=height, scheme=scheme, locale=locale)
    shown(browser)
    browser.wait("document.querySelector('.online .line').getAttribute('d')", 15_000)
    for page, text in (("#/", "Needs attention"), ("#/nodes", "This node is")):
        browser.goto(page)
        browser.sees(text)
        browser.wait("!document.querySelector('.loading')")
        scroll, wide = browser.eval(INSIDE)
        assert scroll <= width and wide == [], (page, scroll, wide)
        assert violations(browser) == [], page
    size = browser.eval("import('/assets/format.js').then((format) => [format.bytes(1234567), format.count(1234567), format.latency(0.42)])")
    assert size == (["1.2 MiB", "1,234,567", "0.42 ms"] if locale == "en-US" else ["1,2 MiB", "1.234.567", "0,42 ms"])


def test_old_figures_are_greyed_out_and_come_back(browser):
    with Tavern.dev() as server:
        browser.open(server)
        hero(browser, 0)
        os.kill(server.process.pid, signal.SIGSTOP)
        try:
            # A server that hangs closes no connection.
            browser.wait("document.body.classList.contains('old')", 15_000)
            browser.sees("old. Reconnecting", "#banner")
        finally:
            os.kill(server.process.pid, signal.SIGCONT)
        browser.wait("!document.body.classList.contains('old') && document.getElementById('banner').hidden", 15_000)
        server.terminate()
        browser.sees("The server does not answer", "#banner")
        browser.wait("document.body.classList.contains('old')", 15_000)
        assert float(browser.eval("getComputedStyle(document.querySelector('main')).opacity")) < 0.6
        server.start()
        browser.wait("!document.body.classList.contains('old')", 15_000)
        with Socket(server, user="ann"):
            hero(browser, 1)
        browser.expect_errors("ERR_CONNECTION_REFUSED")
        browser.leave()


@pytest.mark.alone
def test_the_heap_stays_flat_under_traffic(browser, sample):
    browser.open(sample.server)
    browser.click("[data-range='5m']")
    shown(browser)
    ann = sample.connect("ann")

    def busy(seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for n in range(100):
                ann.ok("publish", channel="lobby#main", data=n)
        return browser.do("heap")

    before = busy(6)
    assert busy(20) < before + (1 << 20)
