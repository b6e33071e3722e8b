"""The cluster under test: three servers, the engines of a combination, and a proxy between each server and each engine.

`Cluster.carry_out` injects one fault and ends it; `heal` ends all remaining faults.
"""
import asyncio
import contextlib
import shutil
import time

from .disk import Disk
from .engine import Nats, Postgres, Redis
from .node import Node
from .proxy import Proxy

COMBINATIONS = ("sqlite+local", "postgres+nats", "postgres+redis", "postgres+postgres", "redis+redis")
ENGINES = {"postgres": Postgres, "nats": Nats, "redis": Redis}

LEASE = 3.0
# Different numbers of threads: a session has another shard on each server.
THREADS = {"n1": 1, "n2": 2, "n3": 1}
CONFIG = """
[sessions]
resume_ms = 1000
drain_ms = 4000
[nodes]
heartbeat_ms = 500
lease_ms = 3000
[limits]
connections_per_address = 100000
[kinds.default]
grace_ms = 3000
[kinds.chat]
history_messages = 10000
history_bytes = 100000000
[kinds.canary]
grace_ms = 0
"""


class Cluster:
    def __init__(self, combination):
        self.combination = combination
        self.store, self.bus = combination.split("+")
        self.engines, self.lines, self.nodes = {}, {}, []
        # (fault, began, ended) of each fault; times of engine kills.
        self.happened, self.engine_kills = [], []
        self.unclean_stops = []
        # (when, by how much) this process was scheduled late.
        self.lates = []
        self.watchers = []
        self.disk = None

    async def start(self):
        self.disk = Disk(400 if self.store == "postgres" else 96)
        for kind in {self.store, self.bus} & set(ENGINES):
            beside = self.disk.folder.with_name(f"{self.disk.folder.name}-{kind}")
            folder = self.disk.folder / kind if kind == self.store else beside
            folder.mkdir()
            if kind == "postgres":
                # The postgres user needs access.
                self.disk.folder.chmod(0o755)
            engine = ENGINES[kind](folder)
            await asyncio.to_thread(engine.prepare)
            await engine.start()
            self.engines[kind] = engine
        for name in THREADS:
            for kind, engine in self.engines.items():
                self.lines[name, kind] = await Proxy(engine.port).start()
            data = self.disk.folder / "data" if self.store == "sqlite" else None
            self.nodes.append(Node(name, f"threads = {THREADS[name]}\n{CONFIG}", self._options(name), data))
        self.watchers = [asyncio.create_task(node.watch()) for node in self.nodes if self._spawn(node)]
        self.watchers.append(asyncio.create_task(self._notice_lateness()))
        await asyncio.gather(*(node.start() for node in self.nodes))
        return self

    @staticmethod
    def _spawn(node):
        node.spawn()
        node.wanted = True
        return True

    def _options(self, name):
        options = []
        if self.store != "sqlite":
            options += ["--store", self.address(self.store, self.lines[name, self.store].port)]
        if self.bus != "local":
            port = self.lines[name, self.bus].port
            options += ["--bus", self.address(self.bus, port) if self.bus != "nats" else f"nats://127.0.0.1:{port}"]
        return options

    @staticmethod
    def address(kind, port):
        if kind == "postgres":
            return f"postgres://postgres@127.0.0.1:{port}/postgres?schema=torture"
        return f"redis://127.0.0.1:{port}"

    def store_options(self):
        """Options for a program that uses the store directly."""
        if self.store == "sqlite":
            return ["--data", str(self.disk.folder / "data")]
        return ["--store", self.address(self.store, self.engines[self.store].port)]

    WHY_NOT_FILLED = {
        False: "disk full: needs root for a separate small disk",
        True: "disk full: twice a Redis killed later could not read its AOF (redis-check-aof --fix); the cause is unknown",
    }

    def can_fill(self):
        """Whether the disk of the store may be filled."""
        return self.disk.mounted and self.store != "redis"

    def node(self, name):
        return next(node for node in self.nodes if node.name == name)

    async def carry_out(self, fault):
        began = time.monotonic()
        try:
            await getattr(self, "_" + fault.kind.replace(" ", "_"))(fault)
        finally:
            self.happened.append((fault, began, time.monotonic()))

    async def _node_kill(self, fault):
        node = self.node(fault.target)
        node.kill()
        await asyncio.sleep(fault.seconds)
        node.spawn()
        node.wanted = True

    async def _node_pause(self, fault):
        node = self.node(fault.target)
        node.pause()
        await asyncio.sleep(fault.seconds)
        node.wake()

    _node_long_pause = _node_pause

    async def _node_restart(self, fault):
        node = self.node(fault.target)
        if not node.ready or node.is_asleep():
            return
        began = time.monotonic()
        code = await node.restart()
        if code != 0:
            self.unclean_stops.append((node.name, began, code))

    async def _clock_jump(self, fault):
        nodes = self.nodes if fault.target == "all" else [self.node(fault.target)]
        for node in nodes:
            node.server.jump(int(fault.amount))
        await asyncio.sleep(fault.seconds)
        for node in nodes:
            node.server.jump(0)

    async def _engine_kill(self, fault):
        engine = self.engines[fault.target]
        engine.kill()
        self.engine_kills.append((fault.target, time.monotonic()))
        await asyncio.sleep(fault.seconds)
        await engine.start()

    async def _engine_pause(self, fault):
        engine = self.engines[fault.target]
        engine.sleep()
        await asyncio.sleep(fault.seconds)
        engine.wake()

    async def _line(self, fault):
        names = [node.name for node in self.nodes] if fault.target == "all" else [fault.target]
        lines = [self.lines[name, fault.detail] for name in names]
        for line in lines:
            line.set_mode(fault.kind.removeprefix("line "), fault.amount)
        await asyncio.sleep(fault.seconds)
        for line in lines:
            line.set_mode("pass")

    _line_cut = _line_hole = _line_delay = _line_slow = _line

    async def _disk_full(self, fault):
        end = time.monotonic() + fault.seconds
        while time.monotonic() < end:
            await asyncio.to_thread(self.disk.fill)
            await asyncio.sleep(0.2)
        self.disk.free()
        for engine in self.engines.values():
            if not engine.is_running():
                self.engine_kills.append((engine.kind, time.monotonic()))
                await engine.start()

    async def heal(self):
        """Ends all faults."""
        if self.disk.mounted:
            self.disk.free()
        for line in self.lines.values():
            line.set_mode("pass")
        for engine in self.engines.values():
            engine.wake()
            if not engine.is_running():
                await engine.start()
        for node in self.nodes:
            node.server.jump(0)
            node.wake()
        await asyncio.gather(*(node.start() for node in self.nodes))

    async def _notice_lateness(self):
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.1)
            late = time.monotonic() - began - 0.1
            if late > 0.1:
                self.lates.append((began, late))

    async def stop(self):
        for watcher in self.watchers:
            watcher.cancel()
        for node in self.nodes:
            await node.stop()
            shutil.rmtree(node.server.folder, ignore_errors=True)
        for engine in self.engines.values():
            engine.kill()
            if not engine.folder.is_relative_to(self.disk.folder):
                shutil.rmtree(engine.folder, ignore_errors=True)
        for line in self.lines.values():
            with contextlib.suppress(Exception):
                await line.stop()
        if self.disk is not None:
            self.disk.close()
