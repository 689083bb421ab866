"""Flows over random histories with equality deletes: increments, a rebuild and plain Python come to the same rows.

A source is appended to, upserted as Flink does it, deleted from by value, by position and by SQL, merged into,
overwritten, and compacted by sterna's upkeep and by Iceberg's own procedures; upkeep is raced by an equality delete
and an append. The oracle is a dict of rows that each change is applied to in Python. Compared with it, at each sync:
the source, so that no compaction changes it; and the targets of a merge and of a replace. At the end: the changes
between the snapshots, and what a rebuild makes of the same source.

Seeds 1 to 10 come with `--long`. One seed again: `-k "histories and 4" --long`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from sterna.config.sections.maintenance import Maintenance
from sterna.errors import Gap, NotAnAncestor
from sterna.maintenance.tables.run import run_maintenance
from sterna.spark.rewrite_data_files import TableRewrite
from tests.integration.transforms.test_transforms import Layers, layers
from tests.support.iceberg_java import commit_rows, data_file, equality_deletes, load_table
from tests.support.row_changes import counted, net
from tests.support.world import merge_on_read

__all__ = ["layers"]

_IDS, _PARTS = 24, 3
_MERGE = "SELECT id, upper(v) AS v, n * 2 AS m FROM changes WHERE n % 3 <> 0"
_REPLACE = "SELECT part, count(*) AS c, sum(n) AS s FROM changes GROUP BY part"

Row = tuple[int, int, str, int]


class History:
    """A source table, and its rows by id as plain Python has them.

    Args:
        layers: where it lives.
        seed: decides everything.
    """

    def __init__(self, layers: Layers, seed: int) -> None:
        self.rng, self.layers = Random(seed), layers
        self.key, self.name = f"{layers.namespace}.src", f"main_us.{layers.namespace}.src"
        self.rows: dict[int, Row] = {}
        self.seen: dict[int, Counter[Any]] = {}
        self.lines: list[str] = []
        self._numbers = iter(range(1, 1_000_000))
        layers.world.sql(
            f"CREATE TABLE {self.name} (id BIGINT, part BIGINT, v STRING, n BIGINT) USING iceberg "
            f"{merge_on_read(2 + seed % 2)}"
        )

    def change(self) -> None:
        """Change something, and remember the rows of the snapshot that it made."""
        changes = (self.append, self.upsert, self.delete_values, self.delete, self.update, self.merge, self.overwrite)
        upkeep = (self.compact, self.compact_raced, self.procedures)
        (change,) = self.rng.choices((*changes, *upkeep), (4, 5, 4, 2, 1, 1, 0.5, 2, 2, 2))
        self.do(change)

    def do(self, change: Callable[[], None]) -> None:
        self.lines.append(change.__name__)
        change()
        self.layers.world.sql(f"REFRESH TABLE {self.name}")
        assert self.read() == Counter(self.rows.values()), self.lines
        for id in self.layers.world.snapshots(self.name)[-1:]:
            self.seen[id] = counted(self.rows.values())

    def read(self) -> Counter[Row]:
        return Counter(self.layers.world.sql(f"SELECT * FROM {self.name}"))

    def append(self) -> None:
        free = sorted(set(range(_IDS)) - self.rows.keys())
        rows = [self._row(id) for id in self.rng.sample(free, min(len(free), 3))]
        self._insert(rows)

    def upsert(self) -> None:
        """New rows, and an equality delete for what there was of their ids, in one commit."""
        rows = [self._row(id) for id in self._ids()]
        self._commit(data=rows, gone=[row[0] for row in rows])
        self.rows |= {row[0]: row for row in rows}

    def delete_values(self) -> None:
        ids = self._ids()
        self._commit(data=(), gone=ids)
        self._forget(ids)

    def delete(self) -> None:
        ids = self._ids()
        self.layers.world.sql(f"DELETE FROM {self.name} WHERE id IN ({', '.join(map(str, ids))})")
        self._forget(ids)

    def update(self) -> None:
        part, number = self.rng.randrange(_PARTS), next(self._numbers)
        self.layers.world.sql(f"UPDATE {self.name} SET n = {number}, part = (part + 1) % {_PARTS} WHERE part = {part}")
        for id, (_, old, v, _) in list(self.rows.items()):
            if old == part:
                self.rows[id] = (id, (old + 1) % _PARTS, v, number)

    def merge(self) -> None:
        rows = [self._row(id) for id in self._ids()]
        self.layers.world.sql(
            f"MERGE INTO {self.name} t USING (SELECT * FROM VALUES {_values(rows)} AS s(id, part, v, n)) s "
            "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        self.rows |= {row[0]: row for row in rows}

    def overwrite(self) -> None:
        rows = [self._row(id) for id in self.rng.sample(range(_IDS), 8)]
        self.layers.world.sql(f"INSERT OVERWRITE {self.name} VALUES {_values(rows)}")
        self.rows = {row[0]: row for row in rows}

    def compact(self) -> None:
        """Sterna's own upkeep of the table."""
        rule = {"match": [self.key], "min_age": "1s"}
        settings = Maintenance.model_validate({"tables": [rule], "spark": "local[2]"})
        world, later = self.layers.world, datetime.now(UTC) + timedelta(hours=1)
        with world.context("us") as context:
            done = run_maintenance(context, settings, [self.key], world.lines.append, dry_run=False, now=later)
        assert not done.failed, done.tables

    def compact_raced(self) -> None:
        """The same, while somebody deletes by value and then appends, between what it has read and its commit."""
        real, raced = TableRewrite.replace_files, []

        def replace_files(table: TableRewrite, *arguments: Any) -> None:
            if not raced:
                raced.append(True)
                self.delete_values()
                self.append()
            real(table, *arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TableRewrite, "replace_files", replace_files)
            self.compact()

    def procedures(self) -> None:
        """Iceberg's own, with nobody beside them."""
        for call in ("rewrite_data_files", "rewrite_position_delete_files", "rewrite_manifests"):
            options = "" if call == "rewrite_manifests" else ", options => map('rewrite-all', 'true')"
            self.layers.world.sql(f"CALL main_us.system.{call}(table => '{self.key}'{options})")

    def check_changes(self) -> None:
        """The changes between some snapshots, applied to the rows at the first, make those at the second."""
        for _ in range(4):
            start, end = sorted(self.rng.sample(list(self.seen), 2), key=list(self.seen).index)
            try:
                old, new = net(self.layers.world.spark, self.name, start, end)
            except (Gap, NotAnAncestor) as error:
                raise AssertionError(f"{self.lines}: {error}") from error
            assert old <= self.seen[start], self.lines
            assert self.seen[start] - old + new == self.seen[end], self.lines

    def merged(self) -> list[tuple[Any, ...]]:
        """What the merge has to have."""
        return sorted((id, v.upper(), n * 2) for id, _, v, n in self.rows.values() if n % 3)

    def replaced(self) -> list[tuple[Any, ...]]:
        """What the replace has to have."""
        parts = sorted({part for _, part, _, _ in self.rows.values()})
        numbers = {part: [n for _, of, _, n in self.rows.values() if of == part] for part in parts}
        return [(part, len(part_numbers), sum(part_numbers)) for part, part_numbers in numbers.items()]

    def _ids(self) -> list[int]:
        return self.rng.sample(range(_IDS), 3)

    def _row(self, id: int) -> Row:
        number = next(self._numbers)
        return (id, self.rng.randrange(_PARTS), f"v{number}", number)

    def _forget(self, ids: list[int]) -> None:
        self.rows = {id: row for id, row in self.rows.items() if id not in ids}

    def _insert(self, rows: list[Row]) -> None:
        if rows:
            self.layers.world.sql(f"INSERT INTO {self.name} VALUES {_values(rows)}")
            self.rows |= {row[0]: row for row in rows}

    def _commit(self, data: Any, gone: list[int]) -> None:
        spark = self.layers.world.spark
        loaded = load_table(spark, self.name)
        rows = [dict(zip(("id", "part", "v", "n"), row, strict=True)) for row in data]
        deletes = [equality_deletes(spark, loaded, ["id"], [{"id": id} for id in gone])]
        commit_rows(loaded, data=[data_file(spark, loaded, rows)] if rows else (), deletes=deletes)
        self.layers.world.sql(f"REFRESH TABLE {self.name}")


def _values(rows: list[Row]) -> str:
    return ", ".join(f"({id}L, {part}L, '{v}', {n}L)" for id, part, v, n in rows)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.rare) for seed in range(1, 11))])
def test_increments_over_random_histories_equal_a_rebuild_and_plain_python(layers: Layers, seed: int) -> None:
    history = History(layers, seed)
    layers.create("merged", "id BIGINT, v STRING, m BIGINT")
    layers.create("replaced", "part BIGINT, c BIGINT, s BIGINT", "PARTITIONED BY (part)")
    merged = layers.flow("merged", "src", "merge(id)", _MERGE)
    replaced = layers.flow("replaced", "src", "replace(part)", _REPLACE)

    def compare() -> None:
        assert sorted(layers.rows("merged")) == history.merged(), history.lines
        assert sorted(layers.rows("replaced")) == history.replaced(), history.lines

    for _ in range(5):  # enough files for upkeep to rewrite them
        history.do(history.append)
    for number in range(4 if seed else 2):
        # In each history what once brought a row back, whatever else the seed says.
        history.do(history.compact_raced) if number == 1 else history.change()
        for _ in range(3 if seed else 2):
            history.change()
        layers.world.sync("eu")
        for flow in (merged, replaced):
            layers.step(flow)
        compare()
    history.check_changes()
    for flow in (merged, replaced):
        layers.rebuild(flow)
    compare()
