"""Runs one scenario of clients/scenarios with one client: starts servers, proxies and drivers, and checks the results.

clients/scenarios/README.md documents the steps and the driver protocol. Must hold: every wait has a timeout, every process and
thread ends with the scenario, and a failure shows the output of the drivers.
"""
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
import urllib.parse

import httpx

from support import tokens
from support.process import until
from support.tavern import Tavern

from . import toolchains
from .churn import Churn
from .network import Network

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCENARIOS = ROOT / "clients" / "scenarios"
ANSWER_S, EXPECT_MS, MESSAGES_MS, QUIET_MS = 90.0, 10_000, 20_000, 300

# The clients by their drivers; a driver that is not built, and not made by `toolchains`, is left out.
DRIVERS = {
    "js": (ROOT / "clients/js/test/driver.mjs", lambda path: ["node", "--no-warnings", "--experimental-websocket", path]),
    "python": (ROOT / "clients/python/tests/driver.py", lambda path: [sys.executable, path]),
    "rust": (ROOT / "target/debug/examples/scenario_driver", lambda path: [path]),
    "go": (toolchains.GO_DRIVER, lambda path: [path]),
    "csharp": (toolchains.CSHARP_DRIVER, lambda path: ["mono", path]),
}


def clients():
    return [name for name, (path, _) in DRIVERS.items() if name in toolchains.MADE or path.exists()]


def scenarios():
    return sorted(path.stem for path in SCENARIOS.glob("*.json"))


def load(name):
    return json.loads((SCENARIOS / f"{name}.json").read_text())


def matches(pattern, value):
    if pattern == "*":
        return value is not None
    if isinstance(pattern, dict):
        return isinstance(value, dict) and all(name in value and matches(part, value[name]) for name, part in pattern.items())
    if isinstance(pattern, list):
        return isinstance(value, list) and len(pattern) == len(value) and all(map(matches, pattern, value))
    return type(pattern) is type(value) and pattern == value or pattern == value and not isinstance(pattern, bool)


class Refused(Exception):
    """The driver answered with an error."""

    def __init__(self, error):
        super().__init__(f"{error.get('code')}: {error.get('message')}")
        self.code = error.get("code")


class Minter:
    """Answers the requests for tokens of one actor, with a token or, while it refuses, with an error."""

    def __init__(self, user, settings):
        self.user, self.refuses = user, False
        # The rights of the next token.
        self.allow, self.token_ttl_s = settings.get("allow"), settings.get("token_ttl_s", 3600)

    def answer(self):
        return {"error": "login is down"} if self.refuses else {"token": tokens.token(self.user, self.allow, self.token_ttl_s)}


class Driver:
    """One actor: a driver process, its pending replies and its events."""

    def __init__(self, command, actor, settings):
        self.actor, self.minter = actor, Minter(settings.get("user", actor), settings)
        self.changed = threading.Condition()
        self.answers, self.events, self.taken, self.stderr = {}, [], set(), []
        self.number, self.over = 0, False
        self.process = subprocess.Popen(
            [str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        self.threads = [threading.Thread(target=each, daemon=True) for each in (self._read_stdout, self._read_stderr)]
        for thread in self.threads:
            thread.start()

    def _read_stdout(self):
        for line in self.process.stdout:
            frame = json.loads(line)
            if frame.get("ask") == "token":
                self._write({"answer": frame["n"]} | self.minter.answer())
                continue
            with self.changed:
                if "event" in frame:
                    self.events.append(frame["event"])
                else:
                    self.answers[frame["id"]] = frame
                self.changed.notify_all()
        with self.changed:
            self.over = True
            self.changed.notify_all()

    def _read_stderr(self):
        for line in self.process.stderr:
            self.stderr.append(line.rstrip())

    def _write(self, frame):
        self.process.stdin.write(json.dumps(frame) + "\n")
        self.process.stdin.flush()

    def begin(self, command):
        self.number += 1
        self._write({"id": self.number} | command)
        return self.number

    def answer(self, number):
        self.until(lambda: number in self.answers, ANSWER_S, "an answer")
        frame = self.answers.pop(number)
        if "error" in frame:
            raise Refused(frame["error"])
        return frame["ok"]

    def until(self, fact, seconds, what):
        with self.changed:
            if not self.changed.wait_for(lambda: fact() or self.over, seconds) or not fact():
                raise AssertionError(f"{self.actor}: timed out after {seconds} s waiting for {what}")

    def log(self):
        events = [json.dumps(event, ensure_ascii=False) for event in self.events]
        if len(events) > 40:
            events = [*events[:15], f"… {len(events) - 30} more …", *events[-15:]]
        return "\n".join([f"-- events of {self.actor}", *events, f"-- stderr of {self.actor}", *self.stderr[-20:]])

    def stop(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for thread in self.threads:
            thread.join(5)


class Run:
    """A running scenario."""

    def __init__(self, scenario, client):
        self.scenario, self.client = scenario, client
        self.stack = contextlib.ExitStack()
        self.drivers, self.networks, self.saved, self.later = {}, {}, {}, {}

    def __enter__(self):
        make = Tavern.serve if self.scenario.get("mode") == "serve" else Tavern.dev
        config = self.scenario.get("config", "")
        first = self.stack.enter_context(make(config))
        self.servers = [first]
        for _ in range(1, self.scenario.get("nodes", 1)):
            self.servers.append(self.stack.enter_context(make(config, data=first.data)))
        path, command = DRIVERS[self.client]
        toolchains.make(self.client)
        for name, actor in self.scenario["actors"].items():
            ports = [server.port for server in self.servers]
            self.networks[name] = self.stack.enter_context(Network(ports, actor.get("node", 0)))
            self.drivers[name] = Driver(command(path), name, actor)
            self.stack.callback(self.drivers[name].stop)
        return self

    def __exit__(self, *failure):
        self.stack.close()

    def play(self):
        for number, step in enumerate(self.scenario["steps"], 1):
            try:
                self.step(step)
            except (AssertionError, Refused, TimeoutError, OSError) as failure:
                logs = "\n".join(driver.log() for driver in self.drivers.values())
                raise AssertionError(f"step {number}, {json.dumps(step, ensure_ascii=False)}: {failure}\n{logs}") from failure

    def step(self, step):
        kinds = ["do", "await", "expect", "never", "messages", "presence", "party", "allow", "server", "link", "tokens", "churn", "pause_ms"]
        kind = next((kind for kind in kinds if kind in step), None)
        if kind is None:
            raise AssertionError("unknown step")
        getattr(self, f"on_{kind}")(self.filled(step))

    def filled(self, value):
        if isinstance(value, dict):
            return {name: self.filled(part) for name, part in value.items()}
        if isinstance(value, list):
            return [self.filled(part) for part in value]
        if isinstance(value, str) and value.startswith("$"):
            name, *path = value[1:].split(".")
            found = self.saved[name]
            for part in path:
                found = found[part]
            return found
        return value

    def ask(self, actor, **command):
        driver = self.drivers[actor]
        return driver.answer(driver.begin(command))

    # Steps of actors.

    def on_do(self, step):
        driver, actor = self.drivers[step["as"]], self.scenario["actors"][step["as"]]
        own = ("as", "gives", "fails", "until_ms", "save", "later")
        command = {name: value for name, value in step.items() if name not in own}
        if step["do"] == "connect" and not driver.number:
            command["url"] = f"http://127.0.0.1:{self.networks[step['as']].port}"
            if self.scenario.get("mode") == "serve":
                command["tokens"] = True
            else:
                command["user"] = actor.get("user", step["as"])
            if "transports" in actor:
                command["transports"] = actor["transports"]
        number = driver.begin(command)
        if "later" in step:
            self.later[step["as"], step["later"]] = number
            return
        if "until_ms" not in step:
            return self.check(driver, number, step)
        end = time.monotonic() + step["until_ms"] / 1000
        while True:
            answer = driver.answer(number)
            if matches(step["gives"], answer):
                return
            assert time.monotonic() < end, f"the last reply is {answer}"
            time.sleep(0.05)
            number = driver.begin(command)

    def on_await(self, step):
        self.check(self.drivers[step["as"]], self.later.pop((step["as"], step["await"])), step)

    def check(self, driver, number, step):
        try:
            answer = driver.answer(number)
        except Refused as refused:
            assert refused.code == step.get("fails"), str(refused)
            return
        assert "fails" not in step, f"the command succeeded: {answer}"
        assert matches(step.get("gives", {}), answer), f"the reply is {answer}"
        if "save" in step:
            self.saved[step["save"]] = answer

    def on_allow(self, step):
        self.drivers[step["as"]].minter.allow = step["allow"]

    def on_expect(self, step):
        driver = self.drivers[step["as"]]

        def found():
            fresh = (at for at in range(len(driver.events)) if at not in driver.taken)
            return next((at for at in fresh if matches(step["expect"], driver.events[at])), None)

        driver.until(lambda: found() is not None, step.get("within_ms", EXPECT_MS) / 1000, "the event")
        driver.taken.add(found())

    def on_never(self, step):
        driver = self.drivers[step["as"]]
        time.sleep(step.get("for_ms", QUIET_MS) / 1000)
        for at, event in enumerate(list(driver.events)):
            assert not matches(step["never"], event) or (step.get("untaken") and at in driver.taken), f"unexpected event: {event}"

    def on_messages(self, step):
        driver = self.drivers[step["as"]]
        wanted = step["data"] if "data" in step else list(range(step["range"][0], step["range"][1] + 1))

        def received():
            events = list(driver.events)
            return [event["data"] for event in events if event["type"] == "message" and event["channel"] == step["messages"]]

        with contextlib.suppress(AssertionError):
            driver.until(lambda: len(received()) >= len(wanted), step.get("within_ms", MESSAGES_MS) / 1000, "the messages")
        time.sleep(QUIET_MS / 1000)
        got = received()
        if got != wanted:
            at = next((at for at, (one, other) in enumerate(zip(got, wanted)) if one != other), min(len(got), len(wanted)))
            raise AssertionError(f"{len(got)} of {len(wanted)} messages; from {at} on {got[at:at + 10]}, not {wanted[at:at + 10]}")

    def on_presence(self, step):
        channel, answers = step["presence"], {}

        def equal():
            own = self.ask(step["as"], do="presence", channel=channel)
            answers["own"] = {user: shown["clients"] for user, shown in own["users"].items()}
            answers["server"] = self.present(channel)
            named = set(answers["server"]) == set(step["users"]) if "users" in step else True
            return named and answers["own"] == answers["server"] and own["count"] == len(answers["server"])

        try:
            until(equal, "the presence map", step.get("within_ms", EXPECT_MS) / 1000)
        except TimeoutError as late:
            raise AssertionError(f"the client's map and the server's: {json.dumps(answers)}") from late

    def present(self, channel):
        """The members of a channel as returned by REST."""
        users, after = {}, None
        while True:
            page = self.service("GET", f"/v1/channels/{urllib.parse.quote(channel, safe='')}/presence", {"after": after} if after else {})
            for one in page["users"]:
                users[one["user"]] = {client["client"]: client["state"] for client in one["clients"]}
            after = page.get("next")
            if after is None:
                return users

    def on_party(self, step):
        answers = {}

        def equal():
            answers["own"] = own = self.ask(step["as"], do="party_current")["party"]
            # By REST: a command of the client itself would update its snapshot.
            answers["server"] = own and self.service("GET", f"/v1/parties/{own['party_id']}", {})["party"]
            return own is not None and own == answers["server"]

        try:
            until(equal, "the party", step.get("within_ms", EXPECT_MS) / 1000)
        except TimeoutError as late:
            raise AssertionError(f"the client's party and the server's: {json.dumps(answers)}") from late

    # Steps of servers and networks.

    def on_server(self, step):
        action, server = step["server"], self.servers[step.get("node", 0)]
        if action in ("kill", "restart"):
            server.kill()
        if action in ("start", "restart"):
            server.start()
        if action == "stop":
            assert server.terminate() == 0, "the server exited with an error"
        if action == "publish":
            self.service("POST", f"/v1/channels/{urllib.parse.quote(step['channel'], safe='')}/messages", {}, {"data": step["data"]})
        if action == "end_session":
            self.service("POST", "/v1/command", {}, {"op": "bye", "session": step["session"]}, {})
        if action == "inbox":
            self.service("POST", f"/v1/users/{urllib.parse.quote(step['user'], safe='')}/messages", {}, {"data": step["data"]})

    def service(self, method, path, query, body=None, headers=None):
        server = next(server for server in self.servers if server.process.poll() is None)
        headers = {"authorization": f"Bearer {server.key}"} if headers is None else headers
        answer = httpx.request(method, f"{server.url}{path}", params=query, json=body, headers=headers, timeout=10, trust_env=False)
        assert answer.status_code < 300, f"{method} {path} answered {answer.status_code}: {answer.text}"
        return answer.json() if answer.content else {}

    def on_link(self, step):
        chosen = [self.networks[step["as"]]] if "as" in step else list(self.networks.values())
        for network in chosen:
            network.act(step["link"], step)
        if step["link"] == "cut" and "ms" in step:
            time.sleep(step["ms"] / 1000)
            for network in chosen:
                network.act("restore", {})

    def on_tokens(self, step):
        self.drivers[step["as"]].minter.refuses = {"refuse": True, "give": False}[step["tokens"]]

    def on_churn(self, step):
        churn = Churn(self.servers, step["churn"], step["clients"], step["seed"])
        self.stack.callback(churn.close)
        churn.run(step["rounds"])

    def on_pause_ms(self, step):
        time.sleep(step["pause_ms"] / 1000)


def play(scenario, client):
    with Run(scenario, client) as run:
        run.play()
