"""Where a region's writers put files of tables that were born elsewhere: one folder a table, and those of before."""

from __future__ import annotations

from typing import Any

import pytest

from sterna.config.near_places import (
    Places,
    accepted_folders,
    address_root,
    is_writers_place,
    near_places,
    near_roots,
    region_places,
    regional_data_path,
)
from sterna.config.sections.model import Services
from sterna.errors import BrokenMetadata, UnregisteredUri
from tests.unit.config.samples import mapping

UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
NEAR = f"s3://eu-bucket/lake/near/{UUID}"
NEAR_ROOT = "s3://eu-bucket/lake"
PLACES = Places(NEAR, f"{NEAR}/data", f"{NEAR}/metadata")


def table(location: str, **properties: str) -> dict[str, Any]:
    return {"table-uuid": UUID, "location": location, "properties": properties}


@pytest.mark.parametrize(
    ("on_main", "localized"),
    [
        ("s3://us-bucket/t", "s3://eu-bucket/replica/us/t"),
        ("s3://us-bucket/t/", "s3://eu-bucket/replica/us/t/"),
        ("s3://eu-bucket/t", "s3://eu-bucket/replica/eu/t"),
        ("s3://eu-bucket/replica/us/t", "s3://eu-bucket/replica/us/t"),  # after a promotion with tables
        ("s3://us-bucket/replica/eu/t", "s3://eu-bucket/replica/eu/t"),
    ],
)
@pytest.mark.parametrize("missing_uuid", [False, True])
def test_main_and_the_replica_lead_to_the_same_places(on_main: str, localized: str, missing_uuid: bool) -> None:
    absent = {"table-uuid": None} if missing_uuid else {}
    assert region_places(mapping(), NEAR_ROOT, table(on_main) | absent) == region_places(
        mapping(), NEAR_ROOT, table(localized) | absent
    )


def test_one_write_path_elsewhere_makes_all_of_a_table_near() -> None:
    assert region_places(mapping(), NEAR_ROOT, table("s3://eu-bucket/t")) is None
    written = table("s3://eu-bucket/t", **{"write.data.path": "s3://us-bucket/d"})
    assert region_places(mapping(), NEAR_ROOT, written) == PLACES
    assert region_places(mapping(), NEAR_ROOT, table("s3://nowhere/t")) == PLACES


@pytest.mark.parametrize("text", ["../../other", "", "not a uuid", "s3://x"])
def test_a_uuid_that_is_none_makes_no_folder(text: str) -> None:
    with pytest.raises(BrokenMetadata, match="UUID"):
        near_places(NEAR_ROOT, text)


@pytest.mark.parametrize(
    ("location", "properties", "expected"),
    [
        ("s3://us-bucket/t", {}, PLACES.data_path),
        ("s3://eu-bucket/t", {}, ""),
        ("s3://eu-bucket/t", {"write.data.path": "s3://us-bucket/d"}, PLACES.data_path),
        ("s3://eu-bucket/t", {"write.object-storage.path": "s3://us-bucket/d"}, PLACES.data_path),
        ("s3://eu-bucket/replica/us/t", {}, PLACES.data_path),  # after promotions with tables
        ("s3://us-bucket/replica/eu/t", {}, PLACES.data_path),
        ("s3://eu-bucket/replica/eu/t", {}, PLACES.data_path),
    ],
)
def test_ingestion_has_the_places_of_the_address(location: str, properties: dict[str, str], expected: str) -> None:
    assert regional_data_path(mapping(), NEAR_ROOT, table(location, **properties)) == expected


def test_ingestion_refuses_a_table_in_no_location() -> None:
    with pytest.raises(UnregisteredUri):
        regional_data_path(mapping(), NEAR_ROOT, table("s3://nowhere/t"))


def test_every_place_that_a_table_ever_had_is_accepted() -> None:
    assert accepted_folders(mapping(), [NEAR_ROOT, "s3://eu-bucket/old/"], table("s3://us-bucket/t"), "ns.t") == (
        NEAR,
        "s3://eu-bucket/lake/near/ns.t-9c12d441",
        f"s3://eu-bucket/old/near/{UUID}",
        "s3://eu-bucket/old/near/ns.t-9c12d441",
    )


def test_the_present_location_comes_first_and_the_inboxs_last() -> None:
    address = {"location": "s3://eu-bucket/lake", "earlier_locations": ["s3://eu-bucket/old"]}
    ingest = {
        "regions": {"eu": {"inbox": "s3://eu-bucket/inbox", "database": {"credential_id": "x"}}},
        "tenants": {"a": {"namespaces": ["a"]}},
        "tables": [{"match": "a.*"}],
    }
    services = {"catalog": {"regions": {"eu": address}}, "ingest": ingest}
    both = Services.model_validate(services)
    assert near_roots(mapping(), both) == ("s3://eu-bucket/lake", "s3://eu-bucket/old", "s3://eu-bucket")
    assert near_roots(mapping(), Services.model_validate({"ingest": ingest})) == ("s3://eu-bucket",)
    assert near_roots(mapping(name="us"), both) == ()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"near/{UUID}/data/a=1/x.parquet", True),
        (f"near/{UUID}/x.avro", True),
        ("near/ns.t-9c12d441/x.parquet", True),
        (f"_sterna/rest/{UUID}/metadata/00001.metadata.json", True),
        (f"near/{UUID}", False),
        (f"near/{UUID.upper()}/x.parquet", False),
        ("near/x.parquet", False),
        ("near/mine/x.parquet", False),
        ("near/raw-9c12d441/x.parquet", False),
        ("_sterna/rest/ns.t-9c12d441/x.avro", False),
        (f"_sterna/runs/{UUID}/x.avro", False),
        (f"nearby/{UUID}/x.parquet", False),
        (f"deeper/near/{UUID}/x.parquet", False),
    ],
)
def test_only_a_tables_own_folder_is_a_place_of_writers(path: str, expected: bool) -> None:
    assert is_writers_place(f"{NEAR_ROOT}/{path}", ["s3://eu-bucket/other", NEAR_ROOT]) == expected


def test_the_address_writes_beside_it() -> None:
    assert address_root(f"{NEAR_ROOT}/") == "s3://eu-bucket/lake/_sterna/rest"
