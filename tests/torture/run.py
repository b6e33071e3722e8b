"""One run on one combination: load, schedule of faults, time to settle, verdicts."""
import asyncio
import collections
import dataclasses
import pathlib
import shutil
import tempfile
import time

from judge import judge, read

from . import health, record
from .load import Load
from .schedule import schedule
from .client import TOKEN_TTL
from .cluster import Cluster

SETTLE = 45.0
# Kinds of history entries, and their names in the report.
OPERATIONS = {"message": "messages received", "event": "events received", "session": "hello", "who": "who", "subscribed": "subscribe",
              "stored": "messages with history received", "position": "subscribe with history", "gap": "gaps announced", "down": "connections lost"}
# Error codes that ask clients to retry.
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


async def torture(combination, seed, seconds, size=1.0, log=print, keep=None, history=None):
    """`history`: a file for the history, which otherwise is kept only if a guarantee was violated."""
    cluster = Cluster(combination)
    load = None
    try:
        await cluster.start()
        load = Load(cluster, seed, size)
        load.begin()
        faults = schedule(seed, seconds, [node.name for node in cluster.nodes], sorted(cluster.engines), cluster.can_fill())
        await carry_out(cluster, load, faults, seconds, log)
        log("all faults have ended")
        await asyncio.wait_for(cluster.heal(), 90)
        healed = time.monotonic()
        load.stop_activity()
        settled = await load.settle(SETTLE)
        settled_after = time.monotonic() - healed
        log(f"{'' if settled else 'not '}settled after {settled_after:.1f} s {load.unsettled()[:10] or ''}")
        await load.publish_last_messages()
        await asyncio.sleep(2.5)
        facts = await load.read_facts()
        servers = await load.read_presence()
        await load.end()
        with tempfile.TemporaryDirectory() as folder:
            written = pathlib.Path(history or f"{folder}/history.jsonl")
            record.write(written, cluster, load, facts, servers)
            verdicts = [*judge(read(written)), *check(cluster, load, healed)]
            result = Result(combination, seed, seconds, collections.Counter(fault.kind for fault, _, _ in cluster.happened),
                            [] if cluster.can_fill() else [cluster.WHY_NOT_FILLED[cluster.disk.mounted]],
                            operations(load), verdicts, settled_after, [repr(error) for error in load.failures()])
            if keep and result.violations:
                keep_evidence(pathlib.Path(keep), cluster, result, written)
        return result
    finally:
        if load is not None:
            await load.end()
        await cluster.stop()


async def carry_out(cluster, load, faults, seconds, log):
    began = time.monotonic()
    running = []

    async def later(fault):
        await asyncio.sleep(max(0.0, began + fault.at - time.monotonic()))
        log(str(fault))
        await cluster.carry_out(fault)

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
    published = [message for run in [*load.runs, *load.history_runs] for message in run.messages]
    counts["publish"] = len(published)
    counts["publish acknowledged"] = sum(1 for message in published if message[2] is not None)
    for (kind, what), count in load.facts.counts.items():
        counts[f"{kind} {what}"] += count
    counts["hello with an expired token"] = len(load.intruders.greetings)
    counts["tokens that expired while connected"] = len(load.intruders.lifetimes)
    counts["keys revoked while connected"] = len(load.intruders.revoked)
    counts["floods before login"] = load.intruders.floods
    counts["reads of last seen"] = len(load.service.seen)
    for code, _ in load.service.refused:
        counts[f"answered {code}"] += 1
    return counts


def check(cluster, load, healed):
    hangs = [(entry[2], entry[3], entry[4], entry[5]) for client in load.clients for entry in client.log if entry[1] == "hang"]
    hangs += [hang for one in [*load.all_publishers, load.service] for hang in one.hangs]
    answered = sum(one.answered for one in [*load.clients, *load.all_publishers, load.service])
    refusals = [(entry[3], entry[4], entry[0]) for client in load.clients for entry in client.log if entry[1] == "refused"]
    refusals += [(*refusal, None) for one in [*load.all_publishers, load.service] for refusal in one.refused]
    return [
        health.servers_stay_up(cluster.nodes, cluster.unclean_stops, outages(cluster)),
        health.every_command_is_answered(answered, hangs, cluster.nodes),
        health.refusals_say_when_to_return(refusals, KNOWN_CODES, clocks_ahead(cluster)),
        health.readiness_is_correct(cluster.nodes, outages(cluster), healed),
        health.credentials_end(load.intruders.greetings, load.intruders.lifetimes, cluster.nodes),
        health.revoked_keys_end(load.intruders.revoked, cluster.nodes, slow_stores(cluster)),
        health.memory_is_bounded(cluster.nodes),
    ]


def outages(cluster):
    """Times when a server could not reach the store."""
    found = []
    for fault, began, ended in cluster.happened:
        whole = fault.kind in ("engine kill", "engine pause") and fault.target == cluster.store
        line = fault.kind in ("line cut", "line hole") and fault.detail == cluster.store
        for node in cluster.nodes:
            if whole or line and fault.target in (node.name, "all"):
                found.append((node.name, began, ended))
    return found


def clocks_ahead(cluster):
    """When the clock of a server was so far ahead that the tokens of the load had expired."""
    return [(began, ended) for fault, began, ended in cluster.happened if fault.kind == "clock jump" and fault.amount >= TOKEN_TTL]


def slow_stores(cluster):
    """Times when a server could reach the store only slowly, or not at all."""
    slow = [(node.name, began, ended) for fault, began, ended in cluster.happened for node in cluster.nodes
            if fault.kind in ("line delay", "line slow") and fault.detail == cluster.store and fault.target in (node.name, "all")]
    return outages(cluster) + slow


def keep_evidence(folder, cluster, result, history):
    """Saves server logs, faults and the history for analysis."""
    folder.mkdir(parents=True, exist_ok=True)
    for node in cluster.nodes:
        node.keep_log(folder)
    with open(folder / "violations.txt", "w") as out:
        for verdict in result.verdicts:
            out.writelines(f"{verdict.name}: {what}\n" for what in verdict.violations)
        out.writelines(f"torture: {what}\n" for what in result.broke)
    with open(folder / "faults.txt", "w") as out:
        out.writelines(f"{began:.3f} to {ended:.3f} {fault}\n" for fault, began, ended in cluster.happened)
    shutil.copy(history, folder / history.name)
