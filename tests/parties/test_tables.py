"""SQL views of parties in the store."""
import contextlib
import sqlite3

import pytest

from cluster.combination import Combination
from parties.conftest import Users
from parties.party_user import plain

PARTIES = "SELECT leader, members, invites, version, go_id FROM parties"
MEMBERS = "SELECT place, user_id, away_since FROM party_members ORDER BY place"
INVITES = "SELECT user_id, invited_by FROM party_invites"


def asker(name, engines, settings):
    """Queries the store; returns rows of strings, with user names without their numbers."""
    def sqlite(sql):
        with contextlib.closing(sqlite3.connect(settings.data / "tavern.db")) as store:
            return [["" if one is None else str(one) for one in row] for row in store.execute(sql)]

    def postgres(sql):
        schema = settings.options[settings.options.index("--store") + 1].split("schema=")[1]
        output = engines.server("postgres").sql(f"SET search_path TO {schema}; {sql}")
        return [line.split("|") for line in output.splitlines()]

    ask = sqlite if name.startswith("sqlite") else postgres
    return lambda sql: [[plain(one) for one in row] for row in ask(sql)]


@pytest.mark.parametrize("name", ["sqlite+local", "postgres+nats"])
def test_parties_members_and_invites_are_views(engines, name):
    with Combination(name, engines).settings() as settings, settings.server() as server, contextlib.ExitStack() as stack:
        users, ask = Users([server], stack), asker(name, engines, settings)
        ann, _ = users.party("ann bob")
        ann.invite(users.connect("cid"))
        assert ask(PARTIES) == [["ann", "2", "1", "3", ""]]
        assert ask(MEMBERS) == [["0", "ann", ""], ["1", "bob", ""]]
        assert ask(INVITES) == [["cid", "ann"]]
        ann.ok("disband")
        assert ask(PARTIES) == ask(MEMBERS) == ask(INVITES) == []
