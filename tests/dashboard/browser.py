"""A browser that is told what to do, line by line. Must hold: what a page complains of is never lost: `quiet` asks for it."""
import json
import pathlib
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
MODULES = HERE.parents[1] / "target" / "node"


class Browser:
    def __init__(self):
        self.process = subprocess.Popen(
            ["node", str(HERE / "browser.mjs"), str(MODULES)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
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

    def open(self, server, hash="", key=True, **how):
        """A new tab, with the key in the address as `tavern dev` prints it."""
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
        """Before its server ends: what the page complains of from there on is of no interest."""
        self.do("leave")

    def quiet(self):
        """Nothing was complained of since the last time."""
        complaints = self.do("complaints")
        assert complaints == [], complaints

    def complained(self, *words):
        """It complained of nothing but this, and of each of these."""
        complaints = self.do("complaints")
        strange = [one for one in complaints if not any(word in one for word in words)]
        missing = [word for word in words if not any(word in one for one in complaints)]
        assert not strange and not missing, f"{complaints}; missing {missing}"
