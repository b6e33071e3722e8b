"""The JavaScript client: unit tests, types, the file that the server serves, page reloads."""
import gzip
import json
import os
import pathlib
import re
import subprocess

import httpx
import pytest

from support.json_client import Socket
from support.process import until
from support.tavern import Tavern

from .client_processes import MODULES, ClientProcess, node

CLIENT = pathlib.Path(__file__).resolve().parents[2] / "clients" / "js"
TSC = MODULES / "node_modules" / ".bin" / "tsc"


def run(*command, cwd=CLIENT, env=None):
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def unit_tests(**environment):
    tests = sorted((CLIENT / "test").glob("*.test.mjs"))
    output = run("node", "--test", "--test-reporter=tap", *tests, env=os.environ | environment)
    passed = next(int(line.split()[2]) for line in output.splitlines() if line.startswith("# pass "))
    assert passed >= 250, "the tests and the vectors are found"


def test_unit_tests_pass():
    unit_tests()


def test_unit_tests_pass_with_the_file_that_the_server_serves(dev, tmp_path):
    (tmp_path / "client.mjs").write_bytes(fetch(dev).content)
    unit_tests(TAVERN_CLIENT=str(tmp_path / "client.mjs"))


def test_types_check():
    run(TSC, "-p", ".")


@pytest.mark.parametrize("name", sorted(path.name for path in CLIENT.glob("*.d.ts")))
def test_the_public_types_contain_no_any(name):
    code = re.sub(r"/\*.*?\*/|//[^\n]*", "", (CLIENT / name).read_text(), flags=re.DOTALL)
    assert not re.search(r"\bany\b", code)


def fetch(server, **headers):
    return httpx.get(f"{server.url}/client.js", headers=headers, timeout=5, trust_env=False)


def test_the_server_serves_the_client(dev):
    answer = fetch(dev)
    assert answer.status_code == 200
    assert len(gzip.compress(answer.content, 9)) <= 17 * 1024
    assert not re.search(r"^import |\bimport\(|\brequire\(|/\*|^ *//(?! The Tavern client)", answer.text, re.MULTILINE), "one module without comments"
    assert answer.headers["content-type"].startswith("text/javascript")
    assert "max-age=" in answer.headers["cache-control"]
    again = fetch(dev, **{"if-none-match": answer.headers["etag"]})
    assert again.status_code == 304 and not again.content


def test_only_listed_origins_may_load_the_client():
    with Tavern.serve('origins = ["https://play.example"]\n') as server:
        good = fetch(server, origin="https://play.example")
        assert good.status_code == 200 and good.headers["access-control-allow-origin"] == "https://play.example"
        assert fetch(server, origin="https://evil.example").status_code == 403


class Page(ClientProcess):
    """A page in Chromium with the client that the server serves. It prints its events and executes commands from stdin."""

    def __init__(self, server):
        self.messages = {}
        super().__init__("Chromium page", node("page_driver.mjs", server.url))

    def take(self, line):
        for name, message in json.loads(line):
            self.messages.setdefault(name, message)

    def all(self, kind):
        return [message[kind] for message in list(self.messages.values()) if kind in message]


@pytest.fixture
def page(dev):
    page = Page(dev)
    yield page
    page.stop()


def test_a_reloaded_page_resumes_its_session(dev, page):
    with Socket(dev, user="watcher") as watcher, Socket(dev, user="publisher") as publisher:
        page.until(lambda p: p.all("open"), "the page did not open")
        first = page.all("open")[0]
        page.until(lambda p: p.all("subscribed"), "the page did not subscribe")
        watcher.ok("subscribe", channel="room#page", presence=True)
        for round in range(3):
            for number in range(1, 11):
                if number == 5 and round > 0:
                    page.send({"do": "reload"})
                publisher.ok("publish", channel="room#page", data=round * 10 + number)
            page.until(lambda p: len(p.all("open")) == round + 1, "the page was not reloaded")
        page.until(lambda p: len(p.all("received")) >= 30, "messages are missing")
        assert page.all("received") == list(range(1, 31)), "each message once, in order"
        assert [opened["resumed"] for opened in page.all("open")] == [False, True, True]
        assert {opened["client"] for opened in page.all("open")} == {first["client"]}
        assert not [event for event in watcher.events_so_far() if event["event"].endswith("_offline")], "a reload is not an offline event"


def test_a_duplicated_tab_gets_its_own_session(page):
    page.until(lambda p: p.all("subscribed"), "the page did not subscribe")
    page.send({"do": "copy"})
    page.until(lambda p: len(p.all("open")) == 2, "the duplicated tab did not open")
    first, copy = page.all("open")
    assert copy["resumed"] is False and copy["client"] != first["client"]
    assert not page.all("superseded")


def test_a_publish_while_offline_is_sent_once_online(page):
    page.until(lambda p: p.all("subscribed"), "the page did not subscribe")
    page.send({"do": "offline"})
    page.send({"do": "publish", "data": "while offline"})
    page.send({"do": "online"})
    page.until(lambda p: "while offline" in p.all("received"), "the message from while offline was not published")
    until(lambda: page.all("received").count("while offline") == 1, "one delivery")
