"""Many clients that survive server restarts: they obey `closing`, reconnect to any server, and check every sequence number.

`CrowdClient` is one client; `Publisher` publishes continuously and counts what was accepted; `Crowd` is all of them.
Must hold for a client: `seq` has no gaps or duplicates, every session is resumed, each publisher's messages arrive complete and in order.
"""
import asyncio
import collections
import json
import random
import time

import websockets.asyncio.client
import websockets.exceptions

WAIT = 20


async def connect(server, user):
    return await websockets.asyncio.client.connect(
        f"{server.ws_url}?user={user}", compression=None, ping_interval=None, max_queue=4096, open_timeout=WAIT, proxy=None,
        close_timeout=1,
    )


async def connect_any(servers, user, rng):
    """Connects to any server; some are down or stopping."""
    end = time.monotonic() + WAIT
    while True:
        server = rng.choice(servers)
        try:
            socket = await connect(server, user)
            hello = json.loads(await asyncio.wait_for(socket.recv(), WAIT))
            if "ok" not in hello:
                # It is stopping, or has just started.
                await socket.close()
                raise OSError(str(hello))
            return socket, hello["ok"]
        except (OSError, websockets.exceptions.WebSocketException, asyncio.TimeoutError):
            if time.monotonic() > end:
                raise
            await asyncio.sleep(rng.uniform(0.05, 0.3))


class CrowdClient:
    def __init__(self, name, servers, home, channels, watches=(), joins=(), follows=()):
        self.name, self.servers, self.home = name, servers, home
        self.channels, self.watches, self.joins, self.follows = channels, watches, joins, follows
        self.rng = random.Random(name)
        self.seq, self.ids = 0, 0
        self.received = collections.defaultdict(list)
        self.changes = []
        self.failures = []
        self.moves, self.longest = 0, 0.0
        # Reconnects: time, node, last seq.
        self.log = []
        # What it waits for while disconnected.
        self.waiting_for = None
        self.stopped = False

    async def begin(self):
        self.socket = await connect(self.home, self.name)
        hello = json.loads(await self.socket.recv())["ok"]
        self.session, self.client_id = hello["session"], hello["client"]
        for channel in self.channels:
            await self.ok(op="subscribe", channel=channel)
        for channel in self.watches:
            await self.ok(op="subscribe", channel=channel, presence=True)
        for channel in self.joins:
            await self.ok(op="join", channel=channel, state={"of": self.name})
        for user in self.follows:
            await self.ok(op="follow", user=user)

    async def ok(self, **command):
        self.ids += 1
        number = self.ids
        await self.socket.send(json.dumps({"id": number} | command))
        while True:
            frame = json.loads(await asyncio.wait_for(self.socket.recv(), WAIT))
            if frame.get("id") == number:
                assert "ok" in frame, frame
                return frame["ok"]
            self.take(frame)

    def take(self, frame):
        if frame.get("event") == "closing":
            return frame["reconnect_after_ms"]
        if "seq" not in frame:
            self.failures.append(f"{self.name}: {frame}")
            return None
        if frame["seq"] != self.seq + 1:
            self.failures.append(f"{self.name}: {frame['seq']} after {self.seq}: {frame}")
        self.seq = frame["seq"]
        if frame["event"] == "message":
            self.received[frame["data"]["of"]].append(frame["data"]["n"])
        else:
            self.changes.append(frame)
        return None

    async def run(self):
        """Reads until stopped; reconnects after each disconnect."""
        while not self.stopped:
            try:
                after = self.take(json.loads(await self.socket.recv()))
            except websockets.exceptions.ConnectionClosed:
                after = 0 if not self.stopped else None
            if after is not None and not self.stopped:
                self.waiting_for = "reconnect_after_ms"
                await self.socket.close()
                await asyncio.sleep(after / 1000)
                await self.reconnect()

    async def reconnect(self):
        began = time.monotonic()
        self.waiting_for = "a connection"
        self.socket, hello = await connect_any(self.servers, self.name, self.rng)
        self.waiting_for = f"a reply from {hello['node']}"
        try:
            await self.socket.send(json.dumps({"id": 0, "op": "hello", "session": self.session, "seq": self.seq}))
            reply = json.loads(await asyncio.wait_for(self.socket.recv(), WAIT))
            while reply.get("id") != 0:
                reply = json.loads(await asyncio.wait_for(self.socket.recv(), WAIT))
        except websockets.exceptions.ConnectionClosed:
            # This server is stopping too: try the next.
            return await self.reconnect()
        if reply.get("error", {}).get("code") in ("gone", "unavailable"):
            # The session has just left this server, or too many clients connect: again, as every client does.
            await self.socket.close()
            await asyncio.sleep(max(0.05, reply["error"].get("retry_after_ms", 0) / 1000))
            return await self.reconnect()
        self.moves += 1
        self.log.append((round(began, 2), hello["node"], self.seq))
        self.longest = max(self.longest, time.monotonic() - began)
        if "ok" not in reply or not reply["ok"]["resumed"] or reply["ok"]["client"] != self.client_id:
            self.failures.append(f"{self.name} was not resumed: {reply}")
            self.stopped = True
            return None
        self.session, self.waiting_for = reply["ok"]["session"], None


class Publisher:
    """Publishes numbered messages on a channel; after each reconnect it starts a new numbering under a new name."""

    def __init__(self, name, servers, channel, pause):
        self.name, self.servers, self.channel, self.pause = name, servers, channel, pause
        self.rng = random.Random(name)
        # Accepted messages by publisher name; one more may be in flight.
        self.accepted = {}
        self.stopped = False

    async def run(self):
        lives = 0
        while not self.stopped:
            lives += 1
            of = f"{self.name}.{lives}"
            self.accepted[of] = 0
            socket, _ = await connect_any(self.servers, self.name, self.rng)
            try:
                while not self.stopped:
                    message = {"of": of, "n": self.accepted[of]}
                    await socket.send(json.dumps({"id": 1, "op": "publish", "channel": self.channel, "data": message}))
                    while "ok" not in json.loads(await asyncio.wait_for(socket.recv(), WAIT)):
                        pass
                    self.accepted[of] += 1
                    await asyncio.sleep(self.pause)
                await socket.close()
            except websockets.exceptions.ConnectionClosed:
                pass


class Crowd:
    """Clients spread over the servers, in rooms of ten: all subscribe, join and follow others; one per room watches presence."""

    def __init__(self, servers, count, publishers=3, pause=0.02):
        rooms = max(1, count // 10)
        self.clients = []
        for n in range(count):
            room = f"game#r{n % rooms}"
            watches = [room] if n < rooms else []
            channels = [room, f"own#g{n}"] + (["hall#all"] if n % 4 == 0 else [])
            # On this server and on another.
            follows = [f"g{(n + step) % count}" for step in (1, len(servers) * 2)]
            self.clients.append(CrowdClient(f"g{n}", servers, servers[n % len(servers)], channels, watches, [room], follows))
        names = ["hall#all"] + [f"game#r{n % rooms}" for n in range(publishers - 1)]
        self.publishers = [Publisher(f"s{n}", servers, name, pause) for n, name in enumerate(names)]
        self.tasks = []

    async def begin(self):
        await self.in_batches(self.clients, lambda client: client.begin())
        # After all join events have arrived, no further presence or status event is expected.
        for _ in range(10):
            for client in self.clients:
                client.changes.clear()
            await asyncio.sleep(1.5)
            for client in self.clients:
                await client.ok(op="ping")
            # On a busy machine some arrive later.
            if not any(client.changes for client in self.clients):
                break
        self.tasks = [asyncio.create_task(one.run()) for one in self.clients + self.publishers]

    @staticmethod
    async def in_batches(clients, action, size=50):
        for first in range(0, len(clients), size):
            await asyncio.gather(*map(action, clients[first:first + size]))

    @staticmethod
    async def until(fact, timeout):
        """Waits for the fact, then a moment longer for unexpected events."""
        end = time.monotonic() + timeout
        while not fact() and time.monotonic() < end:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)

    def all_connected(self):
        return not any(client.waiting_for for client in self.clients)

    def all_received(self):
        return self.all_connected() and all(
            len(client.received[of]) >= count for client in self.clients for publisher in self.publishers
            if publisher.channel in client.channels for of, count in publisher.accepted.items())

    async def check(self):
        """Returns failures: missing or duplicate messages, lost sessions, unexpected presence events."""
        for publisher in self.publishers:
            publisher.stopped = True
        await asyncio.gather(*self.tasks[len(self.clients):])
        await self.until(self.all_received, 3)
        failures = []
        for client, task in zip(self.clients, self.tasks):
            failures += client.failures
            if task.done():
                failures.append(f"{client.name} ({client.client_id}) failed: {task.exception()!r}")
            elif client.waiting_for:
                failures.append(f"{client.name} ({client.client_id}) is disconnected, waiting for {client.waiting_for}")
            if client.changes:
                failures.append(f"{client.name} got unexpected events {client.changes[:3]}")
            for publisher in (s for s in self.publishers if s.channel in client.channels):
                for of, count in publisher.accepted.items():
                    numbers = client.received[of]
                    if numbers != list(range(len(numbers))) or not count <= len(numbers) <= count + 1:
                        missing = sorted(set(range(count)) - set(numbers))
                        failures.append(f"{client.name} received {len(numbers)} of {count} from {of}, missing {missing[:5]}; reconnects {client.log}")
            client.stopped = True
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await asyncio.gather(*(client.socket.close() for client in self.clients), return_exceptions=True)
        return failures
