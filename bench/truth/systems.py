"""The systems that are compared: how each is started, with its best documented settings, and the bounds that these settings promise.

`bounds`: the seconds after which a user must be shown as offline, by what happened: the connection was closed (`lost`), packets stopped
(`cut`), or the server died or was suspended (`server`).
"""
import dataclasses
import http.client
import pathlib
import signal

from support.process import Server, free_port
from support.tavern import Tavern
from torture.engine import Nats, Postgres, Redis

from .driver import MODULES

HERE = pathlib.Path(__file__).resolve().parent
ENGINES = {"postgres": Postgres, "nats": Nats, "redis": Redis}
GRACE, LEASE, PING = 5, 4, 3
# How long the scenario suspends a server.
SUSPENDED = 15
CONFIG = f"""
[sessions]
heartbeat_ms = {PING * 1000}
[nodes]
heartbeat_ms = 1000
lease_ms = {LEASE * 1000}
[limits]
connections_per_address = 100000
[kinds.default]
grace_ms = {GRACE * 1000}
[kinds.radar-presence]
grace_ms = {GRACE * 1000}
[kinds.pusher-app]
grace_ms = {GRACE * 1000}
[[pusher.apps]]
id = "app"
key = "app-key"
secret = "app-secret"
"""


class Suspendable:
    """What the harness does to a server process, and whether it serves."""

    suspended = False

    @property
    def serves(self):
        return self.process is not None and self.process.poll() is None and not self.suspended

    def suspend(self):
        self.suspended = True
        self.process.send_signal(signal.SIGSTOP)

    def wake(self):
        self.process.send_signal(signal.SIGCONT)
        self.suspended = False


class TavernServer(Suspendable, Tavern):
    pass


class NodeServer(Suspendable, Server):
    """A server that is a program in this folder."""

    def __init__(self, program, redis_port, more):
        super().__init__()
        self.name, self.program, self.port, self.redis_port, self.more = program, program, free_port(), redis_port, more

    def command(self):
        return ["node", str(HERE / self.program), str(self.port), str(self.redis_port), str(MODULES), *map(str, self.more)]

    def ready(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        try:
            connection.request("GET", "/")
            return connection.getresponse().status < 500
        except OSError:
            return False
        finally:
            connection.close()


class SockudoServer(NodeServer):
    """Sockudo, from crates.io, with its Redis adapter."""

    def command(self):
        return [str(self.more[0])]

    def environment(self):
        redis = f"redis://127.0.0.1:{self.redis_port}/"
        node = {"ENABLED": "true", "HEARTBEAT_INTERVAL": 1000, "NODE_TIMEOUT": LEASE * 1000, "CLEANUP_INTERVAL": 1000}
        settings = {
            "HOST": "127.0.0.1", "PORT": self.port, "REDIS_URL": redis, "DATABASE_REDIS_HOST": "127.0.0.1", "DATABASE_REDIS_PORT": self.redis_port,
            "ADAPTER_DRIVER": "redis", "CACHE_DRIVER": "redis", "QUEUE_DRIVER": "redis", "METRICS_ENABLED": "false", "RATE_LIMITER_ENABLED": "false",
            "ACTIVITY_TIMEOUT": PING, "WEBSOCKET_AUTO_PING": "true", "WEBSOCKET_PING_INTERVAL": PING, "WEBSOCKET_IDLE_TIMEOUT": 2 * PING,
            "PRESENCE_UNGRACEFUL_TIMEOUT_SECONDS": GRACE, "PRESENCE_MAX_MEMBERS_PER_CHANNEL": 1000,
            **{f"CLUSTER_HEALTH_{name}": value for name, value in node.items()},
            **{f"SOCKUDO_DEFAULT_APP_{name}": value for name, value in
               {"ID": "app", "KEY": "app-key", "SECRET": "app-secret", "ENABLED": "true", "MAX_CONNECTIONS": 10_000,
                "MAX_PRESENCE_MEMBERS_PER_CHANNEL": 1000}.items()}}
        return {"PATH": "/usr/bin:/bin", **{name: str(value) for name, value in settings.items()}}


@dataclasses.dataclass
class System:
    name: str
    # The adapter in driver.mjs.
    client: str
    # Engines by what they are for; each server has a line of its own to each, which can be cut.
    engines: dict
    settings: str
    # A function of the ports of the lines and a folder that makes a server.
    make: object
    servers: int = 3
    bounds: dict = dataclasses.field(default_factory=lambda: {"lost": GRACE, "cut": 2 * PING + GRACE, "server": LEASE + GRACE})


def tavern(name, combination, client="tavern", servers=3):
    store, bus = combination.split("+")
    urls = {"postgres": "postgres://postgres@127.0.0.1:{}/postgres?schema=truth", "redis": "redis://127.0.0.1:{}", "nats": "nats://127.0.0.1:{}"}

    def make(ports, folder):
        options = [] if store == "sqlite" else ["--store", urls[store].format(ports["store"])]
        options += [] if bus == "local" else ["--bus", urls[bus].format(ports["bus"])]
        return TavernServer("dev", CONFIG, options, data=folder if store == "sqlite" else None)

    settings = f"lease {LEASE} s, grace {GRACE} s, heartbeat of connections {PING} s"
    engines = {role: kind for role, kind in (("store", store), ("bus", bus)) if kind in ENGINES}
    system = System(name, client, engines, settings, make, servers)
    if servers == 1:
        # Nobody else can tell: the grace period begins when the server serves again, here after 15 s.
        system.bounds["server"] = SUSPENDED + GRACE
    return system


def on_redis(name, client, program, settings, more=(), kind=NodeServer):
    # Their clients of Redis do everything over one connection.
    return System(name, client, {"bus": "redis"}, settings, lambda ports, _: kind(program, ports["bus"], more))


def systems(sockudo=None):
    """By name. `sockudo`: its program, if there is one."""
    found = [
        tavern("tavern, one server", "sqlite+local", servers=1),
        tavern("tavern, sqlite+local", "sqlite+local"),
        tavern("tavern, postgres+nats", "postgres+nats"),
        tavern("tavern, redis+redis", "redis+redis"),
        tavern("tavern, postgres+redis", "postgres+redis"),
        tavern("tavern, postgres+postgres", "postgres+postgres"),
        tavern("tavern, pusher clients", "postgres+postgres", client="pusher"),
        tavern("tavern, radar clients", "postgres+redis", client="radar"),
        on_redis("radar 0.43.1", "radar", "radar_server.cjs",
                 f"userExpirySeconds {GRACE}; sentry: expiryOffset {LEASE} s, refreshed and checked every second; Engine.IO ping {PING} s + {PING} s",
                 [GRACE]),
        on_redis("socket.io 4.8.4", "socketio", "socketio_server.cjs",
                 f"@socket.io/redis-adapter 8.3.0; pingInterval {PING} s, pingTimeout {PING} s; a user is online while fetchSockets finds them"),
        on_redis("a hash in Redis", "homemade", "homemade_server.cjs",
                 f"`ws` and a counter for each user in a hash; ping every {PING} s; 40 lines"),
    ]
    if sockudo:
        settings = (f"redis adapter and cache; cluster health: heartbeat 1 s, node timeout {LEASE} s; ungraceful timeout of presence {GRACE} s; "
                    f"ping {PING} s, idle timeout {2 * PING} s; pusher-js 8.6.0")
        found.append(on_redis("sockudo 5.2.0", "pusher", "sockudo", settings, [sockudo], SockudoServer))
    return {system.name: system for system in found}
