"""A real Postgres server in a temporary folder on a free port."""
import contextlib
import os
import pathlib
import signal
import subprocess

from .process import free_port

# Shared with the Rust tests of the engines.
SCRIPT = pathlib.Path(__file__).parents[2] / "crates/engines/tests/it/postgres.sh"


class PostgresServer:
    def __init__(self, *options):
        """`durable`: its disk counts, as for a measurement."""
        self.options_of_script = options

    def __enter__(self):
        self.port = free_port()
        shell = self.as_postgres("sh", "-c", SCRIPT.read_text(), "postgres.sh", str(self.port), *self.options_of_script)
        self.process = subprocess.Popen(shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/")
        folder = self.process.stdout.readline().strip()
        assert folder, "Postgres did not start; scripts/setup installs it"
        self.data = pathlib.Path(folder) / "data"
        self.again = False
        return self

    @staticmethod
    def as_postgres(*command):
        """Postgres refuses to run as root."""
        if os.geteuid() == 0:
            return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", *command]
        return [*command]

    def url(self, schema, user="postgres", password=None, options=""):
        login = user if password is None else f"{user}:{password}"
        return f"postgres://{login}@127.0.0.1:{self.port}/postgres?schema={schema}{options}"

    def sql(self, text):
        """The output of the statements, unaligned and without headers."""
        return self.sql_in("postgres", text)

    def sql_in(self, database, text):
        run = ["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres"]
        run += ["-d", database, "-c", text]
        done = subprocess.run(run, capture_output=True, text=True, timeout=20)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def require_password(self, user):
        """Requires a password for this user from now on."""
        rules = self.data / "pg_hba.conf"
        rules.write_text(f"host all {user} 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
        self.sql("SELECT pg_reload_conf()")

    def stop(self, mode="immediate"):
        """`immediate` simulates a crash."""
        self.control("stop", "-m", mode)

    kill = stop

    def start(self):
        self.again = True
        self.control("start", "-l", str(self.data.parent / "log"))

    def control(self, verb, *arguments):
        options = []
        if verb == "stop":
            self.program = pathlib.Path(f"/proc/{self.pid()}/exe").resolve().parent / "pg_ctl"
            # A restart must use the same options.
            self.options = (self.data / "postmaster.opts").read_text().replace('"', "").split()[3:]
        else:
            options = ["-o", " ".join(self.options)]
        run = self.as_postgres(str(self.program), verb, "-D", str(self.data), "-w", *options, *arguments)
        subprocess.run(run, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=30, cwd="/")

    def pid(self):
        return int((self.data / "postmaster.pid").read_text().split()[0])

    def processes(self):
        """The server process and its child processes."""
        children = pathlib.Path(f"/proc/{self.pid()}/task/{self.pid()}/children").read_text().split()
        return [self.pid(), *map(int, children)]

    def pause(self):
        """Stops all processes with SIGSTOP, like a machine that does not answer."""
        self.paused = self.processes()
        self.signal(signal.SIGSTOP)

    def resume(self):
        self.signal(signal.SIGCONT)

    def signal(self, number):
        for pid in self.paused:
            # A worker may have ended by itself.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def ready(self):
        done = subprocess.run(["pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)], timeout=10)
        return done.returncode == 0

    def __exit__(self, *failure):
        if self.again and (self.data / "postmaster.pid").exists():
            # The script does not know a server that was restarted.
            self.control("stop", "-m", "fast")
        self.process.stdin.close()
        self.process.wait(20)
