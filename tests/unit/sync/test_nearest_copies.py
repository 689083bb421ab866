"""Files are copied from the cheapest region that has them, and from elsewhere where it hasn't, or is dark."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sterna.errors import (
    CatalogDenied,
    CatalogUnreachable,
    CredentialError,
    EngineError,
    RegistryError,
    SourceGone,
    SternaError,
    StoreDenied,
    StoreUnreachable,
)
from sterna.replication.execution import copy as copying
from sterna.replication.execution.copy_file import CopyFile
from sterna.replication.execution.source_regions import SourceOrder
from sterna.replication.plan import sharded_listing
from sterna.replication.plan.options import SyncOptions
from sterna.replication.plan.planner import make_plan
from sterna.replication.plan.sharded_listing import ShardingLimits
from sterna.replication.repair.run import repair
from sterna.replication.replica.codecs import PLAN
from sterna.replication.replica.model import CopyBatch
from sterna.replication.sync.explain import CopiesTotal, explain
from sterna.replication.verify.run import Depth, verify, verify_structure
from tests.support.doubles.catalog import InMemoryCatalog
from tests.support.small_world import World, here, priced, quiet, refusing, ruled, run, with_third_region
from tests.support.verbatim import keeping

OUTAGES = (StoreUnreachable, StoreDenied, CredentialError)
FAR_ORIGIN = {"us": 0.09, "eu": 0.02, "ap": 0.02}
FAR_COPIES = {"us": 0.02, "eu": 0.09, "ap": 0.09}


@pytest.fixture
def three(world: World) -> World:
    """Tables a and b of us, which eu has, and ap not yet."""
    world = with_third_region(world)
    for name in "ab":
        world.commit(**{name: world.write(name)})
    run(world, "eu")
    return world


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """The bytes that were copied, by the id of the location that they came from."""
    total: Counter[str] = Counter()
    real = copying.copy_files

    def copy_files(origin: Any, *others: Any, **options: Any) -> Any:
        transfer = real(origin, *others, **options)
        total[origin.location.id] += transfer.bytes
        return transfer

    monkeypatch.setattr(copying, "copy_files", copy_files)
    yield total


def data_files(world: World, folder: str = "us/lake") -> list[Path]:
    return sorted((world.folder / folder).rglob("*.parquet"))


def size_of(paths: list[Path]) -> int:
    return sum(path.stat().st_size for path in paths)


def batches_for(world: World, region: str = "ap", **options: Any) -> tuple[CopyBatch, ...]:
    return make_plan(world.context(region), SyncOptions(**options))[0].batches


def regions(batches: tuple[CopyBatch, ...]) -> set[tuple[tuple[str, ...], tuple[str, ...]]]:
    return {(batch.preferred, batch.fallbacks) for batch in batches}


def whole(world: World, region: str = "ap") -> bool:
    """Whether a region shows both tables, with all files in place."""
    return {"ns.a", "ns.b"} <= world.replica(region).keys() and not verify_structure(world.context(region)).findings


@pytest.mark.parametrize("prices", [{}, FAR_ORIGIN])
def test_a_region_is_seeded_from_the_one_that_has_everything(
    three: World, prices: dict[str, float], sent: Counter[str]
) -> None:
    three, total = priced(three, prices), size_of(data_files(three))
    assert regions(batches_for(three)) == {(("eu",), ())}
    report = run(three, "ap")
    assert sent == {"eu-replica": total}
    assert (report.copied.sent, report.copied.sent_from) == (total, {"eu": total})
    assert whole(three)


@pytest.mark.parametrize("prices", [{}, FAR_ORIGIN])
def test_an_origin_sends_each_file_once_for_two_regions(
    world: World, prices: dict[str, float], sent: Counter[str]
) -> None:
    world = priced(with_third_region(world), prices)
    for rows in (3, 1000, 50):
        world.commit(a=world.write("a", rows), b=world.write("b", rows))
        for region in ("eu", "ap"):  # ap is behind by as long as eu's sync takes
            run(world, region)
    total = size_of(data_files(world))
    from_origins = 2 * total
    assert sent["us-lake"] / from_origins <= 0.55
    assert sent == {"us-lake": total, "eu-replica": total}


@pytest.mark.parametrize("error", OUTAGES)
@pytest.mark.parametrize("prices", [{}, FAR_COPIES])
def test_data_of_an_origin_that_can_not_be_used_come_from_a_copy(
    three: World, prices: dict[str, float], error: type[SternaError], sent: Counter[str]
) -> None:
    three = priced(three, prices)
    with refusing(f"file://{three.folder}/us/", error, files="*.parquet"):
        report = run(three, "ap")
    assert report.held == () and whole(three)
    assert report.copied.sent_from == {"eu": size_of(data_files(three))}
    assert sent["us-lake"] == 0


@pytest.mark.parametrize("error", OUTAGES)
def test_where_the_copies_can_not_be_used_the_origin_is(
    three: World, error: type[SternaError], sent: Counter[str]
) -> None:
    with refusing(f"file://{three.folder}/eu/", error):
        report = run(three, "ap")
    assert report.held == () and report.copied.sent_from == {} and whole(three)
    assert sent == {"us-lake": size_of(data_files(three))}


@pytest.mark.parametrize("error", [RegistryError, EngineError, *OUTAGES])
def test_a_region_whose_copies_can_not_be_sent_is_left_out(
    three: World, error: type[SternaError], sent: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = copying.copy_files

    def copy_files(origin: Any, *others: Any, **options: Any) -> Any:
        if origin.location.id == "eu-replica":
            raise error("rclone can't read it")
        return real(origin, *others, **options)

    monkeypatch.setattr(copying, "copy_files", copy_files)
    report = run(three, "ap")
    assert report.held == () and report.copied.sent_from == {} and whole(three)
    assert sent == {"us-lake": size_of(data_files(three))}


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_bytes(path.read_bytes() + b"x")])
def test_a_copy_that_is_gone_or_has_another_size_is_not_sent(three: World, harm: Any, sent: Counter[str]) -> None:
    harmed, *others = data_files(three, "eu/replica/us-lake")
    right = size_of(others)
    harm(harmed)
    report = run(three, "ap")
    assert report.held == () and whole(three)
    assert sent == {"eu-replica": right, "us-lake": size_of(data_files(three)) - right}


def test_a_file_that_is_gone_at_its_origin_comes_from_a_dearer_copy(three: World) -> None:
    three = priced(three, FAR_COPIES)
    assert regions(batches_for(three)) == {((), ("eu",))}
    purged = data_files(three)[0]
    size = purged.stat().st_size
    purged.unlink()
    report = run(three, "ap")
    assert report.held == () and whole(three)
    assert report.copied.sent_from == {"eu": size}


@pytest.mark.parametrize("order", [SourceOrder(("eu",)), SourceOrder((), ("eu",))])
def test_a_file_that_is_right_for_one_table_is_not_written_over_for_another(three: World, order: SourceOrder) -> None:
    context = three.context("ap")
    source, copy = data_files(three)[0], data_files(three, "eu/replica/us-lake")[0]
    file = CopyFile("ns.a", f"file://{source}", context.mapping.content_uri(f"file://{source}"), 3)
    target = Path(file.target.removeprefix("file://"))
    target.parent.mkdir(parents=True)
    target.write_bytes(b"abc")
    source.unlink()
    copy.write_bytes(b"four")
    files = [file, replace(file, table="ns.b", size=4)]
    copied = copying.copy_batch(files, context.mapping, context.secrets, context.objects, order=order)
    assert [(type(failure), failure.table) for failure in copied.failures] == [(SourceGone, "ns.b")]
    assert (target.read_bytes(), copied.sent) == (b"abc", 0)


def test_a_dearer_copy_is_not_written_over_what_another_table_may_show(three: World) -> None:
    context = three.context("ap")
    source, copy = data_files(three)[0], data_files(three, "eu/replica/us-lake")[0]
    file = CopyFile("ns.b", f"file://{source}", context.mapping.content_uri(f"file://{source}"), 4)
    target = Path(file.target.removeprefix("file://"))
    target.parent.mkdir(parents=True)
    target.write_bytes(b"abc")
    source.unlink()
    copy.write_bytes(b"four")
    order = SourceOrder((), ("eu",))
    copied = copying.copy_batch([file], context.mapping, context.secrets, context.objects, order=order)
    assert [type(failure) for failure in copied.failures] == [SourceGone]
    assert target.read_bytes() == b"abc"


def test_an_origin_of_another_size_holds_its_table_though_there_is_a_dearer_copy(three: World) -> None:
    three = priced(three, FAR_COPIES)
    path = data_files(three)[0]
    path.write_bytes(path.read_bytes() + b"x")
    report = run(three, "ap")
    assert [(held.key, held.kind) for held in report.held] == [("ns.a", "SizeDiffers")]


def test_the_version_before_is_asked_where_it_is_cheaper_and_for_what_it_has(three: World, sent: Counter[str]) -> None:
    before = size_of(data_files(three))
    three.commit(a=three.write("a", 1000))
    apart = regions(batches_for(three, files_per_batch=1))
    assert apart == {((), ("eu",)), (("eu",), ())}, "at one price the origin comes before an older version"
    three = priced(three, FAR_ORIGIN)
    assert regions(batches_for(three)) == {(("eu",), ())}
    run(three, "ap")
    assert sent == {"eu-replica": before, "us-lake": size_of(data_files(three)) - before}
    assert whole(three)


def test_regions_that_follow_in_step_are_no_sources_of_each_other(three: World) -> None:
    run(three, "ap")
    three = priced(three, FAR_ORIGIN)
    three.commit(a=three.write("a"))
    assert regions(batches_for(three)) == {((), ())}
    run(three, "ap")
    assert regions(batches_for(three, "eu")) == {(("ap",), ())}


def test_a_region_that_may_not_have_a_table_is_no_source(three: World, sent: Counter[str]) -> None:
    three = ruled(three, residency=[{"tables": ["ns.b"], "never": ["eu"]}])
    report = run(three, "ap")
    assert whole(three)
    assert set(report.copied.sent_from) == {"eu"}
    of_b = size_of([path for path in data_files(three) if "/b/" in str(path)])
    assert report.copied.sent - report.copied.sent_from["eu"] == sent["us-lake"] == of_b


@pytest.mark.parametrize("rule", ["locations", "prefixes"])
def test_files_that_a_region_may_not_have_are_not_read_from_it(three: World, rule: str, sent: Counter[str]) -> None:
    place = "us-lake" if rule == "locations" else f"file://{three.folder}/us/lake/b"
    three = ruled(three, residency=[{rule: [place], "never": ["eu"]}])
    run(three, "ap")
    assert whole(three)
    kept = size_of([path for path in data_files(three) if rule == "prefixes" and "/a/" in str(path)])
    assert sent["eu-replica"] == kept, "what eu has yet to evict stays there"


@pytest.mark.parametrize("error", [CatalogDenied, CatalogUnreachable])
def test_a_catalog_that_shows_no_other_branch_leaves_the_origins(
    three: World, error: type[SternaError], monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(self: InMemoryCatalog, ref: str, keys: Any) -> Any:
        raise error(f"not now: {ref}")

    monkeypatch.setattr(InMemoryCatalog, "read_current", denied)
    assert regions(batches_for(three)) == {((), ())}


def test_two_regions_ask_for_no_other_branch_and_their_plans_are_as_before(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    real = InMemoryCatalog.read_current

    def read_current(self: InMemoryCatalog, ref: str, keys: Any) -> Any:
        asked.append(ref)
        return real(self, ref, keys)

    monkeypatch.setattr(InMemoryCatalog, "read_current", read_current)
    world.commit(a=world.write("a"))
    plan = make_plan(world.context())[0]
    assert plan.batches and not {"main_replica_us", "main_replica_eu"} & set(asked)
    assert "preferred" not in PLAN.dumps(plan) and "fallbacks" not in PLAN.dumps(plan)


def test_equal_regions_share_the_batches(three: World) -> None:
    for _ in range(2):
        three.commit(a=three.write("a"), b=three.write("b"))
    four = with_third_region(three, "sa")
    for region in ("eu", "ap"):
        run(four, region)
    batches = batches_for(four, "sa", files_per_batch=1)
    firsts = Counter(batch.preferred[0] for batch in batches)
    assert len(batches) >= 4 and firsts["eu"] - firsts["ap"] in (-1, 0, 1)
    assert {frozenset(batch.preferred) for batch in batches} == {frozenset(("eu", "ap"))}


def test_a_table_that_is_listed_in_parts_comes_from_a_copy_too(three: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharded_listing, "LIMITS", ShardingLimits(min_manifests=1))
    batches = batches_for(three)
    assert {batch.table for batch in batches} == {"ns.a", "ns.b"}
    assert regions(batches) == {(("eu",), ())}


def test_a_plan_shows_what_comes_from_where_and_what_that_saves(three: World) -> None:
    three, total = priced(three, FAR_ORIGIN), size_of(data_files(three))
    plan, files = make_plan(three.context("ap"))
    assert PLAN.loads(PLAN.dumps(plan)) == plan
    explained = explain(three.context("ap"), plan, files)
    assert explained.copies == {"eu": CopiesTotal(2, total)}
    assert plan.egress_cost == pytest.approx(total / 1e9 * 0.02)
    assert explained.egress_saved == round(total / 1e9 * 0.07, 6)


@pytest.fixture
def kept(world: World) -> World:
    """Tables a and b of us, and all their files in eu."""
    world = keeping(with_third_region(world), "eu")
    for name in "ab":
        world.commit(**{name: world.write(name)})
    run(world, "eu")
    return world


@pytest.mark.parametrize("error", OUTAGES)
def test_a_region_is_seeded_while_the_origin_can_not_be_used_at_all(kept: World, error: type[SternaError]) -> None:
    with refusing(f"file://{kept.folder}/us/", error):
        report = run(kept, "ap")
    assert (report.held, set(report.published)) == ((), {"ns", "ns.a", "ns.b"})
    assert report.copied.sent_from == {"eu": report.copied.sent}
    assert whole(kept)
    copies = data_files(kept, "ap/replica/us-lake")
    assert [path.read_bytes() for path in copies] == [path.read_bytes() for path in data_files(kept)]
    again = run(kept, "ap")
    assert (again.outcome, again.copied.sent) == ("idle", 0), "what us has is nothing else"


@pytest.mark.parametrize("has_copy", [True, False])
def test_statistics_of_a_dark_origin_come_from_the_region_that_has_them(kept: World, has_copy: bool) -> None:
    location = kept.write("a")
    path = Path(location.removeprefix("file://"))
    file = path.with_name("s.puffin")
    file.write_bytes(b"0123456789")
    document = json.loads(path.read_text())
    entry = {"snapshot-id": document["current-snapshot-id"], "statistics-path": f"file://{file}"}
    entry |= {"file-size-in-bytes": 10, "file-footer-size-in-bytes": 1, "blob-metadata": []}
    path.write_text(json.dumps({**document, "statistics": [entry]}))
    kept.commit(a=location)
    run(kept, "eu")
    (copy,) = (kept.folder / "eu/replica/us-lake").rglob("s.puffin")
    if not has_copy:
        copy.unlink()
    with refusing(f"file://{kept.folder}/us/", StoreUnreachable):
        report = run(kept, "ap")
    assert [(held.key, held.kind) for held in report.held] == ([] if has_copy else [("ns.a", "StoreUnreachable")])
    copies = [path.read_bytes() for path in (kept.folder / "ap/replica/us-lake").rglob("s.puffin")]
    assert copies == [b"0123456789"] * has_copy


def test_without_verbatim_copies_metadata_of_a_dark_origin_is_waited_for(three: World) -> None:
    with refusing(f"file://{three.folder}/us/", StoreUnreachable):
        report = run(three, "ap")
    assert [(held.key, held.kind) for held in report.held] == [(f"ns.{name}", "StoreUnreachable") for name in "ab"]
    run(three, "ap")
    assert whole(three)


@pytest.mark.parametrize("name", ["*.metadata.json", "snap-*.avro", "*-m0.avro"])
def test_a_garbled_copy_of_metadata_holds_its_table_until_the_origin_answers(kept: World, name: str) -> None:
    for path in (kept.folder / "eu/replica/_sterna/verbatim/us-lake/a").rglob(name):
        path.write_bytes(path.read_bytes()[::-1])
    with refusing(f"file://{kept.folder}/us/", StoreUnreachable):
        report = run(kept, "ap")
    assert [(held.key, held.kind) for held in report.held] == [("ns.a", "BrokenMetadata")]
    assert kept.replica("ap").keys() == {"ns", "ns.b"}
    run(kept, "ap")
    assert whole(kept)


def test_a_copy_with_the_right_size_and_wrong_bytes_is_found_and_repaired_by_the_origin(kept: World) -> None:
    first = data_files(kept, "eu/replica/us-lake")[0]
    first.write_bytes(first.read_bytes()[::-1])
    with refusing(f"file://{kept.folder}/us/", StoreUnreachable):
        assert run(kept, "ap").held == ()
    context = kept.context("ap")
    (finding,) = verify(context, Depth(deep=True)).findings
    assert (finding.table, finding.kind) == ("ns.a", "differs")
    repair(context, (), quiet, deep=True, apply=True, engine=here)
    assert verify(context, Depth(deep=True)).findings == ()
    assert data_files(kept, "ap/replica/us-lake")[0].read_bytes() == data_files(kept)[0].read_bytes()


def test_a_version_of_which_no_region_has_the_metadata_is_waited_for(kept: World) -> None:
    kept.commit(a=kept.write("a"))
    with refusing(f"file://{kept.folder}/us/", StoreUnreachable):
        report = run(kept, "ap")
    assert [(held.key, held.kind) for held in report.held] == [("ns.a", "StoreUnreachable")]
    assert "ns.b" in kept.replica("ap")
    run(kept, "ap")
    assert whole(kept)
