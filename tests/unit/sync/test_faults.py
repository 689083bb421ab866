"""What goes wrong, and what must not come of it: each of these was wrong once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sterna.catalog.model import ICEBERG_VIEW, Content, Delete, Put, namespace_content
from sterna.config.registry.model import Location
from sterna.errors import BranchChanged, CatalogStateUnknown, RegistryError, UnsafeUri, UsageError, redact_uri
from sterna.replication.plan.options import SyncOptions
from sterna.replication.plan.planner import make_plan
from sterna.replication.replica.head import HELD, parse_head, read_head
from sterna.replication.replica.metadata_version import current_metadata_version
from sterna.replication.replica.model import StageReport
from sterna.replication.sync.stages import copy, localize, plan, publish
from sterna.replication.verify.run import verify_structure
from tests.support.regions import with_ports
from tests.support.small_world import World, gone, here, quiet, run, view, with_registry


def data_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.parquet"))


def test_a_binding_is_remembered_when_its_location_is_gone_from_the_registry(world: World):
    world.commit(a=world.write("a"))
    run(world)
    spare = Location(
        **{**world.registry.locations[0].model_dump(), "id": "spare", "prefix": f"file://{world.folder}/spare"}
    )
    run(with_registry(world, locations=[*world.registry.locations, spare]))
    run(world)
    moved = spare.model_copy(update={"prefix": f"file://{world.folder}/elsewhere"})
    with pytest.raises(RegistryError, match="spare"):
        run(with_registry(world, locations=[*world.registry.locations, moved]))


def test_a_failure_in_one_batch_does_not_hide_that_another_batch_is_missing(world: World):
    world.commit(a=world.write("a"))
    world.commit(b=world.write("b"))
    (path,) = data_files(world.folder / "us" / "lake" / "a")
    path.write_bytes(path.read_bytes() + b"x")
    context = world.context()
    planned = plan(context, SyncOptions(files_per_batch=1), quiet)
    assert len(planned.batches) == 2
    reports = [copy(context, planned.run, batch.number, quiet) for batch in planned.batches]
    (failed,) = (report for report in reports if report.failed)
    localized = localize(context, planned.run, failed, quiet, here)
    with pytest.raises(UsageError, match="left out"):
        publish(context, planned.run, failed, localized, quiet)
    report = publish(context, planned.run, sum(reports, StageReport()), localized, quiet)
    assert [(item.key, item.kind) for item in report.held] == [("ns.a", "SizeDiffers")]


def test_a_missing_file_of_ones_own_region_holds_the_table(world: World):
    world.commit(a=world.write("a"))
    (path,) = data_files(world.folder / "us" / "lake" / "a")
    path.unlink()
    report = run(world, "us")
    assert [(item.key, item.kind, item.file) for item in report.held] == [("ns.a", "SourceGone", f"file://{path}")]


def test_a_manifest_of_another_size_than_its_list_says_holds_the_table(world: World):
    world.commit(a=world.write("a"))
    (path,) = (world.folder / "us" / "lake" / "a").rglob("*-m0.avro")
    path.write_bytes(path.read_bytes() + b"\0")
    assert [item.kind for item in run(world).held] == ["SizeDiffers"]


def test_a_group_with_two_faults_moves_when_both_are_mended(world: World):
    world.commit(a=world.write("a"), b=world.write("b"), c=world.write("c"))
    run(world)
    before = world.replica()
    world.commit(a=gone(world, "a"), b=gone(world, "b"), c=world.write("c"))
    assert len(run(world).held) == 3
    world.commit(a=world.write("a"))
    assert {item.key for item in run(world).held} == {"ns.a", "ns.b", "ns.c"}
    assert world.replica() == before
    world.commit(b=world.write("b"))
    assert run(world).held == ()
    assert verify_structure(world.context()).findings == ()


def test_a_held_table_that_is_asked_for_is_published_once_it_is_well(world: World):
    world.commit(a=gone(world, "a"))
    assert run(world).held
    world.commit(a=world.write("a"))
    report = run(world, tables=("ns.a",))
    assert "ns.a" in report.published
    assert report.held == ()


def test_a_key_that_changes_its_kind_is_never_left_empty(world: World):
    world.commit(a=world.write("a"))
    run(world)
    head = world.catalog.commit("main", world.catalog.reference("main").hash, [Delete(("ns", "a"))], "drop")
    broken = Content.of({"type": ICEBERG_VIEW, "metadataLocation": gone(world, "v"), "versionId": 1, "schemaId": 0})
    head = world.catalog.commit("main", head, [Put(("ns", "a"), broken)], "a view")
    report = run(world)
    assert [item.kind for item in report.held] == ["SourceGone"]
    assert world.replica()["ns.a"].kind == "ICEBERG_TABLE"
    now = world.catalog.contents("main", head, [("ns", "a")])[("ns", "a")]
    world.catalog.commit("main", head, [Put(("ns", "a"), now.with_metadata_location(view(world, "v")))], "mended")
    assert run(world).held == ()
    assert world.replica()["ns.a"].kind == ICEBERG_VIEW


def test_a_table_becomes_a_namespace_with_a_table_in_it(world: World):
    kind_change(world)
    assert not run(world).more
    assert world.replica()["ns.a.t"].kind == "ICEBERG_TABLE"
    assert run(world).outcome == "idle"


@pytest.mark.parametrize("value", ["//x", "../x"])
def test_a_namespace_with_an_odd_property_does_not_hold_its_tables(world: World, value: str):
    location = f"file://{world.folder}/us/lake/{value}"
    properties = namespace_content(("odd",), {"location": location})
    table = Content.of({"type": "ICEBERG_TABLE", "metadataLocation": world.write("a"), "snapshotId": 1})
    head = world.catalog.reference("main").hash
    world.catalog.commit("main", head, [Put(("odd",), properties), Put(("odd", "t"), table)], "odd")
    assert run(world).held == ()
    assert world.replica()["odd"].payload["properties"] == {"location": location}


def test_a_seed_gets_ahead_while_its_first_tables_change(world: World):
    world.commit(**{name: world.write(name) for name in "abcd"})
    run_once = {"seed_group": 2}
    context = world.context()
    from sterna.replication.sync.run import sync

    sync(context, SyncOptions(**run_once), quiet, until_done=False, engine=here)
    world.commit(a=world.write("a"), b=world.write("b"))
    sync(context, SyncOptions(**run_once), quiet, until_done=False, engine=here)
    assert {"ns.a", "ns.b", "ns.c", "ns.d"} <= world.replica().keys()


@pytest.mark.parametrize("pattern", ["*.metadata.json", "snap-*.avro"])
def test_a_lost_file_of_the_replica_costs_time_only(world: World, pattern: str):
    world.commit(a=world.write("a"))
    run(world)
    for path in (world.folder / "eu" / "replica").rglob(pattern):
        path.unlink()
    world.commit(a=world.write("a"))
    assert run(world).held == ()
    assert verify_structure(world.context()).findings == ()


def test_two_tables_that_share_a_file(world: World):
    location = world.write("a")
    world.commit(a=location, b=location)
    report = run(world)
    assert report.held == ()
    assert report.copied.files == 1


def test_dropping_one_table_by_name_leaves_its_namespace(world: World):
    world.commit(a=world.write("a"), b=world.write("b"))
    run(world)
    head = world.commit(a=None, b=None)
    world.catalog.commit("main", head, [Delete(("ns",))], "drop")
    run(world, tables=("ns.a", "ns"))
    run(world)
    assert world.replica() == {}


def test_a_namespace_that_has_to_stay_goes_when_it_can(world: World):
    world.commit(a=world.write("a"))
    world.commit(b=world.write("b"))
    run(world)
    world.commit(a=None, b=gone(world, "b"))
    head = world.commit(b=None)
    other = Content.of({"type": "ICEBERG_TABLE", "metadataLocation": gone(world, "x"), "snapshotId": 1})
    head = world.catalog.commit(
        "main", head, [Put(("other",), namespace_content(("other",))), Put(("other", "x"), other)], "x"
    )
    world.catalog.commit("main", head, [Delete(("ns",))], "drop")
    run(world)
    assert "ns" not in world.replica()


def test_a_renamed_table_is_not_looked_at_anew(world: World):
    world.commit(a=world.write("a"))
    run(world)
    head = world.catalog.reference("main").hash
    content = world.catalog.contents("main", head, [("ns", "a")])[("ns", "a")]
    world.catalog.commit("main", head, [Delete(("ns", "a")), Put(("ns", "b"), content)], "rename")
    for path in (world.folder / "us" / "lake").rglob("*.avro"):
        path.unlink()
    before = world.replica()["ns.a"].id
    assert run(world).held == ()
    assert world.replica()["ns.b"].id == before


def test_no_signature_or_user_info_is_told():
    error = UnsafeUri("bad", file="s3://user:secret@lake/t?X-Amz-Signature=secret")
    assert "secret" not in f"{error} {error!r} {error.file}"
    assert (
        redact_uri("abfss://container@account.dfs.core.windows.net/x")
        == "abfss://container@account.dfs.core.windows.net/x"
    )


def test_a_commit_of_a_newer_sterna_can_be_read(world: World):
    world.commit(a=gone(world, "a"))
    run(world)
    commit = next(iter(world.catalog.history("main_replica_eu", operations=False)))
    newer = json.loads(commit.properties[HELD])
    newer[0]["mood"] = "new"
    read = parse_head(type(commit)(**{**vars(commit), "properties": {**commit.properties, HELD: json.dumps(newer)}}))
    assert read.held == read_head(world.catalog, "main_replica_eu").held
    with pytest.raises(BranchChanged, match=commit.hash):
        parse_head(type(commit)(**{**vars(commit), "properties": {**commit.properties, HELD: "{"}}))


def test_the_original_of_a_delete_file_never_takes_the_place_of_the_localized_one(world: World):
    mapping = world.context().mapping
    uri = f"file://{world.folder}/us/lake/a/data/x-deletes.parquet"
    localized = mapping.localized_uri(uri, current_metadata_version(mapping))
    assert mapping.replica_uri(uri) != localized
    assert mapping.origin_uri(mapping.replica_uri(uri)) == mapping.origin_uri(localized) == uri


def test_what_a_filtered_sync_leaves_behind_is_lag(world: World):
    world.commit(a=world.write("a"))
    run(world)
    world.commit(b=world.write("b"))
    report = run(world, tables=("ns.a",))
    assert report.outcome == "idle"
    assert report.lag_seconds > 0
    assert report.watermark != report.source_hash


def test_many_snapshots_hand_their_children_over_once(world: World):
    for _ in range(60):
        location = world.write("a", rows=1)
    world.commit(a=location)
    context = replace(world.context(), region=world.context().region.model_copy(update={"localize": "spark"}))
    context = with_ports(context, catalog=world.catalog, primary=world.catalog)
    planned = plan(context, SyncOptions(), quiet)
    copied = sum((copy(context, planned.run, batch.number, quiet) for batch in planned.batches), StageReport())
    sent: list[int] = []

    def engine(function, items, label):
        sent.append(sum(map(len, items)))
        return map(function, items)

    assert localize(context, planned.run, copied, quiet, engine).failed == ()
    assert max(sent) < 100_000, "60 lists of up to 60 manifests each"
    assert make_plan(context)[0].batches == ()


def test_a_localize_stage_that_was_left_out_is_noticed(world: World):
    world.commit(a=world.write("a"))
    context = world.context()
    planned = plan(context, SyncOptions(), quiet)
    copied = copy(context, planned.run, 0, quiet)
    with pytest.raises(UsageError, match="localize stage was left out"):
        publish(context, planned.run, copied, StageReport(), quiet)


def test_a_localize_stage_that_was_left_out_is_noticed_though_an_earlier_try_left_its_last_file(world: World):
    """Marked as success by a person; a clean-up that began with the manifests has been there meanwhile."""
    world.commit(a=world.write("a"))
    context = world.context()
    earlier = plan(context, SyncOptions(), quiet)
    localize(context, earlier.run, copy(context, earlier.run, 0, quiet), quiet, here)
    for manifest in (world.folder / "eu" / "replica").rglob("*-m0.avro"):
        manifest.unlink()
    planned = plan(context, SyncOptions(), quiet)
    copied = sum((copy(context, planned.run, batch.number, quiet) for batch in planned.batches), StageReport())
    with pytest.raises(UsageError, match="localize stage was left out"):
        publish(context, planned.run, copied, StageReport(), quiet)
    assert not world.catalog.references()[1:], "nothing is published"


def test_a_run_that_was_overtaken_is_superseded_whatever_is_left_of_it(world: World):
    world.commit(a=world.write("a"))
    context = world.context()
    planned = plan(context, SyncOptions(), quiet)
    copied = copy(context, planned.run, 0, quiet)
    localized = localize(context, planned.run, copied, quiet, here)
    world.commit(a=world.write("a"))
    (mine,) = (world.folder / "eu" / "replica").rglob("*.metadata.json")
    run(world)
    mine.unlink()  # as a clean-up does once nothing reaches it
    assert publish(context, planned.run, copied, localized, quiet).outcome == "superseded"


def test_a_registry_that_changed_in_the_middle_of_a_run_is_noticed(world: World):
    world.commit(a=world.write("a"))
    planned = plan(world.context(), SyncOptions(), quiet)
    spare = {**world.registry.locations[0].model_dump(), "id": "spare", "prefix": f"file://{world.folder}/spare"}
    other = with_registry(world, locations=[*(item.model_dump() for item in world.registry.locations), spare]).context()
    for stage in (
        lambda: copy(other, planned.run, 0, quiet),
        lambda: localize(other, planned.run, StageReport(), quiet, here),
        lambda: publish(other, planned.run, StageReport(1), StageReport(), quiet),
    ):
        with pytest.raises(UsageError, match="registry changed"):
            stage()


@pytest.mark.parametrize(
    "changes",
    [{"catalog": {"read": "http://127.0.0.1:2"}}, {"spark": "local[1]"}],
    ids=["another catalog", "another Spark"],
)
def test_the_stages_of_a_run_work_with_one_and_the_same_registry(world: World, changes: dict[str, object]):
    """Also in what decides no replica: batches before the change went to other places than those after it."""
    world.commit(a=world.write("a"))
    planned = plan(world.context(), SyncOptions(), quiet)
    regions = [{**item.model_dump(mode="json"), **changes} for item in world.registry.regions]
    other = with_registry(world, regions=regions)
    assert other.registry.digest() == world.registry.digest()
    with pytest.raises(UsageError, match="registry changed"):
        copy(other.context(), planned.run, 0, quiet)
    assert run(other).outcome == "published", "a new sync goes on, and copies nothing twice"


def test_a_publish_task_of_a_first_sync_that_is_repeated_finds_its_own_commit(world: World):
    world.commit(a=world.write("a"))
    context = world.context()
    planned = plan(context, SyncOptions(), quiet)
    copied = copy(context, planned.run, 0, quiet)
    localized = localize(context, planned.run, copied, quiet, here)
    first = publish(context, planned.run, copied, localized, quiet)
    again = publish(context, planned.run, copied, localized, quiet)
    assert (again.outcome, again.replica_hash, again.published) == ("published", first.replica_hash, first.published)


def kind_change(world: World) -> None:
    """On main `ns.a` stops being a table and becomes a namespace with a table in it."""
    world.commit(a=world.write("a"))
    run(world)
    head = world.catalog.commit("main", world.catalog.reference("main").hash, [Delete(("ns", "a"))], "drop")
    inner = Content.of({"type": "ICEBERG_TABLE", "metadataLocation": world.write("inner"), "snapshotId": 1})
    puts = [Put(("ns", "a"), namespace_content(("ns", "a"))), Put(("ns", "a", "t"), inner)]
    world.catalog.commit("main", head, puts, "a namespace now")


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("happened", [True, False])
def test_a_lost_answer_between_the_two_halves_of_a_change_of_kind(
    world: World, monkeypatch: pytest.MonkeyPatch, half: int, happened: bool
):
    kind_change(world)
    context = world.context()
    planned = plan(context, SyncOptions(), quiet)
    copied = sum((copy(context, planned.run, batch.number, quiet) for batch in planned.batches), StageReport())
    localized = localize(context, planned.run, copied, quiet, here)
    commit, calls = world.catalog.commit, []

    def unsure(*arguments, **options):
        calls.append(arguments)
        if len(calls) == half + 1:
            if happened:
                commit(*arguments, **options)
            raise CatalogStateUnknown("no answer")
        return commit(*arguments, **options)

    monkeypatch.setattr(world.catalog, "commit", unsure)
    if happened:
        assert publish(context, planned.run, copied, localized, quiet).outcome == "published"
    else:
        with pytest.raises(CatalogStateUnknown):
            publish(context, planned.run, copied, localized, quiet)
        assert publish(context, planned.run, copied, localized, quiet).outcome == "published", "the task's next try"
    assert world.replica()["ns.a.t"].kind == "ICEBERG_TABLE"
    assert run(world).outcome == "idle"


def test_a_run_that_finds_half_a_change_of_kind_finishes_it(world: World, monkeypatch: pytest.MonkeyPatch):
    kind_change(world)
    commit, calls = world.catalog.commit, []

    def killed(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return commit(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(world.catalog, "commit", killed)
        with pytest.raises(KeyboardInterrupt):
            run(world)
    assert "ns.a" not in world.replica()
    assert run(world).held == ()
    assert world.replica()["ns.a.t"].kind == "ICEBERG_TABLE"


def test_a_namespace_made_anew_keeps_its_place_under_a_held_table(world: World):
    world.commit(a=world.write("a"))
    run(world)
    head = world.commit(a=None)
    head = world.catalog.commit("main", head, [Delete(("ns",))], "drop")
    head = world.catalog.commit("main", head, [Put(("ns",), namespace_content(("ns",), {"color": "red"}))], "again")
    world.commit(a=gone(world, "a"), b=world.write("b"))
    world.commit(c=world.write("c"))
    report = run(world)
    assert {item.key for item in report.held} == {"ns.a", "ns.b"}
    assert "ns.c" in report.published
    assert world.replica()["ns"].payload["properties"] == {"color": "red"}


def test_what_stands_below_a_held_key_waits_with_it(world: World):
    world.commit(a=world.write("a"), b=world.write("b"))
    run(world)
    head = world.commit(a=None, b=gone(world, "b"))
    inner = Content.of({"type": "ICEBERG_TABLE", "metadataLocation": world.write("inner"), "snapshotId": 1})
    puts = [Put(("ns", "a"), namespace_content(("ns", "a"))), Put(("ns", "a", "t"), inner)]
    world.catalog.commit("main", head, puts, "a namespace now")
    world.commit(c=world.write("c"))
    report = run(world)
    assert "ns.c" in report.published
    assert {"ns.a", "ns.b", "ns.a.t"} == {item.key for item in report.held}
    world.commit(b=world.write("b"))
    assert run(world).held == ()
    assert world.replica()["ns.a.t"].kind == "ICEBERG_TABLE"


def test_a_table_renamed_out_of_a_namespace_that_becomes_a_table(world: World):
    head = world.catalog.reference("main").hash
    content = Content.of({"type": "ICEBERG_TABLE", "metadataLocation": world.write("x"), "snapshotId": 1})
    puts = [Put(("n",), namespace_content(("n",))), Put(("n", "x"), content)]
    head = world.catalog.commit("main", head, puts, "a table in a namespace")
    run(world)
    moved = world.catalog.contents("main", head, [("n", "x")])[("n", "x")]
    head = world.catalog.commit("main", head, [Delete(("n", "x")), Put(("x2",), moved)], "rename")
    head = world.catalog.commit("main", head, [Delete(("n",))], "drop")
    world.catalog.commit("main", head, [Put(("n",), content.with_metadata_location(world.write("n")))], "a table now")
    assert run(world).held == ()
    assert {name: item.kind for name, item in world.replica().items()} == {"x2": "ICEBERG_TABLE", "n": "ICEBERG_TABLE"}
