"""What becomes of a Postgres' columns that no change of rows tells, by what its catalog says before and after.

A table that is written anew may have other values in columns that were added or altered meanwhile, whose defaults are
gone again. A column's wider type is one reason for another file, and excuses no other column. A real server has these
statements in `tests/integration/cdc/test_identity.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from sterna.cdc import postgres
from sterna.cdc.postgres import Postgres
from sterna.edges.secrets import environment_secrets
from sterna.errors import NeedsResync
from sterna.services.cdc import CdcSource

_INT, _LONG, _UUID = (23, -1), (20, -1), (2950, -1)
_BEFORE = {"id": [1, *_INT, "700"], "n": [2, *_INT, "700"], "m": [3, *_INT, "700"]}


class Catalog:
    """A Postgres that has one table, and says of it what stands here."""

    def __init__(self) -> None:
        self.columns: Mapping[str, Any] = _BEFORE
        self.file = 1

    def __call__(self, *told: Any) -> Catalog:
        return self

    @contextmanager
    def connection(self) -> Iterator[Catalog]:
        yield self

    def execute(self, *told: Any) -> list[tuple[Any, ...]]:
        plain = ("public", "a", "r", "d", ["id"], [], [], False, False, 5, {}, "700", ["integer"], 0)
        return [(*plain, False, True, [], self.columns, self.file, {}, [], 2)]


@pytest.mark.parametrize(
    ("columns", "file", "reason"),
    [
        ({"n": [2, *_LONG, "800"]}, 2, ""),  # a wider type
        ({"n": [2, *_INT, "800"]}, 1, ""),  # a default, or statistics
        ({"u": [4, *_UUID, "800"]}, 1, ""),
        ({}, 2, ""),  # VACUUM FULL, TRUNCATE
        ({"u": [4, *_UUID, "801"]}, 2, "column u was added"),
        ({"u": [4, *_UUID, "801"], "n": [2, *_LONG, "800"]}, 2, "column u was added"),
        ({"n": [2, *_INT, "800"]}, 2, "column n was altered"),
        ({"n": [2, *_INT, "800"], "m": [3, *_LONG, "800"]}, 2, "column n was altered"),
    ],
)
def test_a_table_that_was_written_anew(
    columns: Mapping[str, Any], file: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = Catalog()
    monkeypatch.setattr(postgres, "PostgresPool", catalog)
    told = {"name": "shop", "region": "eu", "hosts": ["d:1"], "database": "d", "credential_id": "c", "into": "a"}
    source = Postgres(CdcSource.model_validate({**told, "tables": ["public.a"]}), environment_secrets({}))
    before = source.identities({"public.a": ("id",)}, {}, {})
    catalog.columns, catalog.file = {**_BEFORE, **columns}, file
    if not reason:
        assert source.identities({"public.a": ("id",)}, before, {})["public.a"]["file"] == file
        return
    with pytest.raises(NeedsResync, match=reason):
        source.identities({"public.a": ("id",)}, before, {})
