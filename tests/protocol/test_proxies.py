"""Whose connection is it? Behind a trusted proxy the forwarded address counts; from anybody else the header is only talk."""
import pytest
import websockets.exceptions

from support.json_client import Socket
from support.process import until
from support.tavern import Tavern

PROXY = "127.0.0.1"
STRANGER = "127.0.0.2"
MOST = 3


@pytest.fixture(scope="module")
def server():
    config = f'trusted_proxies = ["{PROXY}", "10.0.0.0/8"]\n[limits]\nconnections_per_address = {MOST}\n'
    with Tavern.dev(config) as server:
        yield server


@pytest.fixture
def door(server):
    """Opens sockets and closes them all in the end."""
    held = []

    def open(forwarded=None, source=PROXY):
        headers = {} if forwarded is None else {"x-forwarded-for": forwarded}
        try:
            socket = Socket(server, user="ann", headers=headers, source=source)
        except (websockets.exceptions.WebSocketException, ConnectionError, EOFError) as refused:
            open.refused = refused
            return None
        held.append(socket)
        return socket

    yield open
    for socket in held:
        socket.close()
    # Places are given back when the server has noticed; the next test begins with all of them.
    until(lambda: "\ntavern_connections 1\n" in server.metrics(), "all but the one that asks to be gone", 5)


def test_each_forwarded_client_has_places_of_its_own(door):
    for client in ("198.51.100.1", "198.51.100.2", "2001:db8::3"):
        assert all(door(client) for _ in range(MOST)), f"{client} has {MOST} places"
        assert door(client) is None, f"{client} has no more"
        assert door.refused.response.status_code == 429


def test_a_place_is_given_back(door):
    sockets = [door("198.51.100.4") for _ in range(MOST)]
    assert door("198.51.100.4") is None
    sockets[0].close()
    until(lambda: door("198.51.100.4"), "the place of the one that left")


def test_a_stranger_that_names_others_is_counted_for_itself(door):
    for number in range(MOST):
        assert door(f"203.0.113.{number}", source=STRANGER)
    assert door("203.0.113.200", source=STRANGER) is None, "a made-up address opened one more"
    assert door("10.1.1.1", source=STRANGER) is None
    for number in range(MOST):
        assert all(door(f"203.0.113.{number}") for _ in range(MOST)), "and nobody else was charged for it"


def test_the_last_hop_that_is_not_a_proxy_counts(door):
    for number in range(MOST):
        # The client wrote the first address itself; the proxies added the others.
        assert door(f"192.0.2.{number}, 198.51.100.9, 10.2.3.4")
    assert door("192.0.2.100, 198.51.100.9, 10.2.3.4") is None
    assert door("198.51.100.9") is None
    assert door("198.51.100.10, 10.9.9.9")


@pytest.mark.parametrize("hop", ["198.51.100.{n}:4711", "[2001:db8::{n}]:4711", "unknown", "[2001:db8::{n}]"])
def test_a_hop_in_another_spelling_does_not_let_the_client_choose(door, hop, request):
    """Some proxies add the port. What the client wrote to the left of that hop must not count instead."""
    place = 20 + request.node.callspec.indices["hop"]
    hop = hop.format(n=place)
    for number in range(MOST):
        assert door(f"192.0.2.{number}, {hop}")
    assert door(f"192.0.2.250, {hop}") is None, "one client opened more than its places by making addresses up"


@pytest.mark.parametrize("nonsense", ["", ",", "x", ",,,,", "198.51.100.300", "10.0.0.1", " , 10.0.0.1 ,"])
def test_nonsense_is_counted_for_the_proxy(door, nonsense):
    """Nobody is named: the places are the proxy's own, and nothing breaks."""
    assert door(nonsense) is not None
