"""What outlives a process as JSON has the bytes that it had in November 2026, whatever the code calls its parts.

The bytes stand in `tests/data/written-2026-11/records`, one file for each of `tests.support.records.VALUES`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from sterna.codec import INTEGER, REQUIRED, TEXT, Field, MalformedRecord, Record, UnknownFields, parse_json
from sterna.errors import BadDrop
from sterna.maintenance.deletion.model import AMOUNT, NOT_DELETED
from sterna.maintenance.gc.evidence import GC_REPORT
from sterna.maintenance.tables.records import FOLDER, SWEEP_REPORT
from sterna.pipelines.cdc.journal import COLUMN, PART, SEGMENT, TABLE_RESYNC, Journal
from sterna.replication.plan.batches import SHARE
from sterna.replication.repair.run import FILE_REPAIR, REMAINING_FAULT, REPAIR_REPORT
from sterna.replication.replica.bulk_state import BULK_RUN, BULK_TABLE
from sterna.replication.replica.codecs import ACTION, COPY_BATCH, HELD, PLAN, REPORT, STAGE_REPORT
from sterna.replication.replica.held_list import build_held_list, parse_held_list
from sterna.replication.replica.run_folder import compress, decompress
from sterna.storage.bandwidth import LEASE, Lease
from tests.support.records import VALUES
from tests.support.small_world import make_world

FOLDER_OF_BYTES = Path(__file__).parents[1] / "data" / "written-2026-11" / "records"
RECORDS: dict[str, Record[Any]] = {
    "plan": PLAN,
    "plan-short": PLAN,
    "plan-verbatim": PLAN,
    "plan-sources": PLAN,
    "stage-report": STAGE_REPORT,
    "stage-report-sources": STAGE_REPORT,
    "report": REPORT,
    "round": BULK_RUN,
    "lease": LEASE,
    "collected": GC_REPORT,
    "collected-dropped": GC_REPORT,
    "swept": SWEEP_REPORT,
    "repaired": REPAIR_REPORT,
    "share": SHARE,
    "drop": SEGMENT,
    "held": HELD,
    "held-short": HELD,
}
INNER = (
    TABLE_RESYNC,
    ACTION,
    COPY_BATCH,
    BULK_TABLE,
    AMOUNT,
    NOT_DELETED,
    FOLDER,
    FILE_REPAIR,
    REMAINING_FAULT,
    PART,
    COLUMN,
)


def _bytes(name: str) -> bytes:
    return (FOLDER_OF_BYTES / f"{name}.json").read_bytes()


def _json(name: str) -> dict[str, Any]:
    """The one object of a file."""
    document = json.loads(_bytes(name))
    record: dict[str, Any] = dict(document[0] if isinstance(document, list) else document)
    if name == "drop":
        del record["version"]  # its reader's
    return record


def _whole(name: str) -> dict[str, Any]:
    """The same with what a held key leaves out."""
    return {**({"until": ""} if name == "held-short" else {}), **_json(name)}


@pytest.mark.parametrize("name", [name for name in RECORDS if name not in ("share", "drop") and "held" not in name])
def test_the_bytes_are_those_of_november_2026(name: str) -> None:
    assert RECORDS[name].dumps(VALUES[name]).encode() == _bytes(name)
    assert RECORDS[name].loads(_bytes(name)) == VALUES[name]


def test_lists_of_held_keys_have_the_bytes_that_name_them() -> None:
    for name in ("held", "held-short"):
        assert build_held_list([VALUES[name]]).property_text.encode() == _bytes(name)
        assert parse_held_list(_bytes(name).decode()).entries == (VALUES[name],)
    long = build_held_list([replace(VALUES["held"], key=f"a.t{number}") for number in range(40)])
    assert long.digest == "b2f3d5dc78499f25f4e41ba14c51d17a29e750fc3b8f5a8719fc5824d73475a5"


@pytest.mark.parametrize("name", RECORDS)
def test_a_value_is_read_as_it_was_written(name: str) -> None:
    assert RECORDS[name].decode(_json(name)) == VALUES[name]
    assert RECORDS[name].encode(VALUES[name]) == _whole(name)


def test_each_field_of_a_class_stands_in_its_record_and_has_something_in_the_value_that_is_written() -> None:
    for record in (*RECORDS.values(), *INNER):
        assert isinstance(record.type, type)
        wanted = {member.name for member in fields(record.type)} - {record.preserved_attribute}
        assert {member.argument for member in record.fields} == wanted, record.type
        assert len({member.name for member in record.fields}) == len(record.fields)
    for name, record in RECORDS.items():
        if "short" not in name:
            written = json.loads(record.dumps(VALUES[name])).keys()
            empty = [
                member.name
                for member in record.fields
                if member.name in written and getattr(VALUES[name], member.argument) == member.default
            ]
            assert not empty, name
    plan, batch, report = VALUES["plan-verbatim"], VALUES["plan-sources"].batches[0], VALUES["stage-report-sources"]
    written_whole = ((PLAN, plan), (ACTION, plan.actions[0]), (COPY_BATCH, replace(batch, number=1)))
    for record, value in (*written_whole, (STAGE_REPORT, report)):
        assert [member.name for member in record.fields if getattr(value, member.argument) == member.default] == []


def test_a_field_that_is_left_out_by_default_is_written_where_it_differs() -> None:
    record = Record(Lease, (Field("rate", INTEGER, 7, omits_default=True),))
    assert (record.dumps(Lease(7)), record.dumps(Lease(8))) == ("{}", '{"rate":8}')
    assert (record.loads("{}"), record.loads('{"rate":7}')) == (Lease(7), Lease(7))
    fields_of_both = (Field("name", TEXT, ""), Field("rate", INTEGER, 7, omits_default=True))
    read_only: Record[dict[str, Any]] = Record(dict, fields_of_both, UnknownFields.IGNORE)
    assert read_only.decode({"name": "a", "newer": 1}) == {"name": "a", "rate": 7}
    with pytest.raises(MalformedRecord, match="'newer' is a field"):
        read_only.decode({"rate": 8, "newer": 1})


def _places() -> Iterator[tuple[str, str]]:
    for name, record in RECORDS.items():
        yield from ((name, member.name) for member in record.fields if member.name in _whole(name))


@pytest.mark.parametrize(("name", "field"), list(_places()))
def test_what_is_absent_unknown_or_of_another_kind_is_never_read_as_empty(name: str, field: str) -> None:
    record, document = RECORDS[name], _whole(name)
    (described,) = (member for member in record.fields if member.name == field)
    without = {key: value for key, value in document.items() if key != field}
    if described.default is REQUIRED:
        with pytest.raises(MalformedRecord, match=rf"^{field} is absent"):
            record.decode(without)
    renamed = {**without, f"{field}2": document[field]}
    if described.omits_default and record.unknown is UnknownFields.IGNORE:
        assert record.decode(renamed) == record.decode(without)  # a newer version's field beside one that is left out
    elif record.unknown is not UnknownFields.PRESERVE:
        with pytest.raises(MalformedRecord, match=rf"{field}(2' is a field that| is absent)"):
            record.decode(renamed)
    elif described.default is not REQUIRED:
        assert record.encode(record.decode(renamed))[f"{field}2"] == document[field]
    if described.codec.encode is not None or described.codec.decode is not _foreign():
        with pytest.raises(MalformedRecord, match=rf"^{field} is no"):
            record.decode({**document, field: object()})


def _foreign() -> Any:
    return next(member for member in COLUMN.fields if member.name == "type").codec.decode


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'{"files":1,"files":2,"bytes":3}', "'files' appears twice"),
        (b'{"files":true,"bytes":3}', "files is no integer"),
        (b'{"files":"3","bytes":3}', "files is no integer"),
        (b'{"files":1,"bytes":3,"failed":[["t","k","r"]]}', r"failed\[0\] is no list of 4"),
        (b'{"files":1,"bytes":3,"here":["a",1]}', r"here\[1\] is no text"),
        (b'{"files":1,"bytes":3,"run_id":null}', "run_id is no text"),
        (b'{"files":1,"bytes":3,"more\\u0000":1}', r"'more\\x00' is a field that this version doesn't know"),
        (b"[]", "it is no object"),
        (b"{", "it is no JSON"),
        (b"\xff", "it is no JSON"),
        (b"[" * 100_000, "it is no JSON"),
    ],
)
def test_what_is_no_record_is_refused_by_name(text: bytes, reason: str) -> None:
    with pytest.raises(MalformedRecord, match=reason):
        STAGE_REPORT.loads(text)


def test_a_record_of_a_newer_version_is_read_where_nobody_acts_by_it() -> None:
    for name in ("report", "collected", "swept", "repaired", "drop"):
        assert RECORDS[name].decode({**_json(name), "newer": 1}) == VALUES[name]


def test_what_a_newer_version_says_of_a_held_key_is_repeated() -> None:
    text = '[{"key":"a","kind":"K","reason":"r","newer":{"b":[1,2]},"also":null}]'
    listed = parse_held_list(text)
    assert listed.entries is not None
    again = json.loads(build_held_list(listed.entries).property_text)
    assert {name: again[0][name] for name in ("newer", "also")} == {"newer": {"b": [1, 2]}, "also": None}
    assert parse_held_list(json.dumps(again)) == listed


def test_a_long_plan_is_compressed_and_damage_is_told() -> None:
    plan = replace(VALUES["plan"], relaxed=tuple(f"nyc.table{number}" for number in range(20_000)))
    data = compress(PLAN.dumps(plan))
    assert data.startswith(b"\x1f\x8b")
    assert PLAN.loads(decompress(data)) == plan
    with pytest.raises(MalformedRecord, match="damaged"):
        decompress(data[:30] + b"xx" + data[32:])


def test_a_drop_has_the_bytes_of_november_2026(tmp_path: Path) -> None:
    objects, inbox = make_world(tmp_path).context().objects, f"file://{tmp_path}/eu/lake/inbox"
    journal = Journal(objects, inbox, "shop")
    assert journal.commit_segment(VALUES["drop"])
    ((uri, _, _),) = objects.list(f"{inbox}/_cdc/drops/shop/000002")
    assert objects.read(uri) == _bytes("drop")
    assert journal.last_segment(2) == VALUES["drop"]
    path = Path(uri.removeprefix("file://"))
    changes = (({"version": 3}, "another version's"), ({"number": 8}, "another segment"), ({"gone": 1}, "gone"))
    for change, reason in changes:
        path.write_text(json.dumps({**json.loads(_bytes("drop")), **change}))
        with pytest.raises(BadDrop, match=reason):
            journal.last_segment(2)


def test_json_in_which_a_name_stands_twice_is_refused_at_any_depth() -> None:
    with pytest.raises(MalformedRecord, match="'b' appears twice"):
        parse_json('{"a": [{"b": 1, "b": 2}]}')
