"""Acting on users, API keys and channel history in the dashboard."""
import httpx
import pytest

from support.json_client import Socket
from support.process import until
from support.tavern import Tavern

from .sample import client, good, path

HISTORY = "[kinds.chat]\nhistory_messages = 1000\n"


@pytest.fixture(scope="module")
def server():
    with Tavern.dev(HISTORY) as server:
        yield server


@pytest.fixture
def api(server):
    with client(server) as api:
        yield api


def rows(browser):
    return browser.eval("document.querySelectorAll('table[aria-label=Messages] tbody tr').length")


def test_the_history_of_a_channel_is_paged_searched_and_cleared(browser, server, api):
    with Socket(server, user="ann") as ann:
        for number in range(250):
            ann.ok("publish", channel="chat#deep", data={"text": f"message {number}."})
        browser.open(server, "#/channels/chat%23deep")
        browser.sees("message 249.", "table[aria-label=Messages]")
        assert rows(browser) == 200
        # A live message is added at the top.
        ann.ok("publish", channel="chat#deep", data={"text": "just now"})
        browser.wait("document.querySelector('table[aria-label=Messages] tbody tr').textContent.includes('just now')")
        browser.fill("input[placeholder^=Messages]", "MESSAGE 7.")
        browser.sees("No loaded message contains that.")
        browser.click("main button:has-text('Search earlier messages')")
        browser.sees("message 7.", "table[aria-label=Messages]")
        assert rows(browser) == 1
    browser.click("main button:has-text('Clear …')")
    browser.sees("cannot be undone", "#sheet")
    browser.click("#sheet button.main")
    browser.sees("No messages are stored.")
    assert good(api.get(f"/v1/channels/{path('chat#deep')}/history"))["messages"] == []


def test_a_channel_without_history_shows_none(browser, server):
    browser.open(server, "#/channels/game%23plain")
    browser.sees("0 users present")
    browser.sees("Channels of this kind keep no history.")
    browser.fill("main input[name=message]", '{"seat": 4}')
    browser.click("main form button")
    browser.sees('{"seat":4}', "table[aria-label=Messages]")
    assert not browser.eval("[...document.querySelectorAll('main button')].some((one) => !one.hidden && one.textContent === 'Clear …')")


def test_a_user_is_disconnected_banned_and_allowed_again(browser, server, api):
    with Socket(server, user="rude") as rude, Socket(server, user="rude"):
        browser.open(server, "#/users/rude")
        browser.wait("document.querySelectorAll('table[aria-label=Sessions] tbody tr').length === 2")
        browser.click("main .actions button:has-text('Disconnect')")
        browser.fill("#sheet input[name=reason]", "signed out")
        browser.click("#sheet button.main")
        browser.sees("2 sessions ended", "#banner")
        browser.sees("The user has no session.")
        assert rude.closing()[1] == 4006
    browser.click("main .actions button:has-text('Ban')")
    browser.fill("#sheet input[name=reason]", "spam")
    browser.fill("#sheet input[name=hours]", "1")
    browser.click("#sheet button.main")
    browser.sees("banned until")
    assert good(api.get("/v1/users/rude"))["banned"] is True
    assert good(api.get("/v1/users/rude/ban"))["reason"] == "spam"
    browser.click("main .actions button:has-text('Lift the ban')")
    browser.sees("The ban was lifted.", "#banner")
    until(lambda: not good(api.get("/v1/users/rude"))["banned"], "the ban to be lifted")


def test_erasing_a_user_needs_their_name(browser, server, api):
    with Socket(server, user="gone") as gone:
        gone.ok("follow", user="ann")
        browser.open(server, "#/users/gone")
        browser.sees("Why online")
        for typed, said in (("other", "nothing was erased"), ("gone", "gone was erased")):
            browser.click("main .actions button:has-text('Erase')")
            browser.fill("#sheet input[name=confirm]", typed)
            browser.click("#sheet button.main")
            browser.sees(said, "#banner")
    assert good(api.get("/v1/users/gone/following"))["users"] == []


def test_an_api_key_is_created_and_revoked(browser, server, api):
    browser.open(server, "#/keys")
    browser.sees("There are no stored keys.")
    browser.click("main .actions button:has-text('New key')")
    browser.fill("#sheet input[name=name]", "ci")
    browser.click("#sheet input[value=publish]")
    browser.click("#sheet button.main")
    browser.sees("tvk_", "#sheet")
    key = browser.text("#sheet pre")
    browser.click("#sheet button.main")
    publish = lambda: httpx.post(f"{server.url}/v1/channels/game%231/messages", json={"data": 1}, headers={"Authorization": f"Bearer {key.strip()}"}, trust_env=False).status_code
    assert publish() == 200
    browser.click("table[aria-label='API keys'] tbody button")
    browser.sees("closed", "#sheet")
    browser.click("#sheet button.main")
    browser.sees("revoked")
    until(lambda: publish() == 401, "the key to be refused")
