"""The demo in a browser: several users, tabs, a cut network, a restarted server, a flood. No page may report an error."""
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
# Duration of the flood.
FLOOD_S = float(os.environ.get("TAVERN_FLOOD_S", "30"))
FLOOD_RATE = 1000


def test_two_users_chat_follow_and_play(demo, lobby):
    ann, bob = demo.open_user(lobby, "ann"), demo.open_user(lobby, "bob")
    ann.waits_for("ann", "bob")
    bob.waits_for("ann", "bob")
    ann.sees("bob joined the lobby.")
    ann.say("good evening")
    bob.sees("good evening")

    bob.click('[data-user="ann"] [data-act="follow ann"]')
    bob.sees("online", at='[data-friend="ann"]')
    ann.click("#play")
    bob.sees("plays in game ", at='[data-user="ann"]')
    bob.sees("online: playing in game ", at='[data-friend="ann"]')
    bob.sees("ann, whom you follow, plays in game ")
    bob.click('[data-user="ann"] [data-act="join ann"]')
    ann.sees("ann, bob", at="#players")
    bob.click("#play")
    ann.sees("Playing: ann", at="#players")
    ann.wait("!document.getElementById('players').textContent.includes('bob')")

    # The practice matchmaker of dev mode answers the ticket.
    ann.click('[data-act="invite bob"]')
    bob.click('#invites [data-act^="accept"]')
    ann.click('[data-act="go"]')
    bob.sees("The matchmaker has the ticket", at="#party")
    for tab in (ann, bob):
        tab.sees("Matched: practice-1.")
        tab.sees("ann, bob", at="#players")
    ann.sees("You are in the match now.", at="#party-state")

    # Services receive the same events, numbered.
    ann.sees("party.go", at="#events")
    ann.wait("document.querySelectorAll('#events details').length >= 5")
    numbers = ann.eval("[...document.querySelectorAll('#events .seq')].map((node) => +node.textContent.slice(1))")
    assert numbers == list(range(numbers[0], numbers[0] - len(numbers), -1)), "no gaps, newest first"
    demo.quiet()


def test_a_newcomer_sees_earlier_messages_once_and_in_order(demo, lobby):
    ann = demo.open_user(lobby, "ann")
    for text in ("first words", "second words"):
        ann.say(text)
        ann.sees(text)
    bob = demo.open_user(lobby, "bob")
    bob.sees("second words")
    said = "[...document.querySelectorAll('#log .said span')].map((one) => one.textContent)"
    assert bob.eval(said) == ["first words", "second words"]
    bob.do("reload")
    bob.wait("document.body.dataset.ready === 'yes'")
    bob.sees("second words")
    assert bob.eval(said) == ["first words", "second words"]
    demo.quiet()


def test_one_user_goes_into_a_match_with_the_practice_bot(demo, lobby):
    ann = demo.open_user(lobby, "ann")
    ann.click('[data-act="invite practice-bot"]')
    ann.sees("practice-bot joined the party.")
    ann.click('[data-act="go"]')
    ann.sees("Matched: practice-1.")
    ann.sees("ann, practice-bot", at="#players")
    ann.waits_for("ann")
    ann.click('[data-act="leave"]')
    ann.sees("not in a party", at="#party")
    ann.wait("!document.getElementById('players').textContent.includes('practice-bot')")
    demo.quiet()


def test_second_tab_does_not_hide_the_game_of_a_user(demo, lobby):
    ann, bob = demo.open_user(lobby, "ann"), demo.open_user(lobby, "bob")
    bob.click("#play")
    ann.sees("plays in game ", at='[data-user="bob"]')
    demo.open_user(lobby, "bob", tab="bob's second tab", who="bob")
    ann.sees("2 tabs", at='[data-user="bob"]')
    assert "plays in game " in ann.text('[data-user="bob"]')
    demo.quiet()


@pytest.mark.parametrize("width", [1280, 360])
def test_times_in_us_english_stay_on_one_line(demo, lobby, width):
    ann = demo.open_user(lobby, "ann", locale="en-US", width=width)
    ann.say("good evening")
    ann.sees("good evening")
    lines = ann.eval("""[...document.querySelectorAll('#log time')].map((node) => {
      const range = document.createRange();
      range.selectNodeContents(node);
      return range.getClientRects().length;
    })""")
    assert "M" in ann.text("#log time") and set(lines) == {1}, lines
    assert ann.eval("document.documentElement.scrollWidth <= innerWidth")


def test_three_users_and_several_tabs(demo, lobby):
    ann, bob = demo.open_user(lobby, "ann"), demo.open_user(lobby, "bob")
    cleo = demo.open_user(lobby, "cleo")
    for tab in (ann, bob, cleo):
        tab.waits_for("ann", "bob", "cleo")
    second = demo.open_user(lobby, "bob", tab="bob's second tab", who="bob")
    ann.sees("2 tabs", at='[data-user="bob"]')
    second.close()
    # One of two tabs is closed: the user is still present.
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
    demo.quiet()


def test_disconnect_within_and_beyond_the_grace_period(demo, lobby):
    ann, bob = demo.open_user(lobby, "ann"), demo.open_user(lobby, "bob")
    ann.waits_for("ann", "bob")
    bob.waits_for("ann", "bob")
    # Shorter than the resume window: not reported.
    bob.click("#disconnect")
    bob.sees("No one has noticed yet", at="#outage")
    bob.click("#disconnect")
    bob.sees("no one noticed")
    assert "bob lost" not in ann.text("#log")
    # Within the grace period: leaving, then back.
    bob.click("#disconnect")
    ann.sees("left to reconnect", at='[data-user="bob"]')
    ann.say("while disconnected")
    bob.click("#disconnect")
    bob.sees("within the grace period")
    bob.sees("while disconnected")
    log = bob.text("#log")
    assert log.rindex("You lost the connection") < log.rindex("Back after"), log
    ann.sees("bob is back.")
    # Beyond it: left, then joined again.
    bob.click("#disconnect")
    bob.sees("The grace period is over", at="#outage")
    ann.waits_for("ann")
    ann.sees("bob left (lost).")
    bob.click("#disconnect")
    bob.sees("after the grace period")
    ann.waits_for("ann", "bob")
    bob.waits_for("ann", "bob")
    # Followers and services see the user offline only after the grace period of user channels.
    ann.sees("offline", at="#events")
    demo.quiet()


def test_a_network_outage_and_recovery(demo, lobby):
    with Network([lobby.port], 0) as network:
        ann, bob = demo.open_user(lobby, "ann"), demo.open_user(ProxiedServer(network), "bob")
        ann.waits_for("ann", "bob")
        # Within the grace period.
        cut(network, bob)
        bob.sees("connection lost", at="#state")
        ann.sees("connection lost", at='[data-user="bob"]')
        ann.say("are you there?")
        restore(network, bob)
        bob.sees("are you there?")
        ann.sees("bob is back.")
        # Beyond it.
        cut(network, bob)
        ann.waits_for("ann")
        restore(network, bob)
        ann.waits_for("ann", "bob")
        bob.waits_for("ann", "bob")
        demo.quiet()


def cut(network, tab):
    """Takes the browser offline and closes its connections."""
    tab.network(False)
    network.cut({})


def restore(network, tab):
    network.restore({})
    tab.network(True)
    tab.sees("connected", at="#state")


class ProxiedServer:
    """A server behind a proxy of this test."""

    def __init__(self, network):
        self.url = f"http://127.0.0.1:{network.port}"


def test_a_server_restart_is_invisible(demo, lobby):
    ann, bob = demo.open_user(lobby, "ann"), demo.open_user(lobby, "bob")
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
    assert "ann left" not in bob.text("#log"), "a restart causes no presence events"
    demo.quiet()


def test_a_party_enters_a_match(demo):
    port = free_port()
    with Tavern.dev(CONFIG + f'[parties]\nmatchmaker_url = "http://127.0.0.1:{port}/"\n') as server, matchmaker(server, port):
        ann, bob = demo.open_user(server, "ann"), demo.open_user(server, "bob")
        ann.waits_for("ann", "bob")
        ann.click('[data-act="invite bob"]')
        bob.sees("invites you", at="#invites")
        bob.click('#invites [data-act^="accept"]')
        ann.sees("bob joined the party.")
        ann.click('[data-act="go"]')
        for tab in (ann, bob):
            tab.sees("practice-1")
            tab.sees("ann, bob", at="#players")
        ann.sees("party.go", at="#events")
        ann.sees("You are in the match now.", at="#party-state")
        bob.click('[data-act="leave"]')
        bob.sees("not in a party", at="#party")
        ann.sees("not in a party", at="#party")
        demo.quiet()


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


def test_hostile_names_are_shown_as_text(demo, lobby):
    names = ["<img src=x onerror=alert(1)>", "\"'><script>alert(2)</script>", "a" * 32, "evil 💥 é"]
    ann = demo.open_user(lobby, "ann")
    with Socket(lobby, user=names[0]) as first, Socket(lobby, user=names[1]) as second, Socket(lobby, user=names[2]) as third:
        for one in (first, second, third):
            one.ok("join", channel="demo#lobby", state={"game": "game#<b>x</b>"})
            one.ok("publish", channel="demo#lobby", data={"text": "<svg onload=alert(3)>"})
        second.ok("publish", channel="demo#lobby", data={"deep": [[["<i>"]]] * 50})
        third.ok("publish", channel="demo#lobby", data=None)
        third.ok("join", channel="demo#lobby", state="no object")
        ann.waits_for("ann", *names[:3])
        ann.sees("<svg onload=alert(3)>")
        ann.wait("document.querySelectorAll('#log .said').length >= 5")
        second.ok("party.invite", user="ann")
        ann.sees("<script>alert(2)</script>", at="#invites")
    other = demo.open_user(lobby, names[3], tab="other")
    other.sees("evil", at="#you-title")
    assert ann.eval("document.querySelectorAll('#lobby img, #lobby script, #lobby svg').length") == 0
    assert ann.eval("document.documentElement.scrollWidth <= innerWidth"), "nothing overflows the page"
    demo.quiet()


def test_keyboard_use_on_a_phone_screen(demo, lobby):
    page = demo.page(f"{lobby.url}/demo", width=360, height=720)
    page.wait("document.activeElement.id === 'name'")
    page.fill("#name", "")
    page.type("ann")
    page.press("Enter")
    page.wait("document.body.dataset.ready === 'yes'")
    bob = demo.open_user(lobby, "bob")
    page.waits_for("ann", "bob")
    assert page.eval("document.documentElement.scrollWidth <= innerWidth"), "nothing overflows the page"
    for act in ("follow bob", "invite bob"):
        page.eval("document.getElementById('main').focus()")
        for _ in range(12):
            page.press("Tab")
            if page.eval("document.activeElement.dataset.act") == act:
                break
        assert page.eval("document.activeElement.dataset.act") == act, "reachable by keyboard"
        page.press("Enter")
        if act == "follow bob":
            page.wait("document.activeElement.dataset.act === 'follow bob' && document.activeElement.getAttribute('aria-pressed') === 'true'")
    bob.sees("invites you", at="#invites")
    demo.quiet()


def test_a_refused_user_can_choose_another_name(demo, lobby):
    page = demo.page(f"{lobby.url}/demo?user={'x' * 300}")
    page.sees("The session has ended", at="#welcome")
    page.fill("#name", "zoe")
    page.press("Enter")
    page.wait("document.body.dataset.ready === 'yes'")
    page.waits_for("zoe")
    # Browsers log every error response.
    assert all("401" in complaint for complaint in demo.do("complaints"))


@pytest.mark.alone
def test_1000_messages_a_second_do_not_grow_the_page(demo, lobby):
    ann = demo.open_user(lobby, "ann")
    # Two halves: the first sets the baseline, the second must not need more memory.
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
    demo.quiet()


def flood(socket, number, total):
    """Publishes messages at the rate in steps of 20 ms; returns the duration."""
    began, step = time.monotonic(), FLOOD_RATE // 50
    for first in range(0, total, step):
        texts = [f"number {number + first + one}." for one in range(step)]
        texts = [{"id": 1, "op": "publish", "channel": "demo#lobby", "data": {"text": text}} for text in texts]
        socket.send("\n".join(map(json.dumps, texts)))
        for _ in texts:
            assert "ok" in socket.frame()
        time.sleep(max(0.0, began + (first + step) / FLOOD_RATE - time.monotonic()))
    return time.monotonic() - began


def test_outside_dev_mode_the_demo_is_an_explanation(serve):
    page = httpx.get(f"{serve.url}/demo", trust_env=False)
    assert page.status_code == 200 and "dev mode" in page.text and "<script" not in page.text
    for path in ("/demo/events", "/demo/settings.json", "/demo/index.html"):
        answer = httpx.get(f"{serve.url}{path}", trust_env=False)
        assert answer.status_code == 404, path
    key = {"authorization": f"Bearer {serve.key}"}
    assert httpx.get(f"{serve.url}/v1/subscriptions/demo", headers=key, trust_env=False).status_code == 404


def test_other_origins_cannot_read_the_events(lobby):
    for headers in ({"origin": "https://evil.example"}, {"host": "evil.example"}):
        answer = httpx.get(f"{lobby.url}/demo/events", headers=headers, trust_env=False)
        assert answer.status_code == 403, headers
    page = httpx.get(f"{lobby.url}/demo", trust_env=False)
    policy = page.headers["content-security-policy"]
    assert "script-src 'self'" in policy and "unsafe" not in policy and "trusted-types 'none'" in policy
