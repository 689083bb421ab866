"""What a source may do that no change of a row tells; each of these once gave other rows than the source's."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from sterna.config.secrets import environment_secrets
from sterna.config.sections.cdc import CdcSource
from sterna.errors import Busy, NeedsResync, StoreUnreachable, UnfitSource
from sterna.pipelines.cdc.capture import Capture
from sterna.pipelines.cdc.change_buffer import ChangeBuffer
from sterna.pipelines.cdc.database import literal_pattern
from sterna.pipelines.cdc.journal import CaptureSpec, Journal, Part, Segment, StoppedTable
from sterna.pipelines.cdc.plan import channel, next_work
from sterna.pipelines.cdc.postgres import PostgresDatabase, validate_money
from sterna.pipelines.cdc.postgres_converter import TYPE
from sterna.pipelines.cdc.process import error_reasons
from sterna.pipelines.cdc.types import DELETED, UPDATED, absent_columns, columns_of_schema
from sterna.pipelines.ingest.columns import Column
from tests.support.small_world import make_world

_TABLE = "public.t"
_CHANNEL = channel("eu", "shop")


def _fields(*names: str) -> dict[str, Any]:
    return {"fields": [{"field": "after", "fields": [{"field": name, "type": "int32"} for name in names]}]}


def _gatherer(folder: Path, columns: Any = None, gone: Any = None) -> ChangeBuffer:
    return ChangeBuffer(folder, "absent", {_TABLE: ("id",)}, lambda table, added: None, columns or {}, gone or {})


def _take_row(gatherer: ChangeBuffer, number: int, *names: str) -> None:
    gatherer.add_message({"define": number, "fields": _fields(*names)})
    source = {"schema": "public", "table": "t", "ts_us": 1}
    row = {"op": "c", "before": None, "after": dict.fromkeys(names, number), "source": source}
    gatherer.add_message({"topic": "shop.public.t", "schema": number, "value": row, "size": 1})


@pytest.mark.parametrize(
    ("layouts", "said"),
    [
        ([("id", "a", "b"), ("id", "a"), ("id", "a", "b")], "dropped and is there again"),
        ([("id", "a", "b"), ("id", "b", "a")], "exchanged"),
        ([("id", "a", "b", "c"), ("id", "a", "c", "b")], "recreated"),
        ([("id", "a"), ("id", "z")], "may be a new name"),
    ],
)
def test_columns_that_are_other_ones_under_a_known_name_are_refused(
    tmp_path: Path, layouts: list[tuple[str, ...]], said: str
) -> None:
    gatherer = _gatherer(tmp_path)
    for number, layout in enumerate(layouts[:-1]):
        _take_row(gatherer, number, *layout)
    with pytest.raises(NeedsResync, match=said):
        _take_row(gatherer, len(layouts), *layouts[-1])


def test_of_a_table_that_is_stopped_nothing_is_taken(tmp_path: Path) -> None:
    """Neither what came before in the same drop, nor what comes later: it stays as the last drop has it."""
    gatherer = _gatherer(tmp_path)
    _take_row(gatherer, 0, "id", "a")
    assert gatherer.rows == 1
    gatherer.stop_table(_TABLE, UnfitSource("a value has no place", table=_TABLE), 3)
    assert (gatherer.rows, gatherer.stops_changed, gatherer.captured) == (0, True, {})
    _take_row(gatherer, 1, "id", "z")  # would be refused
    assert gatherer.finish_segment() == []
    assert not gatherer.stops_changed
    assert gatherer.stopped == {_TABLE: StoppedTable("UnfitSource", "a value has no place", 3)}
    assert gatherer.columns == {}  # no drop has a row of it
    gatherer.add_message({"trouble": _TABLE, "said": "a change can't be read"})


def test_a_table_that_is_stopped_is_known_as_the_last_drop_has_it(tmp_path: Path) -> None:
    gatherer = _gatherer(tmp_path)
    _take_row(gatherer, 0, "id", "a")
    gatherer.finish_segment()
    _take_row(gatherer, 1, "id")
    gatherer.stop_table(_TABLE, UnfitSource("a value has no place", table=_TABLE), 1)
    assert ([column.name for column in gatherer.columns[_TABLE]], gatherer.dropped_columns) == (["id", "a"], {})


def test_what_the_engine_can_not_read_is_told_of_its_table(tmp_path: Path) -> None:
    gatherer = _gatherer(tmp_path)
    gatherer.add_message({"trouble": "public.other", "said": "a change can't be read"})
    with pytest.raises(NeedsResync, match=r"a change can't be read \[table public\.t\]"):
        gatherer.add_message({"trouble": "PUBLIC.T", "said": "a change can't be read"})


def test_columns_that_go_and_others_that_come_are_followed(tmp_path: Path) -> None:
    gatherer = _gatherer(tmp_path)
    for number, layout in enumerate([("id", "a", "b"), ("id", "b"), ("id", "b", "c")]):
        _take_row(gatherer, number, *layout)
    assert [name for name, _, _, _ in gatherer.finish_segment()] == [_TABLE] * 3
    assert gatherer.dropped_columns == {_TABLE: ("a",)}


def test_a_reader_that_begins_anew_knows_which_columns_were_dropped(tmp_path: Path) -> None:
    first = _gatherer(tmp_path)
    _take_row(first, 0, "id", "a", "b")
    _take_row(first, 1, "id", "a")
    second = _gatherer(tmp_path, first.columns, first.dropped_columns)
    with pytest.raises(NeedsResync, match="b was dropped"):
        _take_row(second, 0, "id", "a", "b")


def test_a_mark_of_an_epoch_that_the_journal_has_not_is_refused() -> None:
    part = (Part("s3://lake/1.parquet", 1, 1, (Column("id", "int"),)),)
    drops = [Segment(1, number, tables={_TABLE: part}, complete=number == 1) for number in (1, 2, 3)]
    with pytest.raises(NeedsResync, match="it was lost"):
        next_work(_CHANNEL, _TABLE, "2/7", 1, drops)
    assert next_work(_CHANNEL, _TABLE, "1/1", 1, drops) is not None


@pytest.mark.parametrize(
    ("columns", "places", "fits"), [(["v"], 2, True), ([], 0, True), (["v"], 0, False), (["v"], 3, False)]
)
def test_amounts_with_other_decimal_places_are_refused(columns: list[str], places: int, fits: bool) -> None:
    if fits:
        return validate_money(_TABLE, columns, places)
    with pytest.raises(UnfitSource, match=r"column v .* lc_monetary .*\[table public\.t\]"):
        validate_money(_TABLE, columns, places)
    return None


@pytest.mark.parametrize("name", ["public.a$b", "public.a,b", "public.a+(b)", "Public.Ünder_1", "public.a b"])
def test_a_tables_pattern_matches_it_alone(name: str) -> None:
    pattern = literal_pattern(name)
    assert re.fullmatch(pattern, name)
    assert not re.fullmatch(pattern, name.replace(".", "x"))
    assert not re.search(r"(?<!\\),", pattern)


@pytest.mark.parametrize("name", [UPDATED, DELETED, "_sterna_seq", UPDATED.upper(), "ID"])
def test_columns_that_sterna_has_itself_are_refused(name: str) -> None:
    with pytest.raises(UnfitSource):
        columns_of_schema(_fields("id", name))


def test_a_value_that_is_not_told_is_known_in_each_form() -> None:
    columns = columns_of_schema(
        {"fields": [{"field": "after", "fields": [{"field": name, "type": "string"} for name in ("t", "h", "o")]}]}
    )
    row = {"t": "absent", "h": json.dumps({"absent": "absent"}, separators=(",", ":")), "o": "other"}
    assert absent_columns(columns, row, "absent") == ["t", "h"]


@pytest.mark.parametrize(
    "row",
    [
        {"op": "u", "after": {"id": "absent", "a": "x"}, "before": None},
        {"op": "d", "after": None, "before": {"id": None, "a": None}},
    ],
)
def test_a_change_that_does_not_tell_its_key_is_refused(tmp_path: Path, row: dict[str, Any]) -> None:
    """A long key that wasn't changed, or a deletion that is told by other columns: which row is it?"""
    gatherer = _gatherer(tmp_path)
    fields = [{"field": name, "type": "string"} for name in ("id", "a")]
    gatherer.add_message({"define": 0, "fields": {"fields": [{"field": "after", "fields": fields}]}})
    source = {"schema": "public", "table": "t", "ts_us": 1}
    with pytest.raises(UnfitSource, match="lacks column id of the key"):
        gatherer.add_message({"topic": "shop.public.t", "schema": 0, "value": {**row, "source": source}, "size": 1})


@pytest.mark.parametrize("operation", ["r", "c", "u", "d"])
def test_a_zero_date_in_a_key_is_told_as_such(tmp_path: Path, operation: str) -> None:
    """It is null on `main`, where no key may be. A MariaDB or MySQL has no replica identity to mend."""
    layout = {"columns": [{"name": "id", "typeName": "INT"}, {"name": "day", "typeName": "DATE"}]}
    gatherer = ChangeBuffer(tmp_path, "absent", {_TABLE: ("id", "day")}, lambda *args: None, {}, {}, {_TABLE: layout})
    day = {"field": "day", "type": "string", "optional": True, "parameters": {TYPE: "DATE"}}
    fields = [{"field": "id", "type": "int32"}, day]
    gatherer.add_message({"define": 0, "fields": {"fields": [{"field": "after", "fields": fields}]}})
    row = {"id": 7, "day": "0000-00-00"}
    change = {"op": operation, "before": row, "after": row, "source": {"db": "public", "table": "t", "ts_us": 1}}
    with pytest.raises(UnfitSource, match=r"a zero date in column day .* \(id, day\) = \(7, 0000-00-00\)") as caught:
        gatherer.add_message({"topic": "x", "schema": 0, "value": change, "size": 1})
    assert "REPLICA IDENTITY" not in caught.value.hint
    assert "sterna cdc resync" in caught.value.hint


def test_a_long_key_is_cut_where_it_is_told(tmp_path: Path) -> None:
    """A key may have megabytes, and what is told stands in each later drop."""
    gatherer = _gatherer(tmp_path)
    fields = [{"field": "id", "type": "string"}, {"field": "n", "type": "int32", "parameters": {TYPE: "DATE"}}]
    gatherer.add_message({"define": 0, "fields": {"fields": [{"field": "after", "fields": fields}]}})
    row = {"id": "begin" + "x" * (1 << 20) + "end", "n": "2021-02-30"}
    change = {"op": "c", "before": None, "after": row, "source": {"schema": "public", "table": "t", "ts_us": 1}}
    with pytest.raises(UnfitSource, match=r"\(id\) = \('beginxx.*xend'\)") as caught:
        gatherer.add_message({"topic": "x", "schema": 0, "value": change, "size": 1})
    assert len(str(caught.value)) < 1000


def test_what_the_engine_fails_with_is_cut() -> None:
    """Its reasons may repeat a statement or a value."""

    class Reason:
        def __init__(self, words: str, cause: Reason | None) -> None:
            self.words, self.cause = words, cause

        def getMessage(self) -> str:
            return self.words

        def getCause(self) -> Reason | None:
            return self.cause

    text = error_reasons(
        Reason("it failed", Reason("Error code: 1236 " + "x" * (1 << 20), Reason("inner\x1b[2J", None)))
    )
    assert text.startswith("it failed; Error code: 1236 xxx")
    assert text.endswith("; inner\\x1b[2J")
    assert len(text) < 4000


def test_deletions_whose_key_may_be_filled_in_are_noted_until_the_drop_is_made(tmp_path: Path) -> None:
    gatherer = _gatherer(tmp_path)
    fields = [{"field": "id", "type": "int32", "default": 7}, {"field": "n", "type": "int32", "optional": True}]
    gatherer.add_message({"define": 0, "fields": {"fields": [{"field": "after", "fields": fields}]}})
    # Told by its key a row has nothing else; told by other columns it has a filler for its key.
    for id, n, when in ((1, None, 10), (0, None, 15), (1, 5, 17), (7, 5, 20), (0, 5, 30)):
        change = {"op": "d", "before": {"id": id, "n": n}, "after": None}
        source = {"schema": "public", "table": "t", "ts_us": when}
        gatherer.add_message({"topic": "x", "schema": 0, "value": {**change, "source": source}, "size": 1})
    assert gatherer.uncertain_deletes == {_TABLE: 20}
    gatherer.finish_segment()
    assert gatherer.uncertain_deletes == {}


def test_an_array_of_a_changed_row_that_is_not_told_whole_is_refused(tmp_path: Path) -> None:
    gatherer = _gatherer(tmp_path)
    array = {"field": "xs", "type": "array", "items": {"type": "int32", "optional": True}, "optional": True}
    fields = [{"field": "id", "type": "int32"}, array]
    gatherer.add_message({"define": 0, "fields": {"fields": [{"field": "after", "fields": fields}]}})
    source = {"schema": "public", "table": "t", "ts_us": 1}
    whole = {"op": "u", "before": {"id": 1, "xs": [1]}, "after": {"id": 1, "xs": [1]}, "source": source}
    gatherer.add_message({"topic": "x", "schema": 0, "value": whole, "size": 1})
    with pytest.raises(NeedsResync, match="without the values"):
        gatherer.add_message({"topic": "x", "schema": 0, "value": {**whole, "before": None}, "size": 1})


def test_a_drop_of_a_version_that_noted_less_is_read(tmp_path: Path) -> None:
    objects, inbox = make_world(tmp_path).context().objects, f"file://{tmp_path}/eu/lake/inbox"
    journal = Journal(objects, inbox, "shop")
    journal.create_spec(CaptureSpec(1, {_TABLE: ("id",)}))
    journal.commit_segment(
        Segment(
            1, 1, {}, {"lsn": 1}, identities={_TABLE: {"identity": "d"}}, stopped={_TABLE: StoppedTable("A", "b", 7)}
        )
    )
    ((uri, _, _),) = objects.list(f"{inbox}/_cdc/drops/shop/000001")
    document = json.loads(objects.read(uri))
    path = Path(uri.removeprefix("file://"))
    del document["identities"]
    del document["stopped"][_TABLE]["last"]
    path.write_text(json.dumps(document))
    assert journal.last_segment(1) == Segment(1, 1, {}, {"lsn": 1}, stopped={_TABLE: StoppedTable("A", "b")})


@dataclass
class Pipe:
    """An engine that tells what it is given, some lines at each look."""

    looks: list[list[dict[str, Any]]]
    durable_up_to: int = 0

    def poll(self, seconds: float) -> Iterator[dict[str, Any]]:
        yield from self.looks.pop(0) if self.looks else ()

    def confirm(self, number: int) -> None:
        self.durable_up_to = number

    def kill(self) -> None:
        pass


class OfflinePostgres(PostgresDatabase):
    """A source whose server isn't asked by what rows are known, nor which tables were rewritten."""

    rewritten: tuple[str, ...] = ()

    def identities(self, *args: Any) -> dict[str, Any]:
        return {_TABLE: {"identity": "d"}}

    def list_rewritten(self, *args: Any) -> tuple[str, ...]:
        return self.rewritten


def reader_of(folder: Path, engine: Pipe, last: Segment | None, *tables: str) -> Capture:
    """A reader of some tables whose engine is a script; each look at the clock is a second later."""
    world = make_world(folder)
    source = CdcSource(
        name="shop", region="eu", hosts=["d:1"], database="d", credential_id="c", tables=["a.*"], into="a", every="1s"
    )
    journal = Journal(world.context().objects, f"file://{folder}/eu/lake/inbox", "shop")
    keys = dict.fromkeys(tables, ("id",))
    assert journal.create_spec(CaptureSpec(1, keys))
    seconds = itertools.count()
    reader = Capture(
        source, OfflinePostgres(source, environment_secrets({})), journal, clock=lambda: float(next(seconds))
    )
    gatherer = ChangeBuffer(folder, "absent", keys, lambda table, added: None, {}, {})
    reader.resume(cast(Any, engine), gatherer, CaptureSpec(1, keys), last)
    return reader


def line(table: str, id: Any = 1, operation: str = "c") -> dict[str, Any]:
    source = {"schema": "public", "table": table, "ts_us": 1}
    change = {"op": operation, "before": None, "after": {"id": id}, "source": source}
    return {"topic": f"shop.public.{table}", "schema": 0, "value": change, "size": 1}


def place(number: int, **more: Any) -> dict[str, Any]:
    return {"n": number, "partition": {}, "offset": {"lsn": number, **more}}


def amid_a_transaction(folder: Path) -> tuple[Capture, Pipe]:
    """A reader amid one transaction of one row, whose engine tells the place behind it at its last look."""
    begin, end = (
        {"topic": "shop.transaction", "schema": None, "value": {"status": status}} for status in ("BEGIN", "END")
    )
    opened = [place(1), {"define": 0, "fields": _fields("id")}, begin, place(2), line("t"), end]
    engine = Pipe([opened, [], [place(3)]])
    return reader_of(folder, engine, Segment(1, 0, {}, {"lsn": 0}), _TABLE), engine


def test_a_drop_goes_on_behind_its_last_transaction(tmp_path: Path) -> None:
    """The end of a transaction and its place are two lines: between them the place is an older one's."""
    reader, engine = amid_a_transaction(tmp_path)
    while engine.looks:
        reader.step(9.0)
    (drop,) = [segment for segment in reader.journal.segments(1) if segment.tables]
    assert drop.offset == {"lsn": 3}
    assert drop.identities == {_TABLE: {"identity": "d"}}
    assert engine.durable_up_to == 3


def test_a_reader_of_an_epoch_that_is_over_adds_no_drop_and_confirms_nothing(tmp_path: Path) -> None:
    """The source forgets what is confirmed: that has to be in the journal, and where somebody applies it."""
    reader, engine = amid_a_transaction(tmp_path)
    assert reader.journal.create_spec(CaptureSpec(2, {_TABLE: ("id",)}))
    with pytest.raises(Busy, match="a new capture was requested"):
        while engine.looks:
            reader.step(9.0)
    assert [segment for segment in reader.journal.segments(1) if segment.tables] == []
    assert engine.durable_up_to == 0


def test_a_drop_that_can_not_be_written_is_not_confirmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, engine = amid_a_transaction(tmp_path)

    def unreachable(drop: Segment) -> bool:
        raise StoreUnreachable("the store is away")

    monkeypatch.setattr(reader.journal, "commit_segment", unreachable)
    with pytest.raises(StoreUnreachable):
        while engine.looks:
            reader.step(9.0)
    assert engine.durable_up_to == 0


@pytest.mark.parametrize(("first", "last"), [(False, 1), (True, 0)])
def test_a_stop_says_up_to_which_drop_its_table_is_whole(tmp_path: Path, first: bool, last: int) -> None:
    """One amid the first rows leaves none that is; nor does one in the drop that completes them."""
    looks = [[{"define": 0, "fields": _fields("id")}, line("t"), line("u"), place(1)], [line("u"), line("t", None)]]
    looks += [[line("u", 2), place(2)], [line("t", 2), line("u", 3), place(3)]]
    if first:
        looks = [[*looks[0][:-1], *looks[1], place(1)], *looks[2:]]
    engine = Pipe(looks)
    reader = reader_of(tmp_path, engine, None, _TABLE, "public.u")
    while engine.looks:
        reader.step(9.0)
    drops = reader.journal.segments(1)
    assert [segment.complete for segment in drops] == [True, *[False] * (len(drops) - 1)]
    assert [drop.stopped[_TABLE].last for drop in drops if drop.stopped] == [last] * (len(drops) - last)
    assert [drop.number for drop in drops if _TABLE in drop.tables] == list(range(1, last + 1))
    assert _TABLE not in drops[-1].columns or last


def test_a_rewritten_table_of_which_no_initial_row_came_is_stopped(tmp_path: Path) -> None:
    """All of its rows are missing then, or none. Another table that is empty was not rewritten."""
    looks = [[{"define": 0, "fields": _fields("id")}, line("t", operation="r"), line("u"), place(1)], [place(2)]]
    engine = Pipe(looks)
    reader = reader_of(tmp_path, engine, None, _TABLE, "public.u", "public.v")
    cast(OfflinePostgres, reader.database).rewritten = (_TABLE, "public.u")
    reader.max_restarts = 0
    while engine.looks:
        reader.step(9.0)
    (drop, *_) = reader.journal.segments(1)
    assert drop.complete
    assert list(drop.tables) == [_TABLE]
    ((table, stop),) = drop.stopped.items()
    assert (table, stop.error, stop.last) == ("public.u", "NeedsResync", 0)
    assert "none of its rows came" in stop.message
