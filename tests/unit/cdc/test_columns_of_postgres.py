"""What becomes of a Postgres' columns that no change of rows tells, by what its catalog says before and after.

A table that is written anew may have other values in columns that were added or altered meanwhile, whose defaults are
gone again. A column's wider type is one reason for another file, and excuses no other column. VACUUM FULL is one, too:
it alters columns whose old rows had a value by the default alone. A real server has these statements in
`tests/integration/cdc/test_identity.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sterna.config.secrets import environment_secrets
from sterna.config.sections.cdc import CdcSource
from sterna.errors import NeedsResync, UnfitSource
from sterna.pipelines.cdc import postgres
from sterna.pipelines.cdc.database import with_dropped_columns
from sterna.pipelines.cdc.postgres import PostgresDatabase

_INT, _LONG, _UUID = (23, -1), (20, -1), (2950, -1)
_PLAIN, _FILLED, _WRITTEN, _ANEW = (0, False), (9, True), (9, False), (11, False)
"""A column's default, and whether rows from before it have a value by that alone."""
_LOGIN = json.dumps({"conn_type": "postgres", "login": "c", "password": "c"})
_BEFORE = {
    "id": [1, *_INT, "700", *_PLAIN],
    "n": [2, *_INT, "700", *_PLAIN],
    "m": [3, *_INT, "700", *_PLAIN],
    "late": [5, *_INT, "700", *_FILLED],
    "bare": [6, *_INT, "700", 0, True],
}


class Catalog:
    """A Postgres that has one table, and says of it what stands here."""

    def __init__(self) -> None:
        self.columns: Mapping[str, Any] = _BEFORE
        self.file = 1
        self.identity, self.is_deferrable = "d", False
        self.files: list[tuple[Any, ...]] = []

    def __call__(self, *args: Any) -> Catalog:
        return self

    def fetch(self, query: str, *args: Any) -> list[tuple[Any, ...]]:
        if "catalog_xmin" in query:
            return self.files
        key = ("public", "a", "r", self.identity, ["id"], [], [], self.is_deferrable)
        plain = (*key, False, 5, {}, "700", ["integer"], 0)
        return [(*plain, False, True, [], self.columns, self.file, {}, {}, False, True, [], 2)]


def opened(monkeypatch: pytest.MonkeyPatch) -> tuple[Catalog, PostgresDatabase]:
    catalog = Catalog()
    monkeypatch.setattr(postgres, "PostgresPool", catalog)
    source_fields = {
        "name": "shop",
        "region": "eu",
        "hosts": ["d:1"],
        "database": "d",
        "credential_id": "c",
        "into": "a",
    }
    return catalog, PostgresDatabase(
        CdcSource.model_validate({**source_fields, "tables": ["public.a"]}),
        environment_secrets({"AIRFLOW_CONN_C": _LOGIN}),
    )


@pytest.mark.parametrize(
    ("columns", "file", "reason"),
    [
        ({"n": [2, *_LONG, "800", *_PLAIN]}, 2, ""),  # a wider type
        ({"n": [2, *_INT, "800", *_PLAIN]}, 1, ""),  # a default, or statistics
        ({"u": [4, *_UUID, "800", *_PLAIN]}, 1, ""),
        ({}, 2, ""),  # VACUUM FULL, TRUNCATE
        ({"late": [5, *_INT, "800", *_WRITTEN]}, 2, ""),  # VACUUM FULL
        ({"late": [5, *_INT, "800", *_WRITTEN], "n": [2, *_LONG, "800", *_PLAIN]}, 2, ""),
        ({"late": [5, *_INT, "800", *_ANEW]}, 2, "column late was altered"),  # TYPE int USING late * 2
        ({"late": [5, *_INT, "800", 0, False]}, 2, "column late was altered"),
        ({"bare": [6, *_INT, "800", 0, False]}, 2, "column bare was altered"),
        ({"late": [5, *_INT, "800", *_FILLED]}, 2, "column late was altered"),
        ({"u": [4, *_UUID, "801", *_PLAIN]}, 2, "column u was added"),
        ({"u": [4, *_UUID, "801", *_PLAIN], "n": [2, *_LONG, "800", *_PLAIN]}, 2, "column u was added"),
        ({"n": [2, *_INT, "800", *_PLAIN]}, 2, "column n was altered"),
        ({"n": [2, *_INT, "800", *_PLAIN], "m": [3, *_LONG, "800", *_PLAIN]}, 2, "column n was altered"),
    ],
)
def test_a_table_that_was_written_anew(
    columns: Mapping[str, Any], file: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, source = opened(monkeypatch)
    before = source.identities({"public.a": ("id",)}, {}, {})
    catalog.columns, catalog.file = {**_BEFORE, **columns}, file
    if not reason:
        assert source.identities({"public.a": ("id",)}, before, {})["public.a"]["file"] == file
        return
    with pytest.raises(NeedsResync, match=reason):
        source.identities({"public.a": ("id",)}, before, {})


@pytest.mark.parametrize(
    ("file", "changed", "slot", "rewritten"),
    [
        (1, 900, 700, False),  # its definition alone was changed
        (2, 900, 700, True),
        (2, 700, 700, True),  # the server may have waited for that transaction, or not
        (2, 699, 700, False),  # it had ended before the slot was created
        (2, 2**32 - 1, 3, False),  # numbers begin anew
        (2, 3, 2**32 - 1, True),
    ],
)
def test_a_table_that_may_look_empty_to_the_snapshot(
    file: int, changed: int, slot: int, rewritten: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, source = opened(monkeypatch)
    identities = source.identities({"public.a": ("id",)}, {}, {})
    catalog.files = [("public.a", file, changed, slot)]
    assert list(source.list_rewritten(1, identities)) == (["public.a"] if rewritten else [])
    catalog.files = []  # it is gone, or the slot is
    assert list(source.list_rewritten(1, identities)) == ["public.a"]


def test_tables_stay_locked_while_their_initial_rows_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    _, source = opened(monkeypatch)
    assert source.properties(1, ["public.a"], "x", Path())["snapshot.locking.mode"] == "shared"


@pytest.mark.parametrize("identity", ["d", "f"])
def test_a_key_that_may_be_of_two_rows_within_a_transaction_is_refused_also_when_it_becomes_so(
    identity: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, source = opened(monkeypatch)
    tables, catalog.identity = {"public.a": ("id",)}, identity
    before = source.identities(tables, {}, {})
    catalog.is_deferrable = True
    for previous in ({}, before):
        with pytest.raises(UnfitSource, match="its primary key is deferrable") as caught:
            source.identities(tables, previous, {})
        assert "without DEFERRABLE" in (caught.value.hint or "")


def test_a_column_that_was_gone_before_rows_were_read_again_is_known_though_no_row_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It comes back empty, and has on `main` what it had."""
    catalog, source = opened(monkeypatch)
    tables = {"public.a": ("id",)}
    before: Any = with_dropped_columns(
        source.identities(tables, {}, {}), {"public.a": ["n", "old"], "public.b": ["old"]}
    )
    for columns in ({}, {"u": [4, *_UUID, "800", *_PLAIN]}, {}):
        catalog.columns = {**_BEFORE, **columns}
        before = source.identities(tables, json.loads(json.dumps(before)), {})
    catalog.columns = {**_BEFORE, "old": [7, *_INT, "801", *_PLAIN]}
    with pytest.raises(NeedsResync, match="column old was dropped and is there again"):
        source.identities(tables, before, {})
