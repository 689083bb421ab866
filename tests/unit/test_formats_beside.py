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
from sterna.catalog.model import Commit, Content, Delete, Put
from sterna.cdc import gathering
from sterna.client.messages import parse_event
from sterna.edges.brokers import message
from sterna.edges.brokers.message import Message
from sterna.edges.postgres import epoch
from sterna.errors import BrokenMetadata
from sterna.feed.event import Facts, events_of
from sterna.ha import rejoin
from sterna.json_record import MalformedRecord
from sterna.outlets.letters import bury, dead_letters
from sterna.registry import folders, run_names
from sterna.registry.folders import DEAD, EVIDENCE, FEATURES, FOLDERS, HELD, is_own, own_folder, own_place, own_root
from sterna.replica import head, ids, news, tags
from sterna.replica.head import PLANNED_HASH, RUN_ID, SOURCE_HASH, bindings_text, counts_text, parse_bindings
from sterna.replica.held_list import DIGEST_FORM, held_list, parse_list
from sterna.replica.ids import COLLECT_ID, SWEEP_ID, UPKEEP_ID, began, new_id, new_run_id, parse_stamp, stamp
from sterna.replica.news import (
    HEAD,
    NEWS,
    News,
    NewsHead,
    Stay,
    TableMove,
    news_text,
    news_uri,
    number_of,
    parse_property,
    property_text,
    read_news,
)
from sterna.replica.tags import held_until, hold_tag, may_be_of, outlet_of, outlet_tag
from sterna.replica.view_position import read_view_position, write_view_position
from sterna.upkeep import model
from tests.support.formats import groups
from tests.support.formats_ingest import GROUPS
from tests.support.records import VALUES
from tests.support.small_world import make_world

_CODE = Path(sterna.__file__).parent
_WRITTEN = Path(__file__).parents[1] / "data" / "written-2026-11"
_BESIDE = _WRITTEN / "beside"
_UNTIL = datetime(2026, 11, 1, 2, 3, 4, tzinfo=UTC)
TOLD = News(
    3,
    {
        "ns.a": TableMove(1, 2**62, ("append", "delete")),
        "ns.é": TableMove(None, None, None),
        "ns.q": TableMove(None, 4, ()),
    },
    {"ns.c": 5, "ns.d": None},
    {"ns.e": Stay("SourceGone", 7), "ns.g": Stay("StoreDenied", None)},
    {"ns.f": 8, "ns.h": None},
)
_FACTS = NewsHead(3, "run-1")


def text_of(name: str) -> str:
    return (_BESIDE / name).read_text()


@cache
def constants() -> dict[str, frozenset[str]]:
    """The texts in each module of sterna, docstrings left out."""
    found = {}
    for path in _CODE.rglob("*.py"):
        tree = ast.parse(path.read_bytes())
        prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        texts = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in prose)
        found[str(path.relative_to(_CODE))] = frozenset(node.value for node in texts if isinstance(node.value, str))
    return found


def modules_with(pattern: str) -> set[str]:
    return {path for path, texts in constants().items() if any(re.search(pattern, text) for text in texts)}


@pytest.mark.parametrize("title", json.loads((_WRITTEN / "names.json").read_text()))
def test_what_was_written_by_a_name_still_has_it(title: str) -> None:
    written = json.loads((_WRITTEN / "names.json").read_text())[title]
    assert set(written) <= set({**groups(), **GROUPS}[title])


@pytest.mark.parametrize(
    ("pattern", "module"),
    [
        (r"^lost/$", rejoin),
        (r"^ce_$", message),
        (r"^cloudEvents:$", message),
        (r"^webhook-(id|timestamp|signature)$", message),
        (r"^sterna_epoch$", epoch),
        (r"sterna-hold-", tags),
        (r"sterna-outlet-", tags),
        (r"^(plan|repair)\.json$|^(localize\.parquet|news\.json\.gz)$", run_names),
        (r"^(copy-|parts/|children-|fetched/|copied/)", run_names),
        (r"^_sterna_(seq|op|absent|ts)$", gathering),
        (r"^_sterna$|(^|/)_sterna/", folders),
        (r"%Y%m%dT%H%M%SZ", ids),
        (r"^(collect|sweep|upkeep)-$", ids),
        (r"^sterna\.upkeep(-|$)", model),
        (r"^sterna\.news$", news),
        (r"^sterna\.mov", head),
        *(
            (f"^{re.escape(name)}$", head)
            for name in groups()["Properties of commits on a replica branch"]
            if name != NEWS
        ),
    ],
)
def test_a_name_stands_in_one_module(pattern: str, module: ModuleType) -> None:
    assert modules_with(pattern) == {str(Path(str(module.__file__)).relative_to(_CODE))}


def test_each_folder_has_its_place_in_a_clean_up_and_is_told_from_others() -> None:
    """A folder that a clean-up doesn't know of is kept for ever: a new one has to stand in one of these."""
    assert {*EVIDENCE, HELD, DEAD} == set(FOLDERS)
    root = "s3://eu/replica"
    assert own_folder(root, EVIDENCE[0]) == "s3://eu/replica/_sterna/runs"
    assert own_root(root) == "s3://eu/replica/_sterna/"
    assert is_own(f"{own_folder(root, HELD)}/x") and not is_own("s3://eu/replica/_sterna2/held/x")
    assert own_place(["_sterna", "held", "x"]) == ["held", "x"]
    assert own_place(["lake", "_sterna", "x"]) is None


def test_tags_are_read_as_they_were_written() -> None:
    tag = hold_tag("eu", _UNTIL, "ab" * 32)
    assert tag == "sterna-hold-eu-20261101T020304Z-abababababab"
    assert held_until("eu", tag) == _UNTIL and may_be_of("eu", tag)
    others = ["sterna-hold-us-20261101T020304Z-abababababab", "sterna-hold-eu-2-20261101T020304Z-abababababab"]
    others += ["sterna-hold-eu-20269999T020304Z-abababababab", "sterna-hold-eu-20261101T020304Z-abababababa", "release"]
    assert [held_until("eu", each) for each in others] == [None] * 5
    assert outlet_tag("eu", "shop_2") == "sterna-outlet-eu-shop_2"
    assert outlet_of("eu", "sterna-outlet-eu-shop_2") == "shop_2" and may_be_of("eu", "sterna-outlet-eu-shop_2")
    assert [outlet_of("eu", each) for each in ("sterna-outlet-eu-west-a", "sterna-outlet-eu-", "sterna-eu-a")] == [
        None
    ] * 3
    assert not may_be_of("eu", "sterna-outlet-us-shop") and not may_be_of("eu", "release-eu-1")


@pytest.mark.parametrize("path", ["plugins/sterna/embedded/access.properties", "nessie/access.properties"])
def test_the_rules_of_access_name_the_tags_of_outlets(path: str) -> None:
    """A region's replicator may make its outlets' tags and no others: else an outlet begins anew with each restart."""
    file = Path(__file__).parents[2] / path
    if file.exists():
        (pattern,) = re.findall(r"ref\.matches\('\^(.*?)' \+ region \+ '(.*?)\$'\)", file.read_text())
        assert pattern[0] + "eu" + "-shop" == outlet_tag("eu", "shop")
        assert re.fullmatch(f"{pattern[0]}eu{pattern[1]}", outlet_tag("eu", "shop"))


def test_ids_begin_with_their_time_and_stand_in_its_order() -> None:
    assert stamp(_UNTIL) == "20261101T020304Z" and parse_stamp("20261101T020304Z") == _UNTIL
    assert re.fullmatch(r"20261101T020304Z-[0-9a-f]{8}", new_id(_UNTIL))
    found = {prefix: new_id(_UNTIL, prefix) for prefix in (COLLECT_ID, SWEEP_ID, UPKEEP_ID)}
    assert [re.sub("[0-9a-f]{8}$", "", each) for each in found.values()] == [
        "collect-20261101T020304Z-",
        "sweep-20261101T020304Z-",
        "upkeep-20261101T020304Z-",
    ]
    assert began("20261101T020304Z-00000000") == _UNTIL < began(new_run_id())
    with pytest.raises(ValueError, match="collect"):
        began(found[COLLECT_ID])


def test_news_have_the_bytes_of_november_2026() -> None:
    assert property_text(_FACTS, TOLD) == text_of("news.json")
    assert property_text(_FACTS, News(3)) == text_of("news-empty.json")
    assert news_text(TOLD) == text_of("news-object.json")
    long, _ = parse_property(text_of("news-long.json"))
    assert property_text(long) == text_of("news-long.json")
    assert (long.number, long.run, long.size) == (3, "run-1", len(text_of("news-object.json")))


def _commit(text: str) -> Commit:
    return Commit("ab" * 32, "cd" * 32, _UNTIL, "sterna", "m", {RUN_ID: "run-1", NEWS: text})


def test_news_are_read_as_they_were_written(tmp_path: Path) -> None:
    import gzip

    context = make_world(tmp_path).context()
    assert read_news(context, _commit(text_of("news.json"))) == TOLD
    assert read_news(context, _commit(text_of("news-empty.json"))) == News(3)
    assert read_news(context, _commit(text_of("news-long.json"))) is None, "its object isn't there"
    context.objects.write_new(news_uri(context, "run-1"), gzip.compress(text_of("news-object.json").encode(), mtime=0))
    assert read_news(context, _commit(text_of("news-long.json"))) == TOLD


@pytest.mark.parametrize(
    "change",
    [
        lambda said: {("update" if name == "updated" else name): value for name, value in said.items()},
        lambda said: {**said, "renamed": {"ns.x": 1}},
        lambda said: {**said, "number": "3"},
        lambda said: {name: value for name, value in said.items() if name != "number"},
        lambda said: {**said, "updated": {"ns.a": [1, 2]}},
        lambda said: {**said, "updated": {"ns.a": [1, 2, ["append"], 3]}},
        lambda said: {**said, "held": {"ns.e": [7, "SourceGone"]}},
        lambda said: {**said, "sha256": "ab" * 32, "bytes": -1},
    ],
)
def test_news_that_this_version_does_not_know_are_no_news_and_never_that_nothing_happened(
    tmp_path: Path, change: Any
) -> None:
    commit = _commit(json.dumps(change(json.loads(text_of("news.json")))))
    assert read_news(make_world(tmp_path).context(), commit) is None


def test_the_number_of_a_newer_versions_news_goes_on() -> None:
    said = json.loads(text_of("news.json"))
    assert number_of(_commit(json.dumps({**said, "newer": {"ns.x": 1}}))) == 3
    assert number_of(_commit(json.dumps({**said, "number": True}))) == 0
    assert HEAD.decode({"number": 3, "run": "run-1"}) == _FACTS


def test_a_long_list_of_held_keys_has_the_bytes_of_november_2026() -> None:
    from dataclasses import replace

    long = held_list([replace(VALUES["held"], key=f"a.t{number}") for number in range(40)])
    assert long.property == text_of("held-digest.json")
    assert parse_list(long.property) == replace(long, entries=None)


@pytest.mark.parametrize("name", [each.name for each in DIGEST_FORM.fields])
def test_a_long_list_of_held_keys_is_never_read_as_a_shorter_one(name: str) -> None:
    said = json.loads(text_of("held-digest.json"))
    renamed = {(f"{each}2" if each == name else each): value for each, value in said.items()}
    for changed in (renamed, {**said, name: None}):
        with pytest.raises(ValueError, match=name):
            parse_list(json.dumps(changed))
    assert parse_list(json.dumps({**said, "newer": 1})).count == 40
    with pytest.raises(ValueError, match="is no digest"):
        parse_list(json.dumps({**said, "sha256": "../" + "a" * 61}))


def test_properties_of_commits_have_the_bytes_of_november_2026() -> None:
    written = json.loads(text_of("commit-properties.json"))
    bindings = {"us-lake": "s3://us/ us", "ap": "s3://ap/é ap"}
    assert bindings_text(bindings) == written["sterna.bindings"]
    assert parse_bindings(written["sterna.bindings"]) == bindings
    assert counts_text({"put ICEBERG_TABLE": 2, "drop NAMESPACE": 1}) == written["sterna.counts"]
    assert held_list([VALUES["held"]]).property == written["sterna.held"]
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
    assert set(commit.properties) == {*json.loads(text_of("commit-properties.json")), NEWS} - rare
    assert parse_property(commit.properties[NEWS])[0].run == commit.properties[RUN_ID]


def test_how_far_a_view_is_has_the_bytes_of_november_2026_and_is_never_read_as_nothing(tmp_path: Path) -> None:
    """What nobody can read keeps expiry waiting: read as "never filled" it would let the view's snapshot go."""
    context, table = make_world(tmp_path).context(), "nyc.users é"
    root = context.region.replica_root
    uri = f"{own_folder(root, FEATURES)}/user.json"
    assert read_view_position(context.objects, root, "user", table) is None
    write_view_position(context, "user", table, 2**62)
    assert context.objects.read(uri).decode() == text_of("view-position.json")
    assert read_view_position(context.objects, root, "user", table) == 2**62
    assert read_view_position(context.objects, root, "user", "nyc.people") is None
    for text in ('{"table": "nyc.users \u00e9", "at": 1}', '{"table": "x", "snapshot": "1"}', "{", "[]"):
        context.objects.overwrite(uri, text.encode())
        with pytest.raises(BrokenMetadata, match="no position of a view"):
            read_view_position(context.objects, root, "user", table)


def test_a_dead_letter_has_the_bytes_of_november_2026(tmp_path: Path) -> None:
    context = make_world(tmp_path).context()
    event = text_of("events.jsonl").splitlines()[0].encode()
    name = text_of("dead-letter.uri.txt").rpartition("/")[2]
    uri = bury(context, "pager", Message(name[24:-5], "ns.a", event), "HTTP 400 é")
    assert uri == f"{own_folder(context.region.replica_root, DEAD)}/pager/{name}"
    written, now = json.loads(text_of("dead-letter.json")), json.loads(context.objects.read(uri))
    assert list(now) == list(written)
    assert context.objects.read(uri).decode().replace(now["at"], written["at"]) == text_of("dead-letter.json")
    context.objects.overwrite(uri, text_of("dead-letter.json").encode())
    (letter,) = dead_letters(context, "pager")
    assert (letter.reason, letter.at, letter.file) == ("HTTP 400 é", "2026-11-02T00:00:00+00:00", uri)
    assert letter.message() == Message(letter.id, "ns.a", event), "byte for byte"
    for change in ({"event": []}, {"reason": None}):
        context.objects.overwrite(uri, json.dumps({**written, **change}).encode())
        with pytest.raises(BrokenMetadata, match=next(iter(change))):
            list(dead_letters(context, "pager"))


def test_events_have_the_bytes_of_november_2026() -> None:
    """Attributes and data in their order: whoever gets an event again gets the same bytes."""
    puts = tuple(
        Put(
            ("ns", name),
            Content.of({"type": "ICEBERG_TABLE", "metadataLocation": "s3://m", "snapshotId": 4, "id": "x"}),
        )
        for name in ("a", "é")
    )
    properties = {RUN_ID: "run-1", PLANNED_HASH: "h1", SOURCE_HASH: "w1", NEWS: text_of("news.json")}
    moment = _UNTIL.replace(microsecond=567890)
    drops = (Delete(("ns", "c")), Delete(("ns", "d")))
    commit = Commit("ab" * 32, "cd" * 32, moment, "sterna", "m", properties, (*puts, *drops))
    events = events_of(commit, Facts(TOLD), "eu", "main_replica_eu")
    assert b"".join(each.text + b"\n" for each in events) == drops_told_now((_BESIDE / "events.jsonl").read_bytes())


def drops_told_now(written: bytes) -> bytes:
    """Events of November 2026 as they are told since: a drop names the last snapshot, and says what it is."""
    said = [json.loads(line) for line in written.splitlines()]
    for event in said:
        if event["type"] == "sterna.table.dropped":
            event["data"]["new_snapshot_id"] = event["data"]["previous_snapshot_id"]
            event["data"]["change"] = "dropped"
    return b"".join(json.dumps(each, separators=(",", ":"), ensure_ascii=False).encode() + b"\n" for each in said)


def test_a_drop_as_november_2026_told_it_is_read_like_one_of_today() -> None:
    """A gateway, a dead letter or a client's record may be of that time: it says null for the snapshot."""
    written = (_BESIDE / "events.jsonl").read_bytes()
    old, new = (
        [parse_event(each.decode()) for each in text.splitlines()] for text in (written, drops_told_now(written))
    )
    assert old == new
    drops = [each for each in old if each.type == "sterna.table.dropped"]
    assert [(each.new_snapshot_id, each.previous_snapshot_id) for each in drops] == [(None, 5), (None, None)]
