"""Which tests `make test` runs, and which only `make test-all`.

A rule that must hold on every combination of engines has one test for each. In `make test` it runs on SQLite and on one more
combination, chosen by a hash of its name, so that every combination is used in each run. The conformance suite and the
simulator check the engines themselves.
"""
import collections
import zlib

# What a combination of engines decides in a test's name: in the same place of each group only two of these run.
CELL = ("combination", "setting", "spread", "client")
COMBINATIONS = ("postgres+nats", "postgres+redis", "postgres+postgres", "redis+redis")
OTHER_TOOLS = (
    "install/", "foreign/", "openapi/", "journeys/", "examples/",
    # Java.
    "pusher/test_java.py", "tour/test_documents.py::test_the_examples_run[docs/guides/pusher.md]",
    # Go and C#.
    "tour/test_documents.py::test_the_examples_run[docs/guides/authentication.md]",
    "tour/test_documents.py::test_the_examples_run[docs/guides/postgres-sql.md]",
    "tour/test_documents.py::test_the_examples_run[docs/clients/go.md]", "clients/test_go_client.py",
    "tour/test_documents.py::test_the_examples_run[docs/clients/csharp.md]", "clients/test_csharp_client.py",
    # It compiles all dependencies again.
    "clients/test_rust_client.py",
)

# Clients that are built with a toolchain that only `scripts/setup all` installs.
OTHER_CLIENTS = ("go", "csharp")

# With a browser: each page, the main way through each, and the JavaScript client when the network fails.
SMOKE = (
    "dashboard/test_control.py::test_a_user_is_disconnected_banned_and_allowed_again",
    "dashboard/test_pages.py::test_every_page_shows_its_data[1280-light]",
    "dashboard/test_pages.py::test_presence_and_messages_appear_live",
    "dashboard/test_use.py::test_a_subscription_is_created_tested_changed_and_deleted",
    "dashboard/test_use.py::test_the_dashboard_can_be_used_by_keyboard",
    "demo/test_docs.py::test_the_search_finds_headings_and_text",
    "demo/test_lobby.py::test_a_network_outage_and_recovery",
    "demo/test_lobby.py::test_a_party_enters_a_match",
    "demo/test_lobby.py::test_two_users_chat_follow_and_play",
    "radar/test_presence.py::test_two_clients_are_one_user[sqlite+local, chromium]",
)


def left_out(items):
    """The tests that `make test` leaves out, each with the reason."""
    missing = set(SMOKE) - {item.nodeid for item in items}
    assert not missing, f"no such test: {sorted(missing)}"
    reasons = {}
    groups = collections.defaultdict(list)
    for item in items:
        if item.get_closest_marker("alone"):
            reasons[item] = "tests that measure times or use all cores"
        elif any(item.nodeid.startswith(folder) for folder in OTHER_TOOLS):
            reasons[item] = "install files, proxies, examples and test suites of others"
        elif params(item).get("client") in OTHER_CLIENTS:
            reasons[item] = "clients in Go and C#"
        elif item.get_closest_marker("browser"):
            if item.nodeid not in SMOKE:
                reasons[item] = "tests with a browser"
        elif cell(item) is not None:
            groups[group(item)].append(item)
    for name, members in groups.items():
        for item in set(members) - set(chosen(name, members)):
            reasons[item] = "tests on another combination of engines"
    return reasons


def params(item):
    return getattr(item, "callspec", None) and item.callspec.params or {}


def cell(item):
    """The combination of engines of a test."""
    value = params(item).get("combination") or params(item).get("setting")
    return value[0] if isinstance(value, tuple) else value


def group(item):
    """The test without its combination, and without what varies with it."""
    rest = [f"{name}={text(value)}" for name, value in sorted(item.callspec.params.items()) if name not in CELL]
    return f"{item.location[0]}::{item.originalname}[{','.join(rest)}]"


def text(value):
    """The same in every process, unlike the address of an object."""
    return getattr(value, "__name__", None) or (str(value) if isinstance(value, (str, int, float, tuple)) else type(value).__name__)


def chosen(name, members):
    hashed = zlib.crc32(name.encode())
    folder = [item for item in members if cell(item) == "sqlite+local"]
    others = [item for item in members if cell(item) in COMBINATIONS]
    return [part[hashed % len(part)] for part in (folder, others) if part]
