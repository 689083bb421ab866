"""The index of delays beside the replica: written by syncs, read by status and metrics, rebuilt where it is lost."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sterna.catalog.model import Commit, Put, namespace_content
from sterna.codec import MalformedRecord
from sterna.operations.status.delays import read_region_delays
from sterna.replication.replica import delay_files, delay_index
from sterna.replication.replica.delay_hours import (
    HOUR_FILE,
    DelayHour,
    IndexUnusable,
    hour_of,
    hour_start,
    parse_hour_name,
    without_open,
)
from sterna.replication.replica.delay_index import DelayIndex, read_delay_index
from sterna.replication.replica.delay_tracker import Ahead, DelayState, OpenCommits
from sterna.storage.objects import Objects
from tests.support.doubles.catalog import InMemoryCatalog
from tests.support.small_world import World, gone, make_world, run, table

HOUR = DelayHour(
    "2026-11-28T19",
    "2026-11-28T17",
    "r1",
    DelayState(
        1_764_000_000_000,
        "r2",
        "m2",
        {"nyc.flights": (OpenCommits(1_764_000_060_000, 2), OpenCommits(1_764_000_120_000, 1))},
        {"nyc.planes": (Ahead("m3", 1_764_000_180_000),)},
    ),
    {"nyc.é": {0: {5: 2, 60: 1}, 11: {136: 1}}},
)
WRITTEN = (
    '{"version":1,"begun":1764000000000,"replica":"r2","source":"m2",'
    '"open":{"nyc.flights":[[1764000060000,2],[1764000120000,1]]},"ahead":{"nyc.planes":[["m3",1764000180000]]},'
    '"hour":"2026-11-28T19","previous":"2026-11-28T17","after":"r1",'
    '"delays":{"nyc.\\u00e9":{"0":{"5":2,"60":1},"11":{"136":1}}}}'
)


class Clock:
    """The catalog's clock."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC) - timedelta(hours=5)

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def world(tmp_path: Path, clock: Clock) -> World:
    return replace(make_world(tmp_path), catalog=InMemoryCatalog(clock))


def folder(world: World) -> Path:
    return world.folder / "eu" / "replica" / "_sterna" / "delays"


def read(world: World, days: int = 7) -> DelayIndex:
    context = world.context()
    return read_delay_index(context, context.objects, datetime.now(UTC) - timedelta(days=days))


def ended(index: DelayIndex) -> Counter[tuple[str, int]]:
    counts: Counter[tuple[str, int]] = Counter()
    for hour in index.hours:
        for name, slots in hour.delays.items():
            for histogram in slots.values():
                counts.update({(name, bucket): count for bucket, count in histogram.items()})
    return counts


def some_hours(world: World, clock: Clock) -> None:
    """Commit and sync in four hours, one after the other."""
    for number in range(4):
        world.commit(a=world.write("a"), **({"b": world.write("b")} if number % 2 else {}))
        clock.now += timedelta(seconds=40 + number)
        run(world)
        clock.now += timedelta(hours=1)


def test_an_hour_has_the_bytes_that_it_had_first() -> None:
    assert HOUR_FILE.dumps(HOUR) == WRITTEN.encode()
    assert HOUR_FILE.loads(WRITTEN.encode()) == HOUR
    closed = without_open(HOUR, "2026-11-28T21")
    text = re.sub(r'"(open|ahead)":\{.*?\}', r'"\1":{}', WRITTEN).removesuffix("}") + ',"successor":"2026-11-28T21"}'
    assert HOUR_FILE.dumps(closed) == text.encode()
    assert HOUR_FILE.loads(text.encode()) == closed


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ('"5":2', '"5":-2'),
        ('"5":2', '"05":2'),
        ('"5":2', '"x":2'),
        ('"11":', '"12":'),
        ('"5":2', f'"{"5" * 5_000}":2'),
        ('"5":2', f'"5":{10**15}'),
        ('"begun":1764000000000', f'"begun":{10**18}'),
        ('"version":1', '"version":2'),
        ('"replica":"r2",', ""),
        ("[1764000120000,1]", "[1764000120000]"),
        ('{"5":2,"60":1}', "[]"),
    ],
)
def test_what_sterna_does_not_write_is_no_hour(written: str, instead: str) -> None:
    with pytest.raises(MalformedRecord):
        HOUR_FILE.loads(WRITTEN.replace(written, instead).encode())


def test_files_are_named_by_their_hour() -> None:
    at = 1_764_000_000_123
    assert hour_start(hour_of(at)) * 1000 <= at < hour_start(hour_of(at)) * 1000 + 3_600_000
    assert parse_hour_name("2026-11-28T19.json") == "2026-11-28T19"
    for name in ("2026-11-28T19", "2026-11-28T24.json", "2026-11-28T9.json", "x.json", ""):
        assert parse_hour_name(name) == ""


def test_each_sync_writes_down_what_it_made_visible(world: World, clock: Clock) -> None:
    some_hours(world, clock)
    assert len(list(folder(world).iterdir())) == 4
    index = read(world)
    assert (index.rebuilt, index.open, index.changed) == ("", {}, frozenset())
    # What the first sync published is where counting begins.
    assert sum(count for (name, _), count in ended(index).items() if name == "ns.a") == 3
    assert {bucket for name, bucket in ended(index) if name == "ns.b"} <= set(range(41, 50))


def test_a_reader_continues_it_in_memory(world: World) -> None:
    world.commit(a=world.write("a"))
    run(world)
    written = {path.name: path.read_bytes() for path in folder(world).iterdir()}
    world.commit(a=world.write("a"))
    run(world)
    for path in folder(world).iterdir():
        path.unlink()
    for name, content in written.items():  # as where a sync was killed before it wrote it down
        (folder(world) / name).write_bytes(content)
    world.commit(a=world.write("a"))
    index = read(world)
    assert sum(ended(index).values()) == 1 and index.changed
    assert [entry.count for entry in index.open["ns.a"]] == [1]
    assert {path.name: path.read_bytes() for path in folder(world).iterdir()} == written


def test_held_tables_and_what_waits_for_them_are_open(world: World, clock: Clock) -> None:
    world.commit(a=world.write("a"), b=world.write("b"))
    run(world)
    for _ in range(3):
        world.commit(bad=f"file://{world.folder}/us/lake/bad/metadata/gone.metadata.json", a=world.write("a"))
        world.commit(b=world.write("b"))
        run(world)
    index = read(world)
    assert {name: sum(entry.count for entry in entries) for name, entries in index.open.items()} == {
        "ns.bad": 3,
        "ns.a": 3,
    }
    assert {name for name, _ in ended(index)} == {"ns.b"}


def test_a_table_that_may_not_be_here_counts_nowhere(world: World, clock: Clock) -> None:
    registry = world.registry.model_validate(
        {**world.registry.model_dump(mode="json"), "policies": [{"tables": ["ns.a"], "replicate": False}]}
    )
    world = replace(world, registry=registry)
    for _ in range(2):
        world.commit(a=world.write("a"), b=world.write("b"))
        run(world)
    world.commit(a=world.write("a"))
    index = read(world)
    assert {name for name, _ in ended(index)} == {"ns.b"}
    assert index.open == {}


@pytest.mark.parametrize("damage", ["all", "first", "middle", "newest", "cut", "text", "swapped", "gzip"])
def test_an_index_that_is_missing_or_damaged_is_rebuilt_and_said_so(world: World, clock: Clock, damage: str) -> None:
    some_hours(world, clock)
    before = read(world)
    files = sorted(folder(world).iterdir())
    if damage == "all":
        for path in files:
            path.unlink()
    elif damage in ("first", "middle", "newest"):
        files[{"first": 0, "middle": 1, "newest": -1}[damage]].unlink()
    elif damage == "cut":
        files[2].write_bytes(files[2].read_bytes()[:-10])
    elif damage == "gzip":
        files[2].write_bytes(gzip.compress(files[2].read_bytes())[:-20])
    elif damage == "text":
        files[2].write_text(json.dumps({"version": 1}))
    else:
        files[2].write_bytes(files[1].read_bytes())
    seen = read(world)
    assert ended(seen) == ended(before)
    assert seen.rebuilt
    world.commit(a=world.write("a"))
    run(world)
    again = read(world)
    if damage in ("first", "middle"):  # a writer doesn't read so far back
        assert again.rebuilt
        for path in folder(world).iterdir():
            path.unlink()
        world.commit(a=world.write("a"))
        run(world)
        again = read(world)
    assert again.rebuilt == ""
    assert ended(again)["ns.b", 42] == ended(before)["ns.b", 42]


def test_only_the_newest_hour_has_what_is_open(world: World, clock: Clock) -> None:
    world.commit(a=world.write("a"))
    run(world)
    for _ in range(2):
        clock.now += timedelta(hours=1)
        world.commit(bad=gone(world, "bad"))
        world.commit(b=world.write("b"))
        run(world)
    hours = [HOUR_FILE.loads(path.read_bytes()) for path in sorted(folder(world).iterdir())]
    assert [bool(hour.state.open) for hour in hours] == [False, False, True]
    assert [hour.successor for hour in hours] == [hours[1].hour, hours[2].hour, ""]
    assert [entry.count for entry in read(world).open["ns.bad"]] == [1, 1]


def test_an_hour_that_begins_while_the_files_are_read_is_no_gap(
    world: World, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    some_hours(world, clock)
    newest = max(path.name for path in folder(world).iterdir())
    listings: list[str] = []
    real = Objects.list

    def list_files(self: Objects, uri: str, **options: Any) -> list[Any]:
        listings.append(uri)
        files = real(self, uri, **options)
        return [file for file in files if len(listings) > 1 or not file[0].endswith(newest)]

    monkeypatch.setattr(Objects, "list", list_files)
    index = read(world)
    assert (index.rebuilt, index.changed, len(listings)) == ("", frozenset(), 2)


def test_a_process_keeps_no_more_hours_than_it_has_room_for(
    world: World, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    some_hours(world, clock)
    reads: list[str] = []
    real = Objects.read

    def read_object(self: Objects, uri: str, **options: Any) -> bytes:
        reads.append(uri)
        return real(self, uri, **options)

    monkeypatch.setattr(Objects, "read", read_object)
    for max_bytes, count in ((0, 4), (0, 4), (10**6, 4), (10**6, 2)):
        monkeypatch.setattr(delay_files, "MAX_CACHED_BYTES", max_bytes)
        reads.clear()
        read(world)
        assert len(reads) == count


def test_where_much_is_to_be_read_a_reader_says_so(world: World, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    some_hours(world, clock)
    monkeypatch.setattr(delay_index, "MAX_READER_COMMITS", 2)
    assert read(world).rebuilt == ""
    for path in folder(world).iterdir():
        path.unlink()
    with pytest.raises(IndexUnusable, match="there is no index of delays; a sync that publishes rebuilds it"):
        read(world)


def commits_read(monkeypatch: pytest.MonkeyPatch, branch: str = "main") -> list[str]:
    """Return a list that gets the hash of each commit that is read of a branch from now on."""
    commits: list[str] = []
    real = InMemoryCatalog.history

    def history(self: InMemoryCatalog, ref: str, **options: Any) -> Iterator[Commit]:
        for commit in real(self, ref, **options):
            if ref.startswith(f"{branch}@"):
                commits.append(commit.hash)
            yield commit

    monkeypatch.setattr(InMemoryCatalog, "history", history)
    return commits


def test_an_index_without_a_middle_hour_is_rebuilt_once(
    world: World, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    some_hours(world, clock)
    sorted(folder(world).iterdir())[1].unlink()
    main, replica = commits_read(monkeypatch), commits_read(monkeypatch, "main_replica_eu")
    before = read(world)
    assert before.rebuilt and main and replica
    main.clear()
    replica.clear()
    assert read(world) == replace(before, changed=frozenset())
    assert main == replica == []
    world.commit(a=world.write("a"))
    run(world)
    main.clear()
    replica.clear()
    after = read(world)
    assert (after.rebuilt, ended(after).total()) == (before.rebuilt, ended(before).total() + 1)
    assert len(replica) == 1 and not main


def test_a_region_far_behind_is_not_unknown_and_no_commit_is_read_twice(
    world: World, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    some_hours(world, clock)
    monkeypatch.setattr(delay_index, "MAX_READER_COMMITS", 2)
    commits = commits_read(monkeypatch)
    behind = 0
    for added in (3, 1, 0):
        for _ in range(added):
            world.commit(a=world.write("a"))
        behind += added
        index = read(world)
        assert (index.rebuilt, sum(entry.count for entry in index.open["ns.a"])) == ("", behind)
        assert len(commits) == len(set(commits)) == behind
    monkeypatch.setattr(delay_index, "MAX_COMMITS", 3)
    with pytest.raises(IndexUnusable, match="doesn't continue"):
        read(world)


def test_commits_that_main_lost_count_no_more(world: World, clock: Clock) -> None:
    world.commit(a=world.write("a"))
    run(world)
    kept = world.commit(a=world.write("a"))
    world.commit(a=world.write("a"), b=world.write("b"))
    assert read(world).open.keys() == {"ns.a", "ns.b"}
    world.catalog.assign("main", kept)
    world.commit(c=world.write("c"))
    assert read(world).open.keys() == {"ns.a", "ns.c"}


def test_where_main_has_too_many_commits_a_sync_rebuilds_it_from_its_newest(
    world: World, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    some_hours(world, clock)
    for path in folder(world).iterdir():
        path.unlink()
    monkeypatch.setattr(delay_index, "MAX_COMMITS", 3)
    for _ in range(2):
        world.commit(a=world.write("a"))
    run(world)
    index = read(world)
    assert (index.rebuilt, index.open, ended(index).total()) == ("", {}, 4)


def test_a_commit_of_a_time_that_is_to_come_counts_as_of_now(world: World, clock: Clock) -> None:
    for ahead in (0, 2, 0):
        clock.now += timedelta(days=ahead)
        world.commit(a=world.write("a"))
        run(world)
        clock.now -= timedelta(days=ahead)
    newest = max(path.name for path in folder(world).iterdir())
    assert newest <= f"{hour_of(int(datetime.now(UTC).timestamp() * 1000))}.json"
    index = read(world)
    assert (index.rebuilt, index.open, ended(index).total()) == ("", {}, 2)


def test_an_hour_that_is_to_come_is_rebuilt(world: World, clock: Clock) -> None:
    some_hours(world, clock)
    newest = max(folder(world).iterdir())
    hour = hour_of(int((datetime.now(UTC) + timedelta(hours=3)).timestamp() * 1000))
    (folder(world) / f"{hour}.json").write_bytes(
        HOUR_FILE.dumps(replace(HOUR_FILE.loads(newest.read_bytes()), hour=hour))
    )
    newest.unlink()
    assert "an hour that is to come" in read(world).rebuilt
    world.commit(a=world.write("a"))
    run(world)
    index = read(world)
    assert (index.rebuilt, ended(index)["ns.a", 42]) == ("", 1)


def test_a_region_without_any_publication_has_none(world: World) -> None:
    with pytest.raises(IndexUnusable, match="there is no index"):
        read(world)


def test_a_branch_that_was_reset_rebuilds_it(world: World, clock: Clock) -> None:
    some_hours(world, clock)
    heads = [commit.hash for commit in world.catalog.history("main_replica_eu", operations=False)]
    world.catalog.assign("main_replica_eu", heads[1])
    assert "doesn't continue" in read(world).rebuilt


def test_commits_that_are_not_sternas_are_left_out(world: World, clock: Clock) -> None:
    world.commit(a=world.write("a"))
    run(world)
    world.catalog.commit_as("somebody", "main_replica_eu", [Put(("x",), namespace_content(("x",)))])
    assert read(world).open == {}


def test_nothing_of_it_fails_a_sync(world: World, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    world.commit(a=world.write("a"))
    run(world)
    (path,) = folder(world).iterdir()
    path.unlink()
    folder(world).rmdir()
    folder(world).write_text("a file where its folder was")
    world.commit(a=world.write("a"))
    assert run(world).outcome == "published"


def test_an_hour_with_a_time_beyond_all_calendars_is_rebuilt(world: World, clock: Clock) -> None:
    some_hours(world, clock)
    files = sorted(folder(world).iterdir())
    for path in files:
        content = json.loads(path.read_bytes())
        path.write_text(json.dumps({**content, "begun": 10**20}))
    delays = read_region_delays(world.context(), world.context().objects)
    assert (delays.problem, "damaged" in delays.rebuilt) == ("", True)


def test_what_is_unexpected_fails_no_sync_either(world: World, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    def unexpected(*_: object) -> None:
        raise OverflowError("a fault")

    monkeypatch.setattr(delay_index, "DelayTracker", unexpected)
    for _ in range(2):
        world.commit(a=world.write("a"))
        assert run(world).outcome == "published"


def test_a_week_with_a_commit_a_minute_is_read_by_a_request_an_hour(
    world: World, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.commit(a=world.write("a"))
    run(world)
    (path,) = folder(world).iterdir()
    last = HOUR_FILE.loads(path.read_bytes())
    week = [hour_of((hour_start(last.hour) - 3_600 * back) * 1000) for back in range(168, 0, -1)]
    begun, previous = (hour_start(week[0])) * 1000, ""
    for hour in week:
        state = replace(last.state, begun=begun, replica=f"r{hour}")
        slots = {slot: {5: 3, 6: 2} for slot in range(12)}
        (folder(world) / f"{hour}.json").write_bytes(
            HOUR_FILE.dumps(DelayHour(hour, previous, f"r{previous}" if previous else "", state, {"ns.a": slots}))
        )
        previous = hour
    state = replace(last.state, begun=begun)
    path.write_bytes(HOUR_FILE.dumps(replace(last, previous=previous, after=f"r{previous}", state=state)))
    requests: Counter[str] = Counter()
    for name in ("list", "read"):
        real = getattr(Objects, name)
        monkeypatch.setattr(
            Objects,
            name,
            lambda *given, _real=real, _name=name, **more: requests.update([_name]) or _real(*given, **more),
        )
    index = read(world)
    hours = len(index.hours)
    assert (index.rebuilt, sum(ended(index).values()), hours) == ("", (hours - 1) * 60, hours)
    assert hours >= 163 and requests == {"list": 1, "read": hours}
    requests.clear()
    read(world)
    assert requests == {"list": 1, "read": 2}, "hours that are over are read once"


def test_a_renamed_table_is_another_one(world: World, clock: Clock) -> None:
    world.commit(a=world.write("a"))
    run(world)
    location = world.write("a")
    content = world.catalog.contents("main", world.catalog.reference("main").hash, [("ns", "a")])[("ns", "a")]
    world.commit(a=None, c=location)
    run(world)
    assert content.kind == table(location).kind
    assert {name for name, _ in ended(read(world))} == {"ns.c"}
