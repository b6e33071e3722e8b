"""The schedule of faults, derived from a seed.

Must hold: equal arguments give equal schedules; all faults end in time; every possible kind occurs in turn, so that a short run is
not all of one kind.
"""
import dataclasses
import random

# Seconds: pauses shorter and longer than the lease.
SHORT, LONG = (0.3, 1.5), (4.5, 8.0)
UNDISTURBED = 7.0


@dataclasses.dataclass(frozen=True)
class Fault:
    at: float
    kind: str
    target: str
    seconds: float
    detail: str = ""
    amount: float = 0.0

    def __str__(self):
        more = f" {self.detail}" if self.detail else ""
        return f"{self.at:7.1f} s  {self.kind} {self.target}{more} for {self.seconds:.1f} s"


NODE_KINDS = ("node kill", "node pause", "node long pause", "node restart", "clock jump")
# Seconds: minutes, days, weeks.
JUMPS = (120, 3_600, 86_400, 8 * 86_400, 30 * 86_400)
ENGINE_KINDS = ("engine kill", "engine pause", "line cut", "line hole", "line delay", "line slow")


def kinds(engines, disk):
    """The possible kinds of faults for this combination."""
    return [*NODE_KINDS, *(ENGINE_KINDS if engines else ()), *(("disk full",) if disk else ())]


def schedule(seed, seconds, nodes, engines, disk, quiet=(1.5, 5.0), begin=3.0):
    """Faults in sequence with quiet times between them; sometimes two overlap."""
    rng = random.Random(f"schedule {seed}")
    at, faults, bag = begin, [], []
    possible = kinds(engines, disk)
    while True:
        if not bag:
            bag = list(possible)
            rng.shuffle(bag)
        fault = draw(rng, bag.pop(), at, nodes, engines)
        if fault.at + fault.seconds > seconds:
            return faults
        faults.append(fault)
        # One in four overlaps the previous one.
        alone = rng.random() > 0.25
        at += (fault.seconds if alone else fault.seconds * rng.random()) + rng.uniform(*quiet)
        if fault.kind == "node kill" and rng.random() < 0.5:
            # Nothing else, so that it can be said how soon the others see it.
            at += UNDISTURBED


def draw(rng, kind, at, nodes, engines):
    node = rng.choice(nodes)
    if kind == "node kill":
        return Fault(at, kind, node, rng.choice([0.0, rng.uniform(0.5, 6.0)]))
    if kind == "node pause":
        return Fault(at, kind, node, rng.uniform(*SHORT))
    if kind == "node long pause":
        return Fault(at, kind, node, rng.uniform(*LONG))
    if kind == "node restart":
        return Fault(at, kind, node, 0.0)
    if kind == "clock jump":
        jump = rng.choice(JUMPS) * rng.choice([1, -1])
        target = node if rng.random() < 0.7 else "all"
        return Fault(at, kind, target, rng.uniform(0.5, 8.0), f"by {jump:+} s", jump)
    if kind == "disk full":
        return Fault(at, kind, "store", rng.uniform(2.0, 6.0))
    engine = rng.choice(engines)
    if kind == "engine kill":
        return Fault(at, kind, engine, rng.choice([0.0, rng.uniform(0.5, 6.0)]))
    if kind == "engine pause":
        return Fault(at, kind, engine, rng.uniform(*rng.choice([SHORT, LONG])))
    amount = {"line delay": rng.uniform(0.05, 0.4), "line slow": rng.uniform(20_000, 100_000)}.get(kind, 0.0)
    target = node if rng.random() < 0.7 else "all"
    return Fault(at, kind, target, rng.uniform(1.0, 10.0), engine, amount)
