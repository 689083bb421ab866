"""What a worker reads of drops: good rows exactly, bad ones with their reason, and no drop at another's cost."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sterna.errors import EngineError
from sterna.pipelines.ingest import read_rows
from sterna.pipelines.ingest.columns import Column, Evolution, FieldChange
from sterna.pipelines.ingest.fetch import FORK_SERVER, ReadLimits, read_in_subprocess
from sterna.pipelines.ingest.read_job import DEAD_ROWS_FILE, GOOD_ROWS_FILE, ReadJob, ReadReport, UploadFile
from sterna.pipelines.ingest.read_rows import read_uploads

TABLE = (Column("id", "long", True), Column("name", "string"), Column("amount", "decimal(10, 2)"))
LONGEST = 1_000


class Folder:
    """Drops on disk, and what becomes of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.drops: list[UploadFile] = []

    def add(self, kind: str, content: bytes, rows: int = 1) -> None:
        name = f"d{len(self.drops)}"
        (self.path / name).write_bytes(content)
        self.drops.append(UploadFile(name, str(self.path / name), kind, rows))

    def json(self, *rows: Any) -> None:
        self.add("json", b"".join(json.dumps(row).encode() + b"\n" for row in rows), len(rows))

    def parquet(self, **columns: Any) -> None:
        table = pa.table(columns)
        pq.write_table(table, self.path / "made")
        self.add("parquet", (self.path / "made").read_bytes(), table.num_rows)

    def arrow(self, **columns: Any) -> None:
        table, sink = pa.table(columns), pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        self.add("arrow", sink.getvalue().to_pybytes(), table.num_rows)

    def job(self, columns: tuple[Column, ...] = TABLE, evolve: str = "none") -> ReadJob:
        return ReadJob(columns, evolve, LONGEST, tuple(self.drops))

    def read(self, columns: tuple[Column, ...] = TABLE, evolve: str = "none") -> ReadReport:
        return read_uploads(self.job(columns, evolve), self.path)

    @property
    def rows(self) -> list[dict[str, Any]]:
        with pa.memory_map(str(self.path / GOOD_ROWS_FILE)) as source:
            return pa.ipc.open_file(source).read_all().to_pylist()

    @property
    def dead(self) -> list[tuple[str, int, str]]:
        if not (self.path / DEAD_ROWS_FILE).exists():
            return []
        return [
            (row["drop"], row["offset"], row["error"]) for row in pq.read_table(self.path / DEAD_ROWS_FILE).to_pylist()
        ]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_all_formats_become_the_same_rows(folder: Folder) -> None:
    folder.json({"id": 1, "name": "ä", "amount": 1.5})
    folder.arrow(id=pa.array([2], pa.int32()), name=pa.array(["b"]).dictionary_encode())
    folder.parquet(id=[3], amount=pa.array([Decimal("2.25")], pa.decimal128(5, 2)))
    report = folder.read()
    assert (report.rows, report.bad, report.columns) == (3, 0, TABLE)
    assert folder.rows == [
        {"id": 1, "name": "ä", "amount": Decimal("1.50")},
        {"id": 2, "name": "b", "amount": None},
        {"id": 3, "name": None, "amount": Decimal("2.25")},
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"id": 1', "no JSON"),
        (b"[1]", "a row is a JSON object"),
        (b'{"id": 1, "id": 2}', "twice"),
        (b'{"id": "1"}', "column 'id': expected int, not str"),
        (b'{"id": true}', "expected int, not bool"),
        (b'{"id": 1.0}', "expected int"),
        (b'{"id": 9223372036854775808}', "beyond 64 bits"),
        (b'{"name": "a"}', "has no value, and has to have one"),
        (b'{"id": 1, "amount": 1.005}', "no decimal of 10 digits"),
        (b'{"id": 1, "amount": NaN}', "NaN is no number of JSON"),
        (b'{"id": 1, "more": 2}', "has no column 'more'"),
        (b'{"id": 1, "name": "\\ud800"}', "half of a surrogate pair"),
        (b'{"id": 1, "name": "' + b"x" * 1_001 + b'"}', "more than 1000 bytes"),
        (b"\xff", "no JSON"),
        (b"[" * 100_000, "no JSON"),
    ],
)
def test_a_bad_line_goes_to_the_dead_letters_alone(folder: Folder, line: bytes, reason: str) -> None:
    folder.add("json", b'{"id": 7}\n' + line + b'\n{"id": 8}\n', 3)
    report = folder.read()
    assert (report.rows, report.bad) == (2, 1)
    assert [row["id"] for row in folder.rows] == [7, 8]
    ((drop, offset, error),) = folder.dead
    assert (drop, offset) == ("d0", 1)
    assert reason in error


def test_bad_rows_of_files_go_to_the_dead_letters_alone(folder: Folder) -> None:
    folder.parquet(id=[1, None, 3], name=["a", "b", "x" * 10_000_000])
    report = folder.read()
    assert (report.rows, report.bad) == (1, 2)
    assert [(offset, error.split(" has ")[0]) for _, offset, error in folder.dead] == [
        (1, "column 'id'"),
        (2, "column 'name'"),
    ]


def parquet_bytes(folder: Folder) -> bytes:
    pq.write_table(pa.table({"id": list(range(1_000))}), folder.path / "made", compression="none")
    return (folder.path / "made").read_bytes()


@pytest.mark.parametrize("what", ["cut", "magic", "empty", "flipped"])
def test_a_file_that_cannot_be_read_is_refused_alone(folder: Folder, what: str) -> None:
    whole = parquet_bytes(folder)
    broken = {"cut": whole[:-20], "magic": b"XXXX" + whole[4:-4] + b"XXXX", "empty": b""}
    folder.json({"id": 1})
    folder.add("parquet", broken.get(what, whole[:40] + b"\xff" * 400 + whole[440:]), 1_000)
    folder.json({"id": 2})
    report = folder.read()
    if what == "flipped":  # nothing but the producer's digest tells, where values are stored as they are
        assert report.rows in (2, 1_002)
        return
    assert (report.rows, report.bad) == (2, 1_000)
    assert [(drop, offset) for drop, offset, _ in folder.dead] == [("d1", -1)]
    assert "can't be read" in report.first


def test_a_cut_arrow_stream_brings_no_row(folder: Folder) -> None:
    folder.arrow(id=list(range(50_000)))
    folder.drops.clear()
    whole = (folder.path / "d0").read_bytes()
    folder.add("arrow", whole[: len(whole) // 2], 50_000)
    assert (folder.read().rows, folder.read().bad) == (0, 50_000)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"id": ["one"]}, "column 'id' is string, and the table has long"),
        ({"id": [1], "more": [1]}, "has no column 'more'"),
        ({"name": ["a"]}, "there is no column 'id'"),
        ({"id": [1], "amount": pa.array([Decimal("1.234")])}, "column 'amount' is decimal"),
    ],
)
def test_a_schema_that_contradicts_refuses_the_drop(folder: Folder, columns: dict[str, Any], reason: str) -> None:
    folder.parquet(**columns)
    folder.json({"id": 5})
    report = folder.read()
    assert (report.rows, report.bad) == (1, 1)
    assert reason in report.first


@pytest.mark.parametrize("evolve", ["none", "add"])
def test_of_a_column_that_the_table_lacks_nothing_is_no_value(folder: Folder, evolve: str) -> None:
    """No value tells its type; something inside of it that tells none is dead, for it would be lost."""
    folder.json(*({"id": at, "x": value} for at, value in enumerate((None, [], {}, [None], [{}], [[]], {"a": []}))))
    report = folder.read(TABLE[:1], evolve)
    assert (report.rows, report.bad, report.evolution) == (3, 4, Evolution())
    assert [row["id"] for row in folder.rows] == [0, 1, 2]
    assert {(offset, error) for _, offset, error in folder.dead} == {
        (at, "the table has no column 'x'") for at in range(3, 7)
    }


def test_a_table_gets_no_more_columns_than_its_rule_says(folder: Folder) -> None:
    folder.json({"id": 1, "more": {"x": 1, "y": 2}})
    job = replace(folder.job(TABLE[:1], "add"), most=2)
    report = read_uploads(job, folder.path)
    assert (report.rows, report.bad) == (0, 1)
    assert "more than 2 columns, those in structs included (tables[].columns)" in report.first
    assert read_uploads(replace(job, most=4), folder.path).rows == 1


def test_columns_are_added_and_widened_where_that_is_allowed(folder: Folder) -> None:
    table = (Column("id", "int"), Column("price", "float"))
    folder.json({"id": 1, "tags": ["a"], "at": {"x": 1}}, {"id": 2, "score": 1.5, "nothing": None})
    folder.parquet(id=pa.array([1 << 40], pa.int64()), score=[2.5])
    report = folder.read(table, "widen")
    wider, *added_columns = report.evolution.changes
    assert wider == FieldChange(("id",), "long", widen=True)
    assert [(change.path, change.widen) for change in added_columns] == [
        (("tags",), False), (("at",), False), (("score",), False)
    ]  # fmt: skip
    assert (report.rows, report.bad) == (3, 0)
    assert folder.rows[2] == {"id": 1 << 40, "price": None, "tags": None, "at": None, "score": 2.5}
    added = folder.read(table, "add")
    assert (added.rows, added.bad) == (2, 1)
    assert folder.read(table, "none").rows == 0


@pytest.mark.parametrize("evolve", ["none", "add", "widen"])
def test_a_number_of_json_is_its_column_s_and_changes_no_type(folder: Folder, evolve: str) -> None:
    """JSON has no types of numbers: each value is looked at, and none makes a column wider for good."""
    table = (Column("i", "int"), Column("f", "float"), Column("d", "decimal(4, 1)"), Column("in", {
        "type": "struct", "fields": [{"name": "i", "type": "int"}, {"name": "f", "type": "float"}]
    }))  # fmt: skip
    folder.json({"i": 1, "f": 1.5, "d": 2.5, "in": {"i": 2, "f": 0.5}}, {"f": 1e300}, {"i": 1 << 40}, {"d": 99999})
    folder.json({"f": 16777217}, {"f": 16777216}, {"in": {"f": 1e300}})
    report = folder.read(table, evolve)
    assert (report.rows, report.bad, report.evolution, report.columns) == (2, 5, Evolution(), table)
    assert folder.rows[0] == {"i": 1, "f": 1.5, "d": Decimal("2.5"), "in": {"i": 2, "f": 0.5}}


def test_names_that_differ_by_case_alone_are_refused(folder: Folder) -> None:
    folder.parquet(id=[1], ID=[2])
    assert "by case alone" in folder.read(TABLE, "widen").first


def test_times_are_taken_exactly_or_not_at_all(folder: Folder) -> None:
    table = (Column("at", "timestamptz"), Column("day", "date"))
    folder.json({"at": "2026-01-01T01:00:00+01:00", "day": "2026-01-02"}, {"at": "2026-01-01T01:00:00"})
    folder.parquet(at=pa.array([1], pa.timestamp("ns", "UTC")))
    folder.parquet(at=pa.array([1_000], pa.timestamp("ns", "UTC")))
    report = folder.read(table)
    assert (report.rows, report.bad) == (2, 2)
    assert folder.rows[0] == {"at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "day": dt.date(2026, 1, 2)}


def bomb(folder: Folder) -> bytes:
    """A small file whose one page says that it becomes far more than there is memory."""
    pq.write_table(
        pa.table({"id": pa.array([0] * 1_000)}), folder.path / "made", compression="zstd", use_dictionary=False
    )
    whole = bytearray((folder.path / "made").read_bytes())
    # Thrift's compact protocol: the header's second field, i32 uncompressed_page_size, as a zigzag varint.
    assert whole[4] == 0x15
    assert whole[6] == 0x15
    at = 7
    end = at
    while whole[end] & 0x80:
        end += 1
    return bytes(whole[:at]) + _varint(2 * 2_000_000_000, end + 1 - at) + bytes(whole[end + 1 :])


def _varint(value: int, least: int) -> bytes:
    encoded = bytearray()
    while value or not encoded:
        encoded.append((value & 0x7F) | 0x80)
        value >>= 7
    encoded[-1] &= 0x7F
    return bytes(encoded)


@pytest.mark.slow
def test_a_bomb_is_refused_and_the_others_are_read(folder: Folder) -> None:
    folder.json({"id": 1})
    folder.add("parquet", bomb(folder), 1_000)
    folder.json({"id": 2})
    report = read_in_subprocess(folder.job(), folder.path, ReadLimits(memory=600 << 20))
    assert (report.rows, report.bad) == (2, 1_000)
    assert [row["id"] for row in folder.rows] == [1, 2]
    assert [drop for drop, _, _ in folder.dead] == ["d1"]


@pytest.mark.slow
def test_what_ends_the_process_is_refused_and_the_others_are_read(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _hook(monkeypatch, tmp_path, "os.abort() if drop.id == 'd1' else real(drop)")
    folder.json({"id": 1})
    folder.parquet(id=[5])
    report = read_in_subprocess(folder.job(), folder.path)
    assert (report.rows, report.bad) == (1, 1)
    assert "died of signal 6" in report.first


def _hook(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, instead: str) -> None:
    """Let readers do something else where they look at a file's schema."""
    hook = tmp_path / "site"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(
        f"import os, time, {read_rows.__name__} as r\nname = {read_rows.read_schema.__name__!r}\nreal = getattr(r, "
        "name)\n"
        f"setattr(r, name, lambda drop: {instead})\n"
    )
    monkeypatch.syspath_prepend(str(hook))


@pytest.mark.slow
def test_each_batch_has_a_process_of_its_own_forked_from_one_that_is_kept(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    _hook(
        monkeypatch, tmp_path, f"open({str(pids)!r}, 'a').write(f'{{os.getpid()}} {{os.getppid()}}\\n') and real(drop)"
    )
    folder.parquet(id=[5])
    for _ in range(2):
        assert read_in_subprocess(folder.job(), folder.path).rows == 1
    kept = FORK_SERVER.pid
    assert kept is not None
    readers = [line.split() for line in dict.fromkeys(pids.read_text().splitlines())]
    assert [parent for _, parent in readers] == [str(kept)] * 2
    assert readers[0] != readers[1]
    # One that died while it waited costs nothing.
    os.kill(kept, signal.SIGKILL)
    os.waitid(os.P_PID, kept, os.WEXITED | os.WNOWAIT)  # and leave it to who started it
    assert read_in_subprocess(folder.job(), folder.path).rows == 1


@pytest.mark.slow
def test_one_that_reads_for_too_long_is_ended(folder: Folder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _hook(monkeypatch, tmp_path, "time.sleep(600)")
    folder.parquet(id=[5])
    try:
        message = read_in_subprocess(folder.job(), folder.path, ReadLimits(seconds=1.0)).first
    except EngineError as error:  # it had not begun with the file
        message = error.message
    assert "took more than 1 s" in message


@pytest.mark.slow
def test_a_process_that_waits_ends_with_a_worker_that_was_killed(folder: Folder) -> None:
    folder.json({"id": 1})
    code = f"""
import time
from pathlib import Path
from {read_in_subprocess.__module__} import FORK_SERVER, read_in_subprocess
from {ReadJob.__module__} import ReadJob, UploadFile
drop = UploadFile("d0", {str(folder.path / "d0")!r}, "json", 1)
read_in_subprocess(ReadJob((), "add", 1000, (drop,)), Path({str(folder.path)!r}))
print(FORK_SERVER.pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        waits = psutil.Process(int(worker.stdout.readline()))
        worker.kill()
    waits.wait(30)


@pytest.mark.parametrize(
    ("column", "line", "reason"),
    [
        ("double", b'{"it": 1e400}', "beyond a double's range"),
        ("double", b'{"it": -1e400}', "beyond a double's range"),
        ("double", b'{"it": 1e99999999999999999999}', "no JSON"),
        ("float", b'{"it": 1e300}', "beyond a float's range"),
        ("timestamptz", b'{"it": "0001-01-01T00:00:00+23:00"}', "no time such as"),
    ],
)
def test_a_number_or_time_beyond_its_column_costs_its_row_alone(
    folder: Folder, column: str, line: bytes, reason: str
) -> None:
    folder.add("json", b'{"it": null}\n' + line + b"\n{}\n", 3)
    report = folder.read((Column("it", column),))
    assert (report.rows, report.bad) == (2, 1)
    ((_, offset, error),) = folder.dead
    assert (offset, reason in error) == (1, True), error


def test_decimals_are_taken_to_their_last_digit(folder: Folder) -> None:
    text = "123456789012345678901234567890123456.78"
    folder.add("json", b'{"it": %s}\n{"it": 1e30}\n{"it": %s9}\n' % (text.encode(), text.encode()), 3)
    report = folder.read((Column("it", "decimal(38, 2)"),))
    assert (report.rows, report.bad) == (2, 1)
    assert folder.rows == [{"it": Decimal(text)}, {"it": Decimal(10) ** 30}]


def test_two_columns_of_one_name_are_refused_and_not_read_as_null(folder: Folder) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array(["a"]), pa.array(["b"])], names=["id", "name", "name"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    folder.add("arrow", sink.getvalue().to_pybytes())
    report = folder.read()
    assert (report.rows, report.bad) == (0, 1)
    assert "'name' occurs twice" in report.first


def test_a_text_that_is_no_uuid_costs_its_row_alone(folder: Folder) -> None:
    good = "01234567-89ab-cdef-0123-456789abcdef"
    folder.arrow(it=[good, "none", None])
    report = folder.read((Column("it", "uuid"),))
    assert (report.rows, report.bad) == (2, 1)
    assert folder.rows == [{"it": good}, {"it": None}]


@pytest.mark.parametrize(
    "row",
    [
        {"a": 1, "A": 2},  # engines don't tell them apart
        {"a.b": 1},  # Iceberg takes it for a field of a struct
        {"a": {"b.c": 1}},
        {"a": [{"b": 1, "B": 2}]},
        {"a": {"b\n": 1}},
        {f"column{number}": 1 for number in range(2_001)},
        {"_partition": {"x": 1}},  # Iceberg has it of each table
        {"_change_type": "INSERT"},
    ],
)
def test_columns_that_no_engine_can_have_refuse_their_drop(folder: Folder, row: dict[str, Any]) -> None:
    folder.json({"id": 1})
    folder.json(row)
    report = folder.read((Column("id", "long"),), "add")
    assert (report.rows, report.bad, report.evolution) == (1, 1, Evolution())


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ({"id": 2, "a.b": 1}, "'a.b' can't be a column's name"),
        ({"id": 2, "ID": 4}, "column 'ID' differs from 'id' by case alone"),
        ({"id": 2, "New": 4}, "column 'New' differs from 'new' by case alone"),
        ({"id": 2, "in": {"x.y": 1}}, "'in.x.y' can't be a column's name"),
        ({"id": 2, "_file": 1}, "'_file' can't be a column's name: Iceberg has a metadata column of that name"),
        ({"id": 2, "_Row_ID": None, "_DELETED": True}, "'_DELETED' can't be a column's name: Iceberg has"),
        ({"id": 2, "in": {"A": 1}}, "column 'in.A' differs from 'in.a' by case alone"),
        ({"id": 2, "at": [{"": 1}]}, "'at.element.' can't be a column's name"),
        ({f"column{number}": 1 for number in range(2_001)}, "the table would get more than 2000 columns"),
    ],
)
@pytest.mark.parametrize("columns", [(), (Column("id", "long"),)])
def test_a_line_that_names_what_no_column_may_be_called_is_dead_alone(
    folder: Folder, columns: tuple[Column, ...], line: dict[str, Any], reason: str
) -> None:
    folder.json({"id": 1, "new": 1, "in": {"a": 1}}, line, {"id": 3, "new": 1.5, "in": {"b": "x"}}, "no row")
    folder.json({"id": 4})
    report = folder.read(columns, "add")
    assert (report.rows, report.bad) == (3, 2)
    assert [(drop, offset) for drop, offset, _ in folder.dead] == [("d0", 1), ("d0", 3)]
    assert reason in report.first
    assert folder.rows == [
        {"id": 1, "new": 1.0, "in": {"a": 1, "b": None}},
        {"id": 3, "new": 1.5, "in": {"a": None, "b": "x"}},
        {"id": 4, "new": None, "in": None},
    ]
