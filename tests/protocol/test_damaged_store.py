"""A damaged database is noticed, named and not served."""
import json
import subprocess

import httpx

from support.process import until
from support.tavern import Tavern, environment, program


def doctor(server):
    done = subprocess.run(
        [program(), "doctor", "--json", "--data", server.data], env=environment(), capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout


def test_a_damaged_database_is_logged_once_not_ready_and_named_by_the_doctor():
    with Tavern.dev() as server:
        with httpx.Client(base_url=server.url, headers={"authorization": f"Bearer {server.key}"}, trust_env=False) as api:
            for user in range(400):
                api.post(f"/v1/users/u{user}/messages", json={"data": "x" * 1000}).raise_for_status()
            assert server.terminate() == 0
        database = server.data / "tavern.db"
        sound = database.read_bytes()
        damaged = bytearray(sound)
        # The second half: opening reads the first pages.
        half = len(damaged) // 2 // 4096 * 4096
        damaged[half:] = b"\xab" * (len(damaged) - half)
        database.write_bytes(damaged)
        server.start()
        url = server.url

        def ask():
            for user in range(0, 400, 7):
                httpx.get(f"{url}/v1/users/u{user}/inbox", headers={"authorization": f"Bearer {server.key}"}, trust_env=False)
            return not server.ready()

        until(ask, "the server to find the damage", timeout=60)
        ask()
        answer = httpx.get(f"{url}/readyz", trust_env=False)
        assert answer.status_code == 503 and "damaged" in answer.text, answer.text
        assert server.metric("tavern_store_up") == 0
        assert sum("not ready until it is restored" in line for line in server.log().splitlines()) == 1, server.log()
        code, found = doctor(server)
        assert code != 0 and "tavern.db is damaged" in json.dumps(json.loads(found)), found


def test_an_emptied_database_is_not_begun_anew():
    with Tavern.dev() as server:
        assert server.terminate() == 0
        (server.data / "tavern.db").write_bytes(b"")
        done = subprocess.run(server.command(), cwd=server.folder, env=environment(), capture_output=True, text=True, timeout=60)
        assert done.returncode != 0 and "restore it from a backup" in done.stdout + done.stderr, done.stderr
