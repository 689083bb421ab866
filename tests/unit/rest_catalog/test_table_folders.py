"""What a client may do where: its table's files, and no other's, and nothing that `main` or a replica names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from sterna.config.sections.model import Services
from sterna.errors import Forbidden
from sterna.serving.rest_catalog.table_folders import (
    FolderAccess,
    NearRoots,
    all_near_roots,
    new_table_folders,
    table_folders,
)
from tests.unit.config.samples import mapping

US, EU = UUID(int=1 << 96), UUID(int=2 << 96)
EARLIER = "s3://eu-bucket/earlier"
ROOTS = NearRoots(("s3://eu-bucket/lake", EARLIER), ("s3://us-bucket/lake",))
KEY = ("ns", "t")
REPLICA = "s3://eu-bucket/replica"


def metadata(location: str, uuid: UUID, **properties: str) -> dict[str, Any]:
    return {"location": location, "table-uuid": str(uuid), "properties": properties}


BORN_IN_US = metadata(f"{REPLICA}/us/lake/t", US)
BORN_IN_EU = metadata(f"{REPLICA}/eu/lake/ns/own", EU, **{"write.data.path": f"{REPLICA}/eu/data/own"})


def access(document: dict[str, Any], *hidden: dict[str, Any], may_write: bool = True) -> FolderAccess:
    folders = [table_folders(mapping(), ROOTS, KEY, document)]
    folders += [table_folders(mapping(), ROOTS, ("ns", f"hidden{number}"), one) for number, one in enumerate(hidden)]
    return FolderAccess(mapping(), folders[0], tuple(folders[1:]), may_write, is_restricted=bool(hidden))


READ_IN_EU = [
    f"{REPLICA}/us/lake/t/data/a.parquet",
    f"{REPLICA}/_localized/_7/us/lake/t/metadata/00001-a.metadata.json",
    f"{REPLICA}/_localized/us/lake/_sterna/rest/{US}/metadata/m.avro",
    f"{REPLICA}/us/lake/near/{US}/data/a.parquet",
    f"s3://eu-bucket/lake/near/{US}/data/a.parquet",
    f"s3://eu-bucket/lake/_sterna/rest/{US}/metadata/m.avro",
    f"{EARLIER}/near/{US}/data/a.parquet",
    f"{EARLIER}/near/ns.t-{str(US)[:8]}/a.parquet",
    f"{EARLIER}/_sterna/rest/{US}/metadata/m.avro",
]


@pytest.mark.parametrize("uri", READ_IN_EU)
@pytest.mark.parametrize("hidden", [(), (BORN_IN_EU,)])
def test_a_table_is_read_wherever_its_files_come_from(uri: str, hidden: Any) -> None:
    access(BORN_IN_US, *hidden, may_write=False).require_readable(uri)


def test_a_copy_from_elsewhere_is_read_where_nothing_may_be_hidden() -> None:
    uri = f"{REPLICA}/us/added/a.parquet"
    access(BORN_IN_US).require_readable(uri)
    for client in (access(BORN_IN_US, BORN_IN_EU), replace(access(BORN_IN_US), is_restricted=True)):
        with pytest.raises(Forbidden, match="no folder of this table"):
            client.require_readable(uri)


@pytest.mark.parametrize(
    "uri",
    [
        "s3://eu-bucket/lake/ns/own/data/a.parquet",
        "s3://eu-bucket/lake/near/x.parquet",
        f"s3://eu-bucket/lake/near/{EU}/data/a.parquet",
        f"s3://eu-bucket/lake/_sterna/rest/{EU}/metadata/m.avro",
        f"{REPLICA}/_sterna/runs/1/plan.json",
        f"{REPLICA}/_sterna/verbatim/us/lake/t/metadata/m.avro",
        f"{REPLICA}/_localized/_7/_sterna/verbatim/us/lake/t/metadata/m.avro",
        "s3://eu-bucket/lake/_sterna/m.avro",
        f"{EARLIER}/near/ns.other-{str(US)[:8]}/a.parquet",
        f"{REPLICA}/nothing/a.parquet",
        f"{REPLICA}/a.parquet",
        "s3://us-bucket/replica/eu/lake/ns/own/data/a.parquet",
        "s3://us-bucket/lake/t/data/a.parquet",
    ],
)
def test_files_of_others_are_not_read(uri: str) -> None:
    with pytest.raises(Forbidden):
        access(BORN_IN_US).require_readable(uri)


def test_a_hidden_table_is_not_read_through_one_that_lies_over_it() -> None:
    for location in (f"{REPLICA}/eu/lake/ns", f"{REPLICA}/eu/lake/ns/own", f"{REPLICA}/eu/lake/ns/own/data"):
        client = access(metadata(location, UUID(int=3)), BORN_IN_EU)
        for uri in ("s3://eu-bucket/lake/ns/own/data/a.parquet", f"{REPLICA}/_localized/eu/lake/ns/own/data/m.avro"):
            with pytest.raises(Forbidden, match="may not see"):
                client.require_readable(uri)
        with pytest.raises(Forbidden):
            client.require_listable("s3://eu-bucket/lake/ns/")
        with pytest.raises(Forbidden):
            client.require_listable("s3://eu-bucket/lake/ns/ow")


def test_a_copy_belongs_to_its_table_in_every_spelling_of_a_location() -> None:
    spelled = mapping().replica_folder("s3a://us-bucket/lake/t")
    assert spelled != f"{REPLICA}/us/lake/t"
    for location in (spelled, f"{REPLICA}/us/lake/t"):
        for folder in (spelled, f"{REPLICA}/us/lake/t"):
            access(metadata(location, US), BORN_IN_EU).require_readable(f"{folder}/data/a.parquet")
            access(metadata(location, US), BORN_IN_EU).require_listable(f"{folder}/data/")
            with pytest.raises(Forbidden, match="may not see"):
                access(BORN_IN_EU, metadata(location, US)).require_readable(f"{folder}/data/a.parquet")
            with pytest.raises(Forbidden):
                access(BORN_IN_EU, metadata(location, US)).require_listable(f"{folder.rpartition('/')[0]}/")


def test_a_table_that_has_a_whole_location_hides_all_of_it() -> None:
    for location in ("s3://eu-bucket", "s3://eu-bucket/", "s3a://eu-bucket"):
        bucket = metadata(location, UUID(int=4))
        with pytest.raises(Forbidden, match="may not see"):
            access(BORN_IN_EU, bucket).require_readable("s3://eu-bucket/lake/ns/own/data/a.parquet")
        access(bucket).require_readable("s3://eu-bucket/lake/ns/own/data/a.parquet")
        with pytest.raises(Forbidden, match="clients of this table write"):
            access(bucket).require_writable("s3://eu-bucket/a.parquet")


def test_a_table_that_is_not_replicated_is_not_read_through_one_that_lies_over_it() -> None:
    own = access(BORN_IN_EU).folders
    over = replace(access(metadata(f"{REPLICA}/eu/lake/ns", UUID(int=3))), hidden=(own,))
    with pytest.raises(Forbidden, match="may not see"):
        over.require_readable("s3://eu-bucket/lake/ns/own/data/a.parquet")
    with pytest.raises(Forbidden):
        over.require_listable("s3://eu-bucket/lake/ns/")
    over.require_readable("s3://eu-bucket/lake/ns/other/data/a.parquet")
    over.require_readable(f"{REPLICA}/us/added/a.parquet")


def test_names_are_listed_in_own_folders_alone() -> None:
    client = access(BORN_IN_US)
    client.require_listable(f"s3://eu-bucket/lake/near/{US}/")
    client.require_listable(f"{REPLICA}/us/lake/t/data/")
    for prefix in (
        f"s3://eu-bucket/lake/near/{US}",
        "s3://eu-bucket/lake/",
        f"{REPLICA}/us/lake/",
        f"{REPLICA}/us/lake/t",
    ):
        with pytest.raises(Forbidden):
            client.require_listable(prefix)


def test_a_writer_writes_where_the_table_is_written_here() -> None:
    for root in ROOTS.own:
        for table, uuid in ((BORN_IN_US, US), (BORN_IN_EU, EU)):
            access(table).require_writable(f"{root}/near/{uuid}/data/a.parquet")
    access(BORN_IN_EU).require_writable("s3://eu-bucket/lake/ns/own/metadata/a.avro")
    access(BORN_IN_EU).require_writable("s3://eu-bucket/data/own/a.parquet")


@pytest.mark.parametrize(
    "document", [BORN_IN_US, BORN_IN_EU, metadata("s3://eu-bucket", EU), metadata("s3://eu-bucket/lake", EU)]
)
@pytest.mark.parametrize(
    "uri",
    [
        f"{REPLICA}/us/lake/t/data/a.parquet",
        f"{REPLICA}/_localized/us/lake/t/m.avro",
        f"{REPLICA}/eu/lake/ns/own/data/a.parquet",
        f"s3://eu-bucket/lake/_sterna/rest/{US}/metadata/m.avro",
        f"s3://eu-bucket/lake/_sterna/rest/{EU}/metadata/m.avro",
        f"{EARLIER}/_sterna/rest/{US}/metadata/m.avro",
        f"{EARLIER}/near/ns.t-{str(US)[:8]}/a.parquet",
        f"{REPLICA}/_sterna/verbatim/us/lake/t/metadata/m.avro",
        f"s3://eu-bucket/lake/near/{UUID(int=9)}/data/a.parquet",
        "s3://eu-bucket/other/a.parquet",
        "s3://us-bucket/lake/t/data/a.parquet",
    ],
)
def test_nobody_writes_or_deletes_elsewhere(document: dict[str, Any], uri: str) -> None:
    client = access(document)
    with pytest.raises(Forbidden):
        client.require_writable(uri)
    with pytest.raises(Forbidden):
        client.require_deletable(uri)


def test_a_reader_writes_and_deletes_nothing() -> None:
    client = access(BORN_IN_US, may_write=False)
    for uri in READ_IN_EU:
        with pytest.raises(Forbidden, match="roles may not write"):
            client.require_writable(uri)
        with pytest.raises(Forbidden, match="roles may not write"):
            client.require_deletable(uri)


def test_a_client_deletes_its_own_manifests_and_nothing_that_a_table_may_name() -> None:
    client = access(BORN_IN_US)
    near = f"s3://eu-bucket/lake/near/{US}"
    client.require_deletable(f"{near}/metadata/snap-1.avro")
    for uri in (f"{near}/data/a.parquet", f"{near}/data/a.avro", f"{near}/metadata/s.stats", f"{near}/metadata"):
        with pytest.raises(Forbidden):
            client.require_deletable(uri)
    access(BORN_IN_EU).require_deletable(f"s3://eu-bucket/lake/near/{EU}/metadata/snap-1.avro")
    own = "s3://eu-bucket/lake/ns/own/metadata/snap-1.avro"
    for document, uri in (
        (BORN_IN_EU, own),
        (BORN_IN_US, f"{EARLIER}/near/{US}/metadata/snap-1.avro"),
        # Writers on `main` have their own manifests there.
        (metadata("s3://eu-bucket/lake", US), f"{near}/metadata/snap-1.avro"),
        (metadata(near, US), f"{near}/metadata/snap-1.avro"),
    ):
        with pytest.raises(Forbidden, match="maintenance"):
            access(document).require_deletable(uri)


@pytest.mark.parametrize("place", ["lake/ns", "lake/ns/own", "lake/ns/own/data"])
def test_nothing_is_written_among_files_of_a_table_that_is_hidden(place: str) -> None:
    own = access(BORN_IN_EU).folders
    over = access(metadata(f"{REPLICA}/eu/{place}", UUID(int=3)))
    uri = "s3://eu-bucket/lake/ns/own/data/b.parquet"
    over.require_writable(uri)
    with pytest.raises(Forbidden, match="may not see"):
        replace(over, hidden=(own,)).require_writable(uri)


@pytest.mark.parametrize("place", ["uploads", "uploads/t", "uploads/t/data"])
def test_nothing_is_read_or_written_in_an_inbox(place: str) -> None:
    over = access(metadata(f"{REPLICA}/eu/{place}", UUID(int=3)))
    client = replace(over, inboxes=("s3://eu-bucket/uploads/t",))
    uri, folder = "s3://eu-bucket/uploads/t/data/b.parquet", f"s3://eu-bucket/{place}/"
    for require, target in (
        (over.require_readable, uri),
        (over.require_writable, uri),
        (over.require_listable, folder),
    ):
        require(target)
        with pytest.raises(Forbidden, match="inbox"):
            getattr(client, require.__name__)(target)
    with pytest.raises(Forbidden, match="inbox"):
        client.require_readable(f"{REPLICA}/eu/uploads/t/data/b.parquet")


def test_the_inboxes_of_all_regions_are_known_by_the_registrys_spelling() -> None:
    eu = {"inbox": "s3a://eu-bucket/in", "listed": [{"prefix": "s3://eu-bucket/drop", "table": "ns.t"}]}
    regions: dict[str, dict[str, Any]] = {"eu": eu, "us": {"inbox": "s3://us-bucket/in"}}
    for settings in regions.values():
        settings["database"] = {"credential_id": "x"}
    ingest = {"regions": regions, "tenants": {"a": {"namespaces": ["ns"]}}, "tables": [{"match": "ns.*"}]}
    roots = all_near_roots(mapping(), Services.model_validate({"ingest": ingest}))
    assert sorted(roots.inboxes) == ["s3://eu-bucket/drop", "s3://eu-bucket/in", "s3://us-bucket/in"]


def test_a_table_that_is_staged_is_written_to_its_own_folder() -> None:
    client = FolderAccess(mapping(), new_table_folders(mapping(), ROOTS, ("n s", "t")), may_write=True)
    own = f"s3://eu-bucket/lake/n_s/t-{UUID(int=7)}"
    client.require_writable(f"{own}/data/a.parquet")
    client.require_readable(f"{own}/data/a.parquet")
    client.require_listable(f"{own}/")
    for uri in (
        f"s3://eu-bucket/lake/n_s/t-{UUID(int=7)}",
        f"s3://eu-bucket/lake/n_s/t2-{UUID(int=7)}/data/a.parquet",
        "s3://eu-bucket/lake/n_s/t-x/data/a.parquet",
        f"{REPLICA}/eu/lake/n_s/t-{UUID(int=7)}/data/a.parquet",
        f"{own}/_sterna/rest/a.avro",
    ):
        with pytest.raises(Forbidden):
            client.require_writable(uri)
    with pytest.raises(Forbidden):
        client.require_deletable(f"{own}/metadata/a.avro")
    near = FolderAccess(mapping(), new_table_folders(mapping(), ROOTS, ("near", "t")), may_write=True)
    with pytest.raises(Forbidden):
        near.require_writable(f"s3://eu-bucket/lake/near/t-{UUID(int=7)}/data/a.parquet")
    roots = NearRoots(ROOTS.own, inboxes=("s3://eu-bucket/lake/inbox",))
    inbox = FolderAccess(mapping(), new_table_folders(mapping(), roots, ("inbox", "t")), may_write=True)
    inbox.require_writable(f"s3://eu-bucket/lake/inbox_/t-{UUID(int=7)}/data/a.parquet")
