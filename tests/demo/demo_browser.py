"""Several users in one browser, each in their own browser context."""
import json
import pathlib
import urllib.parse

from support.browser import Driver


class DemoBrowser(Driver):
    def __init__(self):
        super().__init__(pathlib.Path(__file__).with_name("demo_browser.mjs"))

    def open_user(self, server, name, tab=None, who=None, **how):
        """Opens the lobby as a user; with `who`, another tab in the context of that user."""
        opened = Tab(self, who or name, tab or name)
        self.do("open", who=opened.who, tab=opened.name, url=f"{server.url}/demo?{urllib.parse.urlencode({'user': name})}", **how)
        opened.wait("document.body.dataset.ready === 'yes'")
        return opened

    def page(self, url, tab="page", **how):
        opened = Tab(self, tab, tab)
        self.do("open", who=tab, tab=tab, url=url, **how)
        return opened


class Tab:
    """One browser tab."""

    def __init__(self, demo, who, name):
        self.demo, self.who, self.name = demo, who, name

    def do(self, act, **how):
        return self.demo.do(act, tab=self.name, **how)

    def wait(self, js, ms=15_000):
        self.do("wait", js=js, ms=ms)

    def eval(self, js):
        return self.do("eval", js=js)

    def sees(self, text, at="#log", ms=15_000):
        self.do("sees", text=text, at=at, ms=ms)

    def text(self, at):
        return self.do("text", at=at)

    def click(self, at):
        self.do("click", at=at)

    def opens(self, at):
        """The window that a click opens."""
        opened = Tab(self.demo, self.who, f"{self.name}'s window")
        self.do("opens", at=at, opened=opened.name)
        return opened

    def fill(self, at, text):
        self.do("fill", at=at, text=text)

    def press(self, *keys):
        self.do("press", keys=keys)

    def type(self, text):
        self.do("type", text=text)

    def say(self, text):
        self.fill("#text", text)
        self.click("#send button")

    def network(self, on):
        self.demo.do("network", who=self.who, on=on)

    def close(self):
        self.do("close")

    def users(self):
        """The users in the lobby as shown by this page."""
        return self.eval("[...document.querySelectorAll('#here li')].map((row) => row.dataset.user).sort()")

    def waits_for(self, *names):
        wanted = json.dumps(sorted(names))
        self.wait(f"JSON.stringify([...document.querySelectorAll('#here li')].map((row) => row.dataset.user).sort()) === JSON.stringify({wanted})")
