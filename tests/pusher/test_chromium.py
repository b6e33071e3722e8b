"""pusher-js and Laravel Echo in a page in Chromium: what the other files test in Node, with the files that are made for pages."""
import pytest

from pusher import test_channels, test_echo, test_presence, test_users
from pusher.test_echo import laravel  # noqa: F401
from pusher.world import Clients

SCENARIOS = [
    test_channels.test_a_forged_signature_fails_one_subscription_only,
    test_channels.test_an_event_too_large_for_one_read_arrives,
    test_channels.test_clients_send_events_to_each_other,
    test_channels.test_data_arrives_as_it_was_sent,
    test_channels.test_encrypted_channels_are_opaque_to_the_server,
    test_echo.test_echo_listens_whispers_and_sees_who_is_here,
    test_presence.test_a_reload_is_not_visible,
    test_presence.test_members_come_and_go_once_for_each_user,
    test_users.test_a_server_ends_the_connections_of_a_user,
    test_users.test_a_watchlist_tells_who_is_online,
]


@pytest.fixture(scope="module")
def clients(server):
    with Clients("page_driver.cjs") as clients:
        clients.driver.do("open", url=f"{server.url}/livez")
        yield clients


@pytest.fixture
def api(clients, app, server):
    return clients.server(app, server)


@pytest.mark.parametrize("broadcaster", ["pusher", "reverb"])
def test_echo_connects_by_its_own_settings(clients, api, app, server, room, laravel, broadcaster):
    test_echo.test_echo_connects_by_its_own_settings(clients, api, app, server, room, laravel, broadcaster)
    clients.driver.quiet()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__.removeprefix("test_"))
def test_in_a_page(clients, api, app, server, room, scenario):
    scenario(clients, api, app, server, room)
    clients.driver.quiet()
