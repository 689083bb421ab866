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

from sterna.cdc.journal import AGAIN, COLUMN, DROP, PART, Journal
from sterna.cleaning.codecs import AMOUNT, NOT_DELETED
from sterna.edges.stores.leases import LEASE
from sterna.errors import BadDrop
from sterna.gc.evidence import COLLECTED
from sterna.json_record import REQUIRED, MalformedRecord, Record, Unknown, parse_json
from sterna.repair.run import LEFT, MEND, REPAIRED
from sterna.replica.codecs import ACTION, BATCH, HELD, PLAN, REPORT, STAGE_REPORT
from sterna.replica.held_list import held_list, parse_list
from sterna.replica.run_folder import packed, unpacked
from sterna.replica.transit import MOVING, ROUND
from sterna.sync.plan.batches import SHARE
from sterna.upkeep.records import FOLDER, SWEPT
from tests.support.records import VALUES
from tests.support.small_world import make_world

FOLDER_OF_BYTES = Path(__file__).parents[1] / "data" / "written-2026-11" / "records"
RECORDS: dict[str, Record[Any]] = {
    "plan": PLAN,
    "plan-short": PLAN,
    "stage-report": STAGE_REPORT,
    "report": REPORT,
    "round": ROUND,
    "lease": LEASE,
    "collected": COLLECTED,
    "swept": SWEPT,
    "repaired": REPAIRED,
    "share": SHARE,
    "drop": DROP,
    "held": HELD,
    "held-short": HELD,
}
INNER = (AGAIN, ACTION, BATCH, MOVING, AMOUNT, NOT_DELETED, FOLDER, MEND, LEFT, PART, COLUMN)


def _bytes(name: str) -> bytes:
    return (FOLDER_OF_BYTES / f"{name}.json").read_bytes()


def _json(name: str) -> dict[str, Any]:
    """The one object of a file."""
    told = json.loads(_bytes(name))
    found: dict[str, Any] = dict(told[0] if isinstance(told, list) else told)
    if name == "drop":
        del found["version"]  # its reader's
    return found


def _whole(name: str) -> dict[str, Any]:
    """The same with what a held key leaves out."""
    return {**({"until": ""} if name == "held-short" else {}), **_json(name)}


@pytest.mark.parametrize("name", [name for name in RECORDS if name not in ("share", "drop") and "held" not in name])
def test_the_bytes_are_those_of_november_2026(name: str) -> None:
    assert RECORDS[name].dumps(VALUES[name]).encode() == _bytes(name)
    assert RECORDS[name].loads(_bytes(name)) == VALUES[name]


def test_lists_of_held_keys_have_the_bytes_that_name_them() -> None:
    for name in ("held", "held-short"):
        assert held_list([VALUES[name]]).property.encode() == _bytes(name)
        assert parse_list(_bytes(name).decode()).entries == (VALUES[name],)
    long = held_list([replace(VALUES["held"], key=f"a.t{number}") for number in range(40)])
    assert long.digest == "b2f3d5dc78499f25f4e41ba14c51d17a29e750fc3b8f5a8719fc5824d73475a5"


@pytest.mark.parametrize("name", RECORDS)
def test_a_value_is_read_as_it_was_written(name: str) -> None:
    assert RECORDS[name].decode(_json(name)) == VALUES[name]
    assert RECORDS[name].encode(VALUES[name]) == _whole(name)


def test_each_field_of_a_class_stands_in_its_record_and_has_something_in_the_value_that_is_written() -> None:
    for record in (*RECORDS.values(), *INNER):
        assert isinstance(record.type, type)
        wanted = {each.name for each in fields(record.type)} - {record.carried}
        assert {each.argument for each in record.fields} == wanted, record.type
        assert len({each.name for each in record.fields}) == len(record.fields)
    for name, record in RECORDS.items():
        if "short" not in name:
            empty = [each.name for each in record.fields if getattr(VALUES[name], each.argument) == each.default]
            assert not empty, name


def _places() -> Iterator[tuple[str, str]]:
    for name, record in RECORDS.items():
        yield from ((name, each.name) for each in record.fields)


@pytest.mark.parametrize(("name", "field"), list(_places()))
def test_what_is_absent_unknown_or_of_another_kind_is_never_read_as_empty(name: str, field: str) -> None:
    record, told = RECORDS[name], _whole(name)
    (described,) = (each for each in record.fields if each.name == field)
    without = {key: value for key, value in told.items() if key != field}
    if described.default is REQUIRED:
        with pytest.raises(MalformedRecord, match=rf"^{field} is absent"):
            record.decode(without)
    renamed = {**without, f"{field}2": told[field]}
    if record.unknown is not Unknown.CARRY:
        with pytest.raises(MalformedRecord, match=rf"{field}(2' is a field that| is absent)"):
            record.decode(renamed)
    elif described.default is not REQUIRED:
        assert record.encode(record.decode(renamed))[f"{field}2"] == told[field]
    if described.kind.encode is not None or described.kind.decode is not _foreign():
        with pytest.raises(MalformedRecord, match=rf"^{field} is no"):
            record.decode({**told, field: object()})


def _foreign() -> Any:
    return next(each for each in COLUMN.fields if each.name == "type").kind.decode


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'{"files":1,"files":2,"bytes":3}', "'files' stands twice"),
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
    listed = parse_list(text)
    assert listed.entries is not None
    again = json.loads(held_list(listed.entries).property)
    assert {name: again[0][name] for name in ("newer", "also")} == {"newer": {"b": [1, 2]}, "also": None}
    assert parse_list(json.dumps(again)) == listed


def test_a_long_plan_is_compressed_and_damage_is_told() -> None:
    plan = replace(VALUES["plan"], relaxed=tuple(f"nyc.table{number}" for number in range(20_000)))
    data = packed(PLAN.dumps(plan))
    assert data.startswith(b"\x1f\x8b")
    assert PLAN.loads(unpacked(data)) == plan
    with pytest.raises(MalformedRecord, match="damaged"):
        unpacked(data[:30] + b"xx" + data[32:])


def test_a_drop_has_the_bytes_of_november_2026(tmp_path: Path) -> None:
    objects, inbox = make_world(tmp_path).context().objects, f"file://{tmp_path}/eu/lake/inbox"
    journal = Journal(objects, inbox, "shop")
    assert journal.add(VALUES["drop"])
    ((uri, _, _),) = objects.list(f"{inbox}/_cdc/drops/shop/000002")
    assert objects.read(uri) == _bytes("drop")
    assert journal.last(2) == VALUES["drop"]
    path = Path(uri.removeprefix("file://"))
    changes = (({"version": 3}, "another version's"), ({"number": 8}, "another drop"), ({"gone": 1}, "gone"))
    for change, reason in changes:
        path.write_text(json.dumps({**json.loads(_bytes("drop")), **change}))
        with pytest.raises(BadDrop, match=reason):
            journal.last(2)


def test_json_in_which_a_name_stands_twice_is_refused_at_any_depth() -> None:
    with pytest.raises(MalformedRecord, match="'b' stands twice"):
        parse_json('{"a": [{"b": 1, "b": 2}]}')
