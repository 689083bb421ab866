"""What a client may not do through an address, tried by one that lies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sterna.config.near_places import Places
from sterna.config.registry.model import Registry
from sterna.errors import BadUpdate, Forbidden
from sterna.replication.replica.region import RegionContext
from sterna.serving.rest_catalog.rules import (
    ReservedPlaces,
    Rights,
    reject_forbidden_updates,
    reject_moved_table,
    reject_protected_properties,
    reject_protected_updates,
    reject_replica_uris,
    require_own_location,
    require_own_write_paths,
    require_readable_everywhere,
    require_replicated,
)
from tests.support.small_world import make_world, no_secrets

AWAY = Places("s3://eu-lake/near/x", "s3://eu-lake/near/x/data", "s3://eu-lake/near/x/metadata")


def snapshot(operation: str, **summary: str) -> dict[str, Any]:
    return {"action": "add-snapshot", "snapshot": {"summary": {"operation": operation, **summary}}}


@pytest.fixture
def context(tmp_path: Path) -> RegionContext:
    return make_world(tmp_path).context()


@pytest.mark.parametrize(
    "update",
    [{"action": "remove-snapshots", "snapshot-ids": [1]}, {"action": "remove-snapshots"}],
)
def test_only_maintenance_removes_snapshots(update: dict[str, Any]) -> None:
    with pytest.raises(Forbidden, match="maintenance") as caught:
        reject_forbidden_updates([update], Rights(), None)
    assert caught.value.status == 403
    reject_forbidden_updates([update], Rights(expire=True), None)


@pytest.mark.parametrize("ref", ["main", "tag"])
def test_a_table_may_be_replaced_and_a_tag_dropped(ref: str) -> None:
    reject_forbidden_updates([{"action": "remove-snapshot-ref", "ref-name": ref}], Rights(), AWAY)


@pytest.mark.parametrize(
    ("metadata", "location"),
    [("{root}/us-lake/t/1.metadata.json", "{lake}/t"), ("{lake}/t/1.metadata.json", "{root}/us-lake/t")],
)
def test_a_table_below_a_replica_root_is_left_alone(context: RegionContext, metadata: str, location: str) -> None:
    folders = {"root": context.region.replica_root, "lake": context.registry.locations[0].prefix}
    with pytest.raises(Forbidden, match="promotion"):
        reject_moved_table(context.mapping, metadata.format(**folders), {"location": location.format(**folders)})
    reject_moved_table(context.mapping, f"{folders['lake']}/1.metadata.json", {"location": folders["lake"]})


def test_compaction_from_away_needs_a_right() -> None:
    compaction = snapshot("replace", **{"added-data-files": "1", "deleted-data-files": "9"})
    with pytest.raises(Forbidden, match="born in"):
        reject_forbidden_updates([compaction], Rights(), AWAY)
    reject_forbidden_updates([compaction], Rights(compact=True), AWAY)
    reject_forbidden_updates([compaction], Rights(), None)


@pytest.mark.parametrize(
    "update",
    [
        snapshot("replace", **{"manifests-created": "1", "added-data-files": "0"}),
        snapshot("overwrite", **{"added-data-files": "1", "deleted-data-files": "9"}),
        {"action": "add-snapshot", "snapshot": []},
        {"action": "add-snapshot", "snapshot": {"summary": "replace"}},
    ],
)
def test_other_commits_from_away_need_none(update: dict[str, Any]) -> None:
    reject_forbidden_updates([update], Rights(), AWAY)


@pytest.mark.parametrize(
    ("properties", "removals"),
    [({"sterna.applied.x": "2"}, []), ({"sterna.new": ""}, []), ({}, ["sterna.applied.x"])],
)
def test_sternas_own_properties_stay_as_they_are(properties: dict[str, str], removals: list[str]) -> None:
    with pytest.raises(Forbidden, match="sterna's own"):
        reject_protected_properties(properties, removals, {"sterna.applied.x": "1"})
    with pytest.raises(Forbidden, match="sterna's own"):
        updates = [{"action": "set-properties", "updates": properties}, {"removals": removals}]
        reject_protected_updates(updates, {"sterna.applied.x": "1"})


def test_a_property_that_is_sent_back_as_it_is_doesnt_matter() -> None:
    reject_protected_properties({"sterna.applied.x": "1", "other": "2"}, ["another"], {"sterna.applied.x": "1"})


def test_no_snapshot_takes_itself_for_maintenances() -> None:
    with pytest.raises(Forbidden, match=r"sterna\.upkeep"):
        reject_protected_updates([snapshot("append", **{"sterna.upkeep": "x"})], {})


@pytest.mark.parametrize(
    "document",
    ["{root}/us-lake/t", [{"a": {"b": ["{root}/x"]}}], {"updates": {"write.data.path": "{root}"}}],
)
def test_no_uri_of_a_replica_gets_through(context: RegionContext, document: Any) -> None:
    def filled(part: Any) -> Any:
        if isinstance(part, str):
            return part.replace("{root}", context.registry.region("us").replica_root)
        if isinstance(part, list):
            return [filled(element) for element in part]
        return {name: filled(value) for name, value in part.items()}

    with pytest.raises(BadUpdate, match="replica"):
        reject_replica_uris(context.mapping, filled(document))


def test_other_texts_get_through(context: RegionContext, tmp_path: Path) -> None:
    reject_replica_uris(context.mapping, [1, None, {"a": f"file://{tmp_path}/eu/lake/t", "b": ["replica"]}])


@pytest.mark.parametrize(
    "location",
    [
        None,
        "",
        "file://{world}/us/lake/t",
        "file://{world}/eu/replica/t",
        "file://{world}/eu/lake",
        "file://{world}/eu/lake/near",
        "file://{world}/eu/lake/near/x",
        "file://{world}/eu/lake/earlier/near/x",
        "file://{world}/eu/lake/earlier",
        "file://{world}/eu/lake/uploads/x",
        "file://{world}/eu/lake/_sterna/rest/x",
        "file://{world}/eu/lake/x/_sterna",
        "file://{world}/eu/lake/../../us/lake/t",
        "s3://elsewhere/t",
    ],
)
def test_a_new_table_is_in_the_regions_own_place(context: RegionContext, tmp_path: Path, location: str | None) -> None:
    with pytest.raises(BadUpdate):
        require_own_location(context, reserved(tmp_path), location and location.format(world=tmp_path))


def reserved(folder: Path) -> ReservedPlaces:
    lake = f"file://{folder}/eu/lake"
    return ReservedPlaces((lake, f"{lake}/earlier"), (f"{lake}/uploads",))


def test_a_place_is_reserved_in_every_spelling() -> None:
    places = ReservedPlaces(("s3://eu/lake",), ("s3a://eu/uploads",))
    for scheme in ("s3", "s3a", "s3n"):
        for folder in ("eu/lake/near", "eu/lake/near/x", "eu/lake", "eu", "eu/lake/_sterna/x", "eu/uploads/x"):
            assert places.contain(f"{scheme}://{folder}"), (scheme, folder)
        for folder in ("eu/lake/nearby", "eu/uploads2", "eu/t"):
            assert not places.contain(f"{scheme}://{folder}"), (scheme, folder)


def test_no_table_is_around_a_replica_or_an_inbox() -> None:
    """What cleans up a table's location would take what is in it."""
    places = ReservedPlaces(("s3://near/lake",), ("s3://eu/lake/uploads/x",), ("s3://eu/replica",))
    for folder in ("s3://eu", "s3a://eu/lake", "s3://eu/lake/uploads", "s3://eu/replica", "s3://near"):
        assert places.contain(folder), folder
    for folder in ("s3://eu/replicas", "s3://eu/lake/t", "s3://near/lake/t"):
        assert not places.contain(folder), folder


def test_no_write_path_leads_into_a_reserved_place(context: RegionContext, tmp_path: Path) -> None:
    lake = f"file://{tmp_path}/eu/lake"
    for location in (lake, f"{lake}/t"):
        require_own_write_paths(context, reserved(tmp_path), ("t",), location, {"write.data.path": f"{lake}/t/data"})
        for place in ("near/x", "earlier/near/x", "uploads/x", "_sterna/rest/x"):
            with pytest.raises(BadUpdate):
                path = {"write.data.path": f"{lake}/{place}"}
                require_own_write_paths(context, reserved(tmp_path), ("t",), location, path)


def test_a_new_table_may_be_elsewhere_in_the_region(context: RegionContext, tmp_path: Path) -> None:
    lake = f"file://{tmp_path}/eu/lake"
    assert require_own_location(context, reserved(tmp_path), f"{lake}/ns/t/") == f"{lake}/ns/t"


def with_rules(context: RegionContext, **rules: Any) -> RegionContext:
    registry = Registry.model_validate({**context.registry.model_dump(mode="json", by_alias=True), **rules})
    return RegionContext.of(registry, registry.region("eu"), no_secrets)


def test_what_a_policy_keeps_away_isnt_made(context: RegionContext) -> None:
    ruled = with_rules(context, policies=[{"tables": ["ns.secret"], "replicate": False}])
    with pytest.raises(Forbidden, match="replicate is false"):
        require_replicated(ruled, ("ns", "secret"))
    require_replicated(ruled, ("ns", "other"))


def test_a_commit_from_here_must_not_hold_the_table_elsewhere(context: RegionContext, tmp_path: Path) -> None:
    near = f"file://{tmp_path}/eu/lake/near/x"
    require_readable_everywhere(context, ("ns", "t"), [near])
    ruled = with_rules(context, residency=[{"locations": ["eu-lake"], "only": ["eu"]}])
    with pytest.raises(Forbidden):
        require_readable_everywhere(ruled, ("ns", "t"), [near])
    with pytest.raises(BadUpdate):
        require_readable_everywhere(context, ("ns", "t"), ["s3://elsewhere/x"])
