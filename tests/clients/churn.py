"""Clients that join, update, leave and disconnect in one channel at random, from a seed."""
import random

from support.json_client import Socket


class Churn:
    def __init__(self, servers, channel, clients, seed):
        self.servers = [server for server in servers if server.process.poll() is None]
        self.channel, self.seed = channel, seed
        self.rand = random.Random(seed)
        # Fewer users than clients: some users have two.
        self.names = [f"user-{seed}-{number % (clients * 2 // 3 or 1)}" for number in range(clients)]
        self.clients = [None] * clients
        self.closed = []

    def run(self, rounds):
        for number in range(rounds):
            self.step(self.rand.randrange(len(self.clients)), number)

    def step(self, at, number):
        client = self.clients[at]
        if client is None:
            self.clients[at] = client = Socket(self.rand.choice(self.servers), user=self.names[at])
            client.ok("join", channel=self.channel, state={"n": number})
            return
        act = self.rand.choice(["update", "update", "leave", "join", "bye", "drop"])
        if act == "bye":
            client.ok("bye")
        elif act == "drop":
            client.drop()
        elif act == "leave":
            client.ok("leave", channel=self.channel)
        else:
            client.ok("join", channel=self.channel, state={"n": number})
        if act in ("bye", "drop"):
            self.closed.append(client)
            self.clients[at] = None

    def close(self):
        for client in [*self.closed, *filter(None, self.clients)]:
            client.close()
