"""The guarantees, each a function over recorded histories. None of them contacts a server."""
import dataclasses


@dataclasses.dataclass
class Verdict:
    """How much was checked and which violations were found. `notes` counts allowed exceptions."""

    name: str
    looked_at: int = 0
    violations: list = dataclasses.field(default_factory=list)
    notes: dict = dataclasses.field(default_factory=dict)

    def broken(self, what):
        self.violations.append(what)

    def note(self, what, count=1):
        self.notes[what] = self.notes.get(what, 0) + count
