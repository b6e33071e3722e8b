"""The text of the documents: spelling, headings and readability. (Links are checked by a Rust test and by tests/demo.)"""
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "SECURITY.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
# Written by `make reference`.
GENERATED = {ROOT / "docs/reference" / name for name in ("rest.md", "metrics.md", "cli.md", "configuration.md")}
GENERATED |= set((ROOT / "docs/reference/rest").glob("*.md"))
# Words that look like mistakes and are none: names in code and in examples.
WORDS = "inn,ans,fo,nd,te,crate,crates,statics,sesions"
SENTENCE_WORDS = 45
AVERAGE_WORDS = 19
by_name = pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))


def without_code(text):
    text = re.sub(r"^```.*?^```\n", "", text, flags=re.M | re.S)
    return re.sub(r"^(?:    .*\n)+", "", text, flags=re.M)


def headings(text):
    """(level, text, whether it starts a tab)."""
    found, tabs = [], False
    for line in without_code(text).splitlines():
        tabs = (tabs or line == "<!-- tabs -->") and line != "<!-- /tabs -->"
        if named := re.match(r"(#+) (.+)", line):
            found.append((len(named[1]), named[2], tabs))
    return found


def sentences(text):
    """Sentences of paragraphs and lists, without markup."""
    text = without_code(text)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text):
        if block.lstrip().startswith(("#", "|", "!", "<")):
            continue
        plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", block)
        plain = re.sub(r"`[^`]*`", "code", plain)
        for sentence in re.split(r"(?<=[.!?:;])\s+", " ".join(plain.split())):
            if sentence.strip("-* "):
                yield sentence


@by_name
def test_headings_have_an_order(page):
    found = headings(page.read_text())
    assert found and found[0][0] == 1, "the first heading is the title"
    assert [level for level, _, _ in found].count(1) == 1
    before = 1
    for level, text, tab in found[1:]:
        # The name of a tab is a heading only without the site.
        assert tab or level <= before + 1, f"{text} is {level - before} levels deeper than the heading before it"
        before = before if tab else level


@by_name
def test_the_title_is_followed_by_text(page):
    after = without_code(page.read_text()).split("\n", 1)[1]
    first = next(line for line in after.splitlines() if line.strip() and not line.startswith(("<!--", "![")))
    # A changelog and a decision begin with their parts.
    free = page.name == "CHANGELOG.md" or page.parent.name == "adr"
    assert free or not first.startswith("#"), "say what the page is about before its first part"


@pytest.mark.parametrize("page", [page for page in PAGES if page not in GENERATED], ids=lambda path: str(path.relative_to(ROOT)))
def test_sentences_are_short(page):
    lengths = []
    for sentence in sentences(page.read_text()):
        words = len(sentence.split())
        assert words <= SENTENCE_WORDS, f"{words} words: {sentence}"
        lengths.append(words)
    average = sum(lengths) / max(1, len(lengths))
    assert average <= AVERAGE_WORDS, f"{average:.1f} words in an average sentence"


def test_spelling():
    folders = [*PAGES, ROOT / "packaging", ROOT / "demo", ROOT / "crates/server/src/cli", ROOT / "crates/server/src/config"]
    done = subprocess.run(
        [sys.executable, "-m", "codespell_lib", "--ignore-words-list", WORDS, "--skip", "*.json,*.svg", *folders],
        capture_output=True, text=True, timeout=120,
    )
    assert done.stdout == "", done.stdout


def test_the_index_lists_every_decision():
    folder = ROOT / "docs/adr"
    titles = {page.name: page.read_text().split("\n")[0] for page in sorted(folder.glob("0*.md"))}
    rows = re.findall(r"^\| \[(\d+)\]\((\S+)\) \| (.+?) \| \d{4}-\d\d-\d\d \| \S.*? \|$", (folder / "README.md").read_text(), flags=re.M)
    assert {name: f"# {number}. {title}" for number, name, title in rows} == titles
    assert [int(number) for number, _, _ in rows] == list(range(1, len(titles) + 1))


def test_sentences_are_found():
    text = "# T\n\nOne two. Three `a b`!\n\n- four\n- five [six](x.md)\n\n```sh\ncode here\n```\n\n| a | b |\n"
    assert list(sentences(text)) == ["One two.", "Three code!", "- four", "- five six"]
