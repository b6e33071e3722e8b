"""Faults of engines that are rare, under load: certificates that are renewed, a failover by Sentinel, lost packets, and a Redis that
cannot read its own log. Users update their states throughout; see docs/reference/guarantees.md."""
import contextlib
import os
import pathlib
import subprocess

import pytest

from cluster.test_engine_failures import Mover, RedisStore, not_ready, pair, readiness, ready, states
from support.json_client import Socket
from support.nats_server import NatsServer
from support.process import Server, free_port, until
from support.proxy import TcpProxy
from support.redis_server import RedisServer
from truth.network import Cable

ROOM = "game#rare"


@contextlib.contextmanager
def moving(servers, count=6):
    """Users on all servers who update their states until the end; then every server has what was acknowledged, and nobody went
    offline. Yields a function that waits until all of them make progress."""
    movers = [Mover(servers[n % len(servers)], f"user{n}", ROOM) for n in range(count)]

    def progress(timeout=30):
        before = [mover.acknowledged for mover in movers]
        until(lambda: all(mover.acknowledged > n + 3 for mover, n in zip(movers, before)), "all users to make progress", timeout)

    for mover in movers:
        # During a failover commands wait for the store.
        mover.socket.patience = 30
    with Socket(servers[0], user="watcher") as watcher:
        watcher.ok("subscribe", channel=ROOM, presence=True)
        for mover in movers:
            mover.start()
        try:
            progress()
            yield progress
            progress()
        finally:
            for mover in movers:
                mover.over = True
            for mover in movers:
                mover.join()
        assert {error["code"] for mover in movers for error in mover.refusals} <= {"unavailable"}
        truth = {mover.socket.hello["user"]: mover.acknowledged for mover in movers if mover.acknowledged == mover.asked}
        assert truth, "no last update was acknowledged"
        for server in servers:
            with Socket(server, user="asker") as asker:
                until(lambda: truth.items() <= states(asker, ROOM).items(), "the acknowledged states")
        gone = [event for event in watcher.events_so_far() if event["event"] in ("user_offline", "client_offline")]
        assert gone == []
        for mover in movers:
            mover.socket.close()


class Authority:
    """Issues certificates for localhost."""

    def __init__(self, folder, name):
        self.folder, self.name = pathlib.Path(folder), name
        self.ca = self.folder / f"{name}-ca.pem"
        self._openssl("req", "-x509", *self._new_key(f"{name}-ca-key"), "-days", "2", "-out", self.ca, "-subj", f"/CN={name}")

    def _openssl(self, *command):
        subprocess.run(["openssl", *map(str, command)], check=True, capture_output=True, timeout=20)

    def _new_key(self, name):
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", self.folder / f"{name}.pem"]

    def issue(self, name):
        """The files of a new certificate and its key."""
        cert, request, extensions = (self.folder / f"{name}.{kind}" for kind in ("crt", "csr", "ext"))
        extensions.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
        self._openssl("req", *self._new_key(name), "-out", request, "-subj", "/CN=localhost")
        self._openssl("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self.folder / f"{self.name}-ca-key.pem", "-CAcreateserial",
                      "-days", "2", "-extfile", extensions, "-out", cert)
        return cert, self.folder / f"{name}.pem"


def test_tls_to_a_store_that_is_cut_and_renewed(tmp_path):
    good, strange = Authority(tmp_path, "good"), Authority(tmp_path, "strange")
    tls_port, (cert, key) = free_port(), good.issue("first")
    options = ["--appendonly", "yes", "--tls-port", str(tls_port), "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file",
               good.ca, "--tls-auth-clients", "no"]
    with RedisServer(*map(str, options)) as redis, NatsServer() as bus, TcpProxy(tls_port) as proxy:
        use = lambda cert, key: subprocess.run(
            ["redis-cli", "-p", str(redis.resp_port), "CONFIG", "SET", "tls-cert-file", cert, "tls-key-file", key],
            check=True, capture_output=True, timeout=10)
        with pair(f"rediss://localhost:{proxy.port}?ca={good.ca}", bus) as servers, moving(servers) as progress:
            use(*good.issue("second"))
            proxy.cut()
            proxy.restore()
            progress()
            # Nobody is trusted only because they answer.
            use(*strange.issue("third"))
            proxy.cut()
            proxy.restore()
            for server in servers:
                not_ready(server, "the store does not answer")
            use(*good.issue("fourth"))
            for server in servers:
                ready(server)


class Sentinel(Server):
    name = "redis-sentinel"

    def __init__(self, primary):
        super().__init__()
        self.port = free_port()
        self.config = self.folder / "sentinel.conf"
        self.config.write_text(f"port {self.port}\nbind 127.0.0.1\nsentinel monitor mymaster 127.0.0.1 {primary.resp_port} 1\n"
                               "sentinel down-after-milliseconds mymaster 500\nsentinel failover-timeout mymaster 2000\n")

    def command(self):
        return ["redis-server", str(self.config), "--sentinel"]

    def cli(self, *arguments):
        done = subprocess.run(["redis-cli", "-p", str(self.port), *arguments], capture_output=True, text=True, timeout=10)
        return done.stdout

    def ready(self):
        return "PONG" in self.cli("PING")


def replica_of(redis):
    return RedisServer("--replicaof", "127.0.0.1", str(redis.resp_port), "--repl-diskless-sync-delay", "0")


def redis_cli(redis, *arguments):
    return subprocess.run(["redis-cli", "-p", str(redis.resp_port), *arguments], capture_output=True, text=True, timeout=10).stdout


def test_a_failover_by_sentinel_keeps_what_the_replica_had():
    with RedisStore() as primary, replica_of(primary) as replica, Sentinel(primary) as sentinel, NatsServer() as bus:
        redis_cli(primary, "CONFIG", "SET", "repl-diskless-sync-delay", "0")
        until(lambda: "master_link_status:up" in redis_cli(replica, "INFO", "replication"), "the replica to follow", 30)
        until(lambda: str(replica.resp_port) in sentinel.cli("SENTINEL", "REPLICAS", "mymaster"), "the sentinel to know the replica", 30)
        store = f"redis-sentinel://127.0.0.1:{sentinel.port}?service=mymaster&wait=1"
        with contextlib.ExitStack() as stack, pair(store, bus) as servers, moving(servers) as progress:
            primary.kill()
            until(lambda: str(replica.resp_port) in sentinel.cli("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"), "the failover", 30)
            # `wait=1` needs a replica again.
            stack.enter_context(replica_of(replica))
            for server in servers:
                ready(server, 30)
            progress()


class FarRedis(RedisServer):
    """A Redis behind a cable."""

    def __init__(self, cable):
        super().__init__()
        self.cable = cable

    @property
    def url(self):
        return f"redis://{self.cable.client}:{self.resp_port}"

    def command(self):
        return self.cable.command(["redis-server", "--port", str(self.resp_port), "--bind", self.cable.client, "--save", "",
                                   "--protected-mode", "no"])

    def ready(self):
        done = subprocess.run(["redis-cli", "-h", self.cable.client, "-p", str(self.resp_port), "PING"], capture_output=True, text=True)
        return done.stdout.strip() == "PONG"


@pytest.mark.alone
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may lose packets")
def test_five_percent_of_lost_packets_lose_nothing_else():
    cable = Cable()
    try:
        with FarRedis(cable) as redis, pair(redis.url, redis) as (a, b), Socket(a, user="ann") as ann, Socket(b, user="bob") as bob:
            bob.ok("subscribe", channel="game#talk")
            cable.lose(5)
            with moving([a, b]) as progress:
                for number in range(200):
                    ann.ok("publish", channel="game#talk", data=number)
                progress(60)
            received = [bob.event(20) for _ in range(200)]
            assert [event.get("data") for event in received] == list(range(200)), "every message, in order, without a gap"
    finally:
        cable.close()


def test_a_redis_that_cannot_read_its_log(tmp_path):
    """What a full disk and a kill leave behind: a record that is cut, and others after it."""
    with RedisStore() as redis, NatsServer() as bus, pair(redis.url, bus) as servers, Socket(servers[0], user="fan") as fan:
        fan.ok("follow", user="star")
        with moving(servers) as progress:
            redis.kill()
            log = max((redis.folder / "appendonlydir").glob("*.incr.aof"), key=lambda path: path.stat().st_size)
            text = log.read_bytes()
            hole = text.rindex(b"\r\n*", 0, len(text) * 3 // 4) + 20
            log.write_bytes(text[:hole] + text[hole + 15:])
            with pytest.raises(RuntimeError, match="exited"):
                redis.start()
            assert "Bad file format" in redis.log()
            for server in servers:
                not_ready(server, "the store does not answer")
            assert readiness(servers[0])[0] == 503
            # As Redis says: what follows the broken record is cut off. Users are present again as they are connected.
            subprocess.run(["redis-check-aof", "--fix", str(log)], input="y\n", text=True, check=True, capture_output=True, timeout=20)
            redis.start()
            for server in servers:
                ready(server)
            progress()
        assert fan.ok("following")["users"] == ["star"], "an early fact is before the hole"
