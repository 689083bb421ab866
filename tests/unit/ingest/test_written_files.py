"""What ingestion and change capture write down has the bytes of November 2026, and is read as it was written.

The bytes stand in `tests/data/written-2026-11/ingest`: the code of that month wrote them. A batch's file is compared
byte for byte by whoever stages it, so a version before and this one must write the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sterna.codec import REQUIRED, MalformedRecord, UnknownFields
from sterna.config.sections.topics import SourceTopic
from sterna.errors import BadDrop, TrackerContradicts
from sterna.pipelines.cdc.journal import CaptureSpec, Journal, Segment
from sterna.pipelines.ingest.batch_file import (
    format_batch,
    format_rejection,
    format_upload,
    parse_batch,
    parse_rejection,
    parse_upload,
)
from sterna.pipelines.ingest.inbox import write_batch_file
from sterna.pipelines.ingest.layout import batch_uri
from sterna.pipelines.ingest.model import State
from sterna.pipelines.ingest.topic_offsets import TopicPositions
from sterna.storage.objects import Objects
from tests.support.records_ingest import CLOSED, DESTINATION, DROPS, FILES
from tests.support.small_world import make_world

_FOLDER = Path(__file__).parents[2] / "data" / "written-2026-11" / "ingest"


def _bytes(name: str) -> bytes:
    return (_FOLDER / f"{name}.json").read_bytes()


def _with(name: str, **changes: Any) -> bytes:
    return json.dumps({**json.loads(_bytes(name)), **changes}).encode()


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    return make_world(tmp_path).context().objects


@pytest.fixture
def inbox(tmp_path: Path) -> str:
    return f"file://{tmp_path}/eu/lake/inbox"


@pytest.mark.parametrize("name", FILES)
def test_the_bytes_are_those_of_november_2026(name: str) -> None:
    file, value = FILES[name]
    assert file.dumps(value) == _bytes(name)
    if name == "batch":  # its drops lie where the batch does
        parsed = parse_batch(_bytes(name), "u")
        assert replace(parsed, uploads=DROPS) == value
        assert parsed.uploads == tuple(replace(drop, state=State.CLOSED, batch=CLOSED.id) for drop in DROPS)
    else:
        assert file.loads(_bytes(name)) == value


def test_ingestion_writes_and_reads_them() -> None:
    rejection = FILES["rejected"][1]
    assert format_batch(CLOSED, DROPS) == _bytes("batch")
    assert format_rejection(CLOSED, rejection.reason, rejection.rejected) == _bytes("rejected")
    assert parse_rejection(_bytes("rejected"), "u") == rejection
    assert format_upload(DROPS[0]) == _bytes("drop-mark")
    assert parse_upload(_bytes("drop-mark"), "u") == DROPS[0]


def test_the_journal_writes_and_reads_them(objects: Objects, inbox: str) -> None:
    journal, begun, layouts = Journal(objects, inbox, "shop"), FILES["begin"][1], FILES["layouts"][1]
    journal.request_capture(3)
    assert journal.create_spec(CaptureSpec(3, begun.tables))
    folder = f"{inbox}/_cdc/sources/shop/000003"
    assert objects.read(f"{folder}/asked.json") == _bytes("asked")
    assert objects.read(f"{folder}/begin.json") == _bytes("begin")
    assert journal.read_spec(3) == CaptureSpec(3, begun.tables)
    assert [journal.request_resync(3, table) for table in ("public.a", "public.b")] == [1, 2]
    assert objects.read(f"{folder}/again-000001.json") == _bytes("again")
    assert journal.resync_requests(3, 0) == [(1, "public.a"), (2, "public.b")]
    assert journal.resync_requests(3, 1) == [(2, "public.b")]
    uri = journal.write_schemas(3, layouts.schemas)
    assert objects.read(uri) == _bytes("layouts")
    assert journal.read_schemas(Segment(3, 1, layouts=uri)) == layouts.schemas


def test_a_topics_partition_is_written_and_read(objects: Objects, inbox: str) -> None:
    topic = SourceTopic.model_construct(name="clicks", topic="eu.clicks", into="acme.events", begin={0: 12})
    ingest: Any = SimpleNamespace(
        name="eu",
        objects=objects,
        region_settings=SimpleNamespace(inbox=inbox),
        settings=SimpleNamespace(tenant_of=lambda table: "acme"),
    )
    source: Any = SimpleNamespace(id=lambda: "abcDEF-_")
    anchor = TopicPositions(ingest, topic).ensure_anchor(source, 0, 12)
    uri = f"{inbox}/acme/acme.events/_topics/eu.acme.kafka-clicks-0.json"
    assert objects.read(uri) == _bytes("topic")
    assert TopicPositions(ingest, topic).read_anchor(0) == anchor == FILES["topic"][1]


def _places() -> Iterator[tuple[str, str]]:
    for name, (file, _) in FILES.items():
        yield from ((name, field) for field in file.record.names if field not in file.record.omitted_names)


@pytest.mark.parametrize(("name", "field"), list(_places()))
def test_what_is_absent_unknown_or_of_another_kind_is_never_read_as_empty(name: str, field: str) -> None:
    file, fields = FILES[name][0], json.loads(_bytes(name))
    value = fields.pop(field)
    for changed in (fields, {**fields, f"{field}2": value}):
        with pytest.raises(MalformedRecord, match=rf"^{field} is absent"):
            file.loads(json.dumps(changed).encode())
    foreign = [{"a": 1}] if field != "layouts" else []  # what stands in these is the engine's
    for other in (None, [[]], 1.5, True, *foreign):
        with pytest.raises(MalformedRecord, match=rf"^{field}(\['a'\]|\[0\])? is no"):
            file.loads(json.dumps({**fields, field: other}).encode())


@pytest.mark.parametrize("name", FILES)
def test_every_field_is_required_and_a_newer_one_is_left_or_refused_by_name(name: str) -> None:
    file, value = FILES[name]
    # Of what was added since, files that were written before have the default.
    assert all(field.default is REQUIRED or field.omits_default for field in file.record.fields)
    newer = _with(name, newer=[1])
    if file.record.unknown is UnknownFields.IGNORE:
        assert file.loads(newer) == value
    else:
        with pytest.raises(MalformedRecord, match=r"^'newer' is a field that this version doesn't know"):
            file.loads(newer)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'{"version":2}', "another version's: 2"),
        (b"{}", "version is no integer"),
        (b'{"version":true}', "version is no integer"),
        (b'{"version":1,"version":1}', "'version' appears twice"),
        (b'{"version":1', "it is no JSON"),
        (b"[]", "it is no object"),
    ],
)
def test_another_version_or_no_file_at_all_is_refused(name: str, text: bytes, reason: str) -> None:
    with pytest.raises(MalformedRecord, match=reason):
        FILES[name][0].loads(text)


def test_what_a_drop_of_a_batch_has_more_is_refused_by_name() -> None:
    fields = json.loads(_bytes("batch"))
    fields["drops"][1]["newer"] = 1
    with pytest.raises(BadDrop, match=r"drops\[1\].'newer' is a field that this version doesn't know"):
        parse_batch(json.dumps(fields).encode(), "u")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"accepted": "2026-11-01T02:03:04"}, "accepted is no time with an offset"),
        ({"accepted": "yesterday"}, "accepted is no time of ISO 8601"),
        ({"format": "csv"}, "format is none of json, arrow, parquet"),
        ({"bytes": "3"}, "bytes is no integer"),
    ],
)
def test_values_of_another_kind_are_refused_by_name(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadDrop, match=reason):
        parse_upload(_with("drop-mark", **changes), "u")


def test_a_batch_under_anothers_id_is_refused() -> None:
    with pytest.raises(BadDrop, match="its id is another batch's"):
        parse_batch(_with("batch", number=8), "u")


@pytest.mark.parametrize("mark", [6, 7])
def test_a_batch_that_an_earlier_version_wrote_is_the_same(objects: Objects, inbox: str, mark: int) -> None:
    uri = batch_uri(inbox, DESTINATION, 7)
    objects.write_new(uri, _bytes("batch"))
    assert write_batch_file(objects, inbox, CLOSED, DROPS, mark) == uri
    with pytest.raises(TrackerContradicts):
        write_batch_file(objects, inbox, CLOSED, DROPS[:2], mark)
    assert objects.read(uri) == _bytes("batch")


@pytest.mark.parametrize("mark", [6, 7])
def test_a_batch_that_a_newer_version_wrote_is_refused_by_the_name_of_what_is_new(
    objects: Objects, inbox: str, mark: int
) -> None:
    objects.write_new(batch_uri(inbox, DESTINATION, 7), _with("batch", newer=1))
    with pytest.raises(BadDrop, match="'newer' is a field that this version doesn't know"):
        write_batch_file(objects, inbox, CLOSED, DROPS, mark)
