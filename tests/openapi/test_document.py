"""The server does what its OpenAPI document says: schemathesis sends what the document allows and what it forbids."""
import os
import pathlib
import subprocess
import sys

from support import tokens
from support.tavern import Tavern

HERE = pathlib.Path(__file__).resolve().parent
# Of each operation, with one seed: a run finds what the one before it found, however fast the machine is. `make nightly` asks for more.
EXAMPLES = os.environ.get("TAVERN_OPENAPI_EXAMPLES", "12")
TIMEOUT_S = 1200


def test_schemathesis_finds_nothing(tmp_path):
    with Tavern.dev() as server:
        command = [
            pathlib.Path(sys.executable).with_name("schemathesis"), "--config-file", HERE / "schemathesis.toml", "run",
            f"{server.url}/openapi.json", "--header", f"Authorization: Bearer {server.key}", "--seed", "1",
            "--phases", "examples,coverage,fuzzing", "--max-examples", EXAMPLES, "--max-failures", "20", "--continue-on-failure", "--request-timeout", "10",
            "--warnings", "off", "--no-color",
        ]
        environment = os.environ | {"USER_TOKEN": tokens.token("ann"), "PYTHONPATH": str(HERE.parent), "NO_PROXY": "*"}
        run = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S,
        )
        assert run.returncode == 0, run.stdout + run.stderr
