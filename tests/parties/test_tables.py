"""What an operator sees of parties in the store: views that look like tables."""
import contextlib
import sqlite3

import pytest

from cluster.combination import Combination
from parties.conftest import Table
from parties.guest import plain

PARTIES = "SELECT leader, members, invites, version, go_id FROM parties"
MEMBERS = "SELECT settings, user_id, away_since FROM party_members ORDER BY settings"
INVITES = "SELECT user_id, invited_by FROM party_invites"


def asker(name, engines, settings):
    """Asks the store itself; an answer is lines of texts, names without their numbers."""
    def sqlite(sql):
        with contextlib.closing(sqlite3.connect(settings.data / "tavern.db")) as store:
            return [["" if one is None else str(one) for one in row] for row in store.execute(sql)]

    def postgres(sql):
        schema = settings.options[settings.options.index("--store") + 1].split("schema=")[1]
        told = engines.server("postgres").sql(f"SET search_path TO {schema}; {sql}")
        return [line.split("|") for line in told.splitlines()]

    ask = sqlite if name.startswith("sqlite") else postgres
    return lambda sql: [[plain(one) for one in row] for row in ask(sql)]


@pytest.mark.parametrize("name", ["sqlite+local", "postgres+nats"])
def test_parties_their_members_and_their_invites_are_tables(engines, name):
    with Combination(name, engines).settings() as settings, settings.server() as server, contextlib.ExitStack() as stack:
        table, ask = Table([server], stack), asker(name, engines, settings)
        ann, _ = table.party("ann bob")
        ann.invite(table.seat("cid"))
        assert ask(PARTIES) == [["ann", "2", "1", "3", ""]]
        assert ask(MEMBERS) == [["0", "ann", ""], ["1", "bob", ""]]
        assert ask(INVITES) == [["cid", "ann"]]
        ann.ok("disband")
        assert ask(PARTIES) == ask(MEMBERS) == ask(INVITES) == []
