"""Client addresses: the forwarded address counts behind a trusted proxy; from any other peer the header is ignored."""
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
def open_socket(server):
    """A function that opens sockets; all are closed after the test."""
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
    # Wait until the server has noticed the closes; the next test starts with all slots free.
    until(lambda: "\ntavern_connections 1\n" in server.metrics(), "all other connections to be closed", 5)


def test_each_forwarded_client_has_its_own_limit(open_socket):
    for client in ("198.51.100.1", "198.51.100.2", "2001:db8::3"):
        assert all(open_socket(client) for _ in range(MOST)), f"{client} has {MOST} slots"
        assert open_socket(client) is None, f"{client} has no more"
        assert open_socket.refused.response.status_code == 429


def test_a_closed_connection_frees_its_slot(open_socket):
    sockets = [open_socket("198.51.100.4") for _ in range(MOST)]
    assert open_socket("198.51.100.4") is None
    sockets[0].close()
    until(lambda: open_socket("198.51.100.4"), "a free slot")


def test_an_untrusted_peer_is_counted_by_its_own_address(open_socket):
    for number in range(MOST):
        assert open_socket(f"203.0.113.{number}", source=STRANGER)
    assert open_socket("203.0.113.200", source=STRANGER) is None, "a forged address got an extra connection"
    assert open_socket("10.1.1.1", source=STRANGER) is None
    for number in range(MOST):
        assert all(open_socket(f"203.0.113.{number}") for _ in range(MOST)), "the forged addresses are not charged"


def test_the_last_hop_that_is_not_a_proxy_counts(open_socket):
    for number in range(MOST):
        # The first address is forged by the client; the proxies added the others.
        assert open_socket(f"192.0.2.{number}, 198.51.100.9, 10.2.3.4")
    assert open_socket("192.0.2.100, 198.51.100.9, 10.2.3.4") is None
    assert open_socket("198.51.100.9") is None
    assert open_socket("198.51.100.10, 10.9.9.9")


@pytest.mark.parametrize("hop", ["198.51.100.{n}:4711", "[2001:db8::{n}]:4711", "unknown", "[2001:db8::{n}]"])
def test_a_hop_with_a_port_does_not_let_the_client_choose_its_address(open_socket, hop, request):
    """Some proxies add the port. An address to the left of that hop, forged by the client, must not count instead."""
    place = 20 + request.node.callspec.indices["hop"]
    hop = hop.format(n=place)
    for number in range(MOST):
        assert open_socket(f"192.0.2.{number}, {hop}")
    assert open_socket(f"192.0.2.250, {hop}") is None, "a client exceeded its limit with forged addresses"


@pytest.mark.parametrize("nonsense", ["", ",", "x", ",,,,", "198.51.100.300", "10.0.0.1", " , 10.0.0.1 ,"])
def test_an_invalid_header_is_counted_for_the_proxy(open_socket, nonsense):
    """Without a valid address the connection counts for the proxy itself."""
    assert open_socket(nonsense) is not None
