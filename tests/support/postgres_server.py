"""The real Postgres: made in a folder of its own, on a free port, gone when it is not needed any more."""
import os
import pathlib
import subprocess

from .process import free_port

# The tests of the engine start theirs with it too. Not run as root: it says how it is made.
SCRIPT = pathlib.Path(__file__).parents[2] / "crates/engine/tests/support/postgres.sh"


class PostgresServer:
    def __enter__(self):
        self.port = free_port()
        shell = ["sh", "-c", SCRIPT.read_text(), "postgres.sh", str(self.port)]
        if os.geteuid() == 0:
            shell = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", *shell]
        self.process = subprocess.Popen(shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/")
        assert self.process.stdout.readline().strip(), "Postgres did not start; scripts/setup installs it"
        return self

    def url(self, schema):
        return f"postgres://postgres@127.0.0.1:{self.port}/postgres?schema={schema}"

    def __exit__(self, *failure):
        self.process.stdin.close()
        self.process.wait(20)
