"""Where a region's clients write, and that `main` gets none of it."""

from __future__ import annotations

from typing import Any

import pytest

from sterna.config.mapping import Mapping
from sterna.config.near_places import Places
from sterna.config.registry.model import Registry
from sterna.serving.rest_catalog.overlay import overlay, served_metadata, strip_overlay
from tests.unit.config.samples import content, mapping

UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
NEAR = f"s3://eu-bucket/lake/near/{UUID}"
NEAR_ROOT = "s3://eu-bucket/lake"
PLACES = Places(NEAR, f"{NEAR}/data", f"{NEAR}/metadata")


def table(location: str, **properties: str) -> dict[str, Any]:
    return {"table-uuid": UUID, "location": location, "properties": properties, "unknown": [1]}


def test_a_table_that_was_born_elsewhere_is_written_near() -> None:
    served = served_metadata(
        table("s3://eu-bucket/replica/us/t", **{"write.data.path": "s3://eu-bucket/replica/us/d", "a": "b"}),
        mapping(),
        NEAR_ROOT,
    )
    assert served == {
        "table-uuid": UUID,
        "location": NEAR,
        "properties": {
            "write.data.path": f"{NEAR}/data",
            "write.metadata.path": f"{NEAR}/metadata",
            "gc.enabled": "false",
            "a": "b",
        },
        "unknown": [1],
    }


def test_what_would_take_files_elsewhere_is_left_out() -> None:
    elsewhere = {
        "write.object-storage.path": "s3://us-bucket/o",
        "write.folder-storage.path": "s3://us-bucket/f",
        "write.location-provider.impl": "com.example.Provider",
    }
    served = overlay(table("s3://eu-bucket/replica/us/t", **elsewhere), PLACES)
    assert set(served["properties"]) == {"write.data.path", "write.metadata.path", "gc.enabled"}


def test_a_table_that_was_born_here_has_its_own_places() -> None:
    localized = table(
        "s3://eu-bucket/replica/eu/t",
        **{"write.data.path": "s3://eu-bucket/replica/eu/t/d", "gc.enabled": "false", "note": "s3://eu-bucket/replica"},
    )
    served = served_metadata(localized, mapping(), NEAR_ROOT)
    assert served["location"] == "s3://eu-bucket/t"
    assert served["properties"] == {
        "write.data.path": "s3://eu-bucket/t/d",
        "gc.enabled": "false",
        "note": "s3://eu-bucket/replica",
    }


def test_a_table_of_this_region_that_others_wrote_to_is_written_near() -> None:
    localized = table("s3://eu-bucket/replica/eu/t")
    for uri, location in (("s3://eu-bucket/t/m/l.avro", "s3://eu-bucket/t"), ("s3://eu-bucket/replica/l.avro", NEAR)):
        served = served_metadata({**localized, "snapshots": [{"manifest-list": uri}]}, mapping(), NEAR_ROOT)
        assert served["location"] == location
        assert served["properties"].get("write.data.path") == (PLACES.data_path if location == NEAR else None)


def test_a_table_of_this_region_stays_where_it_is_if_another_region_may_not_have_what_is_near() -> None:
    rules = {"residency": [{"prefixes": [f"{NEAR_ROOT}/near"], "never": ["us"]}]}
    registry = Registry.model_validate(content() | rules)
    localized = table("s3://eu-bucket/replica/eu/t") | {
        "snapshots": [{"manifest-list": "s3://eu-bucket/replica/l.avro"}]
    }
    served = served_metadata(localized, Mapping(registry, registry.region("eu")), NEAR_ROOT)
    assert served["location"] == "s3://eu-bucket/t"
    assert "write.data.path" not in served["properties"]


@pytest.mark.parametrize("places", [None, PLACES])
def test_no_client_deletes_earlier_metadata_files_after_its_commit(places: Places | None) -> None:
    name = "write.metadata.delete-after-commit.enabled"
    assert overlay(table("s3://eu-bucket/t", **{name: "true"}), places)["properties"][name] == "false"
    assert name not in overlay(table("s3://eu-bucket/t"), places)["properties"]


def test_what_a_table_of_this_region_was_served_with_reaches_main_by_no_update() -> None:
    updates: list[dict[str, Any]] = [
        {"action": "set-location", "location": NEAR},
        {"action": "set-location", "location": "s3://eu-bucket/t"},
        {"action": "set-properties", "updates": {"write.data.path": PLACES.data_path, "owner": "me"}},
        {"action": "set-properties", "updates": {"write.data.path": "s3://eu-bucket/d"}},
    ]
    assert strip_overlay(updates, None, table("s3://eu-bucket/t"), [PLACES]) == [
        {"action": "set-properties", "updates": {"owner": "me"}},
        {"action": "set-properties", "updates": {"write.data.path": "s3://eu-bucket/d"}},
    ]


def test_overlaid_properties_reach_main_by_no_update() -> None:
    updates = [
        {"action": "set-properties", "updates": {"write.data.path": "x", "gc.enabled": "false", "owner": "me"}},
        {"action": "set-properties", "updates": {"write.metadata.path": "x"}},
        {"action": "remove-properties", "removals": ["write.data.path", "owner"]},
        {"action": "remove-properties", "removals": ["gc.enabled"]},
        {"action": "set-location", "location": f"{NEAR}/"},
        {"action": "add-snapshot", "snapshot": {}},
    ]
    assert strip_overlay(updates, PLACES, table("s3://us-bucket/t")) == [
        {"action": "set-properties", "updates": {"owner": "me"}},
        {"action": "remove-properties", "removals": ["owner"]},
        {"action": "add-snapshot", "snapshot": {}},
    ]


@pytest.mark.parametrize("places", [PLACES, None])
def test_what_was_served_by_an_earlier_location_reaches_main_neither(places: Places | None) -> None:
    earlier = Places("s3://eu-bucket/old", "s3://eu-bucket/old/data", "s3://eu-bucket/old/metadata")
    paths = {"write.data.path": earlier.data_path, "write.metadata.path": earlier.metadata_path}
    updates = [
        {"action": "set-location", "location": earlier.location},
        {"action": "set-properties", "updates": {**paths, "owner": "me"}},
    ]
    expected = [{"action": "set-properties", "updates": {"owner": "me"}}]
    assert strip_overlay(updates, places, table("s3://eu-bucket/t"), [PLACES, earlier]) == expected


def test_a_location_that_was_not_served_is_left_to_whoever_judges_it() -> None:
    other = {"action": "set-location", "location": "s3://us-bucket/other"}
    assert strip_overlay([other], PLACES, table("s3://us-bucket/t")) == [other]
    assert strip_overlay([other], None, {}) == [other]


def test_a_table_that_was_born_here_keeps_the_write_paths_that_a_client_sets() -> None:
    own = table("s3://eu-bucket/t")
    updates = [
        {"action": "set-properties", "updates": {"write.data.path": "s3://eu-bucket/d", "gc.enabled": "false"}},
        {"action": "set-location", "location": "s3://eu-bucket/t"},
    ]
    assert strip_overlay(updates, None, own) == [
        {"action": "set-properties", "updates": {"write.data.path": "s3://eu-bucket/d"}}
    ]


@pytest.mark.parametrize("update", [{"action": "set-properties"}, {"action": "set-properties", "updates": {}}, {}])
def test_an_odd_update_is_left_to_whoever_applies_it(update: dict[str, Any]) -> None:
    assert strip_overlay([update], PLACES, {}) == [update]
