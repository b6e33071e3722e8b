"""The JavaScript client by itself: its own tests, its types, the file that the server gives out, a page that is loaded again."""
import json
import pathlib
import shutil
import subprocess

import httpx
import pytest

from support.json_client import Socket
from support.process import until
from support.tavern import Tavern

from .voices import MODULES, Voice, node

CLIENT = pathlib.Path(__file__).resolve().parents[2] / "clients" / "js"
TSC = MODULES / "node_modules" / ".bin" / "tsc"


def run(*command, cwd=CLIENT):
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_its_own_tests_pass():
    output = run("node", "--test", "--test-reporter=tap", *sorted((CLIENT / "test").glob("*.test.mjs")))
    passed = next(int(line.split()[2]) for line in output.splitlines() if line.startswith("# pass "))
    assert passed >= 40, "the tests were found"


def test_the_types_hold():
    run(TSC, "-p", ".")


def test_the_declarations_are_made_and_can_be_used(tmp_path):
    package = tmp_path / "node_modules" / "@tavern" / "client"
    shutil.copytree(CLIENT, package, ignore=shutil.ignore_patterns("test", "*.d.ts"))
    shutil.copy(CLIENT / "types.d.ts", package)
    run(TSC, "-p", ".", "--noEmit", "false", "--declaration", "--emitDeclarationOnly", cwd=package)
    described = json.loads((package / "package.json").read_text())
    for name in described["files"]:
        assert (package / name).exists(), name
    (tmp_path / "app.ts").write_text("""
import { Tavern, TavernError, type Presence } from '@tavern/client';
const tavern = new Tavern('http://localhost:7400', { user: 'ann', transports: ['websocket', 'poll'] });
const room: Presence = await tavern.channel('game#1').presence();
const seats: (string | undefined)[] = [...room.users.values()].map((person) => person.user);
await tavern.party.decline(7, 'no time');
await tavern.channel('game#1').publish(seats).catch((error: TavernError) => error.retryAfterMs?.toFixed());
// @ts-expect-error: a user is named by text
await tavern.me.follow(7);
export {};
""")
    options = ["--noEmit", "--strict", "--target", "es2022", "--module", "es2022", "--moduleResolution", "bundler", "--lib", "es2022,dom,dom.iterable"]
    run(TSC, *options, "app.ts", cwd=tmp_path)


def fetch(server, **headers):
    return httpx.get(f"{server.url}/client.js", headers=headers, timeout=5, trust_env=False)


def test_the_server_gives_it_out(dev):
    answer = fetch(dev)
    assert answer.status_code == 200
    assert answer.content == (CLIENT / "tavern.js").read_bytes()
    assert answer.headers["content-type"].startswith("text/javascript")
    assert "max-age=" in answer.headers["cache-control"]
    again = fetch(dev, **{"if-none-match": answer.headers["etag"]})
    assert again.status_code == 304 and not again.content


def test_pages_of_listed_origins_may_load_it():
    with Tavern.serve('origins = ["https://play.example"]\n') as server:
        good = fetch(server, origin="https://play.example")
        assert good.status_code == 200 and good.headers["access-control-allow-origin"] == "https://play.example"
        assert fetch(server, origin="https://evil.example").status_code == 403


class Page(Voice):
    """A page in Chromium with the client that the server gives out. It prints what it hears; a line makes it do something."""

    def __init__(self, server):
        self.words = {}
        super().__init__("Chromium page", node("page_driver.mjs", server.url))

    def take(self, line):
        for name, word in json.loads(line):
            self.words.setdefault(name, word)

    def all(self, kind):
        return [word[kind] for word in list(self.words.values()) if kind in word]


@pytest.fixture
def page(dev):
    page = Page(dev)
    yield page
    page.stop()


def test_a_page_that_is_loaded_again_goes_on_where_it_was(dev, page):
    with Socket(dev, user="watcher") as watcher, Socket(dev, user="speaker") as speaker:
        page.until(lambda p: p.all("open"), "the page did not open")
        first = page.all("open")[0]
        page.until(lambda p: p.all("subscribed"), "the page did not subscribe")
        watcher.ok("subscribe", channel="room#page", presence=True)
        for round in range(3):
            for number in range(1, 11):
                if number == 5 and round > 0:
                    page.say({"do": "reload"})
                speaker.ok("publish", channel="room#page", data=round * 10 + number)
            page.until(lambda p: len(p.all("open")) == round + 1, "the page was not loaded again")
        page.until(lambda p: len(p.all("heard")) >= 30, "not all was heard")
        assert page.all("heard") == list(range(1, 31)), "nothing lost, nothing twice"
        assert [opened["resumed"] for opened in page.all("open")] == [False, True, True]
        assert {opened["client"] for opened in page.all("open")} == {first["client"]}
        assert not [event for event in watcher.events_so_far() if event["event"].endswith("_offline")], "nobody saw it go"


def test_a_copied_tab_has_a_session_of_its_own(page):
    page.until(lambda p: p.all("subscribed"), "the page did not subscribe")
    page.say({"do": "copy"})
    page.until(lambda p: len(p.all("open")) == 2, "the copy did not open")
    first, copy = page.all("open")
    assert copy["resumed"] is False and copy["client"] != first["client"]
    assert not page.all("superseded")


def test_offline_and_online(page):
    page.until(lambda p: p.all("subscribed"), "the page did not subscribe")
    page.say({"do": "offline"})
    page.say({"do": "publish", "data": "while offline"})
    page.say({"do": "online"})
    page.until(lambda p: "while offline" in p.all("heard"), "what was said offline was not published")
    until(lambda: page.all("heard").count("while offline") == 1, "it is heard once")
