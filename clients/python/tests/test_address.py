"""Server addresses: accepted forms, their URLs, rejected forms."""
import pytest

from tavern_client.address import Address


@pytest.mark.parametrize(
    ("url", "socket", "target"),
    [
        ("http://127.0.0.1:7400", "ws://127.0.0.1:7400/v1/connect", "/v1/poll"),
        ("http://127.0.0.1:7400/", "ws://127.0.0.1:7400/v1/connect", "/v1/poll"),
        ("127.0.0.1:7400", "ws://127.0.0.1:7400/v1/connect", "/v1/poll"),
        ("ws://127.0.0.1:7400/v1/connect", "ws://127.0.0.1:7400/v1/connect", "/v1/poll"),
        ("https://example.org", "wss://example.org/v1/connect", "/v1/poll"),
        ("wss://example.org:443", "wss://example.org/v1/connect", "/v1/poll"),
        ("https://example.org:8443/tavern/", "wss://example.org:8443/tavern/v1/connect", "/tavern/v1/poll"),
        ("http://[::1]:7400", "ws://[::1]:7400/v1/connect", "/v1/poll"),
    ],
)
def test_one_address_serves_every_transport(url, socket, target):
    address = Address.parse(url)
    assert address.websocket() == socket
    assert address.target("/v1/poll") == target


def test_query_values_are_escaped():
    query = {"user": "Zoë & co", "session": "a~b", "seq": "7"}
    assert Address.parse("http://h").websocket(query) == "ws://h/v1/connect?user=Zo%C3%AB%20%26%20co&session=a~b&seq=7"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://h", "scheme must be"), ("http://", "has no host"), ("http://h:99999", "port"), ("http://h:x", "port"),
        ("http://h?token=x", "as an argument"), ("http://ann:secret@h", "as an argument"), ("http://h#x", "as an argument"),
    ],
)
def test_an_invalid_address_is_rejected_with_the_reason(url, why):
    with pytest.raises(ValueError, match=why):
        Address.parse(url)
