"""The promises, each a function over what was written down. None asks a server anything: what is needed was read before."""
import dataclasses


@dataclasses.dataclass
class Verdict:
    """What one promise looked at and where it was broken. `notes` are counts of what the promise allows and names."""

    name: str
    looked_at: int = 0
    violations: list = dataclasses.field(default_factory=list)
    notes: dict = dataclasses.field(default_factory=dict)

    def broken(self, what):
        self.violations.append(what)

    def note(self, what, count=1):
        self.notes[what] = self.notes.get(what, 0) + count
