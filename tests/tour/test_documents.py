"""The examples of the documents run as they stand."""
import pathlib
import re
import subprocess
import sys

import pytest

from support.blocks import blocks

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MARKED = [path for path in DOCUMENTS if path.exists() and blocks(path.read_text())]


def test_the_readme_has_a_tour():
    assert ROOT / "README.md" in MARKED


def test_the_links_of_the_readme_lead_somewhere():
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", (ROOT / "README.md").read_text())
    near = [link for link in links if "://" not in link]
    assert len(near) > 15, "the links were found"
    for link in near:
        assert (ROOT / link).exists(), link


@pytest.mark.parametrize("document", MARKED, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_examples_run(document):
    run = [sys.executable, ROOT / "scripts" / "run-docs", document]
    done = subprocess.run(run, cwd=ROOT, text=True, capture_output=True, timeout=300)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_the_quickstart_works_after_the_readme():
    documents = [ROOT / "README.md", ROOT / "docs" / "get-started" / "quickstart.md"]
    run = [sys.executable, ROOT / "scripts" / "run-docs", "--together", *documents]
    done = subprocess.run(run, cwd=ROOT, text=True, capture_output=True, timeout=300)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_blocks_are_found_with_their_options():
    text = """
<!-- run -->
```sh
one
```
```sh
not marked
```
<!-- run: background; until ready; expect two words -->

```bash
two
three
```
<!-- save: talk.mjs -->
```js
four
```
"""
    found = blocks(text)
    assert [block.text for block in found] == ["one\n", "two\nthree\n", "four\n"]
    assert (found[0].background, found[0].expect) == (False, None)
    assert (found[1].background, found[1].expect, found[1].value("until")) == (True, "two words", "ready")
    assert [block.file for block in found] == [None, None, "talk.mjs"]
    assert [block.line for block in found] == [3, 11, 16]


@pytest.mark.parametrize("text", [
    "<!-- run -->\n",
    "<!-- run -->\ntext\n",
    "<!-- run -->\n```sh\nnever closed\n",
    "<!-- run -->\n```js\nnot shell\n```\n",
    "<!-- run: expects x -->\n```sh\nls\n```\n",
    "<!-- save -->\n```js\nno name\n```\n",
    "<!-- save: ../x -->\n```js\nanother folder\n```\n",
])
def test_wrong_marker_is_refused(text):
    with pytest.raises(ValueError):
        blocks(text)


@pytest.mark.parametrize("shown,printed,equal", [
    ("one\ntwo\n", "one\ntwo\n", True),
    ("one\n", "one\ntwo\n", False),
    ("one\n", "two\none\n", False),
    ('{"seq":…,"user":"ann"}\n', '{"seq":17,"user":"ann"}\n', True),
    ('{"events":[…]}\n', '{"events":\n[]}\n', False),
    ("…\nlast\n", "first\nsecond\nlast\n", True),
    ("first\n…\n", "first\nsecond\n", True),
    ("a.c\n", "abc\n", False),
])
def test_output_is_compared_as_shown(shown, printed, equal):
    (block,) = blocks(f"<!-- run -->\n```sh\nls\n```\n<!-- output -->\n```text\n{shown}```\n")
    assert block.prints(printed) == equal


@pytest.mark.parametrize("text", [
    "<!-- output -->\n```text\nx\n```\n",
    "<!-- save: a.mjs -->\n```js\nx\n```\n<!-- output -->\n```text\nx\n```\n",
])
def test_output_needs_a_block_that_runs(text):
    with pytest.raises(ValueError):
        blocks(text)
