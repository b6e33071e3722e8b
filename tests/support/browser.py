"""Drives a browser through a Node script, one JSON line per action. Must hold: console errors of a page are never lost: `quiet`
checks for them."""
import json
import pathlib
import subprocess

MODULES = pathlib.Path(__file__).resolve().parents[2] / "target" / "node"


class Driver:
    def __init__(self, script, *arguments):
        self.process = subprocess.Popen(
            ["node", str(script), str(MODULES), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
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
        assert answer, "the browser exited"
        answer = json.loads(answer)
        assert "fault" not in answer, f"{act} {how}: {answer['fault']}\npage: {answer.get('seen')}\nconsole errors: {answer.get('complaints')}"
        return answer["ok"]

    def quiet(self):
        """The page has reported no errors since the last call."""
        complaints = self.do("complaints")
        assert complaints == [], complaints
