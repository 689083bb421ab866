"""Messages as lines: as they came only where each is one, and where offsets tell which message a line is."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sterna.config.sections.ingest import TenantLimits
from sterna.config.sections.topics import SourceTopic
from sterna.pipelines.ingest.columns import Column
from sterna.pipelines.ingest.message_lines import format_gone, format_line, join_messages, list_gaps
from sterna.pipelines.ingest.read_job import DEAD_ROWS_FILE, GOOD_ROWS_FILE, ReadJob, UploadFile
from sterna.pipelines.ingest.read_rows import read_uploads
from sterna.pipelines.ingest.topic_offsets import ANCHOR_FILE, Anchor, MessageRange, TopicPositions, merge_offsets
from sterna.pipelines.publish.model import Channel

LIMITS = TenantLimits.model_construct(line=20, depth=2)


@pytest.mark.parametrize(
    ("offsets", "values", "is_raw"),
    [
        ([3, 4], [b'{"n": 1}', b"{"], True),
        ([3], [b""], True),
        ([3, 5], [b"{}", b"{}"], False),
        ([4, 5], [b"{}", b"{}"], False),
        ([3, 4], [b"{}", None], False),
        ([3], [b'{"n":\n1}'], False),
        ([3], [b'{"n":\r1}'], False),
        ([3], [b" " * 21], False),
        ([], [], False),
    ],
)
def test_lines_are_messages_as_they_came_only_where_each_is_one(
    offsets: list[int], values: list[bytes | None], is_raw: bool
) -> None:
    content, as_they_came = join_messages(3, offsets, values, LIMITS)
    assert as_they_came == is_raw and content.count(b"\n") == len(values)
    checked = b"".join(format_line(value, offset, LIMITS) for value, offset in zip(values, offsets, strict=True))
    assert is_raw or content == checked


@pytest.mark.parametrize(
    ("present", "count", "places"),
    [
        ([4, 5, 6], 2, ["3", "7"]),
        ([4, 6], 2, ["3 to 7"] * 2),
        ([3, 5, 6, 7], 1, ["4"]),
        ([5, 6, 7], 2, ["3", "4"]),
        ([], 5, ["3", "4", "5", "6", "7"]),
        ([3, 4], 1, ["5 to 7"]),
    ],
)
def test_each_message_that_is_gone_has_a_line(present: list[int], count: int, places: list[str]) -> None:
    texts = [json.loads(line) for line in format_gone(list_gaps(3, present, 8), count).splitlines()]
    assert [text.partition(": ")[0] for text in texts] == [f"offset {place}" for place in places]


@pytest.mark.parametrize(
    "columns", [(), (Column("n", "long"),), (Column("n", "long", required=True), Column("s", "string"))]
)
@pytest.mark.parametrize(
    "values",
    [
        [b'{"n": 1}', b'{"n": 2}'],
        [b'{"n": 1}', b"{", b"\xff", b"", b" ", b'{"n": 1, "n": 2}', b'{"n": [[1]]}', b'{"n": NaN}', b'"x"'],
        [b'{"s": "\\ud800"}', b'{"n": 3}', b'{"n": null}', b'{"n": 1.5}', b'{"m": 1}'],
    ],
)
def test_what_is_read_of_them_is_what_is_read_of_checked_lines(
    values: list[bytes], columns: tuple[Column, ...], tmp_path: Path
) -> None:
    content, is_raw = join_messages(7, list(range(7, 7 + len(values))), values, LIMITS)
    assert is_raw
    checked = b"".join(format_line(value, 7 + place, LIMITS) for place, value in enumerate(values))
    read: list[Any] = []
    for name, lines, raw_from in (("raw", content, 7), ("checked", checked, None)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "u").write_bytes(lines)
        upload = UploadFile("u", str(folder / "u"), "json", len(values), "", raw_from)
        report = read_uploads(ReadJob(columns, "none" if columns else "add", 20, (upload,), 100, 2), folder)
        good = pa.ipc.open_file(folder / GOOD_ROWS_FILE).read_all().to_pylist()
        dead = folder / DEAD_ROWS_FILE
        read.append((report, good, pq.read_table(dead).to_pylist() if dead.exists() else []))
    assert read[0] == read[1]


def test_a_range_is_read_from_its_text_alone() -> None:
    messages = MessageRange("clicks", 3, 10, 20)
    assert messages.uri == "kafka:clicks/3/10-20"
    assert MessageRange.parse(messages.uri) == messages
    for uri in ("s3://eu-lake/inbox/x.jsonl", "kafka:clicks/3/10", "kafka:../3/10-20", f"{messages.uri}/x", ""):
        assert MessageRange.parse(uri) is None


def test_names_of_a_topic_that_is_read_directly_are_these() -> None:
    topic = SourceTopic.model_construct(name="clicks", topic="", into="acme.events", begin={}, mode="direct")
    ingest: Any = SimpleNamespace(name="eu", settings=SimpleNamespace(tenant_of=lambda table: "acme"))
    positions = TopicPositions(ingest, topic)
    assert positions.destination(3).channel == "eu.acme.kafka-clicks-all"
    assert (positions.upload_key(3, 10), positions.offset_token(3, 20)) == ("kafka-3-10", "3:20")
    assert Channel("eu", "acme", "kafka-clicks-all").offsets_property == "sterna.topic-offsets.eu.acme.kafka-clicks-all"
    anchor = ANCHOR_FILE.dumps(Anchor("clicks", "x", 0, "direct"))
    assert json.loads(anchor)["mode"] == "direct" and ANCHOR_FILE.loads(anchor).mode == "direct"
    buffered = ANCHOR_FILE.dumps(Anchor("clicks", "x", 0))
    assert "mode" not in json.loads(buffered) and ANCHOR_FILE.loads(buffered).mode == "buffered"


def test_offsets_never_go_back() -> None:
    ranges = [MessageRange("c", 1, 0, 5), MessageRange("c", 10, 0, 2), MessageRange("c", 1, 5, 9)]
    assert merge_offsets("", ranges) == "1:9,10:2"
    assert merge_offsets("1:20,2:1", ranges) == "1:20,2:1,10:2"
