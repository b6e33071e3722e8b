"""What a check found, and the list of all checks."""
import dataclasses


@dataclasses.dataclass
class Verdict:
    """How much was checked, and which violations were found. `notes` counts allowed exceptions."""

    name: str
    checked: int = 0
    violations: list = dataclasses.field(default_factory=list)
    notes: dict = dataclasses.field(default_factory=dict)

    def broken(self, what):
        self.violations.append(what)

    def note(self, what, count=1):
        self.notes[what] = self.notes.get(what, 0) + count


# (name, sentence of the guarantee, function of a history and a verdict)
GUARANTEES = []


def guarantee(sentence):
    """Registers a check. The sentence is the one of `docs/reference/guarantees.md`."""
    def register(check):
        GUARANTEES.append((check.__name__.replace("_", " "), sentence, check))
        return check
    return register


def judge(history):
    """One verdict for each guarantee."""
    verdicts = []
    for name, _, check in GUARANTEES:
        verdict = Verdict(name)
        check(history, verdict)
        verdicts.append(verdict)
    return verdicts
