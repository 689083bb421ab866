"""How a reader works off what was asked for: one table of a source is read again, and the others go on.

What falls under it: several tables that are asked for while one of them is locked, numbers of transactions that begin
anew while an engine runs for weeks, and columns that a table has no more, whose values are on `main` still.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from sterna.config.sections.cdc import CdcSource
from sterna.errors import DatabaseRefused, DatabaseUnreachable, NeedsResync
from sterna.pipelines.cdc import capture
from sterna.pipelines.cdc.capture import Capture
from sterna.pipelines.cdc.change_buffer import ChangeBuffer
from sterna.pipelines.cdc.journal import CaptureSpec, Journal, Segment, TableResync
from sterna.pipelines.cdc.table_resync import PgSnapshot, SnapshotRows
from sterna.pipelines.cdc.types import SourceColumn
from sterna.pipelines.ingest.columns import Column
from tests.support.small_world import make_world

_A, _B = "public.a", "public.b"
_ID, _OLD = Column("id", "string"), Column("old", "string")
_KEYS = {_A: ("id",), _B: ("id",)}


@dataclass
class FakeDatabase:
    """A source whose tables can be read again, but for some; then it doesn't answer any more."""

    locked: set[str] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)

    def list_tables(self, *args: Any) -> dict[str, tuple[str, ...]]:
        return dict(_KEYS)

    def publish_table(self, capture_id: int, table: str) -> bool:
        return table not in self.locked

    def identities(self, tables: Mapping[str, Any], previous: Mapping[str, Any], *args: Any) -> dict[str, Any]:
        return {
            table: {"columns": {**previous.get(table, {}).get("columns", {}), "id": [1, 25, -1, "7"]}}
            for table in tables
        }

    @contextmanager
    def read_table(self, capture_id: int, table: str) -> Iterator[SnapshotRows]:
        if table in self.broken:
            raise DatabaseRefused(f"the source refused a statement: invalid page in {table}")
        column = SourceColumn(_ID, str, False)
        yield SnapshotRows((column,), "100:110:", 5, 0, iter([[{"id": "1"}]]))

    def origin(self, *args: Any) -> dict[str, Any]:
        return {}

    def list_rewritten(self, *args: Any) -> tuple[str, ...]:
        return ()

    def prepare(self, *args: Any) -> None:
        pass

    def properties(self, *args: Any) -> dict[str, str]:
        return {}

    def jars(self) -> list[Path]:
        return []

    def validate_added_columns(self, *args: Any) -> None:
        pass

    def validate_position(self, *args: Any) -> None:
        raise DatabaseUnreachable("it doesn't answer")


class Pipe:
    """An engine that tells what a script has."""

    def __init__(self, looks: list[list[dict[str, Any]]]) -> None:
        self.looks = looks

    def poll(self, seconds: float) -> list[dict[str, Any]]:
        return self.looks.pop(0) if self.looks else []

    def confirm(self, number: int) -> None:
        pass

    def kill(self) -> None:
        pass


def journal_of(folder: Path, **drop: Any) -> Journal:
    """A journal with one drop, behind the rows that an epoch begins with."""
    journal = Journal(make_world(folder).context().objects, f"file://{folder}/eu/lake/inbox", "shop")
    assert journal.create_spec(CaptureSpec(1, _KEYS))
    assert journal.commit_segment(Segment(1, 1, {}, {"lsn_proc": 1}, complete=True, **drop))
    return journal


def reader_of(journal: Journal, database: Any, clock: Callable[[], float]) -> Capture:
    source_fields = {
        "name": "shop",
        "region": "eu",
        "hosts": ["d:1"],
        "database": "d",
        "credential_id": "c",
        "into": "a",
    }
    source = CdcSource.model_validate({**source_fields, "tables": ["public.*"], "every": "1s"})
    return Capture(source, cast(Any, database), journal, clock=clock)


def last_of(journal: Journal) -> Segment:
    segment = journal.last_segment(1)
    assert segment is not None
    return segment


def test_a_table_that_is_locked_is_not_forgotten_for_one_that_is_asked_for_behind_it(tmp_path: Path) -> None:
    journal, shop, clock = journal_of(tmp_path), FakeDatabase({_A}), itertools.count(100, 100)
    reader = reader_of(journal, shop, lambda: float(next(clock)))
    assert [journal.request_resync(1, table) for table in (_A, _B)] == [1, 2]
    for _ in range(2):
        with pytest.raises(DatabaseUnreachable):
            reader.step(1.0)
        assert last_of(journal).handled_requests == 0
    shop.locked = set()
    with pytest.raises(DatabaseUnreachable):
        reader.step(1.0)
    assert (last_of(journal).handled_requests, sorted(last_of(journal).resyncs), last_of(journal).stopped) == (
        2,
        [_A, _B],
        {},
    )


def test_a_table_that_the_server_refuses_to_read_keeps_no_other_one_from_being_followed(tmp_path: Path) -> None:
    journal, shop, clock = journal_of(tmp_path), FakeDatabase(broken={_A}), itertools.count(100, 100)
    assert [journal.request_resync(1, table) for table in (_A, _B)] == [1, 2]
    with pytest.raises(DatabaseUnreachable):
        reader_of(journal, shop, lambda: float(next(clock))).step(1.0)
    last = last_of(journal)
    assert (last.handled_requests, sorted(last.resyncs), sorted(last.stopped)) == (2, [_B], [_A])
    error = last.stopped[_A].to_error(_A, "shop", alone=True)
    assert "invalid page in public.a" in error.message
    assert "resync shop --table public.a" in error.hint


def test_numbers_of_transactions_that_come_again_are_those_of_others(tmp_path: Path) -> None:
    """An engine that ran on passed over each change of the table, once 2^31 transactions had been since then."""
    again = {_A: TableResync(1, 1, ("id",), "100:110:", 5)}
    journal = journal_of(tmp_path, resyncs=again)
    looks = [
        [{"define": 0, "fields": fields("id")}, change("1", 105), change("2", 200), place(1, 7)],
        [],
        [change("3", 105), place(2, 9)],
        [],
    ]
    clock = itertools.count()
    reader, engine = reader_of(journal, FakeDatabase(), lambda: float(next(clock))), Pipe(cast(Any, looks))
    gatherer = ChangeBuffer(
        tmp_path, "absent", _KEYS, lambda *_: None, {}, {}, snapshots={_A: PgSnapshot.parse("100:110:")}
    )
    reader.resume(cast(Any, engine), gatherer, CaptureSpec(1, _KEYS), last_of(journal))
    while engine.looks:
        reader.step(9.0)
    rows = [sum(part.rows for part in drop.tables[_A]) for drop in journal.segments(1, 1) if drop.tables]
    assert rows == [1, 1]


def test_what_became_durable_is_told_at_once(tmp_path: Path) -> None:
    """The runner applies it as soon as a step of reading ends: waiting for the rest of the step made rows later."""
    looks = [
        [{"define": 0, "fields": fields("id")}, change("1", 105), place(1, 7)],
        [],
        [change("2", 106), place(2, 9)],
    ]
    journal, clock, pipe = journal_of(tmp_path), itertools.count(), Pipe(cast(Any, [*looks, []]))
    reader = reader_of(journal, FakeDatabase(), lambda: float(next(clock)))
    buffer = ChangeBuffer(tmp_path, "absent", _KEYS, lambda *_: None, {}, {})
    reader.resume(cast(Any, pipe), buffer, CaptureSpec(1, _KEYS), last_of(journal))
    assert (reader.step(1_000.0), last_of(journal).number, len(pipe.looks)) == (1, 2, 3)
    assert (reader.step(1_000.0), last_of(journal).number) == (1, 3)


def test_a_column_that_comes_back_behind_rows_that_were_read_again_stops_its_table(tmp_path: Path) -> None:
    """On `main` it has the values from before."""
    columns = {_A: (_ID, _OLD), _B: (_ID,)}
    journal, clock = journal_of(tmp_path, columns=columns, dropped_columns={_A: ("older",)}), itertools.count(100, 100)
    assert journal.request_resync(1, _A) == 1
    with pytest.raises(DatabaseUnreachable):
        reader_of(journal, FakeDatabase(), lambda: float(next(clock))).step(1.0)
    last = last_of(journal)
    assert (last.columns[_A], last.dropped_columns[_A]) == ((_ID,), ("old", "older"))
    assert sorted(last.identities[_A]["columns"]) == ["id", "old", "older"]
    gatherer = ChangeBuffer(tmp_path, "absent", _KEYS, lambda *_: None, last.columns, last.dropped_columns)
    gatherer.add_message({"define": 0, "fields": fields("id", "old")})
    with pytest.raises(NeedsResync, match="old was dropped and is there again"):
        gatherer.add_message(change("1", 200))


@pytest.mark.parametrize("is_lost", [False, True], ids=["", "the journal was changed"])
def test_a_column_that_comes_back_behind_a_resync_stops_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_lost: bool
) -> None:
    """A table keeps on `main` what it had, also where all rows of the source are read again."""
    journal = journal_of(tmp_path, columns={_A: (_ID, _OLD)}, dropped_columns={_B: ("more",)})
    first = [{"define": 0, "fields": fields("id")}, change("1", 1), place(1, 7)]
    back = [{"define": 1, "fields": fields("id", "old")}, change("2", 2, schema=1), place(2, 9)]
    pipe = Pipe(cast(Any, [first, [], back, []]))
    monkeypatch.setattr(capture, "Engine", lambda *args: pipe)
    journal.request_capture(2)
    if is_lost:
        journal.request_capture(3)
        assert journal.create_spec(CaptureSpec(2, _KEYS))
        drop = tmp_path / "eu" / "lake" / "inbox" / "_cdc" / "drops" / "shop" / "000002" / f"{10**12 - 1:012}.json"
        drop.parent.mkdir()
        drop.write_text("{}")
    clock = itertools.count()
    reader = reader_of(journal, FakeDatabase(), lambda: float(next(clock)))
    while pipe.looks:
        reader.step(9.0)
    last = journal.last_segment(3 if is_lost else 2)
    assert last is not None
    assert sorted(last.identities[_B]["columns"]) == ["id", "more"]
    assert "old was dropped and is there again" in last.stopped[_A].message


def change(id: str, transaction: int, schema: int = 0) -> dict[str, Any]:
    source = {"schema": "public", "table": "a", "ts_us": 1, "txId": transaction}
    value = {"op": "c", "before": None, "after": {"id": id}, "source": source}
    return {"topic": "shop.public.a", "schema": schema, "value": value, "size": 1}


def fields(*names: str) -> dict[str, Any]:
    schema_fields = [{"field": name, "type": "string"} for name in names]
    return {"fields": [{"field": "after", "fields": schema_fields}]}


def place(number: int, lsn: int) -> dict[str, Any]:
    return {"n": number, "partition": {}, "offset": {"lsn_proc": lsn}}
