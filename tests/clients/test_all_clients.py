"""Every real client on one channel: each receives each message of every client exactly once; on one server, and on two servers
that share a folder."""
import pytest

from support.tavern import Tavern

from .client_processes import client_processes

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
            present[name] = client_processes(servers[at % len(servers)], CHANNEL)[name](name)
        for client in present.values():
            client.until(lambda c: c.ready, "did not get ready")
        yield present
    finally:
        for client in present.values():
            client.stop()


@pytest.fixture(scope="module")
def exchanged(room):
    """Every client publishes; returns when every client has received everything."""
    for number in range(ROUNDS):
        for name, client in room.items():
            client.send({"from": name, "n": number, "text": "grüß \"dich\""})
    for client in room.values():
        client.until(lambda c: len(c.received) >= ROUNDS * len(room), "did not receive everything")
    return room


NAMES = list(client_processes(type("Nowhere", (), {"resp_port": 0, "url": "", "ws_url": "", "data": ""}), CHANNEL))


@pytest.mark.parametrize("publisher", NAMES)
@pytest.mark.parametrize("subscriber", NAMES)
def test_each_client_receives_each_message_once_and_in_order(exchanged, subscriber, publisher):
    received = [message["n"] for message in exchanged[subscriber].received if message["from"] == publisher]
    assert received == list(range(ROUNDS))


@pytest.mark.parametrize("subscriber", NAMES)
def test_nothing_else_is_received_and_text_is_intact(exchanged, subscriber):
    assert len(exchanged[subscriber].received) == ROUNDS * len(NAMES)
    assert {message["text"] for message in exchanged[subscriber].received} == {"grüß \"dich\""}
