"""The scenarios, each in rooms of its own on one running system. Those about clients run side by side; those about servers one after
another.
"""
import asyncio
import random
import shutil
import tempfile
import time
from pathlib import Path

from torture.proxy import Proxy

from . import network, scores
from .balancer import Balancer
from .driver import Driver
from .record import Client, Record
from .systems import ENGINES, SUSPENDED

# Shown in this order.
CLIENTS = {
    "tab closes": "Three users close their only tab.",
    "one of two tabs closes": "Three users close one of two tabs.",
    "page reload": "Three users reload: the tab is gone, and a second later there is a new one.",
    "cable cut": "The packets of three users are dropped for 20 s.",
    "slow network": "Three users have 24 kbit/s.",
    "200 users": "200 users come and go for 20 s.",
}
SERVERS = {
    "server killed": "kill -9 of one server; two of its users close their tabs in the same moment.",
    "server suspended": f"One server is suspended for {SUSPENDED} s.",
    "rolling restart": "Every server is stopped and started, one after another.",
    "bus cut": "Every connection of a server to the bus is cut for 8 s; meanwhile a user comes and one leaves. Where one Redis or Postgres is "
               "bus and store of Tavern, its connections to the store stay; the others do everything over one connection.",
    "store restarted": "The store is killed and starts again.",
}
WATCHERS, CROWD = 3, 200


class Run:
    """One system, started, with its record."""

    def __init__(self, system, log=print):
        self.system, self.log = system, log
        self.record = Record()
        self.folder = Path(tempfile.mkdtemp(prefix="truth-"))
        self.engines, self.lines, self.servers, self.drivers, self.cables = {}, {}, [], [], []
        self.left_out = {}
        self.ids = 0
        self.used = {}

    async def start(self):
        for kind in sorted(set(self.system.engines.values())):
            folder = self.folder / kind
            folder.mkdir()
            self.folder.chmod(0o755)
            engine = self.engines[kind] = ENGINES[kind](folder)
            await asyncio.to_thread(engine.prepare)
            await engine.start()
        for number in range(self.system.servers):
            self.lines[number] = {role: await Proxy(self.engines[kind].port).start() for role, kind in self.system.engines.items()}
            server = self.system.make({role: line.port for role, line in self.lines[number].items()}, self.folder / "data")
            await asyncio.to_thread(server.start)
            self.servers.append(server)
        self.balancer = Balancer("0.0.0.0", self.servers, self.record)
        self.errors = open(self.folder / "clients.log.txt", "ab")
        self.main = await self.driver()
        self.watching = asyncio.create_task(self._watch_cpu())
        return self

    async def driver(self, line=None):
        driver = await Driver(self.system, self.record, self.errors, line).start()
        self.drivers.append(driver)
        return driver

    async def cable(self):
        cable = network.Cable()
        self.cables.append(cable)
        return await self.driver(cable)

    async def open(self, room, user, driver=None, server=0, watch=False):
        self.ids += 1
        client = Client(f"{user}-{self.ids}", user, room, watch, driver or self.main)
        self.record.add(client)
        client.driver.open(client, await self.balancer.address(client, self.servers[server % len(self.servers)]))
        return client

    async def room(self, room, users, driver=None, servers=(0, 1, 2)):
        """A watcher on each server, and when all of them have a snapshot, users, one on each server in turn."""
        for number in range(WATCHERS):
            watcher = await self.open(room, f"watcher{number}", server=servers[number % len(servers)], watch=True)
            await self.until(lambda: any(told[0] == watcher.id for told in self.record.told), 5.0)
        return [await self.open(room, user, driver, servers[number % len(servers)]) for number, user in enumerate(users)]

    @staticmethod
    async def until(fact, timeout):
        end = time.monotonic() + timeout
        while not fact() and time.monotonic() < end:
            await asyncio.sleep(0.05)
        return fact()

    def cpu(self):
        """Seconds of processor time that servers and engines have used, also those that have ended."""
        processes = [server.process.pid for server in self.servers if server.process] + [
            process for engine in self.engines.values() for process in engine.processes()]
        self.used |= {process: max(cpu_of(process), self.used.get(process, 0.0)) for process in processes}
        return sum(self.used.values())

    async def _watch_cpu(self):
        while True:
            self.cpu()
            await asyncio.sleep(0.5)

    async def stop(self):
        self.watching.cancel()
        for driver in self.drivers:
            await driver.stop()
        await self.balancer.close()
        for server in self.servers:
            if server.suspended:
                server.wake()
            server.kill()
            shutil.rmtree(server.folder, ignore_errors=True)
        for engine in self.engines.values():
            engine.wake()
            engine.kill()
        for lines in self.lines.values():
            for line in lines.values():
                await line.stop()
        for cable in self.cables:
            cable.close()
        self.errors.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def cpu_of(process):
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / 100
    except (OSError, IndexError):
        return 0.0


async def all_of(system, log, only=None):
    """The scores by scenario, the explanations of those left out, and what was wrong in the log."""
    run = await Run(system, log).start()
    found = {}
    try:
        if not only or set(only) & set(CLIENTS):
            found |= await clients(run)
        for name, act in (("server killed", kill), ("server suspended", suspend), ("rolling restart", roll), ("bus cut", cut_bus),
                          ("store restarted", restart_store)):
            if only and name not in only:
                continue
            why = left_out(run, name)
            if why:
                run.left_out[name] = why
                continue
            log(name)
            began, cpu = time.monotonic(), run.cpu()
            rooms = await act(run)
            found[name] = scores.together([scores.judge(run.record, room, system.bounds, began, time.monotonic()) for room in rooms])
            found[name].cpu = run.cpu() - cpu
        return found, run.left_out
    finally:
        await run.stop()


def left_out(run, name):
    if name == "bus cut" and not run.engines:
        return "the servers share a folder"
    if name == "store restarted" and not run.engines:
        return "the store is a file"
    return None


async def calm(run, rooms, timeout=30.0):
    """Waits until all clients are connected, and every watcher of these rooms has a snapshot and shows what is true. If they never
    do, the scores say so, but a client that cannot connect is a fault of the harness.
    """
    await run.until(lambda: all(agrees(run, room) for room in rooms), timeout)
    out = [client.id for client in run.record.clients.values() if client.room in rooms and not client.is_connected()]
    if out:
        raise RuntimeError(f"{out[:5]} cannot connect:\n{(run.folder / 'clients.log.txt').read_text()[-2000:]}")
    await asyncio.sleep(0.5)


def agrees(run, room):
    truth = {user: timeline for (at, user), timeline in run.record.users.items() if at == room}
    for watcher, client in run.record.clients.items():
        if client.room != room or not client.watch:
            continue
        told = [(at, what, about) for one, at, what, about in run.record.told if one == watcher]
        shown, _ = scores.views(told, truth)
        if not any(what == "snapshot" for _, what, _ in told):
            return False
        if any((shown[user][-1][1] if shown[user] else False) != timeline[-1][1] for user, timeline in truth.items() if timeline):
            return False
    return all(client.is_connected() for client in run.record.clients.values() if client.room == room)


async def clients(run):
    """The scenarios about clients, side by side."""
    users, tabs = ["ann", "bob", "cid"], await run.driver()
    rooms = ["tab closes", "one of two tabs closes", "page reload"]
    key = lambda name: name.replace(" ", "-")
    await run.room(key(rooms[0]), users, tabs)
    first = await run.room(key(rooms[1]), users, tabs)
    for number, client in enumerate(first):
        await run.open(client.room, client.user, server=number + 1)
    reloads = await run.room(key(rooms[2]), users, tabs)
    if network.possible():
        rooms += ["cable cut", "slow network"]
        cut, slow = await run.cable(), await run.cable()
        await run.room(key("cable cut"), users, cut)
        await run.room(key("slow network"), users, slow)
    else:
        run.left_out |= dict.fromkeys(("cable cut", "slow network"), "needs root, nft and tc")
    rooms.append("200 users")
    await run.room(key("200 users"), ["dan"])
    await calm(run, [key(name) for name in rooms])
    run.log("clients: tabs, cables and a crowd")
    began, cpu = time.monotonic(), run.cpu()
    crowd = asyncio.create_task(come_and_go(run, key("200 users"), 20.0))
    if network.possible():
        slow.line.slow(24)
        cut.set_cable(False)
    await asyncio.sleep(2.0)
    tabs.kill()
    await asyncio.sleep(1.0)
    for number, client in enumerate(reloads):
        await run.open(client.room, client.user, server=number)
    await asyncio.sleep(17.0)
    if network.possible():
        cut.set_cable(True)
    await crowd
    await asyncio.sleep(max(run.system.bounds.values()) + 3)
    end = time.monotonic()
    found = {name: scores.judge(run.record, key(name), run.system.bounds, began, end) for name in rooms}
    found["200 users"].cpu = run.cpu() - cpu
    for client in run.record.clients.values():
        if client.driver.runs:
            client.driver.close(client)
    return found


async def come_and_go(run, room, seconds):
    """Each user of the crowd opens a tab, leaves after a while, and perhaps comes back."""
    rng = random.Random(7)
    end = time.monotonic() + seconds

    async def one(number):
        await asyncio.sleep(rng.uniform(0, seconds * 0.4))
        while time.monotonic() < end:
            client = await run.open(room, f"user{number}", server=number)
            await asyncio.sleep(rng.uniform(3.0, 10.0))
            run.main.close(client)
            await asyncio.sleep(rng.uniform(6.0, 12.0))

    await asyncio.gather(*(one(number) for number in range(CROWD)))


def victim(run):
    return run.servers[1 % len(run.servers)]


async def users_of_servers(run, name):
    room = name.replace(" ", "-")
    await run.room(room, [f"user{number}" for number in range(9)])
    return room


async def kill(run):
    room = await users_of_servers(run, "server killed")
    gone = await run.driver()
    for user in ("gone1", "gone2"):
        await run.open(room, user, gone, server=1)
    await calm(run, [room])
    server = victim(run)
    server.kill()
    run.record.look_at(run.record.of_server(server), "server")
    gone.kill()
    if len(run.servers) == 1:
        await asyncio.sleep(1.0)
        await asyncio.to_thread(server.start)
    await asyncio.sleep(run.system.bounds["server"] + 6)
    if len(run.servers) > 1:
        await asyncio.to_thread(server.start)
    await asyncio.sleep(4)
    return [room]


async def suspend(run):
    room = await users_of_servers(run, "server suspended")
    await calm(run, [room])
    server = victim(run)
    clients = run.record.of_server(server)
    server.suspend()
    run.record.look_at(clients, "server")
    await asyncio.sleep(SUSPENDED)
    server.wake()
    run.record.look_at(run.record.of_server(server), "server")
    await asyncio.sleep(max(run.system.bounds.values()) + 2)
    return [room]


async def roll(run):
    room = await users_of_servers(run, "rolling restart")
    await calm(run, [room])
    for server in run.servers:
        await asyncio.to_thread(end_gracefully, server)
        await asyncio.to_thread(server.start)
        await asyncio.sleep(3)
    await asyncio.sleep(max(run.system.bounds.values()))
    return [room]


def end_gracefully(server):
    try:
        server.terminate(25)
    except Exception:
        # A server that does not end by itself is killed by `terminate`.
        pass


async def cut_bus(run):
    room = await users_of_servers(run, "bus cut")
    leaves = await run.open(room, "leaves", server=2)
    await calm(run, [room])
    lines = [lines["bus"] for lines in run.lines.values()]
    for line in lines:
        line.set_mode("cut")
    await asyncio.sleep(1)
    run.main.close(leaves)
    await run.open(room, "comes", server=0)
    await asyncio.sleep(7)
    for line in lines:
        line.set_mode("pass")
    await asyncio.sleep(max(run.system.bounds.values()) + 2)
    return [room]


async def restart_store(run):
    room = await users_of_servers(run, "store restarted")
    await calm(run, [room])
    engine = run.engines[run.system.engines.get("store", run.system.engines["bus"])]
    engine.kill()
    await asyncio.sleep(1)
    await engine.start()
    await asyncio.sleep(max(run.system.bounds.values()) + 2)
    return [room]
