"""Several people in one browser, each in a context of his own."""
import json
import pathlib
import urllib.parse

from support.browser import Driver


class Stage(Driver):
    def __init__(self):
        super().__init__(pathlib.Path(__file__).with_name("stage.mjs"))

    def guest(self, server, name, tab=None, who=None, **how):
        """Somebody in the lobby; `tab` is another one of somebody who is there."""
        guest = Guest(self, who or name, tab or name)
        self.do("open", who=guest.who, tab=guest.tab, url=f"{server.url}/demo?{urllib.parse.urlencode({'user': name})}", **how)
        guest.wait("document.body.dataset.ready === 'yes'")
        return guest

    def page(self, url, tab="page", **how):
        guest = Guest(self, tab, tab)
        self.do("open", who=tab, tab=tab, url=url, **how)
        return guest


class Guest:
    """One tab."""

    def __init__(self, stage, who, tab):
        self.stage, self.who, self.tab = stage, who, tab

    def do(self, act, **how):
        return self.stage.do(act, tab=self.tab, **how)

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

    def fill(self, at, text):
        self.do("fill", at=at, text=text)

    def press(self, *keys):
        self.do("press", keys=keys)

    def type(self, text):
        self.do("type", text=text)

    def say(self, text):
        self.fill("#text", text)
        self.click("#say button")

    def network(self, on):
        self.stage.do("network", who=self.who, on=on)

    def close(self):
        self.do("close")

    def people(self):
        """The names in the lobby, as this page shows them."""
        return self.eval("[...document.querySelectorAll('#here li')].map((row) => row.dataset.user).sort()")

    def waits_for(self, *names):
        wanted = json.dumps(sorted(names))
        self.wait(f"JSON.stringify([...document.querySelectorAll('#here li')].map((row) => row.dataset.user).sort()) === JSON.stringify({wanted})")
