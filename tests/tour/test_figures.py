"""The figures of the documents are those of bench/RESULTS.md."""
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The column of a table of results with what is true now.
VALUE_COLUMNS = ("value", "now", "cpu/M: tavern / redis / nats")


def rows(text):
    """(cells by heading) of every row of every table."""
    headings = None
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else None
        if cells is None:
            headings = None
        elif headings is None:
            headings = cells
        elif not set(cells[0]) <= set("-: "):
            yield dict(zip(headings, cells))


def measured(case, figure=None, at=0):
    """The newest value of a case: the last one in the file."""
    found = None
    for row in rows((ROOT / "bench" / "RESULTS.md").read_text()):
        if case in row.values() and (figure is None or figure in row.values()):
            value = next(row[name] for name in VALUE_COLUMNS if name in row)
            found = re.findall(r"[\d.,]+", re.sub(r"\([^)]*\)", "", value))[at]
    assert found is not None, f"{case}, {figure} is not in bench/RESULTS.md"
    return float(found.replace(",", ""))


def agrees(shown, value):
    """Whether a number is a value, rounded to the digits that are shown."""
    text = shown.replace(",", "")
    number = float(text)
    if "." in text:
        return abs(number - value) <= 0.5000001 * 10 ** -len(text.split(".")[1])
    zeros = len(text) - len(text.rstrip("0"))
    return abs(number - value) <= 0.5000001 * 10**zeros


@pytest.mark.parametrize("shown,value,same", [
    ("0.66", 0.663, True), ("0.66", 0.67, False), ("143,000", 143_485, True), ("144,000", 143_485, False),
    ("2.04", 2.04, True), ("33", 33.2, True), ("25,500", 25_549, True), ("0.96", 2.04, False),
])
def test_numbers_are_compared_as_they_are_rounded(shown, value, same):
    assert agrees(shown, value) == same


IDLE = ("10,000 idle WebSockets with sessions", "KiB each")
POLL = ("10,000 parked polls", "KiB each")


@pytest.mark.parametrize("page,pattern,result", [
    ("README.md", r"Each of 10,000 idle WebSockets with its session costs ([\d.]+) KiB", IDLE),
    ("docs/about/faq.md", r"idle WebSocket with its session costs about ([\d.]+) KiB", IDLE),
    ("docs/deploy/engines.md", r"([\d.]+) KiB per idle WebSocket", IDLE),
    ("docs/deploy/engines.md", r"([\d.]+) KiB per waiting long-poll", POLL),
])
def test_memory_is_what_was_measured(page, pattern, result):
    text = " ".join((ROOT / page).read_text().split())
    shown = re.search(pattern, text)
    assert shown, f"{page} does not say it in these words"
    assert agrees(shown[1], measured(*result)), f"{page}: {shown[0]}, measured: {measured(*result)}"


def test_every_page_that_names_the_memory_of_a_connection_is_checked():
    checked = {"README.md", "docs/about/faq.md", "docs/deploy/engines.md"}
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        page = str(path.relative_to(ROOT))
        if page in checked or "docs/adr/" in page:
            continue
        sentences = re.split(r"(?<=[.:;|])\s", " ".join(path.read_text().split()))
        saying = [one for one in sentences if re.search(r"\d KiB", one) and re.search(r"idle (WebSocket|connection)|(waiting|parked) (long-)?poll", one)]
        # What the kernel needs is not measured here.
        saying = [one for one in saying if "kernel" not in one]
        assert not saying, f"{page}: add it to this test: {saying}"


def table(page, first):
    """The rows of the table of a page that has this heading."""
    return [row for row in rows((ROOT / page).read_text()) if first in row]


@pytest.mark.parametrize("label,case", [
    ("to 1 subscriber", "1→1, 256 B, depth 16"), ("to 10 subscribers", "1→10, 256 B, depth 16"),
    ("to 100", "1→100, 256 B, depth 16"), ("to 1,000", "1→1,000, 256 B, depth 16"),
])
def test_the_readme_compares_what_was_measured_in_one_run(label, case):
    row = next(row for row in table("README.md", "NATS 2.9") if row[""] == label)
    for at, name in enumerate(("Tavern", "Redis 7.0", "NATS 2.9")):
        value = measured(case, at=at)
        assert agrees(row[name].removesuffix(" s"), value), f"{label}, {name}: {row[name]}, measured: {value}"


@pytest.mark.parametrize("label,case", [
    ("Tavern, in SQLite, on disk when answered", "publish on SQLite; durable, lists of 50"),
    ("Tavern, in memory", "publish in memory, lists of 50"),
    ("Centrifugo, in memory", "Centrifugo, in its memory, lists of 50"),
    ("Centrifugo, in Redis without persistence", "Centrifugo, in Redis, lists of 50"),
])
def test_the_comparison_with_centrifugo_is_what_was_measured(label, case):
    row = next(row for row in table("docs/about/comparison.md", "history kept") if row["history kept"] == label)
    assert agrees(row["messages per second"], measured(case, "messages/s")), row
    processor = re.match(r"[\d.]+", row["CPU time per million"])[0]
    assert agrees(processor, measured(case, "server cpu, s per million")), row


CPU = "server cpu, s per million"


@pytest.mark.parametrize("label,case,figure", [
    ("idle WebSocket with its session and user", *IDLE),
    ("idle Redis connection", "10,000 idle Redis connections", "KiB each"),
    ("waiting long-poll", *POLL),
    ("presence of a user in a channel, on disk (SQLite)", "100,000 presences, 1,000 channels; SQLite", "bytes each"),
    ("idle subscription to topics", "10000 idle subscriptions to 100 topics for 20 s", "bytes each"),
    ("message to one of many WebSockets, when there is much traffic", "WebSocket 1→1,000, 256 B, saturated", "cpu/M"),
    ("message to a WebSocket that gets one message at a time", "WebSocket 1→1,000, 256 B, 20 msg/s", "cpu/M"),
    ("message to a waiting long-poll", "long-poll 1→1,000, 256 B, 20 msg/s", "cpu/M"),
    ("publish, without history", "publish without history, pipelined", CPU),
    ("publish, with history on SQLite", "publish on SQLite; durable, pipelined", CPU),
    ("presence change on SQLite", "50 connections, 16 in flight, one watcher; SQLite, durable", "server cpu per change, µs"),
    ("presence change on Redis", "50 connections, 16 in flight, one watcher; Redis", "server cpu per change, µs"),
    ("presence change on Postgres", "50 connections, 16 in flight, one watcher; Postgres", "server cpu per change, µs"),
    ("party command on SQLite", "commands of 1,000 hosts at once, on SQLite; durable", "server cpu for one, µs"),
    ("event accepted on SQLite, in lists of 50", "accepted from 16 publishers, in lists of 50; durable", "server cpu, s per million events"),
    ("event accepted on SQLite, one by one", "accepted from 16 publishers, one by one; durable", "server cpu, s per million events"),
])
def test_the_costs_of_the_capacity_page_are_what_was_measured(label, case, figure):
    row = next(row for row in table("docs/operate/capacity.md", "each") if row["what"] == label)
    assert agrees(re.match(r"[\d.,]+", row["each"])[0], measured(case, figure)), f"{row}, measured: {measured(case, figure)}"
