"""The demo in a browser: two and three people, tabs, a cut network, a restarted server, a flood. No page may complain."""
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time

import httpx
import pytest

from clients.network import Network
from support.json_client import Socket
from support.process import free_port
from support.tavern import Tavern

from .conftest import CONFIG

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "matchmaker" / "matchmaker.py"
# How long the flood lasts; longer by hand.
FLOOD_S = float(os.environ.get("TAVERN_FLOOD_S", "30"))
FLOOD_RATE = 1000


def test_two_people_see_each_other_talk_follow_and_play(stage, lobby):
    ann, bob = stage.guest(lobby, "ann"), stage.guest(lobby, "bob")
    ann.waits_for("ann", "bob")
    bob.waits_for("ann", "bob")
    ann.sees("bob came in.")
    ann.say("good evening")
    bob.sees("good evening")

    bob.click('[data-user="ann"] [data-act="follow ann"]')
    bob.sees("online", at='[data-friend="ann"]')
    ann.click("#play")
    bob.sees("plays game#", at='[data-user="ann"]')
    bob.sees("in_game_channel in game#", at='[data-friend="ann"]')
    bob.sees("ann, whom you follow: in_game_channel")
    bob.click('[data-user="ann"] [data-act="join ann"]')
    ann.sees("ann, bob", at="#players")
    bob.click("#play")
    ann.sees("Playing: ann", at="#players")
    ann.wait("!document.getElementById('players').textContent.includes('bob')")

    # Nobody takes the ticket here: the page tells how to start somebody who does.
    ann.click('[data-act="invite bob"]')
    bob.click('#invites [data-act^="accept"]')
    ann.click('[data-act="go"]')
    bob.sees("examples/matchmaker/matchmaker.py", at="#party")
    ann.click('[data-act="cancel"]')
    ann.sees("State: idle", at="#party")

    # A service is told the same, by number.
    ann.sees("party.go_cancelled", at="#events")
    ann.wait("document.querySelectorAll('#events details').length >= 6")
    numbers = ann.eval("[...document.querySelectorAll('#events .seq')].map((node) => +node.textContent.slice(1))")
    assert numbers == list(range(numbers[0], numbers[0] - len(numbers), -1)), "without holes, the newest first"
    stage.quiet()


def test_three_people_and_tabs_that_come_and_go(stage, lobby):
    ann, bob = stage.guest(lobby, "ann"), stage.guest(lobby, "bob")
    cleo = stage.guest(lobby, "cleo")
    for guest in (ann, bob, cleo):
        guest.waits_for("ann", "bob", "cleo")
    second = stage.guest(lobby, "bob", tab="bob's second tab", who="bob")
    ann.sees("2 tabs", at='[data-user="bob"]')
    second.close()
    # One of two tabs is gone: he is there all the same.
    ann.wait("!document.querySelector('[data-user=bob]').textContent.includes('tabs')")
    ann.waits_for("ann", "bob", "cleo")
    bob.do("reload")
    bob.wait("document.body.dataset.ready === 'yes'")
    bob.waits_for("ann", "bob", "cleo")
    cleo.close()
    ann.sees("connection lost", at='[data-user="cleo"]')
    ann.waits_for("ann", "bob")
    ann.sees("cleo left (lost).")
    said = ann.text("#log")
    assert "bob left" not in said and "bob lost" not in said, said
    stage.quiet()


def test_the_plug_inside_and_outside_the_grace(stage, lobby):
    ann, bob = stage.guest(lobby, "ann"), stage.guest(lobby, "bob")
    ann.waits_for("ann", "bob")
    bob.waits_for("ann", "bob")
    # Shorter than the window: nobody is told.
    bob.click("#plug")
    bob.sees("Nobody has noticed yet", at="#cut")
    bob.click("#plug")
    bob.sees("nobody noticed")
    assert "bob lost" not in ann.text("#log")
    # Inside the grace: away, and back.
    bob.click("#plug")
    ann.sees("to come back", at='[data-user="bob"]')
    ann.say("while you were away")
    bob.click("#plug")
    bob.sees("inside the grace")
    bob.sees("while you were away")
    ann.sees("bob is back.")
    # After it: gone, and there again.
    bob.click("#plug")
    bob.sees("The grace is over", at="#cut")
    ann.waits_for("ann")
    ann.sees("bob left (lost).")
    bob.click("#plug")
    bob.sees("after the grace")
    ann.waits_for("ann", "bob")
    bob.waits_for("ann", "bob")
    # To followers and services he was lost for good only after his own grace.
    ann.sees("offline", at="#events")
    stage.quiet()


def test_a_network_that_is_cut_and_comes_back(stage, lobby):
    with Network([lobby.port], 0) as network:
        ann, bob = stage.guest(lobby, "ann"), stage.guest(Way(network), "bob")
        ann.waits_for("ann", "bob")
        # Inside the grace.
        cut(network, bob)
        bob.sees("connection lost", at="#state")
        ann.sees("connection lost", at='[data-user="bob"]')
        ann.say("are you there?")
        mend(network, bob)
        bob.sees("are you there?")
        ann.sees("bob is back.")
        # Outside of it.
        cut(network, bob)
        ann.waits_for("ann")
        mend(network, bob)
        ann.waits_for("ann", "bob")
        bob.waits_for("ann", "bob")
        stage.quiet()


def cut(network, guest):
    """The browser knows that it is offline, and what was open is gone."""
    guest.network(False)
    network.cut({})


def mend(network, guest):
    network.mend({})
    guest.network(True)
    guest.sees("connected", at="#state")


class Way:
    """A server as it is reached over a network of one's own."""

    def __init__(self, network):
        self.url = f"http://127.0.0.1:{network.port}"


def test_the_server_is_restarted_underneath(stage, lobby):
    ann, bob = stage.guest(lobby, "ann"), stage.guest(lobby, "bob")
    ann.waits_for("ann", "bob")
    ann.say("before")
    bob.sees("before")
    lobby.terminate()
    lobby.start()
    ann.sees("connected", at="#state")
    bob.sees("connected", at="#state")
    bob.waits_for("ann", "bob")
    ann.say("after")
    bob.sees("after")
    assert "ann left" not in bob.text("#log"), "a restart is noticed by nobody"
    stage.quiet()


def test_a_party_goes_together_into_a_match(stage):
    port = free_port()
    with Tavern.dev(CONFIG + f'[parties]\nmatchmaker_url = "http://127.0.0.1:{port}/"\n') as server, matchmaker(server, port):
        ann, bob = stage.guest(server, "ann"), stage.guest(server, "bob")
        ann.waits_for("ann", "bob")
        ann.click('[data-act="invite bob"]')
        bob.sees("invites you", at="#invites")
        bob.click('#invites [data-act^="accept"]')
        ann.sees("bob joined the party.")
        ann.click('[data-act="go"]')
        for guest in (ann, bob):
            guest.sees("practice-1")
            guest.sees("ann, bob", at="#players")
        ann.sees("party.go", at="#events")
        ann.sees("State: idle", at="#party")
        bob.click('[data-act="leave"]')
        bob.sees("in no party", at="#party")
        ann.sees("in no party", at="#party")
        stage.quiet()


@contextlib.contextmanager
def matchmaker(server, port):
    command = [sys.executable, EXAMPLE, "--tavern", server.url, "--key", server.key, "--listen", str(port), "--practice", "0.5"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline().startswith("matchmaker on")
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_hostile_names_are_only_names(stage, lobby):
    names = ["<img src=x onerror=alert(1)>", "\"'><script>alert(2)</script>", "a" * 32, "‮evil‬ 💥 é"]
    ann = stage.guest(lobby, "ann")
    with Socket(lobby, user=names[0]) as first, Socket(lobby, user=names[1]) as second, Socket(lobby, user=names[2]) as third:
        for one in (first, second, third):
            one.ok("join", channel="lobby#demo", state={"game": "game#<b>x</b>"})
            one.ok("publish", channel="lobby#demo", data={"text": "<svg onload=alert(3)>"})
        second.ok("publish", channel="lobby#demo", data={"deep": [[["<i>"]]] * 50})
        third.ok("publish", channel="lobby#demo", data=None)
        third.ok("join", channel="lobby#demo", state="no object")
        ann.waits_for("ann", *names[:3])
        ann.sees("<svg onload=alert(3)>")
        ann.wait("document.querySelectorAll('#log .said').length >= 5")
        second.ok("party.invite", user="ann")
        ann.sees("<script>alert(2)</script>", at="#invites")
    other = stage.guest(lobby, names[3], tab="other")
    other.sees("evil", at="#you-title")
    assert ann.eval("document.querySelectorAll('#lobby img, #lobby script, #lobby svg').length") == 0
    assert ann.eval("document.documentElement.scrollWidth <= innerWidth"), "nothing is wider than the page"
    stage.quiet()


def test_by_keyboard_and_at_the_width_of_a_phone(stage, lobby):
    page = stage.page(f"{lobby.url}/demo", width=360, height=720)
    page.wait("document.activeElement.id === 'name'")
    page.fill("#name", "")
    page.type("ann")
    page.press("Enter")
    page.wait("document.body.dataset.ready === 'yes'")
    bob = stage.guest(lobby, "bob")
    page.waits_for("ann", "bob")
    assert page.eval("document.documentElement.scrollWidth <= innerWidth"), "nothing is wider than the page"
    for act in ("follow bob", "invite bob"):
        page.eval("document.getElementById('main').focus()")
        for _ in range(12):
            page.press("Tab")
            if page.eval("document.activeElement.dataset.act") == act:
                break
        assert page.eval("document.activeElement.dataset.act") == act, "it can be reached"
        page.press("Enter")
        if act == "follow bob":
            page.wait("document.activeElement.dataset.act === 'follow bob' && document.activeElement.getAttribute('aria-pressed') === 'true'")
    bob.sees("invites you", at="#invites")
    stage.quiet()


def test_whoever_is_refused_may_choose_another_name(stage, lobby):
    page = stage.page(f"{lobby.url}/demo?user={'x' * 300}")
    page.sees("The session has ended", at="#door")
    page.fill("#name", "zoe")
    page.press("Enter")
    page.wait("document.body.dataset.ready === 'yes'")
    page.waits_for("zoe")
    # A browser tells of every answer that refuses.
    assert all("401" in complaint for complaint in stage.do("complaints"))


@pytest.mark.alone
def test_a_thousand_messages_a_second_do_not_fill_the_page(stage, lobby):
    ann = stage.guest(lobby, "ann")
    # Two halves: what the first has cost is what a page needs, the second must cost nothing more.
    half = int(FLOOD_S * FLOOD_RATE / 2)
    with Socket(lobby, user="crowd") as crowd:
        heaps = []
        for first in (0, half):
            took = flood(crowd, first, half)
            assert took < half / FLOOD_RATE * 1.5, f"{half} messages took {took:.1f} s"
            ann.sees(f"number {first + half - 1}.", ms=30_000)
            heaps.append(ann.do("heap"))
    before, after = heaps
    print(json.dumps({"before": before, "after": after}))
    assert ann.eval("document.querySelectorAll('#log li').length") == 200
    assert after["nodes"] <= before["nodes"] + 200, heaps
    assert after["bytes"] <= before["bytes"] + 400_000, heaps
    stage.quiet()


def flood(socket, number, total):
    """So many messages at the rate, in steps of 20 ms; how long it took."""
    began, step = time.monotonic(), FLOOD_RATE // 50
    for first in range(0, total, step):
        words = [f"number {number + first + one}." for one in range(step)]
        words = [{"id": 1, "op": "publish", "channel": "lobby#demo", "data": {"text": text}} for text in words]
        socket.send("\n".join(map(json.dumps, words)))
        for _ in words:
            assert "ok" in socket.frame()
        time.sleep(max(0.0, began + (first + step) / FLOOD_RATE - time.monotonic()))
    return time.monotonic() - began


def test_outside_dev_mode_it_is_a_page_that_says_so(serve):
    page = httpx.get(f"{serve.url}/demo", trust_env=False)
    assert page.status_code == 200 and "dev mode" in page.text and "<script" not in page.text
    for path in ("/demo/events", "/demo/house.json", "/demo/index.html"):
        answer = httpx.get(f"{serve.url}{path}", trust_env=False)
        assert answer.status_code == 404, path
    key = {"authorization": f"Bearer {serve.key}"}
    assert httpx.get(f"{serve.url}/v1/subscriptions/demo", headers=key, trust_env=False).status_code == 404


def test_foreign_pages_cannot_read_the_events(lobby):
    for headers in ({"origin": "https://evil.example"}, {"host": "evil.example"}):
        answer = httpx.get(f"{lobby.url}/demo/events", headers=headers, trust_env=False)
        assert answer.status_code == 403, headers
    page = httpx.get(f"{lobby.url}/demo", trust_env=False)
    policy = page.headers["content-security-policy"]
    assert "script-src 'self'" in policy and "unsafe" not in policy and "trusted-types 'none'" in policy
