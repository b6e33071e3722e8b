"""Finds the examples of a Markdown document that are marked to be run, or to be saved as a file for one that is run.

A marker is an HTML comment on the line before a code block, so readers do not see it:

    <!-- run -->             run this ```sh block
    <!-- run: OPTIONS -->    the same, with options separated by `;`
    <!-- save: NAME -->      write this block, in any language, to the file NAME
    <!-- output -->          this block is what the block above prints; … stands for any text within a line, a line
                             with only … for any lines
    <!-- server: none -->    this document starts its own server, on 7400 and 7401
    <!-- server: postgres -->  the server has a Postgres of its own; DATABASE_URL is its address for an application

| option | meaning |
|---|---|
| `expect TEXT` | the output must contain TEXT |
| `fails` | the block must end with an error |
| `retry` | with `expect`: run the block again until its output contains the text |
| `background` | another terminal: keep the block running to the end of the document, then end it |
| `until TEXT` | with `background`: continue when the output contains TEXT |
| `ready COMMAND` | with `background`: continue when COMMAND succeeds |
| `settled` | first wait until the background blocks above have printed what the document shows |
| `take NAME` | in the blocks below, NAME stands for the JSON member of that name (in lower case) in this block's output |
"""
import dataclasses
import re

MARKER = re.compile(r"^ {0,3}<!--\s*(run|save|output)\s*(?::\s*(.*?))?\s*-->\s*$")
NO_SERVER = "<!-- server: none -->"
POSTGRES = "<!-- server: postgres -->"
FLAGS = {"background", "fails", "retry", "settled"}
VALUES = {"expect", "until", "ready", "take"}


@dataclasses.dataclass
class Block:
    line: int
    text: str
    options: list
    # The name of the file that the block is saved to; None: the block is run.
    file: str | None = None
    # What it prints, as the document shows it.
    output: str | None = None

    @property
    def background(self):
        return "background" in self.options

    @property
    def fails(self):
        return "fails" in self.options

    @property
    def retry(self):
        return "retry" in self.options

    def value(self, name):
        """What follows the name of an option; None when the option is not given."""
        for option in self.options:
            if option.startswith(name + " "):
                return option.removeprefix(name + " ")
        return None

    @property
    def expect(self):
        return self.value("expect")

    def prints(self, output):
        """Whether the block printed what the document shows and expects."""
        if self.expect and self.expect not in output:
            return False
        return self.output is None or pattern(self.output).fullmatch(output.rstrip() + "\n") is not None


def pattern(shown):
    """A pattern for output as a document shows it."""
    parts = []
    for line in shown.rstrip().splitlines():
        parts.append(r"(?:.*\n)*?" if line.strip() == "…" else ".*".join(re.escape(part) for part in line.rstrip().split("…")) + r"[ ]*\n")
    return re.compile("".join(parts))


def blocks(document):
    found = []
    lines = document.splitlines()
    for at, line in enumerate(lines):
        marker = MARKER.match(line)
        if not marker:
            continue
        action, rest = marker.group(1), marker.group(2) or ""
        fences = ("```sh", "```bash") if action == "run" else ("```",)
        start = next((i for i in range(at + 1, len(lines)) if lines[i].strip()), None)
        if start is None or not lines[start].strip().startswith(fences):
            raise ValueError(f"line {at + 1}: a {action} marker with no {fences[0]} block below it")
        end = next((i for i in range(start + 1, len(lines)) if lines[i].strip() == "```"), None)
        if end is None:
            raise ValueError(f"line {start + 1}: the block has no end")
        text = "\n".join(lines[start + 1 : end]) + "\n"
        if action == "output":
            if not found or found[-1].file or found[-1].output is not None:
                raise ValueError(f"line {at + 1}: an output marker with no run block above it")
            found[-1].output = text
            continue
        if action == "save":
            if not re.fullmatch(r"[\w.-]+", rest):
                raise ValueError(f"line {at + 1}: a save marker needs the name of a file")
            found.append(Block(start + 1, text, [], rest))
            continue
        options = [part.strip() for part in rest.split(";") if part.strip()]
        for option in options:
            if option not in FLAGS and option.split(" ")[0] not in VALUES:
                raise ValueError(f"line {at + 1}: unknown option {option!r}")
        found.append(Block(start + 1, text, options))
    return found
