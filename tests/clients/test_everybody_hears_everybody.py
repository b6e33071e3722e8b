"""Every real client on one channel: each says something, and each hears each of the others exactly once."""
import pytest

from .voices import voices

CHANNEL = "room#tour"
ROUNDS = 3


@pytest.fixture(scope="module")
def room(dev):
    present = {}
    try:
        for name, enter in voices(dev, CHANNEL).items():
            present[name] = enter(name)
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


NAMES = list(voices(type("Nowhere", (), {"resp_port": 0, "url": "", "ws_url": ""}), CHANNEL))


@pytest.mark.parametrize("speaker", NAMES)
@pytest.mark.parametrize("listener", NAMES)
def test_each_hears_each_once_and_in_order(spoken, listener, speaker):
    heard = [word["n"] for word in spoken[listener].heard if word["from"] == speaker]
    assert heard == list(range(ROUNDS))


@pytest.mark.parametrize("listener", NAMES)
def test_nothing_else_is_heard_and_texts_are_whole(spoken, listener):
    assert len(spoken[listener].heard) == ROUNDS * len(NAMES)
    assert {word["text"] for word in spoken[listener].heard} == {"grüß \"dich\""}
