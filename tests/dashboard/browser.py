"""The dashboard in a browser."""
import json
import pathlib

from support.browser import MODULES, Driver

AXE = (MODULES / "node_modules/axe-core/axe.min.js").read_text()

# Every element fits the window, except elements that scroll.
INSIDE = """(() => {
  const wide = [...document.querySelectorAll('body *')].filter((one) => {
    if (one.closest('.skip, .log, svg') || !one.getClientRects().length) return false;
    return one.getBoundingClientRect().right > innerWidth + 0.5;
  });
  return [document.documentElement.scrollWidth, wide.slice(0, 3).map((one) => one.outerHTML.slice(0, 120))];
})()"""


class Browser(Driver):
    def __init__(self):
        super().__init__(pathlib.Path(__file__).with_name("browser.mjs"))

    def open(self, server, hash="", key=True, **how):
        """A new tab, with the key in the URL as `tavern dev` prints it."""
        self.do("open", url=f"{server.url}/#key={server.key}" if key else f"{server.url}/{hash}", **how)
        if key and hash:
            self.goto(hash)

    def goto(self, hash):
        self.do("goto", hash=hash)

    def sees(self, text, at="main"):
        self.do("sees", text=text, at=at)

    def wait(self, js, ms=8000):
        self.do("wait", js=js, ms=ms)

    def eval(self, js):
        return self.do("eval", js=js)

    def press(self, *keys):
        self.do("press", keys=keys)

    def type(self, text):
        self.do("type", text=text)

    def click(self, at):
        self.do("click", at=at)

    def fill(self, at, text):
        self.do("fill", at=at, text=text)

    def text(self, at="main"):
        return self.do("text", at=at)

    def leave(self):
        """Leaves the page before its server stops, so that later errors do not count."""
        self.do("leave")

    def expect_errors(self, *texts):
        """The page reported exactly these console errors."""
        complaints = self.do("complaints")
        strange = [one for one in complaints if not any(text in one for text in texts)]
        missing = [text for text in texts if not any(text in one for one in complaints)]
        assert not strange and not missing, f"{complaints}; missing {missing}"


def violations(browser):
    """What axe-core finds, by rule."""
    browser.eval(AXE + "; 0")
    found = browser.eval("axe.run().then(({ violations }) => JSON.stringify(violations.map((one) => [one.id, one.nodes.slice(0, 3).map((node) => node.html)])))")
    return json.loads(found)
