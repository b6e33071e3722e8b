"""The programs of `examples/` and `crates/client/examples` run as their first lines say, in each language, and together."""
import os
import subprocess
import sys

import httpx
import pytest

from install.files import ROOT
from support.process import free_port, until

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
# The folder in examples/, and the name of the program in each language.
PROGRAMS = {"chat": "chat", "presence-board": "board", "party": "party", "webhook-consumer": "consumer"}
LANGUAGES = ("js", "python", "rust")
by_language = pytest.mark.parametrize("language", LANGUAGES)


class Program:
    """One of them; what it prints is collected in a file."""

    def __init__(self, tmp_path, server, example, language, *arguments):
        self.output = tmp_path / f"{example}-{language}-{'-'.join(arguments)}.txt"
        folder = ROOT / "examples" / example
        command = {
            "js": ["node", folder / f"{PROGRAMS[example]}.mjs"],
            "python": [sys.executable, folder / f"{PROGRAMS[example]}.py"],
            "rust": [ROOT / "target/debug/examples" / example.replace("-", "_")],
        }[language]
        variables = os.environ | {"TAVERN_URL": server.url, "WEBHOOK_SECRET": SECRET, "PYTHONPATH": str(ROOT / "clients/python")}
        with self.output.open("w") as output:
            self.process = subprocess.Popen([*command, *arguments], stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, text=True, env=variables)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()

    def type(self, line):
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def prints(self, text):
        until(lambda: text in self.output.read_text(), f"{text!r} of {self.output.name}; it printed {self.output.read_text()!r}", 30)


def test_every_example_exists_in_every_language_and_is_listed():
    listed = (ROOT / "examples/README.md").read_text()
    for example, program in PROGRAMS.items():
        assert (ROOT / f"crates/client/examples/{example.replace('-', '_')}.rs").is_file()
        assert f"--example {example.replace('-', '_')}" in listed
        for end in ("mjs", "py"):
            assert (ROOT / f"examples/{example}/{program}.{end}").is_file()
    folders = {path.name for path in (ROOT / "examples").iterdir() if path.is_dir()}
    assert folders == {*PROGRAMS, "matchmaker", "pusher-chat"}


@by_language
def test_a_chat(tmp_path, dev, language):
    other = LANGUAGES[LANGUAGES.index(language) - 1]
    with Program(tmp_path, dev, "chat", language, f"ann-{language}") as ann, Program(tmp_path, dev, "chat", other, f"bob-{language}") as bob:
        ann.prints("connected"), bob.prints("connected")
        ann.type("good evening")
        for one in (ann, bob):
            one.prints(f"ann-{language}: good evening")
        bob.type("hello")
        ann.prints(f"bob-{language}: hello")
        ann.process.stdin.close()
        assert ann.process.wait(20) == 0
        ann.process.stdin = bob.process.stdin


@by_language
def test_a_presence_board(tmp_path, dev, language):
    other = LANGUAGES[LANGUAGES.index(language) - 1]
    with Program(tmp_path, dev, "presence-board", language, f"ann-{language}", "busy") as ann:
        ann.prints(f"ann-{language} (busy)")
        with Program(tmp_path, dev, "presence-board", other, f"bob-{language}", "away") as bob:
            for one in (ann, bob):
                one.prints(f"ann-{language} (busy), bob-{language} (away)")
        # Killed: the connection is lost.
        ann.prints(f"bob-{language} (connection lost)")


@by_language
def test_a_party(tmp_path, dev, language):
    other = LANGUAGES[LANGUAGES.index(language) - 1]
    names = f"ann-{language}", f"bob-{language}"
    with Program(tmp_path, dev, "party", other, names[1]) as bob:
        bob.prints("connected")
        with Program(tmp_path, dev, "party", language, *names) as ann:
            bob.prints(f"{names[0]} invites you")
            for one in (ann, bob):
                one.prints(f"party: {', '.join(names)}")
                one.prints("the party has ended")
                assert one.process.wait(20) == 0


@by_language
def test_a_webhook_consumer(tmp_path, dev, language):
    port, topic = free_port(), f"orders-{language}"
    headers = {"authorization": f"Bearer {dev.key}"}
    with Program(tmp_path, dev, "webhook-consumer", language, str(port)) as consumer, \
            httpx.Client(base_url=dev.url, headers=headers, trust_env=False) as api:
        consumer.prints("listening")
        settings = {"topics": [topic], "callback": f"http://127.0.0.1:{port}/", "secret": SECRET, "timeout_ms": 0}
        assert api.put(f"/v1/subscriptions/{topic}", json=settings).status_code == 201
        for kind in ("created", "paid"):
            assert api.post(f"/v1/topics/{topic}/events", json={"type": kind, "data": {"order": 1}}).is_success
            consumer.prints(f'{kind} {{"order":1}}')
        forged = {"webhook-id": "x", "webhook-timestamp": "1", "webhook-signature": "v1,AAAA"}
        assert httpx.post(f"http://127.0.0.1:{port}/", content='{"events":[]}', headers=forged, trust_env=False).status_code == 401
        assert api.get(f"/v1/subscriptions/{topic}").json()["health"] == "healthy"
        api.delete(f"/v1/subscriptions/{topic}")
