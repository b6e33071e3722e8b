"""One torture of one combination: the load, the schedule, the time to settle, the verdicts."""
import asyncio
import collections
import dataclasses
import pathlib
import time

from .checks import facts, health, messages, people, rosters
from .load import Load
from .schedule import schedule
from .world import LEASE, World

SETTLE = 45.0
# What stands in a history, as it is counted in the report.
OPERATIONS = {"message": "messages heard", "told": "events heard", "session": "hello", "who": "who", "subscribed": "subscribe",
              "gap": "gaps announced", "down": "transports lost"}
# Codes that ask a client to try again.
KNOWN_CODES = {"unavailable", "busy", "conflict", "gone", "internal"}


@dataclasses.dataclass
class Result:
    combination: str
    seed: int
    seconds: float
    faults: collections.Counter
    left_out: list
    operations: collections.Counter
    verdicts: list
    settled_after: float
    broke: list

    @property
    def violations(self):
        return sum(len(verdict.violations) for verdict in self.verdicts) + len(self.broke)


async def torture(combination, seed, seconds, size=1.0, say=print, keep=None):
    world = World(combination)
    load = None
    try:
        await world.start()
        load = Load(world, seed, size)
        load.begin()
        faults = schedule(seed, seconds, [node.name for node in world.nodes], sorted(world.engines), world.can_fill())
        await carry_out(world, load, faults, seconds, say)
        say("the faults are over")
        await asyncio.wait_for(world.heal(), 90)
        healed = time.monotonic()
        load.be_quiet()
        settled = await load.settle(SETTLE)
        settled_after = time.monotonic() - healed
        say(f"{'' if settled else 'not '}settled after {settled_after:.1f} s {load.unsettled()[:10] or ''}")
        await load.say_last_words()
        await asyncio.sleep(2.5)
        read = await load.read_facts()
        servers = await load.read_rosters()
        await load.end()
        verdicts = judge(world, load, read, servers, healed)
        result = Result(combination, seed, seconds, collections.Counter(fault.kind for fault, _, _ in world.happened),
                        [] if world.can_fill() else [world.WHY_NOT_FILLED[world.disk.mounted]],
                        operations(load), verdicts, settled_after, [repr(error) for error in load.failures()])
        if keep and result.violations:
            keep_evidence(pathlib.Path(keep), world, load, result)
        return result
    finally:
        if load is not None:
            await load.end()
        await world.stop()


async def carry_out(world, load, faults, seconds, say):
    began = time.monotonic()
    running = []

    async def later(fault):
        await asyncio.sleep(max(0.0, began + fault.at - time.monotonic()))
        say(str(fault))
        await world.carry_out(fault)

    running = [asyncio.create_task(later(fault)) for fault in faults]
    try:
        await asyncio.sleep(seconds)
        done = await asyncio.wait_for(asyncio.gather(*running, return_exceptions=True), 120)
        broke = [error for error in done if isinstance(error, Exception)]
        if broke:
            raise broke[0]
        if load.failures():
            raise load.failures()[0]
    finally:
        for task in running:
            task.cancel()


def operations(load):
    counts = collections.Counter()
    for client in load.clients:
        for entry in client.log:
            counts[OPERATIONS.get(entry[1], "")] += 1
            if entry[1] == "session" and not entry[5]:
                counts["sessions resumed"] += 1
            if entry[1] == "refused":
                counts["answered " + entry[3]] += 1
        counts["join, update, leave"] += client.turn
    counts.pop("", None)
    words = [word for life in load.lives for word in life.words]
    counts["publish"] = len(words)
    counts["publish acknowledged"] = sum(1 for word in words if word[2] is not None)
    for (kind, what), count in load.facts.counts.items():
        counts[f"{kind} {what}"] += count
    counts["reads of last seen"] = len(load.service.seen)
    for code, _ in load.service.refused:
        counts[f"answered {code}"] += 1
    return counts


def judge(world, load, read, servers, healed):
    order, snapshots, views = rosters.watchers_are_told_in_order([*load.guests, *load.canaries])
    kills = {(node.name, life) for node in world.nodes for life, _ in node.kills}
    losses = [when for kind, when in world.engine_kills if kind == "redis" and world.store == "redis"]
    hangs = [(entry[2], entry[3], entry[4], entry[5]) for client in load.clients for entry in client.log if entry[1] == "hang"]
    hangs += [hang for one in [*load.speakers, load.service] for hang in one.hangs]
    answered = sum(one.answered for one in [*load.clients, *load.speakers, load.service])
    refusals = [(entry[3], entry[4]) for client in load.clients for entry in client.log if entry[1] == "refused"]
    refusals += [refusal for one in [*load.speakers, load.service] for refusal in one.refused]
    return [
        messages.mailboxes_have_no_holes(load.clients),
        messages.words_come_once_and_in_order(load.guests, load.lives),
        messages.every_hole_is_announced(load.guests, load.lives, kills),
        order,
        snapshots,
        rosters.everybody_agrees_at_the_end(views, servers, load.rosters()),
        facts.acknowledged_facts_are_there(load.facts, read, losses),
        facts.last_seen_never_goes_back(load.service.seen, losses),
        people.followers_know_the_truth(load.beliefs(), load.statuses()),
        people.nothing_is_heard_after_unfollow(load.fans),
        health.servers_live(world.nodes, world.unclean_stops),
        health.every_command_is_answered(answered, hangs, world.nodes),
        health.refusals_say_when_to_return(refusals, KNOWN_CODES),
        health.readiness_tells_the_truth(world.nodes, outages(world), healed),
        health.memory_is_bounded(world.nodes),
        health.death_is_seen(deaths(world), load.canaries, LEASE),
        health.fenced_servers_come_back(long_pauses(world), load.canaries),
    ]


def outages(world):
    """When each server could not reach the store."""
    found = []
    for fault, began, ended in world.happened:
        whole = fault.kind in ("engine kill", "engine pause") and fault.target == world.store
        line = fault.kind in ("line cut", "line hole") and fault.detail == world.store
        for node in world.nodes:
            if whole or line and fault.target in (node.name, "all"):
                found.append((node.name, began, ended))
    return found


def deaths(world):
    """Kills with nothing else wrong just before and until the lease is over."""
    return [(fault.target, began, world.lateness(began, began + LEASE + 4)) for fault, began, _ in world.happened
            if fault.kind == "node kill" and not world.wrong_during(began - 1, began + LEASE + 4, but=fault)]


def long_pauses(world):
    """Sleeps past the lease with nothing else wrong, and when they ended."""
    return [(fault.target, ended) for fault, began, ended in world.happened
            if fault.kind == "node long pause" and not world.wrong_during(began - 1, ended + 4, but=fault)]


def keep_evidence(folder, world, load, result):
    """Logs of the servers and histories of the clients, for whoever looks for the cause."""
    folder.mkdir(parents=True, exist_ok=True)
    for node in world.nodes:
        node.keep_log(folder)
    with open(folder / "violations.txt", "w") as out:
        for verdict in result.verdicts:
            out.writelines(f"{verdict.name}: {what}\n" for what in verdict.violations)
        out.writelines(f"torture: {what}\n" for what in result.broke)
    with open(folder / "faults.txt", "w") as out:
        out.writelines(f"{began:.3f} to {ended:.3f} {fault}\n" for fault, began, ended in world.happened)
    for client in load.clients:
        with open(folder / f"{client.name}.history.txt", "w") as out:
            out.writelines(f"{entry}\n" for entry in client.log)
    with open(folder / "speakers.txt", "w") as out:
        for life in load.lives:
            out.write(f"{life.of} {life.channel} {life.node} {life.process} {life.words}\n")
