"""Every curl example of the REST pages runs as it is written, and gets an answer that the OpenAPI document describes."""
import contextlib
import json
import os
import re
import subprocess

import httpx
import pytest

from events.endpoint import Endpoint
from install.files import ROOT
from support import tokens
from support.json_client import connect_online
from support.process import free_port, until
from support.tavern import Tavern

PAGES = sorted((ROOT / "docs/reference/rest").glob("*.md"))
API = json.loads((ROOT / "crates/server/assets/openapi.json").read_text())
# The ids that a server chooses, as the document has them.
KEY_ID, CLIENT, LINK_CODE = "are1r3kp0w", "c7f3k2m9q4t8w1x5", "tvl_a1b2c3d4e5_…"
# Streams stay open: curl ends them after their headers have arrived.
STREAMS, STREAM_S = ("/v1/stream", "/v1/traffic"), "2"


def examples():
    """The operation and the command of each example."""
    for page in PAGES:
        for method, path, text in re.findall(r"^## `([A-Z]+) (\S+)`$(.*?)(?=^## |\Z)", page.read_text(), flags=re.M | re.S):
            blocks = re.findall(r"^```sh\n(.*?)^```$", text, flags=re.M | re.S)
            yield method, path, blocks[0] if blocks else None


EXAMPLES = list(examples())
RUN = [one for one in EXAMPLES if one[2]]


def test_every_operation_has_an_example():
    operations = {(method.upper(), path) for path, methods in API["paths"].items() for method in methods}
    assert {(method, path) for method, path, _ in EXAMPLES} == operations and len(EXAMPLES) == len(operations)
    # curl cannot hold the conversation of a WebSocket.
    assert [path for _, path, command in EXAMPLES if command is None] == ["/v1/connect"]


@pytest.fixture(scope="module")
def server():
    matchmaker = f'[parties]\nmatchmaker_url = "http://127.0.0.1:{free_port()}/"\n'
    with Tavern.dev(f"[kinds.game]\nhistory_messages = 100\n{matchmaker}") as server:
        yield server


@pytest.fixture(scope="module")
def hook():
    with Endpoint(lambda body: 200) as endpoint:
        yield endpoint


@pytest.mark.parametrize("method, path, command", RUN, ids=[f"{method} {path}" for method, path, _ in RUN])
def test_the_example_runs(server, hook, method, path, command):
    with contextlib.ExitStack() as stack:
        for name, chosen in prepare(server, hook, stack, path).items():
            command = command.replace(name, chosen)
        body, status = until(lambda: final(run(server, command, stream=path in STREAMS)), "an answer that is not `try again`", 30)
    documented = [code for code in API["paths"][path][method.lower()]["responses"] if code[0] == "2"]
    assert status in documented, f"{command}\n{status} {body}, documented: {documented}"


def prepare(server, hook, stack, path):
    """What the examples speak of; returns the text of an example that is different on each server."""
    chosen = {}
    if path in ("/v1/keys/{id}", "/v1/topics/{topic}"):
        chosen[KEY_ID] = ask(server, "POST", "/v1/keys", {"name": "ci", "scopes": ["publish"]})["id"]
    if path == "/v1/dashboard/sign-in":
        chosen[LINK_CODE] = ask(server, "POST", "/v1/dashboard/links")["key"]
    if "/sessions/" in path:
        chosen[CLIENT] = stack.enter_context(connect_online(server, "ann")).hello["client"]
    if "party" in path or "/parties" in path:
        chosen |= party(server, stack, path)
    if path.endswith("/ban"):
        ask(server, "PUT", "/v1/users/ann/ban", {"reason": "spam"})
        stack.callback(ask, server, "DELETE", "/v1/users/ann/ban", expected=(200, 404))
    if "/topics/" in path or "/subscriptions/" in path:
        way = {"pull": True} if path.endswith("/events") else {"callback": hook.url}
        for old in ("/v1/subscriptions/billing", "/v1/topics/orders"):
            ask(server, "DELETE", old, expected=(200, 404))
        ask(server, "PUT", "/v1/subscriptions/billing", {"topics": ["orders"]} | way)
        ask(server, "POST", "/v1/topics/orders/events", [{"type": "created"}] * 20)
    if path.endswith("/attempts/{number}"):
        attempts = until(lambda: ask(server, "GET", "/v1/subscriptions/billing/attempts")["attempts"], "an attempt")
        chosen["/attempts/7"] = f"/attempts/{attempts[0]['number']}"
    return chosen


def party(server, stack, path):
    """Ann and Bob are online; for a page about one party they are asked into one, and for a ticket they wait for a match."""
    ann, bob = (stack.enter_context(connect_online(server, name)) for name in ("ann", "bob"))
    for user in (ann, bob):
        if user.ok("party.get").get("party"):
            user.ok("party.leave")
    if not path.startswith("/v1/parties/"):
        return {}
    number = ann.ok("party.invite", user="bob")["party_id"]
    if "/go/" not in path:
        return {"/parties/1": f"/parties/{number}"}
    bob.ok("party.accept", party_id=number)
    return {"/parties/1/go/1": f"/parties/{number}/go/{ann.ok('party.go')['go_id']}"}


def ask(server, method, path, body=None, expected=(200, 201, 202, 204)):
    answer = httpx.request(method, server.url + path, json=body, headers={"authorization": f"Bearer {server.key}"}, trust_env=False)
    assert answer.status_code in expected, answer.text
    return answer.json() if answer.content else None


def final(answer):
    """Nothing if the server asks to repeat the request: sessions of earlier examples are still ending when a user is erased."""
    return None if answer[1] == "503" and "retry_after_ms" in answer[0] else answer


def run(server, command, stream):
    """The body and the status of the answer to a command, which runs as it is written, on another port."""
    limit = STREAM_S if stream else "20"
    script = f"curl() {{ command curl -s --noproxy '*' -m {limit} -w '\\n%{{http_code}}' \"$@\"; }}\n{command}"
    script = script.replace("http://127.0.0.1:7400", server.url)
    variables = os.environ | {"key": server.key, "token": tokens.token("ann")}
    done = subprocess.run(["bash", "-c", script], env=variables, capture_output=True, text=True, timeout=30)
    assert stream or done.returncode == 0, done.stderr
    return done.stdout.rsplit("\n", 1)
