"""One batch on its way, where others are at work beside it: what must not be written, and what is read anew."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sterna.config.sections.ingest import Ingest
from sterna.errors import (
    BatchRejected,
    CatalogStateUnknown,
    LeaseLost,
    ObjectMissing,
    TableGone,
    TableMoved,
    TrackerContradicts,
)
from sterna.pipelines.ingest.batch_publisher import BatchPublisher, StepContext, publish_batch
from sterna.pipelines.ingest.columns import Column, Evolution
from sterna.pipelines.ingest.fetch import ReadLimits, count_dead_rows, dead_letters_uri, fetch_rows, write_dead_letters
from sterna.pipelines.ingest.inbox import write_rejected_file
from sterna.pipelines.ingest.layout import rejected_uri
from sterna.pipelines.ingest.model import Batch, Destination, Format, State, Upload
from sterna.pipelines.ingest.read_rows import dead_schema
from sterna.pipelines.publish.decide import position_properties
from sterna.pipelines.publish.model import SnapshotState, TableState
from sterna.pipelines.publish.protocol import LoadedTable
from sterna.storage.objects import Objects
from tests.support.stores import Stores, file_stores

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DESTINATION = Destination("acme", "acme.t", "eu.acme.default")
BATCH = Batch("b", DESTINATION, 1, State.CLOSED, 1, 1, 1, NOW, "files", NOW)


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    with file_stores(tmp_path / "stores") as file_locations:
        yield file_locations


def test_whoever_has_a_batch_no_more_doesn_t_reject_it(stores: Stores) -> None:
    """It may be on `main` by now, where another worker put it: said to be rejected, it would be replayed."""

    def renew(*_: object) -> None:
        raise LeaseLost("somebody else has it")

    def refuse(*_: object) -> None:
        raise BatchRejected("no")

    def gone() -> None:
        raise TableGone("there is none")

    step_context: Any = SimpleNamespace(
        objects=stores.objects,
        inbox=f"{stores.eu}/inbox",
        table=refuse,
        catalog=SimpleNamespace(table=lambda key: SimpleNamespace(refresh=gone)),
        queue=SimpleNamespace(list_uploads=lambda _: [], renew=renew, mark_rejected=lambda *_: None),
    )
    with pytest.raises(LeaseLost):
        publish_batch(step_context, BATCH, "zombie")
    assert stores.objects.size(rejected_uri(step_context.inbox, DESTINATION, 1)) is None


def test_rows_are_read_anew_where_their_columns_are_others_by_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """A column that was renamed while rows were read would get nulls, and what was sent for it would be gone."""
    before, after = (Column("id", "long"), Column("name", "string")), (Column("id", "long"), Column("title", "string"))
    seen, read, written = iter([before, after, after, after]), [], []

    def gather(self: Any, columns: Any) -> Any:
        if self.rows is None:
            read.append(columns)
            self.rows = SimpleNamespace(report=SimpleNamespace(columns=columns, evolution=Evolution()))
            self.rows.slices = lambda selected: [SimpleNamespace(num_rows=1, columns=selected)]
        return self.rows

    monkeypatch.setattr(BatchPublisher, BatchPublisher.read_rows.__name__, gather)
    monkeypatch.setattr(BatchPublisher, BatchPublisher.regional_folder.__name__, lambda *_: "")
    table = SimpleNamespace(stage_files=lambda *_: None)
    catalog = SimpleNamespace(
        table=lambda key: table,
        read_columns=lambda loaded: next(seen),
        write=lambda loaded, some, folder: written.append(some.columns) or [],
    )
    step_context: Any = SimpleNamespace(catalog=catalog, queue=SimpleNamespace(renew=lambda *_: None))
    work = BatchPublisher(step_context, BATCH, "w")
    work.table = table  # type: ignore[assignment]
    work.stage(SimpleNamespace())  # type: ignore[arg-type]
    assert (read, written) == ([before, after], [after])


def test_a_batch_is_read_within_its_region_s_limits(stores: Stores) -> None:
    database = {"credential_id": "ingest_eu"}
    own = {"inbox": "s3://eu-lake/inbox", "database": database, "read_memory": "1GiB", "read_time": "60s"}
    settings = Ingest.model_validate(
        {"regions": {"eu": own}, "tenants": {"acme": {"namespaces": ["acme"]}}, "tables": [{"match": "**"}]}
    )
    step_context: Any = SimpleNamespace(settings=settings, mapping=stores.mapping)
    assert StepContext.read_limits.fget(step_context) == ReadLimits(memory=1 << 30, seconds=60)  # type: ignore[attr-defined]


def test_a_file_over_the_limit_of_metadata_files_is_read_all_the_same(stores: Stores) -> None:
    """A tenant's own limit let it in: one that is never read again would hold its channel for ever."""
    content = b'{"id": 1}\n' * 100
    region = stores.mapping.region
    small = region.model_copy(update={"limits": region.limits.model_copy(update={"file_bytes": 100})})
    stores.mapping.__dict__["region"] = small
    uri = f"{stores.eu}/inbox/acme/acme.t/aa/aa.jsonl"
    stores.put(uri, content)
    digest = hashlib.sha256(content).hexdigest()
    drop = Upload("aa", DESTINATION, "k", "", Format.JSON_LINES, len(content), 100, digest, uri, NOW)
    columns = (Column("id", "long"),)
    with fetch_rows(stores.objects, BATCH, [drop], columns, evolve="none", max_value_bytes=1_000) as rows:
        assert (rows.report.rows, rows.report.bad) == (100, 0)


class _MeetingObjects:
    """Stores that answer a read once so many reads wait for one."""

    def __init__(self, objects: Objects, reads: int) -> None:
        self._objects, self._barrier, self.mapping = objects, threading.Barrier(reads), objects.mapping

    def open(self, location: Any) -> Any:
        self._barrier.wait(60)
        return self._objects.open(location)


def _lines(stores: Stores, name: str, number: int) -> Upload:
    content = b'{"id": %d}\n' % number
    uri, digest = f"{stores.eu}/inbox/acme/acme.t/{name}", hashlib.sha256(content).hexdigest()
    stores.put(uri, content)
    return Upload(name, DESTINATION, name, "", Format.JSON_LINES, len(content), 1, digest, uri, NOW)


def test_drops_are_fetched_at_once_and_read_in_their_order(stores: Stores) -> None:
    drops = [_lines(stores, f"d{number}", number) for number in range(8)]
    objects, columns, steps = _MeetingObjects(stores.objects, 4), (Column("id", "long"),), list[None]()
    with fetch_rows(
        objects,  # type: ignore[arg-type]
        BATCH,
        drops,
        columns,
        evolve="none",
        max_value_bytes=1_000,
        on_progress=lambda: steps.append(None),
    ) as rows:
        ids = [table.column("id").to_pylist() for table in rows.slices(columns)]
    assert (ids, len(steps)) == ([list(range(8))], 9)


def test_a_drop_that_is_missing_among_others_is_named_and_leaves_nothing_here(stores: Stores) -> None:
    drops = [_lines(stores, f"d{number}", number) for number in range(20)]
    gone = replace(drops[3], uri=f"{drops[3].uri}-gone")
    with (
        pytest.raises(ObjectMissing, match=r"d3-gone"),
        fetch_rows(stores.objects, BATCH, [*drops[:3], gone, *drops[4:]], (Column("id", "long"),), "none", 1_000),
    ):
        pass
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("sterna-objects")]


@pytest.mark.parametrize("content", [b'{"id": 1}\n{"id": 2, "x": 7}\n', b'{"id": 1, "x": 2}\n{"id": 2}\n'])
def test_dead_letters_are_those_of_the_last_reading(stores: Stores, content: bytes) -> None:
    """A worker wrote them down and died; the table has the column by now, and all rows are on `main`."""
    inbox = f"{stores.eu}/inbox"
    uri, digest = f"{inbox}/acme/acme.t/aa/aa.jsonl", hashlib.sha256(content).hexdigest()
    stores.put(uri, content)
    drop = Upload("aa", DESTINATION, "k", "", Format.JSON_LINES, len(content), 2, digest, uri, NOW)
    before = (Column("id", "long"),)
    readings = []
    for columns in (before, (*before, Column("x", "long")), before):
        with fetch_rows(stores.objects, BATCH, [drop], columns, evolve="none", max_value_bytes=1_000) as rows:
            write_dead_letters(stores.objects, inbox, BATCH, rows, None)
        kept = pq.read_table(pa.BufferReader(stores.objects.read(dead_letters_uri(inbox, BATCH))))
        assert kept.schema.equals(dead_schema())
        readings.append(
            (rows.report.bad, kept.num_rows, count_dead_rows(stores.objects, dead_letters_uri(inbox, BATCH), [drop]))
        )
    assert readings == [(1, 1, 1), (0, 0, 0), (1, 1, 1)]


def test_bad_rows_are_counted_alike_whoever_publishes(stores: Stores) -> None:
    """One who has read them, and one who finds what a worker that died had written: also of a drop that is no file."""
    inbox, drops = f"{stores.eu}/inbox", []
    for name, format, content in (
        ("aa", Format.JSON_LINES, b'{"id": 1}\n{"id": "x"}\n{"id": "y"}\n'),
        ("bb", Format.PARQUET, b"no Parquet"),
        ("cc", Format.PARQUET, b"neither"),
    ):
        uri, rows = f"{inbox}/acme/acme.t/{name}", {"aa": 3, "bb": 40, "cc": 0}[name]
        stores.put(uri, content)
        digest = hashlib.sha256(content).hexdigest()
        drops.append(Upload(name, DESTINATION, name, "", format, len(content), rows, digest, uri, NOW))
    with fetch_rows(
        stores.objects, BATCH, drops, (Column("id", "long"),), evolve="none", max_value_bytes=1_000
    ) as rows:
        write_dead_letters(stores.objects, inbox, BATCH, rows, None)
    uri = dead_letters_uri(inbox, BATCH)
    assert rows.report.bad == 2 + 40 + 1
    assert count_dead_rows(stores.objects, uri, drops) == rows.report.bad
    assert count_dead_rows(stores.objects, uri, drops[:1]) == 4, "of a drop that nobody knows it is one at least"
    stores.put(f"{inbox}/broken", b"no Parquet")
    assert count_dead_rows(stores.objects, f"{inbox}/broken", drops) == 1, (
        "what can't be read is no reason to be silent"
    )


def test_a_batch_without_bad_rows_leaves_no_file_of_dead_letters(stores: Stores) -> None:
    inbox, rows = f"{stores.eu}/inbox", SimpleNamespace(path=Path("/nowhere"), report=SimpleNamespace(bad=0, rows=1))
    write_dead_letters(stores.objects, inbox, BATCH, rows, 0)  # type: ignore[arg-type]
    assert stores.objects.size(dead_letters_uri(inbox, BATCH)) is None


@pytest.mark.parametrize("broken", ["", "b"])
def test_a_long_audit_is_a_step_a_rule_once_a_try_came_to_no_end(broken: str) -> None:
    """One pass for all rules took longer than a step may, and so did that of each worker who had the batch then."""
    seen: list[str] = []

    def select(*rules: str) -> Any:
        seen.append(" ".join(rules))
        return SimpleNamespace(first=lambda: [f"({broken})" not in rule for rule in rules])

    rule = SimpleNamespace(audit=["a", "b", "c"])
    step_context: Any = SimpleNamespace(
        table=lambda key: rule,
        inbox="file:///inbox",
        objects=SimpleNamespace(size=lambda uri: None),
        queue=SimpleNamespace(mark_staged=lambda *_: None),
        catalog=SimpleNamespace(read_staged=lambda *_: SimpleNamespace(selectExpr=select)),
    )

    def audited(attempts: int) -> list[str]:
        seen.clear()
        work = BatchPublisher(step_context, replace(BATCH, attempts=attempts), "w", lambda: seen.append("-"))
        work.table = None  # type: ignore[assignment]
        loaded: Any = None
        if broken:
            with pytest.raises(BatchRejected, match="the audit failed: b"):
                work.audit_snapshot(loaded, 1)
        else:
            work.audit_snapshot(loaded, 1)
        return list(seen)

    assert audited(1) == ["-", "(a) AS rule_0 (b) AS rule_1 (c) AS rule_2"]
    assert audited(2) == ["-", "(a) AS rule_0", "-", "(b) AS rule_0", "-", "(c) AS rule_0", "-"]
    rule.audit = []
    if not broken:
        assert audited(2) == []


class SlowWorker:
    """A table, and a worker who is slow: between his look at his lease and his commit others are at work.

    Args:
        stores: with the inbox.
        keeps_batch: whether the tracker still has the batch as his afterwards.
    """

    def __init__(self, stores: Stores, *, keeps_batch: bool) -> None:
        self.state = TableState((SnapshotState(1, None, 1), SnapshotState(2, 1, 2, wap_id="b")), 1, {})
        self.lost, self.keeps_batch, self.rejected = False, keeps_batch, list[str]()
        self.step_context: Any = SimpleNamespace(
            objects=stores.objects,
            inbox=f"{stores.eu}/inbox",
            catalog=SimpleNamespace(table=lambda key: self),
            queue=SimpleNamespace(
                list_uploads=lambda _: [],
                next_number=lambda *_: 1,
                renew=self.renew,
                mark_staged=self.renew,
                mark_rejected=lambda batch, reason: self.rejected.append(batch),
                lock_publishing=lambda table: nullcontext(True),
            ),
            table=lambda key: SimpleNamespace(audit=[]),
        )

    def renew(self, *_: object) -> None:
        if self.lost:
            raise LeaseLost("batch b is no longer of worker slow")

    def refresh(self) -> LoadedTable[Any]:
        return LoadedTable(self.state, self.state)

    def commit(self, loaded: LoadedTable[Any], change: Any, step: Any) -> Any:
        """Another worker rejects the batch meanwhile, and the next one of the channel is published."""
        step_context = self.step_context
        if step_context.objects.size(rejected_uri(step_context.inbox, DESTINATION, 1)) is None:
            write_rejected_file(step_context.objects, step_context.inbox, BATCH, "the audit says no", NOW)
        self.lost = not self.keeps_batch
        next_one = SnapshotState(3, 1, 3, published_wap_id="b2")
        self.state = TableState(
            (*self.state.snapshots, next_one), 3, position_properties(replace(step, position="2"), 3, 3)
        )
        raise self.after(step)

    def after(self, step: Any) -> Exception:
        return TableMoved("somebody was first")

    def publish(self) -> Any:
        with BatchPublisher(self.step_context, BATCH, "slow") as work:
            work.table = self  # type: ignore[assignment]
            return work.publish()


def test_a_slow_worker_whose_batch_was_rejected_and_passed_by_lost_his_lease(stores: Stores) -> None:
    """It was told as `Rewound`, which stops, and asks an operator to bring rows again that nobody has lost."""
    slow = SlowWorker(stores, keeps_batch=False)
    with pytest.raises(LeaseLost):
        slow.publish()
    assert slow.rejected == []


def test_one_whose_rejection_the_tracker_missed_is_rejected(stores: Stores) -> None:
    """Whoever rejected it died before he told the tracker."""
    slow = SlowWorker(stores, keeps_batch=True)
    assert slow.publish().state is State.REJECTED
    assert slow.rejected == ["b"]


def test_one_that_is_rejected_and_on_main_contradicts_the_tracker(stores: Stores) -> None:
    """The commit was made, its answer was lost, and another worker rejected the batch at just that moment."""
    slow = SlowWorker(stores, keeps_batch=False)

    def landed(step: Any) -> Exception:
        published = SnapshotState(2, 1, 2, wap_id="b")
        slow.state = TableState((SnapshotState(1, None, 1), published), 2, position_properties(step, 2, 2))
        return CatalogStateUnknown("no answer")

    slow.after = landed  # type: ignore[method-assign]
    with pytest.raises(TrackerContradicts, match="batch b was rejected, and is on main in snapshot 2"):
        slow.publish()
