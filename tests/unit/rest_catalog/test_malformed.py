"""Whatever a client sends as a commit is prepared or refused: anything else would be a commit of unknown outcome."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sterna.errors import SternaError
from sterna.serving.rest_catalog.address import Address
from sterna.serving.rest_catalog.metadata_draft import normalized_update
from sterna.serving.rest_catalog.rules import Rights
from sterna.serving.rest_catalog.table_commit import MainTable, TableCommit, is_replay, prepare_commit, read_table
from tests.support import metadata_commits as commits
from tests.support.metadata_commits import resolved
from tests.support.rest_address import address_of
from tests.support.small_world import make_world, run
from tests.unit.rest_catalog.test_metadata_updates import ODD, places, replaced

KEY = ("ns", "orders")
RIGHTS = Rights(expire=True, compact=True)
ODDER = ODD | st.sampled_from(([[]], [{}], [["gc.enabled"]], {"a": []}, "half \ud800", float("inf")))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> tuple[Address, MainTable]:
    """An address, and a table as `main` has it."""
    world = make_world(tmp_path_factory.mktemp("world"))
    world.commit(orders=world.write("orders"))
    run(world)
    address = address_of(world)
    content = world.catalog.contents("main", world.catalog.reference("main").hash, [KEY])[KEY]
    table = read_table(address.read_metadata, KEY, content)
    assert table is not None
    return address, table


@settings(max_examples=300, deadline=None, derandomize=True)
@given(commit=st.lists(commits.UPDATES, min_size=1, max_size=2), choice=st.data())
def test_whatever_a_client_commits_is_prepared_or_refused(
    served: tuple[Address, MainTable], commit: list[dict[str, Any]], choice: st.DataObject
) -> None:
    address, table = served
    updates: Any = resolved(table.metadata, commit)
    path = choice.draw(st.sampled_from([path for path in places(updates) if len(path) > 1]))
    odd = [normalized_update(update) for update in replaced(updates, path, choice.draw(ODDER))]
    sent = TableCommit(KEY, [], odd)
    with suppress(SternaError):
        is_replay(table, sent)
        prepare_commit(address.region(), address.reserved, table, table.content, sent, RIGHTS)
