"""An application beside the servers: by REST it holds users in channels, hides them, has them follow, reads when they were last
seen; by the command line it makes and revokes keys. All of it are facts.
"""
import asyncio
import collections
import json
import random
import time
import urllib.parse

import httpx

from support.tavern import ADMIN_KEY, program

PATIENCE = 25.0
VISIBILITIES = ("everyone", "nobody", "followers_i_follow")


class Failed(Exception):
    """No answer, or one that asks to try again."""


FAILURES = (Failed, httpx.HTTPError, OSError, asyncio.TimeoutError)


class Service:
    def __init__(self, world, seed, facts, holds, hiders, followers, stars, watched):
        self.world, self.facts = world, facts
        self.dice = random.Random(f"service {seed}")
        self.http = httpx.AsyncClient(
            headers={"authorization": f"Bearer {ADMIN_KEY}"}, timeout=PATIENCE, trust_env=False,
            limits=httpx.Limits(max_keepalive_connections=0))
        self.holds, self.hiders, self.followers, self.stars, self.watched = holds, hiders, followers, stars, watched
        for channel, user in holds:
            facts.fact(("hold", channel, user), False)
        for user in hiders:
            facts.fact(("visibility", user), "everyone")
        for user in followers:
            for star in stars:
                facts.fact(("follow", user, star), False)
        # (asked, answered, user, last seen); (code, retry after) of each refusal; (what, node, seconds, began) without an answer.
        self.seen, self.refused, self.hangs = [], [], []
        self.answered = 0
        self.keys = {}
        self.counts = collections.Counter()
        self.quiet = False

    def tasks(self):
        acts = [(self.hold, 0.5), (self.hide, 1.5), (self.follow, 0.7), (self.look, 0.3), (self.make_or_revoke_key, 5.0)]
        return [self.repeat(act, pause) for act, pause in acts]

    async def repeat(self, act, pause):
        while not self.quiet:
            await act()
            await asyncio.sleep(self.dice.uniform(0.5, 1.5) * pause)

    async def request(self, method, path, node=None, **more):
        node = node or self.dice.choice(self.world.nodes)
        began = time.monotonic()
        what = f"{method} {path.split('/')[2]}"
        self.counts[what] += 1
        try:
            response = await self.http.request(method, node.url + path, **more)
        except httpx.ReadTimeout:
            self.hangs.append((what, node.name, time.monotonic() - began, began))
            raise
        self.answered += 1
        if response.status_code == 200:
            return response.json()
        error = response.json().get("error", {}) if response.content else {}
        self.refused.append((error.get("code", response.status_code), error.get("retry_after_ms")))
        raise Failed(response.status_code)

    async def hold(self):
        channel, user = self.dice.choice(self.holds)
        key = ("hold", channel, user)
        if not self.facts.is_free(key):
            return
        on = not self.facts.known[key].value
        path = f"/v1/channels/{urllib.parse.quote(channel, safe='')}/presence/{user}"
        act = (lambda: self.request("PUT", path, json={"ttl_s": 7200})) if on else (lambda: self.request("DELETE", path))
        await self.facts.change(key, on, act, FAILURES)

    async def hide(self):
        user = self.dice.choice(self.hiders)
        key = ("visibility", user)
        if not self.facts.is_free(key):
            return
        value = self.dice.choice([value for value in VISIBILITIES if value != self.facts.known[key].value])
        act = lambda: self.request("PUT", f"/v1/users/{user}/visibility", json={"value": value})
        await self.facts.change(key, value, act, FAILURES)

    async def follow(self):
        key = ("follow", self.dice.choice(self.followers), self.dice.choice(self.stars))
        if not self.facts.is_free(key):
            return
        on = not self.facts.known[key].value
        act = lambda: self.request("PUT" if on else "DELETE", f"/v1/users/{key[1]}/following/{key[2]}")
        await self.facts.change(key, on, act, FAILURES)

    async def look(self):
        user, asked = self.dice.choice(self.watched), time.monotonic()
        try:
            answer = await self.request("GET", f"/v1/users/{user}")
        except FAILURES:
            return
        self.seen.append((asked, time.monotonic(), user, answer["last_seen"]))

    async def make_or_revoke_key(self):
        good = [name for name, key in self.keys.items() if self.facts.known["key", name].value]
        if len(good) > 3 and self.facts.is_free(("key", good[0])):
            name = good[0]
            act = lambda: self.run("key", "revoke", self.keys[name][0])
            return await self.facts.change(("key", name), False, act, FAILURES)
        name = f"torture-{len(self.keys)}"
        try:
            key = (await self.run("key", "create", "--name", name, "--scopes", "presence")).strip()
            listed = await self.run("key", "list", "--json")
        except FAILURES:
            return None
        number = next((row["id"] for row in map(json.loads, listed.splitlines()) if row["name"] == name), None)
        self.keys[name] = number, key
        self.facts.fact(("key", name), False).acknowledged.append((time.monotonic(), True))
        self.facts.counts["key", "acknowledged"] += 1
        return None

    async def run(self, *arguments):
        self.counts["tavern " + " ".join(arguments[:2])] += 1
        process = await asyncio.create_subprocess_exec(
            program(), *arguments, *self.world.straight_to_the_store(), stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE, env=self.world.nodes[0].server.environment())
        try:
            out, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
        except asyncio.TimeoutError:
            process.kill()
            await process.wait()
            raise
        if process.returncode != 0:
            raise Failed(arguments)
        return out.decode()

    async def close(self):
        await self.http.aclose()
