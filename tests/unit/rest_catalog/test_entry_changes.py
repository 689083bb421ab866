"""Names through a region's address: on `main` at once, here at once, on the replica branch with the next sync."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from sterna.catalog.model import ICEBERG_TABLE, ICEBERG_VIEW, Content, Key
from sterna.errors import (
    AlreadyExists,
    BadUpdate,
    CatalogRefused,
    CatalogUnreachable,
    Forbidden,
    NamespaceNotEmpty,
    NoSuchNamespace,
    NoSuchTable,
    NoSuchView,
    RequirementFailed,
    StoreUnreachable,
    TableUnusable,
)
from sterna.replication.replica.pauses import pause, resume
from sterna.replication.sync.follow import FollowerLimits
from sterna.serving.rest_catalog import commit as commit_module
from sterna.serving.rest_catalog import entry_changes as changes
from sterna.serving.rest_catalog import namespace_changes
from sterna.serving.rest_catalog.address import Address
from sterna.serving.rest_catalog.commit import commit_tables
from sterna.serving.rest_catalog.overlay import served_view_metadata
from sterna.serving.rest_catalog.rules import Rights
from sterna.serving.rest_catalog.table_commit import TableCommit
from sterna.serving.rest_catalog.write_service import CatalogWriteService
from tests.support.rest_address import AddressClient, address_of, read_json
from tests.support.small_world import World, make_world, ruled, run, with_registry, with_third_region

KEY, NEW = ("ns", "orders"), ("ns", "new")
NONE = FollowerLimits(max_bytes=-1)
"""No sync is small enough for the address: the region is behind for good."""
SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
VIEW = {
    "name": "v",
    "schema": SCHEMA,
    "properties": {},
    "view-version": {
        "version-id": 1,
        "timestamp-ms": 1_700_000_000_000,
        "schema-id": 0,
        "summary": {},
        "default-namespace": ["ns"],
        "representations": [{"type": "sql", "sql": "SELECT 1", "dialect": "spark"}],
    },
}


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = make_world(tmp_path)
    made.commit(orders=made.write("orders"))
    run(made)
    return made


@pytest.fixture
def address(world: World) -> Address:
    return address_of(world)


def on_main(world: World, key: Key) -> Content | None:
    return world.catalog.contents("main", world.catalog.reference("main").hash, [key]).get(key)


def main_json(world: World, key: Key) -> dict[str, Any]:
    content = on_main(world, key)
    assert content is not None
    return read_json(content.metadata_location or "")


def synced(address: Address) -> None:
    assert address.sync.wait(address.sync.request(), 60)


def request(**more: Any) -> dict[str, Any]:
    return {"name": "new", "schema": SCHEMA, **more}


def creation(staged: dict[str, Any], key: Key = NEW) -> TableCommit:
    """The commit that ends a staged creation."""
    updates = [
        {"action": "assign-uuid", "uuid": staged["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": staged["schemas"][0]},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": staged["partition-specs"][0]},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": staged["sort-orders"][0]},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": staged["location"]},
        {"action": "set-properties", "updates": {"a": "1"}},
    ]
    return TableCommit(key, [{"type": "assert-create"}], updates)


@pytest.mark.parametrize("namespace", [("near",), ("ns", "near"), ("near", "near")])
def test_a_namespace_with_the_name_of_the_writers_folder_has_tables(
    world: World, address: Address, namespace: Key
) -> None:
    for depth in range(1, len(namespace) + 1):
        if namespace[:depth] != ("ns",):
            namespace_changes.create_namespace(address, namespace[:depth], {})
    address.earlier_roots = [f"{address.near_root}/ns"]
    changes.create_table(address, namespace, request())
    location = main_json(world, (*namespace, "new"))["location"]
    assert location.startswith(f"{address.near_root}/{'/'.join(namespace).replace('near', 'near_')}/new-")


@pytest.mark.parametrize(
    ("namespace", "folder"),
    [
        (("replica",), "replica_"),
        (("replica", "replica"), "replica_/replica"),
        (("uploads", "today"), "uploads_/today"),
        (("a", "uploads"), "a/uploads_"),
        (("far",), "far_"),
    ],
)
def test_a_namespace_with_the_name_of_a_place_of_others_has_tables(tmp_path: Path, namespace: Key, folder: str) -> None:
    """As of the replica root, of an inbox, or of another region's location."""
    plain, root = make_world(tmp_path), f"file://{tmp_path}/eu"
    locations = plain.registry.model_dump(mode="json")["locations"]
    locations = [{**one, **({"prefix": root} if one["id"] == "eu-lake" else {})} for one in locations]
    far = {"id": "us-far", "prefix": f"{root}/far", "region": "us", "remote": {"type": "local"}}
    inboxes = [f"{root}/uploads", f"{root}/a/uploads"]
    address = replace(address_of(with_registry(plain, locations=[*locations, far])), near_root=root, inboxes=inboxes)
    for depth in range(1, len(namespace) + 1):
        namespace_changes.create_namespace(address, namespace[:depth], {})
    changes.create_table(address, namespace, request())
    assert main_json(plain, (*namespace, "new"))["location"].startswith(f"{root}/{folder}/new-")


def test_a_table_is_made_here_and_written_to(world: World, address: Address) -> None:
    entry = changes.create_table(address, ("ns",), request(properties={"a": "1", "gc.enabled": "true"}))
    document = main_json(world, NEW)
    assert document["location"].startswith(f"file://{world.folder}/eu/lake/ns/new-")
    assert document["properties"]["a"] == "1" and "gc.enabled" not in document["properties"]
    assert address.shown([NEW])[NEW] == entry
    client = AddressClient(address)
    client.load_table(NEW).append(pa.table({"id": [1]}))
    synced(address)
    assert world.replica()["ns.new"].with_id(None) == (address.shown([NEW])[NEW] or entry).with_id(None)
    assert "/replica/" not in str(main_json(world, NEW))


def test_a_staged_table_is_on_main_once_it_is_committed(world: World, address: Address) -> None:
    staged = changes.stage_table(address, ("ns",), request())
    assert on_main(world, NEW) is None
    commit = creation(staged)
    commit_tables(address, [commit], Rights())
    assert main_json(world, NEW)["location"] == staged["location"]
    with pytest.raises(RequirementFailed):
        commit_tables(address, [commit], Rights())


def test_a_transaction_returns_the_keys_of_its_tables_and_no_namespace(address: Address) -> None:
    commit = creation(changes.stage_table(address, ("ns",), request()))
    identifier = {"namespace": ["ns"], "name": "new"}
    change = {"identifier": identifier, "requirements": commit.requirements, "updates": commit.updates}
    service = CatalogWriteService(address, cast(Any, None))
    for _ in ("sent", "sent again"):
        assert service.commit_transaction({"table-changes": [change]}, Rights(), "key-1") == [NEW]


def test_a_staged_table_needs_its_namespace_still(world: World, address: Address) -> None:
    namespace_changes.create_namespace(address, ("fresh",), {})
    commit = creation(changes.stage_table(address, ("fresh",), request()), ("fresh", "new"))
    namespace_changes.drop_namespace(address, ("fresh",))
    committed = world.catalog.reference("main").hash
    with pytest.raises(NoSuchNamespace) as caught:
        commit_tables(address, [commit], Rights())
    assert caught.value.status == 404
    assert world.catalog.reference("main").hash == committed
    assert not (world.folder / "eu" / "lake" / "_sterna" / "rest" / commit.updates[0]["uuid"]).exists()


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"name": "orders"}, AlreadyExists),
        ({"name": ""}, BadUpdate),
        ({"name": "a\nb"}, BadUpdate),
        ({"location": "file://{world}/us/lake/x"}, BadUpdate),
        ({"location": "file://{world}/eu/lake/near/x"}, BadUpdate),
        ({"properties": {"sterna.applied.x": "1"}}, Forbidden),
        ({"properties": {"write.data.path": "file://{world}/eu/replica/x"}}, BadUpdate),
        ({"properties": []}, BadUpdate),
        ({"schema": {"type": "list"}}, BadUpdate),
    ],
)
def test_what_isnt_made(world: World, address: Address, more: dict[str, Any], error: type[Exception]) -> None:
    def filled(part: Any) -> Any:
        if isinstance(part, str):
            return part.replace("{world}", str(world.folder))
        return {name: filled(value) for name, value in part.items()} if isinstance(part, dict) else part

    before = world.catalog.reference("main").hash
    for make in (changes.create_table, changes.stage_table):
        with pytest.raises(error):
            make(address, ("ns",), filled(request(**more)))
    assert world.catalog.reference("main").hash == before


def test_a_table_needs_its_namespace_and_a_policy_that_lets_it_be(world: World, address: Address) -> None:
    with pytest.raises(NoSuchNamespace):
        changes.create_table(address, ("none",), request())
    policies = [{"tables": ["ns.new"], "replicate": False}]
    registry = world.registry.model_validate({**world.registry.model_dump(mode="json"), "policies": policies})
    kept_away = address_of(replace(world, registry=registry))
    with pytest.raises(Forbidden):
        changes.create_table(kept_away, ("ns",), request())
    with pytest.raises(Forbidden):
        changes.rename(kept_away, ICEBERG_TABLE, KEY, NEW)


def test_a_name_that_a_policy_keeps_away_is_none(world: World, address: Address) -> None:
    changes.create_view(address, ("ns",), VIEW)
    kept_away = address_of(ruled(world, policies=[{"tables": ["ns.orders", "ns.v"], "replicate": False}]))
    before = world.catalog.reference("main").hash
    with pytest.raises(NoSuchTable):
        changes.drop(kept_away, ICEBERG_TABLE, KEY)
    with pytest.raises(NoSuchTable):
        changes.rename(kept_away, ICEBERG_TABLE, KEY, NEW)
    with pytest.raises(NoSuchView):
        changes.commit_view(kept_away, ("ns", "v"), [], [{"action": "set-properties", "updates": {"a": "1"}}])
    assert world.catalog.reference("main").hash == before


def test_no_new_name_brings_a_table_to_a_region_that_it_is_kept_from(world: World) -> None:
    world = with_third_region(world)
    kept = address_of(ruled(world, residency=[{"tables": ["ns.orders", "ns.kept"], "only": ["us", "eu"]}]))
    with pytest.raises(Forbidden, match="ap"):
        changes.rename(kept, ICEBERG_TABLE, KEY, NEW)
    changes.rename(kept, ICEBERG_TABLE, KEY, ("ns", "kept"))
    assert on_main(world, KEY) is None and on_main(world, ("ns", "kept")) is not None


def test_a_dropped_table_is_gone_at_once_and_its_files_stay(world: World, address: Address) -> None:
    location = (on_main(world, KEY) or pytest.fail("no table")).metadata_location or ""
    changes.drop(address, ICEBERG_TABLE, KEY, "key-1")
    assert on_main(world, KEY) is None
    assert address.shown([KEY])[KEY] is None
    assert read_json(location)["location"]
    with pytest.raises(NoSuchTable):
        changes.drop(address, ICEBERG_TABLE, KEY)
    changes.drop(address_of(world), ICEBERG_TABLE, KEY, "key-1")  # the same request, sent again
    synced(address)
    assert "ns.orders" not in world.replica()


def test_a_renamed_table_keeps_its_rows_and_its_id(world: World, address: Address) -> None:
    before = on_main(world, KEY)
    changes.rename(address, ICEBERG_TABLE, KEY, NEW)
    after = on_main(world, NEW)
    assert before is not None and after is not None and after.id == before.id
    assert address.shown([KEY, NEW])[KEY] is None
    assert len(AddressClient(address).load_table(NEW).scan().to_arrow()) == 3
    synced(address)
    assert "ns.orders" not in world.replica() and "ns.new" in world.replica()
    with pytest.raises(NoSuchTable):
        changes.rename(address, ICEBERG_TABLE, KEY, ("ns", "x"))
    world.commit(orders=world.write("orders2"))
    with pytest.raises(AlreadyExists):
        changes.rename(address, ICEBERG_TABLE, NEW, KEY)
    with pytest.raises(NoSuchNamespace):
        changes.rename(address, ICEBERG_TABLE, NEW, ("none", "x"))


def test_a_repeated_rename_is_shown_by_what_is_here_under_the_old_name(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another instance, and while nothing can be localized: the table's home may be dark."""
    first, second = (address_of(world, limits=NONE) for _ in range(2))
    before = second.shown([KEY])[KEY]
    assert before is not None
    changes.rename(first, ICEBERG_TABLE, KEY, NEW, "key-1")

    def dark(*_: Any) -> Content | None:
        raise StoreUnreachable("us is dark")

    monkeypatch.setattr(commit_module, "localize_entry", dark)
    changes.rename(second, ICEBERG_TABLE, KEY, NEW, "key-1")
    assert second.shown([KEY, NEW]) == {KEY: None, NEW: before.with_id(None)}


def test_a_repeated_change_of_names_is_answered_though_it_cant_be_shown_yet(
    world: World, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes.rename(address, ICEBERG_TABLE, KEY, NEW, "key-1")
    changes.drop(address, ICEBERG_TABLE, NEW, "key-2")
    namespace_changes.create_namespace(address, ("fresh",), {"a": "1"}, "key-3")
    namespace_changes.drop_namespace(address, ("fresh",), "key-4")
    committed, other = world.catalog.reference("main").hash, address_of(world)

    def unseen(*_: Any) -> dict[Key, Content | None]:
        raise CatalogUnreachable("no answer")

    monkeypatch.setattr(Address, Address.shown.__name__, unseen)
    changes.rename(other, ICEBERG_TABLE, KEY, NEW, "key-1")
    changes.drop(other, ICEBERG_TABLE, NEW, "key-2")
    assert namespace_changes.create_namespace(other, ("fresh",), {"a": "1"}, "key-3") == {"a": "1"}
    namespace_changes.drop_namespace(other, ("fresh",), "key-4")
    assert world.catalog.reference("main").hash == committed


def test_a_table_is_registered_by_mains_name_or_by_the_addresss(world: World, address: Address) -> None:
    main_uri = (on_main(world, KEY) or pytest.fail("no table")).metadata_location or ""
    served = address.shown([KEY])[KEY]
    assert served is not None
    for name, uri in (("a", main_uri), ("b", served.metadata_location)):
        changes.register_table(address, ("ns",), {"name": name, "metadata-location": uri})
        content = on_main(world, ("ns", name))
        assert content is not None and content.metadata_location == main_uri
    with pytest.raises(AlreadyExists):
        changes.register_table(address, ("ns",), {"name": "a", "metadata-location": main_uri})
    over = {"name": "a", "metadata-location": main_uri, "overwrite": True}
    with pytest.raises(Forbidden, match="maintenance"):  # snapshots and properties may go by it
        changes.register_table(address, ("ns",), over)
    changes.register_table(address, ("ns",), over, Rights(expire=True))


@pytest.mark.parametrize(
    "uri", [None, "", "s3://elsewhere/m.json", "file://{world}/eu/replica/us-lake/orders/metadata/x.metadata.json"]
)
def test_what_isnt_registered(world: World, address: Address, uri: str | None) -> None:
    location = uri and uri.format(world=world.folder)
    with pytest.raises(BadUpdate):
        changes.register_table(address, ("ns",), {"name": "a", "metadata-location": location})
    assert on_main(world, ("ns", "a")) is None


@pytest.mark.parametrize(
    "field", ["location", "properties", "snapshots", "statistics", "partition-statistics", "metadata-log"]
)
def test_metadata_that_names_a_replica_isnt_registered(world: World, address: Address, field: str) -> None:
    uri = (on_main(world, KEY) or pytest.fail("no table")).metadata_location or ""
    replica = f"file://{world.folder}/eu/replica/us-lake/orders/x"
    document = read_json(uri)
    named = {
        "location": replica,
        "properties": {"write.data.path": replica},
        "snapshots": [{**document["snapshots"][0], "manifest-list": replica}],
        "statistics": [{"snapshot-id": 1, "statistics-path": replica}],
        "partition-statistics": [{"snapshot-id": 1, "statistics-path": replica}],
        "metadata-log": [{"timestamp-ms": 1, "metadata-file": replica}],
    }
    register_written(world, address, {**document, field: named[field]}, BadUpdate)


@pytest.mark.parametrize(("field", "shape"), [("properties", ["write.data.path"]), ("schemas", {}), ("refs", [])])
def test_metadata_of_another_shape_isnt_registered(world: World, address: Address, field: str, shape: Any) -> None:
    register_written(world, address, {**read_json(world.write("orders")), field: shape}, BadUpdate)


def test_a_table_that_is_written_to_where_none_may_be_isnt_registered(world: World, address: Address) -> None:
    uri = (on_main(world, KEY) or pytest.fail("no table")).metadata_location or ""
    properties = {"write.data.path": "s3://elsewhere/x"}
    register_written(world, address, {**read_json(uri), "properties": properties}, BadUpdate)
    strict = address_of(ruled(world, residency=[{"locations": ["us-lake"], "only": ["us"]}]))
    register_written(world, strict, read_json(uri), Forbidden)


def register_written(world: World, address: Address, document: dict[str, Any], error: type[Exception]) -> None:
    """Register a metadata.json of one's own, and be refused."""
    path = world.folder / "us" / "lake" / "orders" / "metadata" / "00007-own.metadata.json"
    path.write_text(json.dumps(document))
    with pytest.raises(error):
        changes.register_table(address, ("ns",), {"name": "a", "metadata-location": f"file://{path}"})
    assert on_main(world, ("ns", "a")) is None


def test_a_view_is_made_replaced_renamed_and_dropped(world: World, address: Address) -> None:
    changes.create_view(address, ("ns",), VIEW)
    key = ("ns", "v")
    document = main_json(world, key)
    assert document["location"].startswith(f"file://{world.folder}/eu/lake/ns/v-")
    version = {**VIEW["view-version"], "version-id": 2, "timestamp-ms": 1_700_000_001_000}  # type: ignore[dict-item]
    version["representations"] = [{"type": "sql", "sql": "SELECT 2", "dialect": "spark"}]
    updates = [
        {"action": "add-view-version", "view-version": version},
        {"action": "set-current-view-version", "view-version-id": -1},
    ]
    uuid = {"type": "assert-view-uuid", "uuid": document["view-uuid"]}
    changes.commit_view(address, key, [uuid], updates)
    assert main_json(world, key)["current-version-id"] == 2
    with pytest.raises(RequirementFailed):
        changes.commit_view(address, key, [{**uuid, "uuid": "00000000-0000-0000-0000-000000000000"}], updates)
    changes.rename(address, ICEBERG_VIEW, key, ("ns", "w"))
    synced(address)
    assert "ns.w" in world.replica() and "ns.v" not in world.replica()
    with pytest.raises(NoSuchTable):
        changes.drop(address, ICEBERG_TABLE, ("ns", "w"))
    changes.drop(address, ICEBERG_VIEW, ("ns", "w"))
    with pytest.raises(NoSuchView):
        changes.commit_view(address, key, [], updates)


def test_no_way_to_change_what_is_paused_here_reaches_main(world: World, address: Address) -> None:
    changes.create_view(address, ("ns",), VIEW)
    location = (on_main(world, KEY) or pytest.fail("no table")).metadata_location or ""
    changes.register_table(address, ("ns",), {"name": "free", "metadata-location": location})
    staged = changes.stage_table(address, ("ns",), request())
    synced(address)
    pause(world.context(), ["ns.orders", "ns.v"], "", apply=True)
    before = world.catalog.reference("main").hash
    over = {"name": "orders", "metadata-location": location, "overwrite": True}
    ways: list[Callable[[], object]] = [
        lambda: changes.commit_view(address, ("ns", "v"), [], [{"action": "set-properties", "updates": {"a": "b"}}]),
        lambda: changes.register_table(address, ("ns",), over, Rights(expire=True)),
        lambda: changes.drop(address, ICEBERG_TABLE, KEY),
        lambda: changes.drop(address, ICEBERG_VIEW, ("ns", "v")),
        lambda: changes.rename(address, ICEBERG_TABLE, KEY, ("ns", "other")),
        lambda: changes.create_table(address, ("ns",), request(name="orders")),
        lambda: commit_tables(address, [creation(staged, KEY)], Rights()),
    ]
    for way in ways:
        with pytest.raises(TableUnusable, match="paused by an operator"):
            way()
    assert world.catalog.reference("main").hash == before
    resume(world.context(), ["ns.orders", "ns.v"], apply=True)
    changes.drop(address, ICEBERG_TABLE, KEY)
    assert on_main(world, KEY) is None


def test_a_commit_to_a_view_outlasts_a_sync_that_publishes_the_version_before(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That version was another instance's, and isn't what was shown here."""
    key, plain = ("ns", "v"), world.catalog.commit
    first, second = (address_of(world, limits=NONE) for _ in range(2))
    changes.create_view(first, ("ns",), VIEW)
    run(world)
    changes.commit_view(second, key, [], [{"action": "set-properties", "updates": {"a": "1"}}])

    def commit(branch: str, *arguments: Any, **more: Any) -> str:
        if branch == "main":
            run(world)
        return plain(branch, *arguments, **more)

    monkeypatch.setattr(world.catalog, "commit", commit)
    entry = changes.commit_view(first, key, [], [{"action": "set-properties", "updates": {"b": "1"}}])
    published, shown = world.replica()["ns.v"], first.shown([key])[key]
    assert shown is not None and shown.metadata_location == entry.metadata_location != published.metadata_location


def test_the_location_that_is_served_of_a_view_may_be_sent_back(world: World, address: Address) -> None:
    key = ("ns", "v")
    run(world, "us")
    changes.create_view(address_of(world, "us"), ("ns",), VIEW)
    run(world)
    document = main_json(world, key)
    location = document["location"]
    served = served_view_metadata(document, address.region().mapping, address.near_root)["location"]
    assert served != location
    updates = [
        {"action": "set-location", "location": f"{served}/"},
        {"action": "set-properties", "updates": {"a": "1"}},
    ]
    changes.commit_view(address, key, [], updates)
    assert (main_json(world, key)["location"], main_json(world, key)["properties"]["a"]) == (location, "1")
    with pytest.raises(BadUpdate):
        changes.commit_view(address, key, [], [{"action": "set-location", "location": f"{served}-other"}])


def test_namespaces(world: World, address: Address) -> None:
    key = ("fresh",)
    namespace_changes.create_namespace(address, key, {"a": "1", "b": "2"})
    assert address.shown([key])[key] is not None
    with pytest.raises(AlreadyExists):
        namespace_changes.create_namespace(address, key, {})
    with pytest.raises(NoSuchNamespace):
        namespace_changes.create_namespace(address, ("none", "inner"), {})
    namespace_changes.create_namespace(address, ("fresh", "inner"), {})
    answer = namespace_changes.update_namespace(address, key, ["b", "c"], {"a": "3"})
    assert answer == {"updated": ["a"], "removed": ["b"], "missing": ["c"]}
    assert (on_main(world, key) or pytest.fail("gone")).payload["properties"] == {"a": "3"}
    with pytest.raises(BadUpdate):
        namespace_changes.update_namespace(address, key, ["a"], {"a": "1"})
    with pytest.raises(Forbidden):
        namespace_changes.update_namespace(address, key, [], {"sterna.x": "1"})
    with pytest.raises(NamespaceNotEmpty):
        namespace_changes.drop_namespace(address, key)
    namespace_changes.drop_namespace(address, ("fresh", "inner"))
    namespace_changes.drop_namespace(address, key)
    with pytest.raises(NoSuchNamespace):
        namespace_changes.drop_namespace(address, key)
    assert address.shown([key])[key] is None


def test_a_read_that_is_refused_says_nothing_of_what_is_in_a_namespace(
    world: World, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a proxy that answers 404: a client would take 409 for an answer of the catalog."""

    def refuse(*_: Any) -> tuple[str, dict[Key, Content]]:
        raise CatalogRefused("404 Not Found")

    monkeypatch.setattr(world.catalog, "read_current", refuse)
    with pytest.raises(CatalogRefused):
        namespace_changes.drop_namespace(address, ("ns",))


def test_the_first_writer_of_a_lakehouse_waits_for_no_sync(tmp_path: Path) -> None:
    made = make_world(tmp_path)
    address = address_of(made)
    assert made.registry.region("eu").replica_branch not in {branch.name for branch in made.catalog.references()}
    namespace_changes.create_namespace(address, ("ns",), {})
    changes.create_table(address, ("ns",), request())
    assert address.shown([NEW])[NEW] is not None
    synced(address)
    assert set(made.replica()) == {"ns", "ns.new"}
