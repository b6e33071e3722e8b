"""Two servers on Postgres, and applications that publish from SQL."""
import contextlib

import psycopg
import pytest

from control.service import Service

CONFIG = """
[sessions]
resume_ms = 500
drain_ms = 1000
[nodes]
heartbeat_ms = 300
lease_ms = 2000
[kinds.chat]
history_messages = 10000
"""
ONLY = pytest.mark.only("postgres+postgres", "postgres+nats", reason="the functions are in Postgres")


class World:
    def __init__(self, combination, settings, servers):
        self.combination = combination.name
        self.postgres, self.servers = combination.engines.server("postgres"), servers
        self.schema = settings.options[1].split("schema=")[1].split("&")[0]
        self.url = f"postgres://postgres@127.0.0.1:{self.postgres.port}/postgres"

    def connect(self):
        """As an application."""
        return psycopg.connect(self.url, options=f"-c search_path={self.schema}", autocommit=True, application_name="shop")

    def queued(self):
        return int(self.postgres.sql(f"SELECT count(*) FROM {self.schema}.sql_calls"))

    def ask(self, method, path, status=200, **body):
        """Of a server that runs: another one may just be killed."""
        running = [server for server in self.servers if server.process.poll() is None]
        with Service(running[0]) as service:
            return service.call(method, path, status, **body)

    def events(self, topic):
        """The data of the events of a topic, in order."""
        found, after = [], "0"
        while after is not None:
            page = self.ask("GET", f"/topics/{topic}/events?after={after}&limit=1000")
            found += [event["data"] for event in page["events"]]
            after = page["next"]
        return found

    def history(self, channel):
        found, after, more = [], 0, True
        while more:
            page = self.ask("GET", f"/channels/{channel.replace('#', '%23')}/history?limit=1000&after={after}")
            found, more = found + page["messages"], page["more"]
            after = found[-1]["offset"] if found else 0
        return [message["data"] for message in found]


@contextlib.contextmanager
def begun(combination):
    """Two servers of this combination."""
    with combination.settings() as settings, settings.server(CONFIG) as a, settings.server(CONFIG) as b:
        yield World(combination, settings, [a, b])


@pytest.fixture
def world(combination):
    with begun(combination) as world:
        yield world
