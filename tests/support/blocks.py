"""Finds the shell examples of a Markdown document that are marked to be run.

A marker is `<!-- run -->` or `<!-- run: background; expect TEXT -->` on the line before a ```sh block.
"""
import dataclasses
import re

MARKER = re.compile(r"^\s*<!--\s*run\s*(?::\s*(.*?))?\s*-->\s*$")


@dataclasses.dataclass
class Block:
    line: int
    text: str
    options: list

    @property
    def background(self):
        return "background" in self.options

    @property
    def expect(self):
        for option in self.options:
            if option.startswith("expect "):
                return option.removeprefix("expect ")
        return None


def blocks(document):
    found = []
    lines = document.splitlines()
    for at, line in enumerate(lines):
        marker = MARKER.match(line)
        if not marker:
            continue
        start = next((i for i in range(at + 1, len(lines)) if lines[i].strip()), None)
        if start is None or not lines[start].strip().startswith(("```sh", "```bash")):
            raise ValueError(f"line {at + 1}: a run marker with no ```sh block below it")
        end = next((i for i in range(start + 1, len(lines)) if lines[i].strip() == "```"), None)
        if end is None:
            raise ValueError(f"line {start + 1}: the block has no end")
        options = [part.strip() for part in (marker.group(1) or "").split(";") if part.strip()]
        found.append(Block(start + 1, "\n".join(lines[start + 1 : end]) + "\n", options))
    return found
