"""A place that is kept out of a region: no key makes a copy of its files there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sterna.iceberg import LOCALIZER_VERSION
from sterna.replication.plan.options import SyncOptions
from sterna.replication.plan.planner import make_plan
from sterna.replication.replica.held import Held
from sterna.replication.sync.explain import explain
from sterna.replication.verify.run import verify_structure
from tests.support.small_world import World, localizer_version, ruled, run


def secret(world: World, **place: object) -> World:
    """The same world, where what lies in table `a`'s folder stays in us."""
    rule = place or {"prefixes": [f"file://{world.folder}/us/lake/a"]}
    return ruled(world, residency=[{**rule, "only": ["us"]}])


def here(world: World, *parts: str) -> set[str]:
    root = world.folder / "eu" / "replica"
    paths = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    return {path for path in paths if "report.json" not in path and any(part in path for part in parts)}


def contents(world: World, folder: str) -> set[bytes]:
    return {path.read_bytes() for path in (world.folder / folder).rglob("*") if path.is_file()}


def only_held(world: World) -> Held:
    (held,) = run(world).held
    return held


def test_the_same_metadata_under_another_key_is_not_copied(world: World) -> None:
    world = secret(world)
    location = world.write("a")
    world.commit(a=location)
    assert only_held(world).kind == "NotResident"
    world.commit(another=location, b=world.write("b"))
    report = run(world)
    assert {item.key for item in report.held if item.kind == "NotResident"} == {"ns.a", "ns.another"}
    held = report.held[0]
    assert held.file == location
    assert "only in us" in held.reason
    assert not here(world, "us-lake/a/")
    assert not contents(world, "us/lake/a") & contents(world, "eu/replica"), "nor read and kept"


def test_a_data_file_of_a_place_that_is_kept_out_holds_a_table_that_lies_elsewhere(world: World) -> None:
    world = secret(world)
    world.write("a")
    (data,) = (world.folder / "us/lake/a/data").glob("*.parquet")
    world.write("b")
    world.writer.load_table(("ns", "b")).add_files([f"file://{data}"])
    world.commit(b=world.writer.load_table(("ns", "b")).metadata_location)
    world.commit(c=world.write("c"))
    report = run(world)
    (held,) = report.held
    assert (held.key, held.kind, held.file) == ("ns.b", "NotResident", f"file://{data}")
    assert "ns.c" in world.replica()
    assert not here(world, "us-lake/a/", "us-lake/b/")


def test_a_whole_location_may_be_kept_out(world: World) -> None:
    world.commit(a=world.write("a"))
    held = only_held(secret(world, locations=["us-lake"]))
    assert (held.key, held.kind) == ("ns.a", "NotResident")
    assert "residency of location 'us-lake': only in us" in held.reason


def test_the_region_that_may_have_it_has_it(world: World) -> None:
    world = secret(world)
    world.commit(a=world.write("a"))
    assert run(world, "us").held == ()
    assert "ns.a" in world.replica("us")


def test_a_plan_names_what_is_kept_out_and_why(world: World) -> None:
    world = secret(world)
    world.commit(a=world.write("a"))
    context = world.context()
    explained = explain(context, *make_plan(context, SyncOptions()))
    (held,) = explained.held
    assert held.key == "ns.a"
    assert "only in us" in held.line
    assert held.file in held.line


def test_a_rule_that_came_later_is_found_by_verify_and_nothing_new_is_copied(world: World) -> None:
    world.commit(a=world.write("a"), b=world.write("b"))
    run(world)
    assert verify_structure(world.context()).findings == ()
    before = here(world, "us-lake/a/")
    world = secret(world)
    verified = verify_structure(world.context())
    assert {item.kind for item in verified.findings} == {"not resident"}
    assert verified.faults == 2, "copies, and what was localized"
    world.commit(a=world.write("a"))
    assert [(item.key, item.kind) for item in run(world).held] == [("ns.a", "NotResident")]
    assert here(world, "us-lake/a/") == before


def test_what_any_version_of_the_localizer_wrote_is_found(world: World) -> None:
    world.commit(a=world.write("a"))
    run(world)
    for version in (LOCALIZER_VERSION + 1, LOCALIZER_VERSION + 2):
        with localizer_version(version):
            run(world)
    verified = verify_structure(secret(world).context())
    assert {item.kind for item in verified.findings} == {"not resident"}
    assert verified.faults == 4, "copies, and what was localized three times"


def test_proof_from_before_a_rule_says_nothing_of_where_files_may_be(world: World) -> None:
    world.write("a")
    (data,) = (world.folder / "us/lake/a/data").glob("*.parquet")
    world.write("b")
    world.writer.load_table(("ns", "b")).add_files([f"file://{data}"])
    world.commit(b=world.writer.load_table(("ns", "b")).metadata_location)
    run(world)
    (held,) = run(secret(world)).held
    assert (held.key, held.file) == ("ns.b", f"file://{data}")


@pytest.mark.parametrize("name", ["owner.home", "write.object-storage.path"])
def test_a_property_that_names_such_a_place_holds_the_table(world: World, name: str) -> None:
    place = f"file://{world.folder}/us/lake/a"
    location = world.write("b")
    path = Path(location.removeprefix("file://"))
    document = json.loads(path.read_text())
    document["properties"][name] = place
    path.write_text(json.dumps(document))
    world.commit(b=location)
    assert only_held(secret(world)).kind == "NotResident"
