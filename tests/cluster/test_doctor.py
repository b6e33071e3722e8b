"""`tavern doctor` with real engines: its findings on healthy and on broken setups."""
import contextlib
import json
import os
import shutil
import socket
import subprocess

import pytest

from cluster.combination import folder
from support import tokens
from support.nats_server import NatsServer
from support.process import free_port, until
from support.redis_server import RedisServer
from support.tavern import Tavern, environment, program


def doctor(*options, code=0):
    """The findings by subject: (health, detail)."""
    with folder() as data:
        run = [program(), "doctor", "--json", "--secret", tokens.SECRET, "--listen", "127.0.0.1:0", "--resp", "off"]
        if "--data" not in options:
            run += ["--data", data / "none"]
        done = subprocess.run([*run, *options], cwd=data, env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["healthy"] is (code == 0)
    return {found["subject"]: (found["health"], found["detail"]) for found in report["findings"]}


def test_a_healthy_postgres_and_nats_cluster(postgres, nats, schema):
    where = ["--store", postgres.url(schema), "--bus", nats.url]
    with contextlib.ExitStack() as stack:
        for name in ("north", "south"):
            stack.enter_context(Tavern.dev(options=[*where, "--node", name]))
        found = doctor(*where)
    assert found["store version"] == ("ok", f"Postgres {postgres.sql('SHOW server_version').split()[0]}")
    assert found["store tls"] == ("ok", "the connection is encrypted")
    assert found["store tables"][0] == "ok" and schema in found["store tables"][1]
    assert found["store durability"][0] == "warn" and "set fsync=on" in found["store durability"][1]
    assert found["store connections"][0] == "ok"
    assert found["store"][1].startswith("postgres: wrote in") and found["clock"][0] == "ok"
    for name in ("north", "south"):
        assert found[f"node {name}"][0] == "ok" and "epoch" in found[f"node {name}"][1]
    assert found["bus version"][1].startswith("NATS 2.") and found["bus payload"] == ("ok", "max_payload is 1024 KiB")
    assert found["bus latency"][0] == "ok"
    assert found["cluster"] == ("ok", "2 nodes in the store, the same on the bus")
    assert postgres.sql(f"SELECT count(*) FROM {schema}.documents") == "0", "doctor cleans up"


def test_a_healthy_cluster_on_postgres_alone(postgres, schema):
    where = ["--store", postgres.url(schema)]
    with contextlib.ExitStack() as stack:
        for name in ("east", "west"):
            stack.enter_context(Tavern.dev(options=[*where, "--node", name]))
        found = doctor(*where)
    assert found["store pooler"] == found["bus pooler"] == ("ok", "no transaction pooler in between")
    assert found["bus notifications"] == ("ok", "the queue of notifications is 0 % full")
    assert found["bus latency"][0] == "ok" and found["bus latency"][1].startswith("postgres: a message took")
    assert found["cluster"] == ("ok", "2 nodes in the store, the same on the bus")


def test_a_transaction_pooler_is_a_failure(postgres, schema):
    port = free_port()
    text = (f"[databases]\npostgres = host=127.0.0.1 port={postgres.port} user=postgres\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\npool_mode = transaction\nunix_socket_dir =\n"
            "ignore_startup_parameters = extra_float_digits\n")
    program_path = shutil.which("pgbouncer", path=os.environ["PATH"] + ":/usr/sbin")
    assert program_path, "pgbouncer is not installed: run scripts/setup"
    # The user of the database must be able to read the file.
    run = postgres.as_postgres("sh", "-c", 'f=$(mktemp) && printf %s "$2" >"$f" && exec "$1" -q "$f"', "sh", program_path, text)
    with subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/") as pooler:
        try:
            url = postgres.url(schema).replace(str(postgres.port), str(port))
            until(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0, "the pooler listens")
            found = doctor("--store", url, code=1)
            assert found["store pooler"][0] == "fail" and "transaction pooler" in found["store pooler"][1]
            with pytest.raises(RuntimeError, match="transaction pooler"), Tavern.dev(options=["--store", url]):
                pass
            with pytest.raises(RuntimeError, match="transaction pooler"), Tavern.dev(options=["--bus", url]):
                pass
        finally:
            pooler.terminate()


def test_a_healthy_cluster_on_one_folder(nats):
    with Tavern.dev() as server:
        found = doctor("--data", server.data)
        assert found["bus"][0] == "ok" and found["bus latency"][0] == "ok" and found["cluster"][1].startswith("1 node in")
        assert len([name for name in found if name.startswith("node ")]) == 1


def test_doctor_does_not_create_tables(postgres, nats, schema):
    found = doctor("--store", postgres.url(schema), "--bus", nats.url)
    assert found["store tables"][0] == "warn" and "the first server to start creates them" in found["store tables"][1]
    assert postgres.sql(f"SELECT count(*) FROM pg_namespace WHERE nspname = '{schema}'") == "0"


def test_tables_of_another_version_are_a_failure(postgres, nats, schema):
    where = ["--store", postgres.url(schema), "--bus", nats.url]
    with Tavern.dev(options=where):
        pass
    postgres.sql(f"UPDATE {schema}.schema_version SET version = 99")
    found = doctor(*where, code=1)
    assert found["store tables"][0] == "fail" and "start the tavern version that wrote them" in found["store tables"][1]


def test_a_login_that_cannot_create_tables_is_a_failure(postgres, nats, schema):
    postgres.sql("CREATE ROLE reader LOGIN")
    found = doctor("--store", postgres.url(schema, "reader"), "--bus", nats.url, code=1)
    assert found["store tables"][0] == "fail" and "may not create them" in found["store tables"][1]


def test_wrong_passwords_are_reported_but_not_printed(postgres, nats, schema):
    postgres.sql("CREATE ROLE locked LOGIN PASSWORD 'right'")
    postgres.require_password("locked")
    found = doctor("--store", postgres.url(schema, "locked", "hush-hush"), "--bus", nats.url, code=1)
    assert found["store"][0] == "fail" and "check the user and password in `store`" in found["store"][1]
    assert "hush" not in str(found)
    with NatsServer("--user", "ann", "--pass", "right") as locked:
        url = f"nats://ann:hush-hush@127.0.0.1:{locked.port}"
        found = doctor("--bus", url, code=1)
        assert found["bus"][0] == "fail" and "check the user and password in `bus`" in found["bus"][1]
    with RedisServer("--requirepass", "right") as locked:
        for url in (f"redis://:hush-hush@127.0.0.1:{locked.resp_port}", locked.url):
            found = doctor("--bus", url, code=1)
            assert found["bus"][0] == "fail" and "check the user and password in `bus`" in found["bus"][1]
            assert "hush" not in str(found)


def test_an_unreachable_engine_is_a_failure():
    port = free_port()
    found = doctor("--store", f"postgres://me@127.0.0.1:{port}/app", "--bus", f"nats://127.0.0.1:{port}", code=1)
    for engine in ("store", "bus"):
        assert found[engine][0] == "fail" and "no answer: is the server running" in found[engine][1], found[engine]
    found = doctor("--bus", f"redis://127.0.0.1:{port}", code=1)
    assert "no answer: is the server running" in found["bus"][1]


def test_a_redis_with_eviction_is_rejected_as_a_store():
    with RedisServer("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru") as server:
        found = doctor("--store", server.url, code=1)
        assert found["store version"][0] == "ok"
        assert found["store eviction"][0] == "fail" and "noeviction" in found["store eviction"][1]
        assert found["store durability"][0] == "warn" and "appendonly" in found["store durability"][1]
        # A bus stores nothing, so eviction does not matter.
        found = doctor("--bus", server.url)
        assert found["bus version"][0] == "ok" and found["bus latency"][0] == "ok" and "bus eviction" not in found


def test_unsafe_settings_are_logged_at_start(postgres, schema):
    with RedisServer("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru") as redis:
        with Tavern.serve(options=["--store", redis.url]) as server:
            until(lambda: "maxmemory-policy=allkeys-lru" in server.log(), "a warning about eviction")
            assert "appendonly=no" in server.log() and "unsafe engine setting" in server.log()
        with Tavern.serve(options=["--store", postgres.url(schema), "--bus", redis.url]) as server:
            until(lambda: "set fsync=on" in server.log(), "a warning about fsync")


def test_a_healthy_redis_cluster():
    with RedisServer("--appendonly", "yes") as server, Tavern.dev(options=["--store", server.url, "--node", "north"]):
        found = doctor("--store", server.url)
        for subject in ("store version", "store durability", "store eviction", "store", "clock", "bus latency", "cluster"):
            assert found[subject][0] == "ok", found[subject]
        assert "lease for" in found["node north"][1]


def test_two_clusters_with_one_prefix_on_one_bus_are_a_failure(redis):
    with Tavern.dev(options=["--bus", redis.url, "--node", "north"]) as north:
        with Tavern.dev(options=["--bus", redis.url, "--node", "south"]):
            found = doctor("--data", north.data, "--bus", redis.url, code=1)
            assert found["cluster"][0] == "fail" and "south answer on this bus" in found["cluster"][1]
            assert "another `prefix`" in found["cluster"][1]
        # A cluster with another prefix is not a conflict.
        with Tavern.dev(options=["--bus", redis.url, "--node", "east", "--set", "prefix=east"]):
            found = doctor("--data", north.data, "--bus", redis.url)
            assert found["cluster"][0] == "ok"


def test_one_store_with_two_buses_is_a_failure(redis, nats):
    with Tavern.dev(options=["--bus", redis.url, "--node", "north"]) as north:
        found = doctor("--data", north.data, "--bus", nats.url, code=1)
        assert found["cluster"][0] == "fail" and "north are in this store but do not answer" in found["cluster"][1]


def test_a_login_that_cannot_publish_is_a_failure(tmp_path):
    rules = tmp_path / "nats.conf"
    rules.write_text('authorization { users = [ { user: ann, password: pw, permissions: { publish: { deny: ">" } } } ] }\n')
    with NatsServer("-c", str(rules)) as server:
        found = doctor("--bus", f"nats://ann:pw@127.0.0.1:{server.port}", code=1)
        assert found["bus latency"][0] == "fail" and "check that this login may publish and subscribe" in found["bus latency"][1]


def test_the_output_is_a_table(nats):
    with folder() as data:
        run = [program(), "doctor", "--dev", "--listen", "127.0.0.1:0", "--resp", "off", "--bus", nats.url]
        done = subprocess.run(run, cwd=data, env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert any(line.startswith("ok    bus latency") for line in done.stdout.splitlines()), done.stdout
