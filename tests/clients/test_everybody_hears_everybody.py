"""Every real client on one channel: each says something, and each hears each of the others exactly once; on one server, and
spread over two that share a folder."""
import pytest

from support.tavern import Tavern

from .voices import voices

CHANNEL = "room#tour"
ROUNDS = 3


@pytest.fixture(scope="module", params=["one server", "two servers"])
def servers(request, dev):
    if request.param == "one server":
        yield [dev]
    else:
        with Tavern.dev() as first, Tavern.dev(data=first.data) as second:
            yield [first, second]


@pytest.fixture(scope="module")
def room(servers):
    present = {}
    try:
        for at, name in enumerate(NAMES):
            present[name] = voices(servers[at % len(servers)], CHANNEL)[name](name)
        for voice in present.values():
            voice.until(lambda v: v.ready, "did not get ready")
        yield present
    finally:
        for voice in present.values():
            voice.stop()


@pytest.fixture(scope="module")
def spoken(room):
    """Everybody says a few things in turn; then everybody has heard as many."""
    for number in range(ROUNDS):
        for name, voice in room.items():
            voice.say({"from": name, "n": number, "text": "grüß \"dich\""})
    for voice in room.values():
        voice.until(lambda v: len(v.heard) >= ROUNDS * len(room), "did not hear everybody")
    return room


NAMES = list(voices(type("Nowhere", (), {"resp_port": 0, "url": "", "ws_url": "", "data": ""}), CHANNEL))


@pytest.mark.parametrize("speaker", NAMES)
@pytest.mark.parametrize("listener", NAMES)
def test_each_hears_each_once_and_in_order(spoken, listener, speaker):
    heard = [word["n"] for word in spoken[listener].heard if word["from"] == speaker]
    assert heard == list(range(ROUNDS))


@pytest.mark.parametrize("listener", NAMES)
def test_nothing_else_is_heard_and_texts_are_whole(spoken, listener):
    assert len(spoken[listener].heard) == ROUNDS * len(NAMES)
    assert {word["text"] for word in spoken[listener].heard} == {"grüß \"dich\""}
