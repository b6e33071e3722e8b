"""Strangers who come, change, go and are lost in one channel, by a seed."""
import random

from support.json_client import Socket


class Storm:
    def __init__(self, servers, channel, guests, seed):
        self.servers = [server for server in servers if server.process.poll() is None]
        self.channel, self.seed = channel, seed
        self.dice = random.Random(seed)
        # Fewer users than guests: some have two clients.
        self.names = [f"guest-{seed}-{number % (guests * 2 // 3 or 1)}" for number in range(guests)]
        self.guests = [None] * guests
        self.retired = []

    def rage(self, rounds):
        for number in range(rounds):
            self.turn(self.dice.randrange(len(self.guests)), number)

    def turn(self, at, number):
        guest = self.guests[at]
        if guest is None:
            self.guests[at] = guest = Socket(self.dice.choice(self.servers), user=self.names[at])
            guest.ok("join", channel=self.channel, state={"n": number})
            return
        act = self.dice.choice(["update", "update", "leave", "join", "bye", "drop"])
        if act == "bye":
            guest.ok("bye")
        elif act == "drop":
            guest.drop()
        elif act == "leave":
            guest.ok("leave", channel=self.channel)
        else:
            guest.ok("join", channel=self.channel, state={"n": number})
        if act in ("bye", "drop"):
            self.retired.append(guest)
            self.guests[at] = None

    def close(self):
        for guest in [*self.retired, *filter(None, self.guests)]:
            guest.close()
