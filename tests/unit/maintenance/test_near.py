"""A sweep of what a region's writers put near: files of tables that were born elsewhere, and the address's own."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sterna.config.orphan_removal import swept_folders, swept_roots
from sterna.config.sections.maintenance import Maintenance
from sterna.config.sections.model import Services
from sterna.errors import CatalogUnreachable, UnsafeUri, UpkeepBlocked, UsageError
from sterna.maintenance.tables.orphan_files import MainScope, sweep
from sterna.maintenance.tables.results import SweepReport
from sterna.serving.rest_catalog.commit import commit_tables
from sterna.serving.rest_catalog.rules import Rights
from sterna.serving.rest_catalog.table_commit import TableCommit
from tests.support import rest_address
from tests.support.gc import after
from tests.support.rest_address import AddressClient, address_of, read_json
from tests.support.small_world import World, make_world, ruled, run, with_registry

KEY = ("ns", "orders")


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A table of us, which is replicated to eu and us; no location is opted in."""
    made = make_world(tmp_path)
    made.commit(orders=made.write("orders"))
    synced(made)
    return made


@pytest.fixture
def client(world: World) -> AddressClient:
    """A client of eu that has appended once."""
    client = AddressClient(address_of(world))
    client.load_table(KEY).append(rows(10))
    synced(world)
    return client


def rows(first: int) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + 2), pa.int64())})


def synced(world: World) -> None:
    for region in world.registry.region_names:
        run(world, region)


def near_root(world: World) -> str:
    return f"file://{world.folder}/eu/lake"


def swept(world: World, now: datetime | None = None, *, delete: bool = True, **more: Any) -> SweepReport:
    """A sweep of eu, a day from now or then."""
    fields = {"tables": [{"match": ["**"]}], "keep_heads": "1h", "grace": "24h"}
    arguments = {"near_roots": [near_root(world)], **more}
    settings = Maintenance.model_validate(fields)
    return sweep(world.context("eu"), settings, delete=delete, now=now or after(hours=26), **arguments)


def swept_twice(world: World) -> SweepReport:
    swept(world, after(hours=2))
    return swept(world)


def lake_files(world: World) -> set[str]:
    lake = world.folder / "eu" / "lake"
    return {str(path.relative_to(lake)) for path in lake.rglob("*") if path.is_file()}


def stray(world: World, *paths: str) -> set[str]:
    """Files that nothing names."""
    for path in paths:
        file = world.folder / "eu" / "lake" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"nobody's")
    return set(paths)


def table_uuid(client: AddressClient) -> str:
    return str(client.load_table(KEY).metadata.table_uuid)


def ids(client: AddressClient) -> list[int]:
    return sorted(client.load_table(KEY).scan().to_arrow()["id"].to_pylist())


def main_uri(world: World) -> str:
    head = world.catalog.reference("main").hash
    return world.catalog.contents("main", head, [KEY])[KEY].metadata_location or ""


def test_what_nothing_names_goes_in_the_second_pass_and_all_else_stays(world: World, client: AddressClient) -> None:
    uuid = table_uuid(client)
    own_files = {path for path in lake_files(world) if path.startswith(f"near/{uuid}/metadata/")}
    assert own_files, "the client's manifest and list, which `main` doesn't name"
    lost = stray(
        world, f"near/{uuid}/data/lost.parquet", f"_sterna/rest/{uuid}/lost-m0.avro", "near/ns.t-0a1b2c3d/x.orc"
    )
    stray(
        world, "near/x.parquet", "near/raw/x.parquet", "_sterna/x/x.avro", "orders/x.parquet", f"near/{uuid}/note.txt"
    )
    before = lake_files(world)
    first = swept(world, after(hours=2))
    assert (first.deleted.files, first.locations) == (
        0,
        (f"{near_root(world)}/near", f"{near_root(world)}/_sterna/rest"),
    )
    shown = swept(world, delete=False)
    assert (shown.garbage.files, shown.strange.files) == (len(lost | own_files), 1)
    assert f"{near_root(world)}/near/{uuid}/data" in {folder.uri for folder in shown.folders}
    assert lake_files(world) == before
    assert swept(world).deleted.files == len(lost | own_files)
    assert before - lake_files(world) == lost | own_files
    assert ids(client) == [0, 1, 2, 10, 11]
    assert run(world, "us").outcome == "idle"


def test_a_file_younger_than_the_grace_stays(world: World, client: AddressClient) -> None:
    swept(world, after(hours=2))
    lost = stray(world, f"near/{table_uuid(client)}/data/lost.parquet")
    report = swept(world)
    assert (report.unreachable.files, report.left.files) == (3, 1), "an earlier pass didn't find it"
    assert lost < lake_files(world)
    swept(world, after(hours=1))
    assert lost < lake_files(world)


def test_a_dropped_tables_folders_go_once_no_region_and_no_tag_shows_it(world: World, client: AddressClient) -> None:
    uuid, shown = table_uuid(client), world.catalog.reference("main").hash
    folders = (f"near/{uuid}/data/", f"_sterna/rest/{uuid}/")
    files = {path for path in lake_files(world) if path.startswith(folders)}
    world.commit(orders=None)
    run(world, "eu")
    swept_twice(world)
    assert files <= lake_files(world), "us is behind: it needs what main showed since"
    world.catalog.create_tag("kept", "main", shown)
    run(world, "us")
    swept(world, after(days=2))
    swept(world, after(days=4))
    assert files <= lake_files(world), "a tag shows it"
    world.catalog.delete_tag("kept", shown)
    swept(world, after(days=6))
    swept(world, after(days=8))
    assert not {path for path in lake_files(world) if uuid in path}


def test_superseded_metadata_goes_once_main_and_its_log_name_it_no_more(world: World, client: AddressClient) -> None:
    with client.load_table(KEY).transaction() as transaction:
        transaction.set_properties({"write.metadata.previous-versions-max": "1"})
    superseded = main_uri(world)
    for first in (20, 30):
        client.load_table(KEY).append(rows(first))
    named = {entry["metadata-file"] for entry in read_json(main_uri(world))["metadata-log"]} | {main_uri(world)}
    synced(world)
    swept_twice(world)
    assert not Path(superseded.removeprefix("file://")).exists()
    assert all(Path(uri.removeprefix("file://")).exists() for uri in named)
    assert len(ids(client)) == 9


def test_what_a_branch_shows_stays(world: World, client: AddressClient) -> None:
    with client.load_table(KEY).manage_snapshots() as changes:
        changes.create_branch(client.load_table(KEY).metadata.current_snapshot_id or 0, "audit")
    client.load_table(KEY).append(rows(50), branch="audit")
    on_nessie = main_uri(world)
    world.catalog.create_branch("draft", world.catalog.reference("main").hash)
    synced(world)
    swept_twice(world)
    assert sorted(client.load_table(KEY).scan().use_ref("audit").to_arrow()["id"].to_pylist())[-2:] == [50, 51]
    assert Path(on_nessie.removeprefix("file://")).exists()


def written(client: AddressClient, monkeypatch: pytest.MonkeyPatch) -> TableCommit:
    """A commit whose files are written, and which isn't sent."""
    with monkeypatch.context() as patched:

        def unsent(*_: Any) -> None:
            raise CatalogUnreachable("not now")

        patched.setattr(rest_address, commit_tables.__name__, unsent)
        with pytest.raises(CatalogUnreachable):
            client.load_table(KEY).append(rows(70))
    return client.sent[-1]


@pytest.mark.parametrize("moment", ["between two passes", "before the deletion"])
def test_a_commit_meanwhile_keeps_its_files(
    world: World, client: AddressClient, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = written(client, monkeypatch)
    swept(world, after(hours=2))

    def send() -> None:
        commit_tables(client.address, [commit], Rights())

    if moment == "between two passes":
        send()
        synced(world)
        swept(world)
    else:
        real = MainScope.build_report

        def late(*arguments: Any, **options: Any) -> SweepReport:
            send()
            return real(*arguments, **options)

        monkeypatch.setattr(MainScope, MainScope.build_report.__name__, late)
        swept(world)
        synced(world)
    assert ids(client)[-2:] == [70, 71]


def test_a_commit_whose_file_is_gone_is_refused(
    world: World, client: AddressClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = written(client, monkeypatch)
    swept_twice(world)
    with pytest.raises(Exception, match="isn't there"):
        commit_tables(client.address, [commit], Rights())
    assert ids(client) == [0, 1, 2, 10, 11]


@pytest.mark.parametrize(
    "rules",
    [
        {"policies": [{"tables": ["ns.orders"], "replicate": False}]},
        {"residency": [{"tables": ["ns.orders"], "never": ["eu"]}]},
    ],
)
def test_what_a_table_names_that_is_kept_from_the_region_stays(
    world: World, client: AddressClient, rules: dict[str, Any]
) -> None:
    uuid = table_uuid(client)
    hidden = ruled(world, **rules)
    synced(hidden)
    assert "ns.orders" not in hidden.replica()
    named = {path for path in lake_files(world) if path.startswith((f"near/{uuid}/data/", f"_sterna/rest/{uuid}/"))}
    swept_twice(hidden)
    assert named <= lake_files(world)


def unread_metadata(world: World) -> None:
    Path(main_uri(world).removeprefix("file://")).unlink()


def unread_list(world: World) -> None:
    uri = read_json(main_uri(world))["snapshots"][0]["manifest-list"]
    Path(uri.removeprefix("file://")).unlink()


def never_synced(world: World) -> None:
    world.catalog.assign("main_replica_us", world.catalog.no_ancestor())


@pytest.mark.parametrize("harm", [unread_metadata, unread_list, never_synced])
def test_what_is_not_known_keeps_everything(world: World, client: AddressClient, harm: Callable[[World], None]) -> None:
    stray(world, f"near/{table_uuid(client)}/data/lost.parquet")
    swept(world, after(hours=2))
    harm(world)
    before = lake_files(world)
    with pytest.raises(UpkeepBlocked):
        swept(world)
    assert lake_files(world) == before


def test_an_opted_in_location_is_listed_once(world: World, client: AddressClient) -> None:
    locations = world.registry.model_dump(mode="json")["locations"]
    for location in locations:
        location["sweep"] = location["id"] == "eu-lake"
    opted_in = with_registry(world, locations=locations)
    lost = stray(
        world, f"near/{table_uuid(client)}/lost.parquet", f"_sterna/rest/{table_uuid(client)}/lost.avro", "a/x.orc"
    )
    stray(world, "_sterna/x.parquet")
    assert swept(opted_in, delete=False).locations == ("eu-lake",)
    swept_twice(opted_in)
    assert not lost & lake_files(world)
    assert "_sterna/x.parquet" in lake_files(world) and ids(client) == [0, 1, 2, 10, 11]


def test_an_inbox_in_it_stays(world: World, client: AddressClient) -> None:
    (lost,) = stray(world, f"near/{table_uuid(client)}/inbox/x.parquet")
    inbox = f"{near_root(world)}/near/{table_uuid(client)}/inbox"
    swept(world, after(hours=2), excluded_prefixes=[inbox])
    swept(world, excluded_prefixes=[inbox])
    assert lost in lake_files(world)


@pytest.mark.parametrize(
    "place",
    [
        "eu/lake/near/raw/x.parquet",
        "eu/lake/_sterna/rest/x.parquet",
        "eu/lake/orders/x.parquet",
        "us/lake/near/9c12d441-03fe-4693-9a96-a0705ddf69c1/x.parquet",
        "eu/replica/us-lake/near/9c12d441-03fe-4693-9a96-a0705ddf69c1/x.parquet",
    ],
)
def test_the_stores_themselves_refuse_to_sweep_elsewhere(world: World, place: str) -> None:
    roots = [near_root(world), f"file://{world.folder}/us/lake", f"file://{world.folder}/eu/replica/us-lake"]
    with pytest.raises(UnsafeUri):
        world.context("eu").objects.sweep([f"file://{world.folder}/{place}"], near_roots=roots)


def settings(location: str, earlier: Collection[str] = ()) -> Services:
    region = {"location": location, "earlier_locations": list(earlier), "sweep": True}
    return Services.model_validate({"catalog": {"regions": {"eu": region}}})


def test_an_address_is_swept_only_where_its_settings_say_so(world: World) -> None:
    """Another catalog may have tables' files in a folder of the same name."""
    services = Services.model_validate({"catalog": {"regions": {"eu": {"location": near_root(world)}}}})
    assert swept_roots(world.context("eu").mapping, services) == ()


def test_locations_of_before_are_swept_too(world: World, client: AddressClient) -> None:
    mapping, root = world.context("eu").mapping, near_root(world)
    roots = swept_roots(mapping, settings(f"{root}/new", [root]))
    assert roots == (f"{root}/new", root)
    assert swept_roots(world.context("us").mapping, settings(root)) == ()
    assert [folder.label for folder in swept_folders(mapping, roots)] == [
        f"{root}/new/near",
        f"{root}/new/_sterna/rest",
        f"{root}/near",
        f"{root}/_sterna/rest",
    ]
    inner = swept_folders(mapping, [f"{root}/near/x", root])
    assert [folder.label for folder in inner] == [f"{root}/near", f"{root}/_sterna/rest"], "each file is listed once"
    lost = stray(world, f"near/{table_uuid(client)}/lost.parquet", f"new/near/{table_uuid(client)}/lost.parquet")
    swept(world, after(hours=2), near_roots=roots)
    swept(world, near_roots=roots)
    assert not lost & lake_files(world)


@pytest.mark.parametrize("place", ["us/lake", "nowhere"])
def test_a_location_of_another_region_is_not_swept(world: World, place: str) -> None:
    with pytest.raises(UsageError, match="catalog location"):
        swept_roots(world.context("eu").mapping, settings(f"file://{world.folder}/{place}"))
