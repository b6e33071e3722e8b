"""Several people in one browser, each in a context of his own. Must hold: what a page complains of is never lost: `quiet` asks for it."""
import json
import pathlib
import subprocess
import urllib.parse

HERE = pathlib.Path(__file__).resolve().parent
MODULES = HERE.parents[1] / "target" / "node"


class Stage:
    def __init__(self):
        self.process = subprocess.Popen(
            ["node", str(HERE / "stage.mjs"), str(MODULES)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def do(self, act, **how):
        self.process.stdin.write(json.dumps({"do": act} | how) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, "the browser ended"
        answer = json.loads(answer)
        assert "fault" not in answer, f"{act} {how}: {answer['fault']}\nthe page: {answer.get('seen')}\nit complained: {answer.get('complaints')}"
        return answer["ok"]

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

    def quiet(self):
        """Nothing was complained of since the last time."""
        complaints = self.do("complaints")
        assert complaints == [], complaints


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
