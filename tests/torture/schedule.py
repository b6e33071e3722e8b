"""What goes wrong when: a list of faults that one seed gives, the same each time.

Must hold: equal arguments give equal schedules; everything ends before the time is over; every kind that is possible comes in
turn, so that a short run is not all of one kind.
"""
import dataclasses
import random

# Seconds. A pause longer than a lease loses it, a shorter one does not.
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


NODE_KINDS = ("node kill", "node pause", "node long pause", "node restart")
ENGINE_KINDS = ("engine kill", "engine pause", "line cut", "line hole", "line delay", "line slow")


def kinds(engines, disk):
    """The kinds of fault that this combination can have."""
    return [*NODE_KINDS, *(ENGINE_KINDS if engines else ()), *(("disk full",) if disk else ())]


def schedule(seed, seconds, nodes, engines, disk, quiet=(1.5, 5.0), begin=3.0):
    """Faults one after another with a quiet time between; now and then two at once."""
    dice = random.Random(f"schedule {seed}")
    at, faults, bag = begin, [], []
    possible = kinds(engines, disk)
    while True:
        if not bag:
            bag = list(possible)
            dice.shuffle(bag)
        fault = draw(dice, bag.pop(), at, nodes, engines)
        if fault.at + fault.seconds > seconds:
            return faults
        faults.append(fault)
        # One in four begins while the one before is still there.
        alone = dice.random() > 0.25
        at += (fault.seconds if alone else fault.seconds * dice.random()) + dice.uniform(*quiet)
        if fault.kind == "node kill" and dice.random() < 0.5:
            # Nothing else, so that it can be said how soon the others see it.
            at += UNDISTURBED


def draw(dice, kind, at, nodes, engines):
    node = dice.choice(nodes)
    if kind == "node kill":
        return Fault(at, kind, node, dice.choice([0.0, dice.uniform(0.5, 6.0)]))
    if kind == "node pause":
        return Fault(at, kind, node, dice.uniform(*SHORT))
    if kind == "node long pause":
        return Fault(at, kind, node, dice.uniform(*LONG))
    if kind == "node restart":
        return Fault(at, kind, node, 0.0)
    if kind == "disk full":
        return Fault(at, kind, "store", dice.uniform(2.0, 6.0))
    engine = dice.choice(engines)
    if kind == "engine kill":
        return Fault(at, kind, engine, dice.choice([0.0, dice.uniform(0.5, 6.0)]))
    if kind == "engine pause":
        return Fault(at, kind, engine, dice.uniform(*dice.choice([SHORT, LONG])))
    amount = {"line delay": dice.uniform(0.05, 0.4), "line slow": dice.uniform(20_000, 100_000)}.get(kind, 0.0)
    target = node if dice.random() < 0.7 else "all"
    return Fault(at, kind, target, dice.uniform(1.0, 10.0), engine, amount)
