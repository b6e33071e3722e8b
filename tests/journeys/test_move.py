"""Moving from SQLite to Postgres by export and import, with the commands of docs/operate/backup.md."""
import contextlib
import re
import subprocess

import httpx
import pytest

from events.topics_api import publish, pull, put
from install.files import ROOT
from support.json_client import Socket
from support.postgres_server import PostgresServer
from support.tavern import Tavern, environment, program

pytestmark = [pytest.mark.alone, pytest.mark.timing]
COMMANDS = re.findall(r"^    (tavern (?:export|import) --store \S+ [<>] tavern\.jsonl)$", (ROOT / "docs/operate/backup.md").read_text(), flags=re.M)
CONFIG = '[kinds.room]\nallow = ["subscribe", "publish", "join", "presence"]\n'


@contextlib.contextmanager
def api(server, key):
    with httpx.Client(base_url=server.url, headers={"authorization": f"Bearer {key}"}, timeout=10, trust_env=False) as client:
        yield client


def test_a_store_moves_with_its_keys_follows_and_positions(full, tmp_path):
    assert len(COMMANDS) == 2, "the page shows both commands"
    count = 2_000 if full else 20
    with Tavern.serve(CONFIG, data=tmp_path / "tavern-data") as server:
        key = server.api_key("events", "subscriptions", "presence")
        with Socket(server, token=server.token) as ann, api(server, key) as client:
            ann.ok("follow", user="bob")
            put(client, "billing", topics=["orders"], pull=True)
            for number in range(count // 20):
                publish(client, "orders", [{"type": "created", "data": {"n": number * 20 + one}} for one in range(20)])
            half = count // 2
            pull(client, "billing", after=half)
        assert server.terminate() == 0
    with PostgresServer() as postgres:
        url = postgres.url("tavern")
        for command in COMMANDS:
            command = command.replace("postgres://tavern@db/app", f"'{url}'").replace("tavern export", f"{program()} export").replace("tavern import", f"{program()} import")
            done = subprocess.run(["bash", "-ec", command], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, done.stderr
        with Tavern.serve(CONFIG, options=["--store", url, "--bus", "local"], data=tmp_path / "unused") as server, api(server, key) as client:
            # The key works, the subscription continues after its acknowledged position, and follows exist.
            seen = []
            while len(seen) < count - half:
                answer = pull(client, "billing", after=seen[-1] if seen else half)
                seen += [event["seq"] for event in answer["events"]]
            assert seen == list(range(half + 1, count + 1))
            assert publish(client, "orders", {"type": "created"})["first_seq"] == count + 1
            assert client.get("/v1/users/tester/following").json()["users"] == ["bob"]
