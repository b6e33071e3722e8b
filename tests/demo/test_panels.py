"""The demo's panels: activities and party states in words, the matchmaker's answer, frames, the second window, the way to the dashboard, and
how all of it looks."""
import json
import re

import pytest

from support.json_client import Socket

from .test_docs import violations

LOOKS = [(size, scheme, locale) for size in ((1280, 900), (390, 844)) for scheme in ("light", "dark") for locale in ("en-US", "de-DE")]


def go_with_the_bot(ann):
    ann.click('[data-act="invite practice-bot"]')
    ann.sees("practice-bot joined the party.")
    ann.sees("Ready for a match.", at="#party-state")
    ann.click('[data-act="go"]')
    ann.sees("Matched: practice-1. You are in the match now.", at="#party-state")


def test_what_people_do_is_said_in_words(demo, lobby):
    ann = demo.open_user(lobby, "ann")
    cases = [
        ("activityText({ activity: 'in_game_channel', channel: 'game#ab12' })", "playing in game ab12"),
        ("activityText({ activity: 'in_party', channel: 'party#7' })", "in a party"),
        ("activityText({ activity: 'solving_puzzles', channel: 'lobby#puzzles' })", "solving puzzles in lobby puzzles"),
        ("activityText({ activity: 'own_word', channel: 'demo#lobby' })", "own word in the lobby"),
        ("activityText({ activity: 'constructor', channel: '' })", "constructor"),
        ("changeText('in_game_channel', 'game#ab12')", "plays in game ab12"),
        ("changeText('online', 'user#ann')", "is online"),
        ("changeText('sat_down', 'quiz#1')", "is now sat down in quiz 1"),
        ("partyText('queued')", "In the queue for a match."),
    ]
    for call, text in cases:
        assert ann.eval(f"import('/demo/words.js').then(({{ activityText, changeText, partyText }}) => {call})") == text
    demo.quiet()


def test_the_party_says_what_happened_after_a_match(demo, lobby):
    ann = demo.open_user(lobby, "ann")
    go_with_the_bot(ann)
    # The answer of the matchmaker is beside the events that services receive.
    ann.sees("Your matchmaker answered", at="#events .answer")
    ann.sees("Matched: practice-1.", at="#events .answer")
    ann.click("#play")
    ann.sees("You have left the match; you can go again.", at="#party-state")
    ann.click('[data-act="go"]')
    ann.sees("Matched: practice-2. You are in the match now.", at="#party-state")
    ann.click('[data-act="leave"]')
    ann.sees("not in a party", at="#party")
    demo.quiet()


SHOWN = "[...document.querySelectorAll('#frame-list li')]"


def test_frames_are_shown_as_they_travel(demo, lobby):
    ann = demo.open_user(lobby, "ann")
    # Closed: counted, not kept.
    ann.wait("/^[1-9][0-9]* sent, [1-9][0-9]* received$/.test(document.getElementById('frames-count').textContent)")
    assert ann.eval(f"{SHOWN}.length") == 0
    ann.click("#frames summary")
    ann.say("good evening")
    ann.wait(f"{SHOWN}.some((row) => row.className === 'sent' && row.textContent.includes('\"op\":\"publish\"'))")
    ann.wait(f"{SHOWN}.some((row) => row.className === 'received' && row.textContent.includes('good evening'))")
    ann.click("#frames-pause")
    ann.sees("Continue", at="#frames-pause")
    before = ann.eval(f"{SHOWN}.length")
    ann.say("while paused")
    ann.sees("while paused")
    ann.click("#frames-pause")
    ann.say("after the pause")
    ann.wait(f"{SHOWN}.some((row) => row.textContent.includes('after the pause'))")
    texts = ann.eval(f"{SHOWN}.map((row) => row.textContent)")
    assert not any("while paused" in text for text in texts) and len(texts) > before
    # The newest is on top.
    first = {word: next(at for at, text in enumerate(texts) if word in text) for word in ("after the pause", "good evening")}
    assert first["after the pause"] < first["good evening"]
    demo.quiet()


def test_frames_of_other_transports_are_shown_too(demo, lobby):
    # A browser without WebSockets, as behind a proxy that refuses them.
    ann = demo.open_user(lobby, "ann", sockets=False)
    ann.sees("connected over sse", at="#state")
    ann.click("#frames summary")
    ann.say("good evening")
    ann.wait(f"{SHOWN}.some((row) => row.className === 'sent' && row.textContent.includes('\"op\":\"publish\"'))")
    ann.wait(f"{SHOWN}.some((row) => row.className === 'received' && row.textContent.includes('\"event\":\"message\"'))")
    demo.quiet()


def test_frames_show_no_secret(demo, lobby):
    ann = demo.open_user(lobby, "ann")
    ann.click("#frames summary")
    # A new connection begins with a hello, whose reply has the secret of the session.
    ann.click("#disconnect")
    ann.sees("disconnected", at="#state")
    ann.click("#disconnect")
    ann.wait(f"{SHOWN}.some((row) => row.className === 'sent' && row.textContent.includes('\"op\":\"hello\"'))")
    ann.wait(f"{SHOWN}.some((row) => row.className === 'received' && row.textContent.includes('\"session\":'))")
    texts = ann.eval(f"{SHOWN}.map((row) => row.textContent)")
    secrets = [secret for text in texts for secret in re.findall(r'"session":"([^"]*)"', text)]
    assert secrets and all(re.fullmatch(r"[^\"]{4}…", secret) for secret in secrets), secrets


def test_frames_are_bounded_and_rest_while_the_page_is_hidden(demo, lobby):
    ann = demo.open_user(lobby, "ann")
    ann.click("#frames summary")
    with Socket(lobby, user="crowd") as crowd:
        for number in range(150):
            crowd.ok("publish", channel="demo#lobby", data={"text": f"number {number}. {'x' * 2000}"})
        ann.sees("number 149.")
        ann.wait(f"{SHOWN}[0].textContent.includes('number 149.')")
        assert ann.eval(f"{SHOWN}.length") == 100
        assert ann.eval(f"Math.max(...{SHOWN}.map((row) => row.textContent.length))") < 1100
        ann.eval("Object.defineProperty(document, 'hidden', { value: true, configurable: true })")
        crowd.ok("publish", channel="demo#lobby", data={"text": "behind the curtain"})
        ann.sees("behind the curtain")
        ann.eval("Object.defineProperty(document, 'hidden', { value: false, configurable: true })")
        crowd.ok("publish", channel="demo#lobby", data={"text": "in view again"})
        ann.wait(f"{SHOWN}[0].textContent.includes('in view again')")
    assert not ann.eval(f"{SHOWN}.some((row) => row.textContent.includes('behind the curtain'))")
    demo.quiet()


def test_a_button_opens_a_second_window_as_another_user(demo, lobby):
    ann = demo.open_user(lobby, "ann")
    bob = demo.open_user(lobby, "bob")
    ann.waits_for("ann", "bob")
    # A game of this window is not that of the new one.
    ann.click("#play")
    ann.sees("You play in game", at="#game-title")
    cleo = ann.opens("#second")
    cleo.wait("document.body.dataset.ready === 'yes'")
    assert cleo.text("#you-title") == "cleo" and cleo.eval("window.opener") is None
    assert cleo.eval("document.getElementById('game').hidden")
    ann.waits_for("ann", "bob", "cleo")
    bob.waits_for("ann", "bob", "cleo")
    cleo.close()
    demo.quiet()


def test_the_dashboard_opens_without_asking_for_the_key(demo, lobby):
    page = demo.page(f"{lobby.url}/demo?user=ann#key={lobby.key}")
    page.wait("document.body.dataset.ready === 'yes'")
    assert lobby.key not in page.eval("location.href"), "the key is removed from the address"
    # A new tab has a storage of its own, so the link carries the key too.
    assert page.eval("document.querySelector('.links a:last-child').hash") == f"#key={lobby.key}"
    page.click(".links a:has-text('Dashboard')")
    page.wait("document.querySelector('nav') && document.body.innerText.includes('Overview')")
    page.wait("!document.querySelector('input[type=password]')?.offsetParent")
    assert lobby.key not in page.eval("location.href")
    demo.quiet()


def test_a_phone_shows_the_chat_first(demo, lobby):
    ann = demo.open_user(lobby, "ann", width=390, height=844)
    tops = ann.eval("Object.fromEntries([...document.querySelectorAll('#lobby > section')].map((one) => [one.id, one.getBoundingClientRect().top]))")
    assert min(tops, key=tops.get) == "chat", tops
    # The order of the keyboard is the order on the screen.
    assert sorted(tops, key=tops.get) == ann.eval("[...document.querySelectorAll('#lobby > section')].map((one) => one.id)")
    assert ann.eval("document.querySelector('#send input').getBoundingClientRect().bottom <= innerHeight"), "one can write without scrolling"
    demo.quiet()


@pytest.mark.parametrize("size, scheme, locale", LOOKS, ids=lambda value: str(value[0]) if isinstance(value, tuple) else value)
def test_the_demo_passes_axe_in_every_look(demo, lobby, size, scheme, locale):
    width, height = size
    page = demo.page(f"{lobby.url}/demo", tab="welcome", width=width, height=height, scheme=scheme, locale=locale)
    page.wait("document.activeElement.id === 'name'")
    assert violations(page) == []
    ann = demo.open_user(lobby, "ann", width=width, height=height, scheme=scheme, locale=locale)
    ann.click("#frames summary")
    go_with_the_bot(ann)
    ann.say("good evening")
    ann.sees("good evening")
    ann.wait("document.getElementById('banner').hidden && document.querySelectorAll('#frame-list li').length > 3")
    assert violations(ann) == []
    assert ann.eval("document.documentElement.scrollWidth <= innerWidth"), "nothing overflows the page"
    demo.quiet()


def test_the_panels_work_by_keyboard_alone(demo, lobby):
    ann = demo.open_user(lobby, "ann")
    ann.eval("document.getElementById('main').focus()")
    reached = []
    for _ in range(40):
        ann.press("Tab")
        reached.append(ann.eval("document.activeElement.id || document.activeElement.dataset.act || document.activeElement.parentElement.id"))
        if reached[-1] == "frames":
            break
    for wanted in ("log", "text", "play", "disconnect", "second", "invite practice-bot", "events", "frames"):
        assert wanted in reached, json.dumps(reached)
    ann.press("Enter")
    ann.wait("document.getElementById('frames').open")
    ann.press("Tab", "Tab")
    assert ann.eval("document.activeElement.id") == "frames-pause"
    ann.press("Space")
    ann.sees("Continue", at="#frames-pause")
    demo.quiet()
