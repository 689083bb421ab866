"""Names, and what stands beside a replica and in its commits: as it was written in November 2026.

The bytes stand in `tests/data/written-2026-11`: `names.json`, and a file for each format in `beside`. Other names of
the kind: each that one module writes and another reads, or deletes by. So a name stands in one module alone.
"""

from __future__ import annotations

import ast
import json
import re
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import sterna
from sterna.brokers import message
from sterna.brokers.message import Message
from sterna.catalog.model import Commit, Content, Delete, Put
from sterna.client.messages import parse_event
from sterna.codec import MalformedRecord
from sterna.config.registry import folders, run_names
from sterna.config.registry.folders import (
    AGE_EXPIRED_FOLDERS,
    DEAD_LETTERS,
    FEATURES,
    HELD,
    PAUSED,
    STATE_FOLDERS,
    VERBATIM,
    is_state_uri,
    state_folder,
    state_path,
    state_root,
)
from sterna.errors import BrokenMetadata
from sterna.maintenance.tables import model
from sterna.notifications.change_log.event import CommitDetails, build_events
from sterna.notifications.sinks.dead_letters import read_dead_letters, write_dead_letter
from sterna.pipelines.cdc import change_buffer
from sterna.postgres import term
from sterna.replication.replica import change_record, head, ids, tags
from sterna.replication.replica.change_record import (
    CHANGE_RECORD_PROPERTY,
    HEADER,
    ChangeRecord,
    ChangeRecordHeader,
    TableHeld,
    TableUpdate,
    change_record_text,
    change_record_uri,
    parse_property,
    property_text,
    read_change_record,
    record_number,
)
from sterna.replication.replica.feature_position import read_feature_view_position, write_feature_view_position
from sterna.replication.replica.head import (
    PLANNED_HASH,
    RUN_ID,
    SOURCE_HASH,
    bindings_text,
    counts_text,
    parse_bindings,
)
from sterna.replication.replica.held_list import DIGEST_FORM, build_held_list, parse_held_list
from sterna.replication.replica.ids import (
    GC_ID_PREFIX,
    MAINTENANCE_ID_PREFIX,
    SWEEP_ID_PREFIX,
    format_timestamp,
    new_id,
    new_run_id,
    parse_start_time,
    parse_timestamp,
)
from sterna.replication.replica.tags import has_region_prefix, parse_sink_tag, pin_tag, pinned_until, sink_tag
from tests.support.formats import groups
from tests.support.formats_ingest import GROUPS
from tests.support.records import VALUES
from tests.support.small_world import make_world

_CODE = Path(sterna.__file__).parent
_WRITTEN = Path(__file__).parents[1] / "data" / "written-2026-11"
_BESIDE = _WRITTEN / "beside"
_UNTIL = datetime(2026, 11, 1, 2, 3, 4, tzinfo=UTC)
NEWS_RECORD = ChangeRecord(
    3,
    {
        "ns.a": TableUpdate(1, 2**62, ("append", "delete")),
        "ns.é": TableUpdate(None, None, None),
        "ns.q": TableUpdate(None, 4, ()),
    },
    {"ns.c": 5, "ns.d": None},
    {"ns.e": TableHeld("SourceGone", 7), "ns.g": TableHeld("StoreDenied", None)},
    {"ns.f": 8, "ns.h": None},
)
_FACTS = ChangeRecordHeader(3, "run-1")


def text_of(name: str) -> str:
    return (_BESIDE / name).read_text()


@cache
def constants() -> dict[str, frozenset[str]]:
    """The texts in each module of sterna, docstrings left out."""
    by_module = {}
    for path in _CODE.rglob("*.py"):
        tree = ast.parse(path.read_bytes())
        prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        texts = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in prose)
        by_module[str(path.relative_to(_CODE))] = frozenset(node.value for node in texts if isinstance(node.value, str))
    return by_module


def modules_with(pattern: str) -> set[str]:
    return {path for path, texts in constants().items() if any(re.search(pattern, text) for text in texts)}


@pytest.mark.parametrize("title", json.loads((_WRITTEN / "names.json").read_text()))
def test_what_was_written_by_a_name_still_has_it(title: str) -> None:
    written = json.loads((_WRITTEN / "names.json").read_text())[title]
    assert set(written) <= set({**groups(), **GROUPS}[title])


@pytest.mark.parametrize(
    ("pattern", "module"),
    [
        (r"^lost/$", tags),
        (r"^ce_$", message),
        (r"^cloudEvents:$", message),
        (r"^webhook-(id|timestamp|signature)$", message),
        (r"^sterna_epoch$", term),
        (r"sterna-hold-", tags),
        (r"sterna-outlet-", tags),
        (r"^(plan|repair)\.json$|^(localize\.parquet|news\.json\.gz)$", run_names),
        (r"^(copy-|parts/|children-|fetched/|copied/)", run_names),
        (r"^_sterna_(seq|op|absent|ts)$", change_buffer),
        (r"^_sterna$|(^|/)_sterna/", folders),
        (r"%Y%m%dT%H%M%SZ", ids),
        (r"^(collect|sweep|upkeep)-$", ids),
        (r"^sterna\.upkeep(-|$)", model),
        (r"^sterna\.news$", change_record),
        (r"^sterna\.mov", head),
        *(
            (f"^{re.escape(name)}$", head)
            for name in groups()["Properties of commits on a replica branch"]
            if name != CHANGE_RECORD_PROPERTY
        ),
    ],
)
def test_a_name_stands_in_one_module(pattern: str, module: ModuleType) -> None:
    assert modules_with(pattern) == {str(Path(str(module.__file__)).relative_to(_CODE))}


def test_each_folder_has_its_place_in_a_clean_up_and_is_told_from_others() -> None:
    """A folder that a clean-up doesn't know of is kept for ever: a new one has to stand in one of these."""
    assert {*AGE_EXPIRED_FOLDERS, HELD, PAUSED, DEAD_LETTERS, VERBATIM} == set(STATE_FOLDERS)
    root = "s3://eu/replica"
    assert state_folder(root, AGE_EXPIRED_FOLDERS[0]) == "s3://eu/replica/_sterna/runs"
    assert state_root(root) == "s3://eu/replica/_sterna/"
    assert is_state_uri(f"{state_folder(root, HELD)}/x") and not is_state_uri("s3://eu/replica/_sterna2/held/x")
    assert state_path(["_sterna", "held", "x"]) == ["held", "x"]
    assert state_path(["lake", "_sterna", "x"]) is None


def test_tags_are_read_as_they_were_written() -> None:
    tag = pin_tag("eu", _UNTIL, "ab" * 32)
    assert tag == "sterna-hold-eu-20261101T020304Z-abababababab"
    assert pinned_until("eu", tag) == _UNTIL and has_region_prefix("eu", tag)
    others = ["sterna-hold-us-20261101T020304Z-abababababab", "sterna-hold-eu-2-20261101T020304Z-abababababab"]
    others += ["sterna-hold-eu-20269999T020304Z-abababababab", "sterna-hold-eu-20261101T020304Z-abababababa", "release"]
    assert [pinned_until("eu", other) for other in others] == [None] * 5
    assert sink_tag("eu", "shop_2") == "sterna-outlet-eu-shop_2"
    assert parse_sink_tag("eu", "sterna-outlet-eu-shop_2") == "shop_2" and has_region_prefix(
        "eu", "sterna-outlet-eu-shop_2"
    )
    assert [
        parse_sink_tag("eu", other) for other in ("sterna-outlet-eu-west-a", "sterna-outlet-eu-", "sterna-eu-a")
    ] == [None] * 3
    assert not has_region_prefix("eu", "sterna-outlet-us-shop") and not has_region_prefix("eu", "release-eu-1")


@pytest.mark.parametrize("path", ["plugins/sterna/servers/access.properties", "nessie/access.properties"])
def test_the_rules_of_access_name_the_tags_of_outlets(path: str) -> None:
    """A region's replicator may make its outlets' tags and no others: else an outlet begins anew with each restart."""
    file = Path(__file__).parents[2] / path
    if file.exists():
        (pattern,) = re.findall(r"ref\.matches\('\^(.*?)' \+ region \+ '(.*?)\$'\)", file.read_text())
        assert pattern[0] + "eu" + "-shop" == sink_tag("eu", "shop")
        assert re.fullmatch(f"{pattern[0]}eu{pattern[1]}", sink_tag("eu", "shop"))


def test_ids_begin_with_their_time_and_stand_in_its_order() -> None:
    assert format_timestamp(_UNTIL) == "20261101T020304Z" and parse_timestamp("20261101T020304Z") == _UNTIL
    assert re.fullmatch(r"20261101T020304Z-[0-9a-f]{8}", new_id(_UNTIL))
    new_ids = {prefix: new_id(_UNTIL, prefix) for prefix in (GC_ID_PREFIX, SWEEP_ID_PREFIX, MAINTENANCE_ID_PREFIX)}
    assert [re.sub("[0-9a-f]{8}$", "", new) for new in new_ids.values()] == [
        "collect-20261101T020304Z-",
        "sweep-20261101T020304Z-",
        "upkeep-20261101T020304Z-",
    ]
    assert parse_start_time("20261101T020304Z-00000000") == _UNTIL < parse_start_time(new_run_id())
    with pytest.raises(ValueError, match="collect"):
        parse_start_time(new_ids[GC_ID_PREFIX])


def test_news_have_the_bytes_of_november_2026() -> None:
    assert property_text(_FACTS, NEWS_RECORD) == text_of("news.json")
    assert property_text(_FACTS, ChangeRecord(3)) == text_of("news-empty.json")
    assert change_record_text(NEWS_RECORD) == text_of("news-object.json")
    long, _ = parse_property(text_of("news-long.json"))
    assert property_text(long) == text_of("news-long.json")
    assert (long.number, long.run, long.size) == (3, "run-1", len(text_of("news-object.json")))


def _commit(text: str) -> Commit:
    return Commit("ab" * 32, "cd" * 32, _UNTIL, "sterna", "m", {RUN_ID: "run-1", CHANGE_RECORD_PROPERTY: text})


def test_news_are_read_as_they_were_written(tmp_path: Path) -> None:
    import gzip

    context = make_world(tmp_path).context()
    assert read_change_record(context, _commit(text_of("news.json"))) == NEWS_RECORD
    assert read_change_record(context, _commit(text_of("news-empty.json"))) == ChangeRecord(3)
    assert read_change_record(context, _commit(text_of("news-long.json"))) is None, "its object isn't there"
    context.objects.write_new(
        change_record_uri(context, "run-1"), gzip.compress(text_of("news-object.json").encode(), mtime=0)
    )
    assert read_change_record(context, _commit(text_of("news-long.json"))) == NEWS_RECORD


@pytest.mark.parametrize(
    "change",
    [
        lambda document: {("update" if name == "updated" else name): value for name, value in document.items()},
        lambda document: {**document, "renamed": {"ns.x": 1}},
        lambda document: {**document, "number": "3"},
        lambda document: {name: value for name, value in document.items() if name != "number"},
        lambda document: {**document, "updated": {"ns.a": [1, 2]}},
        lambda document: {**document, "updated": {"ns.a": [1, 2, ["append"], 3]}},
        lambda document: {**document, "held": {"ns.e": [7, "SourceGone"]}},
        lambda document: {**document, "sha256": "ab" * 32, "bytes": -1},
    ],
)
def test_news_that_this_version_does_not_know_are_no_news_and_never_that_nothing_happened(
    tmp_path: Path, change: Any
) -> None:
    commit = _commit(json.dumps(change(json.loads(text_of("news.json")))))
    assert read_change_record(make_world(tmp_path).context(), commit) is None


def test_the_number_of_a_newer_versions_news_goes_on() -> None:
    document = json.loads(text_of("news.json"))
    assert record_number(_commit(json.dumps({**document, "newer": {"ns.x": 1}}))) == 3
    assert record_number(_commit(json.dumps({**document, "number": True}))) == 0
    assert HEADER.decode({"number": 3, "run": "run-1"}) == _FACTS


def test_a_long_list_of_held_keys_has_the_bytes_of_november_2026() -> None:
    from dataclasses import replace

    long = build_held_list([replace(VALUES["held"], key=f"a.t{number}") for number in range(40)])
    assert long.property_text == text_of("held-digest.json")
    assert parse_held_list(long.property_text) == replace(long, entries=None)


@pytest.mark.parametrize("name", [record_field.name for record_field in DIGEST_FORM.fields])
def test_a_long_list_of_held_keys_is_never_read_as_a_shorter_one(name: str) -> None:
    document = json.loads(text_of("held-digest.json"))
    renamed = {(f"{key}2" if key == name else key): value for key, value in document.items()}
    for changed in (renamed, {**document, name: None}):
        with pytest.raises(ValueError, match=name):
            parse_held_list(json.dumps(changed))
    assert parse_held_list(json.dumps({**document, "newer": 1})).count == 40
    with pytest.raises(ValueError, match="is no digest"):
        parse_held_list(json.dumps({**document, "sha256": "../" + "a" * 61}))


def test_properties_of_commits_have_the_bytes_of_november_2026() -> None:
    written = json.loads(text_of("commit-properties.json"))
    bindings = {"us-lake": "s3://us/ us", "ap": "s3://ap/é ap"}
    assert bindings_text(bindings) == written["sterna.bindings"]
    assert parse_bindings(written["sterna.bindings"]) == bindings
    assert counts_text({"put ICEBERG_TABLE": 2, "drop NAMESPACE": 1}) == written["sterna.counts"]
    assert build_held_list([VALUES["held"]]).property_text == written["sterna.held"]
    for text in ("[]", "{", '{"a":1}', '{"a":"b","a":"c"}'):
        with pytest.raises(MalformedRecord):
            parse_bindings(text)


def test_a_sync_writes_the_properties_of_november_2026(tmp_path: Path) -> None:
    from tests.support.small_world import run

    world = make_world(tmp_path)
    world.commit(a=world.write("a"))
    run(world)
    commit = next(world.catalog.history("main_replica_eu", operations=False))
    rare = {"sterna.reasserted-over", "sterna.reseeded-from"}
    # A first sync had no watermark before; the rest is what each commit has, and news.
    assert set(commit.properties) == {*json.loads(text_of("commit-properties.json")), CHANGE_RECORD_PROPERTY} - rare
    assert parse_property(commit.properties[CHANGE_RECORD_PROPERTY])[0].run == commit.properties[RUN_ID]


def test_how_far_a_view_is_has_the_bytes_of_november_2026_and_is_never_read_as_nothing(tmp_path: Path) -> None:
    """What nobody can read keeps expiry waiting: read as "never filled" it would let the view's snapshot go."""
    context, table = make_world(tmp_path).context(), "nyc.users é"
    root = context.region.replica_root
    uri = f"{state_folder(root, FEATURES)}/user.json"
    assert read_feature_view_position(context.objects, root, "user", table) is None
    write_feature_view_position(context, "user", table, 2**62)
    assert context.objects.read(uri).decode() == text_of("view-position.json")
    assert read_feature_view_position(context.objects, root, "user", table) == 2**62
    assert read_feature_view_position(context.objects, root, "user", "nyc.people") is None
    for text in ('{"table": "nyc.users \u00e9", "at": 1}', '{"table": "x", "snapshot": "1"}', "{", "[]"):
        context.objects.overwrite(uri, text.encode())
        with pytest.raises(BrokenMetadata, match="no position of a view"):
            read_feature_view_position(context.objects, root, "user", table)


def test_a_dead_letter_has_the_bytes_of_november_2026(tmp_path: Path) -> None:
    context = make_world(tmp_path).context()
    event = text_of("events.jsonl").splitlines()[0].encode()
    name = text_of("dead-letter.uri.txt").rpartition("/")[2]
    uri = write_dead_letter(context, "pager", Message(name[24:-5], "ns.a", event), "HTTP 400 é")
    assert uri == f"{state_folder(context.region.replica_root, DEAD_LETTERS)}/pager/{name}"
    written, now = json.loads(text_of("dead-letter.json")), json.loads(context.objects.read(uri))
    assert list(now) == list(written)
    assert context.objects.read(uri).decode().replace(now["at"], written["at"]) == text_of("dead-letter.json")
    context.objects.overwrite(uri, text_of("dead-letter.json").encode())
    (letter,) = read_dead_letters(context, "pager")
    assert (letter.reason, letter.at, letter.file) == ("HTTP 400 é", "2026-11-02T00:00:00+00:00", uri)
    assert letter.message() == Message(letter.id, "ns.a", event), "byte for byte"
    for change in ({"event": []}, {"reason": None}):
        context.objects.overwrite(uri, json.dumps({**written, **change}).encode())
        with pytest.raises(BrokenMetadata, match=next(iter(change))):
            list(read_dead_letters(context, "pager"))


def test_events_have_the_bytes_of_november_2026() -> None:
    """Attributes and data in their order: whoever gets an event again gets the same bytes."""
    puts = tuple(
        Put(
            ("ns", name),
            Content.of({"type": "ICEBERG_TABLE", "metadataLocation": "s3://m", "snapshotId": 4, "id": "x"}),
        )
        for name in ("a", "é")
    )
    properties = {RUN_ID: "run-1", PLANNED_HASH: "h1", SOURCE_HASH: "w1", CHANGE_RECORD_PROPERTY: text_of("news.json")}
    moment = _UNTIL.replace(microsecond=567890)
    drops = (Delete(("ns", "c")), Delete(("ns", "d")))
    commit = Commit("ab" * 32, "cd" * 32, moment, "sterna", "m", properties, (*puts, *drops))
    events = build_events(commit, CommitDetails(NEWS_RECORD), "eu", "main_replica_eu")
    assert b"".join(event.text + b"\n" for event in events) == with_current_drops(
        (_BESIDE / "events.jsonl").read_bytes()
    )
    for event in events:
        sent = Message(event.id, event.table, event.text, event.data_start)
        assert sent.binary() == Message(event.id, event.table, event.text).binary()


def with_current_drops(written: bytes) -> bytes:
    """Events of November 2026 as they are told since: a drop names the last snapshot, and says what it is."""
    events = [json.loads(line) for line in written.splitlines()]
    for event in events:
        if event["type"] == "sterna.table.dropped":
            event["data"]["new_snapshot_id"] = event["data"]["previous_snapshot_id"]
            event["data"]["change"] = "dropped"
    return b"".join(
        json.dumps(rewritten, separators=(",", ":"), ensure_ascii=False).encode() + b"\n" for rewritten in events
    )


def test_a_drop_as_november_2026_told_it_is_read_like_one_of_today() -> None:
    """A gateway, a dead letter or a client's record may be of that time: it says null for the snapshot."""
    written = (_BESIDE / "events.jsonl").read_bytes()
    old, new = (
        [parse_event(line.decode()) for line in text.splitlines()] for text in (written, with_current_drops(written))
    )
    assert old == new
    drops = [event for event in old if event.type == "sterna.table.dropped"]
    assert [(event.new_snapshot_id, event.previous_snapshot_id) for event in drops] == [(None, 5), (None, None)]
