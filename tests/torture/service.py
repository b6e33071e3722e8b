"""A backend service: by REST it sets presence, visibility and follows and reads last_seen; with the CLI it creates and revokes keys.
All of these are facts.
"""
import asyncio
import collections
import json
import random
import time
import urllib.parse

import httpx

from support.tavern import ADMIN_KEY, program

TIMEOUT = 25.0
VISIBILITIES = ("everyone", "nobody", "followers_i_follow")


class Failed(Exception):
    """No response, or one that asks for a retry."""


FAILURES = (Failed, httpx.HTTPError, OSError, asyncio.TimeoutError)


class Service:
    def __init__(self, cluster, seed, facts, holds, hiders, followers, followed, watched):
        self.cluster, self.facts = cluster, facts
        self.rng = random.Random(f"service {seed}")
        self.http = httpx.AsyncClient(
            headers={"authorization": f"Bearer {ADMIN_KEY}"}, timeout=TIMEOUT, trust_env=False,
            limits=httpx.Limits(max_keepalive_connections=0))
        self.holds, self.hiders, self.followers, self.followed, self.watched = holds, hiders, followers, followed, watched
        for channel, user in holds:
            facts.fact(("hold", channel, user), False)
        for user in hiders:
            facts.fact(("visibility", user), "everyone")
        for user in followers:
            for user_followed in followed:
                facts.fact(("follow", user, user_followed), False)
        # (asked, answered, user, last seen); (code, retry after) of each refusal; (what, node, seconds, began) without a response.
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
            await asyncio.sleep(self.rng.uniform(0.5, 1.5) * pause)

    async def request(self, method, path, node=None, **more):
        node = node or self.rng.choice(self.cluster.nodes)
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
        channel, user = self.rng.choice(self.holds)
        key = ("hold", channel, user)
        if not self.facts.is_free(key):
            return
        on = not self.facts.known[key].value
        path = f"/v1/channels/{urllib.parse.quote(channel, safe='')}/presence/{user}"
        act = (lambda: self.request("PUT", path, json={"ttl_s": 7200})) if on else (lambda: self.request("DELETE", path))
        await self.facts.change(key, on, act, FAILURES)

    async def hide(self):
        user = self.rng.choice(self.hiders)
        key = ("visibility", user)
        if not self.facts.is_free(key):
            return
        value = self.rng.choice([value for value in VISIBILITIES if value != self.facts.known[key].value])
        act = lambda: self.request("PUT", f"/v1/users/{user}/visibility", json={"value": value})
        await self.facts.change(key, value, act, FAILURES)

    async def follow(self):
        key = ("follow", self.rng.choice(self.followers), self.rng.choice(self.followed))
        if not self.facts.is_free(key):
            return
        on = not self.facts.known[key].value
        act = lambda: self.request("PUT" if on else "DELETE", f"/v1/users/{key[1]}/following/{key[2]}")
        await self.facts.change(key, on, act, FAILURES)

    async def look(self):
        user, asked = self.rng.choice(self.watched), time.monotonic()
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
            program(), *arguments, *self.cluster.store_options(), stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE, env=self.cluster.nodes[0].server.environment())
        try:
            out, _ = await asyncio.wait_for(process.communicate(), TIMEOUT)
        except asyncio.TimeoutError:
            process.kill()
            await process.wait()
            raise
        if process.returncode != 0:
            raise Failed(arguments)
        return out.decode()

    async def close(self):
        await self.http.aclose()
