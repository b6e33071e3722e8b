"""The Grafana dashboard and the alerts: every metric and label they use exists on a server."""
import json
import os
import re
import shutil
import subprocess

import pytest
import yaml

from events.conftest import client
from events.endpoint import Endpoint
from events.topics_api import publish, put, report
from install.files import PACKAGING, ROOT
from support.json_client import Socket, connect_online
from support.process import until
from support.tavern import Tavern

QUICK = "[events]\nbackoff_min_ms = 5\nbackoff_max_ms = 20\n"
# Labels and series that Prometheus adds.
SCRAPED = {"instance", "job"}
FOREIGN = {"up"}
OVER_TIME = re.compile(r"\b(?:rate|increase)\((\w+)(?:\{[^}]*\})?\[[^\]]+\]\)")


def dashboard():
    return json.loads((PACKAGING / "grafana" / "tavern.json").read_text())


def panels():
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def rules():
    groups = yaml.safe_load((PACKAGING / "prometheus" / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions():
    """(source, expression) of both files."""
    shown = [(panel["title"], target["expr"]) for panel in panels() for target in panel["targets"]]
    return shown + [(rule["alert"], rule["expr"]) for rule in rules()]


def names(expression):
    return set(re.findall(r"\b(?:tavern|process)_\w+", expression)) | {name for name in FOREIGN if re.search(rf"\b{name}\{{", expression)}


def labels(expression):
    """(series, label, value or None) used by an expression; labels of `by` count for each series inside."""
    asked = set()
    for series, inside in re.findall(r"\b(\w+)\{([^}]*)\}", expression):
        for label, how, value in re.findall(r'(\w+)(=~|=|!=)"([^"]*)"', inside):
            asked.add((series, label, value if how == "=" else None))
    for grouped, inside in re.findall(r"by \(([^)]*)\) \(((?:[^()]|\([^()]*\))*)\)", expression):
        asked |= {(series, label.strip(), None) for series in names(inside) for label in grouped.split(",")}
    return asked


def contend(server, leader):
    """Two sessions of the leader change the party concurrently until a conflict occurs."""
    with Socket(server, user=leader.hello["user"]) as other:
        def both():
            # Many at once: on a busy machine two single commands seldom meet.
            for n in range(20):
                for socket in (leader, other):
                    socket.send(json.dumps({"id": 1_000 + n, "op": "party.set_data", "data": {"n": n}}))
            leader.events_so_far(), other.events_so_far()
            return server.metric("tavern_party_conflicts_total")
        until(both, "a conflict", timeout=60)


@pytest.fixture(scope="module")
def page():
    """The metrics of a server after some activity of every kind."""
    refuses = lambda body: 400 if any(event["type"] == "bad" for event in body["events"]) else 200
    with Tavern.dev(QUICK) as server, Endpoint(refuses) as endpoint, client(server, server.key) as api:
        with connect_online(server, "ann") as ann, connect_online(server, "bob") as bob:
            ann.ok("subscribe", channel="room#1")
            bob.ok("publish", channel="room#1", data="hi")
            party = ann.ok("party.invite", user="bob")["party_id"]
            bob.ok("party.accept", party_id=party)
            contend(server, ann)
            put(api, "billing", topics=["orders"], callback=endpoint.url, timeout_ms=0)
            publish(api, "orders", [{"type": "good"}, {"type": "bad"}])
            until(lambda: report(api, "billing")["dead_letters"] == 1, "a dead letter", 30)
            # A failing subscription has an oldest event.
            endpoint.status = 503
            publish(api, "orders", {"type": "good"})
            until(lambda: "tavern_subscription_oldest_seconds{" in server.metrics(), "the age of an event to be shown")
            yield server.metrics()


@pytest.fixture(scope="module")
def kinds(page):
    return dict(re.findall(r"^# TYPE (\w+) (\w+)$", page, flags=re.M))


def metric(series, kinds):
    """The metric that a series belongs to: a histogram has series of its own."""
    return series if series in kinds else re.sub("_(bucket|sum|count)$", "", series)


@pytest.fixture(scope="module")
def rows(page):
    """The labels of each row of a series."""
    found = {}
    for line in page.splitlines():
        if not line.startswith("#"):
            name, _, inside = line.rsplit(" ", 1)[0].partition("{")
            found.setdefault(name, []).append(dict(re.findall(r'(\w+)="([^"]*)"', inside)))
    return found


def promtool(*arguments, given=None):
    found = shutil.which("promtool", path=f"{ROOT / 'target/promtool/usr/bin'}:{os.environ['PATH']}")
    assert found, "promtool is missing; run scripts/setup"
    done = subprocess.run([found, *arguments], input=given, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_promtool_has_nothing_to_say_about_the_metrics(page):
    assert promtool("check", "metrics", given=page) == (0, "")


def test_promtool_finds_a_wrong_unit():
    code, said = promtool("check", "metrics", given="# HELP a_milliseconds A.\n# TYPE a_milliseconds gauge\na_milliseconds 1\n")
    assert code != 0 and "base unit" in said


def test_promtool_accepts_the_alerts():
    code, said = promtool("check", "rules", str(PACKAGING / "prometheus" / "alerts.yaml"))
    assert code == 0, said


@pytest.mark.parametrize("where,expression", expressions(), ids=[where for where, _ in expressions()])
def test_every_series_and_label_exists(where, expression, kinds, rows):
    named = names(expression)
    assert named, "the expression uses a series"
    for series in named - FOREIGN:
        assert metric(series, kinds) in kinds, f"{where}: there is no series {series}"
        assert series in rows, f"{where}: {series} has no rows after some activity"
    for series, label, value in labels(expression):
        if label in SCRAPED or series in FOREIGN:
            continue
        assert any(label in row for row in rows[series]), f"{where}: {series} has no label {label}"
        # Every outcome label exists from the start, before anything fails.
        assert value is None or any(row[label] == value for row in rows[series]), f"{where}: {label} is never {value}"


@pytest.mark.parametrize("where,expression", expressions(), ids=[where for where, _ in expressions()])
def test_rates_are_used_for_counters_only(where, expression, kinds):
    over_time = set(OVER_TIME.findall(expression))
    for series in names(expression) - FOREIGN:
        assert (series in over_time) == (kinds[metric(series, kinds)] != "gauge"), f"{where}: {series}"
    assert expression.count("(") == expression.count(")") and expression.count("{") == expression.count("}")


def test_the_activity_is_counted(page):
    value = lambda name: int(re.search(rf"^{re.escape(name)} (\d+)$", page, flags=re.M)[1])
    assert value("tavern_party_commands_total") >= 4 and value("tavern_party_conflicts_total") >= 1
    assert value("tavern_inbox_messages_stored_total") >= 2 and value("tavern_inbox_messages_delivered_total") >= 2
    assert value('tavern_store_answers_total{outcome="done"}') > 10
    assert value('tavern_store_answers_total{outcome="failed"}') == 0
    assert value("tavern_store_commit_seconds_count") > 5 and value("tavern_store_read_seconds_count") > 5
    assert value("tavern_message_delivery_seconds_count") >= 1
    assert value('tavern_webhook_duration_seconds_count{outcome="delivered"}') >= 1
    assert value("tavern_disk_free_bytes") > 0


def test_the_dashboard_layout_is_valid():
    whole, seen = dashboard(), set()
    assert [variable["name"] for variable in whole["templating"]["list"]] == ["datasource", "instance"]
    for panel in whole["panels"]:
        assert panel["id"] not in seen
        seen.add(panel["id"])
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
    for one in panels():
        assert one["datasource"]["uid"] == "${datasource}" and one["targets"]
    # Panels do not overlap.
    cells = [(x, y) for panel in whole["panels"] for place in [panel["gridPos"]]
             for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])]
    assert len(set(cells)) == len(cells)


def test_every_series_is_on_the_dashboard(kinds):
    used = set().union(*(names(target["expr"]) for panel in panels() for target in panel["targets"]))
    shown = {metric(series, kinds) for series in used}
    # Used by a dashboard variable, or covered by a bytes series.
    left_out = {"tavern_build_info", "tavern_mailbox_events", "tavern_sessions_superseded_total"}
    assert set(kinds) - shown == left_out


def test_alerts_have_a_summary_and_a_severity():
    found = rules()
    assert len({rule["alert"] for rule in found}) == len(found) > 8
    for rule in found:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert rule["annotations"]["summary"] and rule["annotations"]["description"]
        for label in re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])):
            grouped = re.match(r"\w+ by \(([^)]*)\)", rule["expr"])
            assert label in (grouped[1].split(", ") if grouped else SCRAPED), f"{rule['alert']} has no {label}"
