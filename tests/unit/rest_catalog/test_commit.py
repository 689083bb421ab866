"""Commits by a region's address: what reaches `main`, what is answered, and what is refused before and after."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import CommitFailedException

from sterna.catalog.model import ICEBERG_TABLE, Delete
from sterna.errors import (
    BadUpdate,
    CatalogStateUnknown,
    CatalogUnreachable,
    CommitOutcomeUnknown,
    Forbidden,
    ForeignFile,
    HomeUnavailable,
    NoSuchTable,
    RequirementFailed,
    StaleBase,
    StoreUnreachable,
    TableUnusable,
)
from sterna.replication.replica.pauses import pause, resume
from sterna.replication.sync.follow import FollowerLimits
from sterna.replication.sync.rewrite_metadata import rewrite_options
from sterna.replication.sync.run import sync
from sterna.serving.rest_catalog import commit as commit_module
from sterna.serving.rest_catalog.address import Address, MainState
from sterna.serving.rest_catalog.byte_cache import ByteCache
from sterna.serving.rest_catalog.commit import commit_tables
from sterna.serving.rest_catalog.entry_changes import create_table, drop
from sterna.serving.rest_catalog.rules import Rights
from sterna.serving.rest_catalog.table_commit import TableCommit, prepare_commit, read_table
from tests.support import rest_address
from tests.support.regions import with_ports
from tests.support.rest_address import AddressClient, address_of, read_json
from tests.support.small_world import World, here, make_world, quiet, refusing, ruled, run

KEY = ("ns", "orders")
SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
INFINITE = {"id": 1, "name": "id", "type": "long", "required": False, "doc": "new", "tomorrow": float("inf")}
"""A column with a field that nobody knows: JSON has 1e999, and no reader knows a number as large."""
NONE = FollowerLimits(max_bytes=-1)
"""No sync is small enough for the address: the region is behind for good."""


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = make_world(tmp_path)
    made.commit(orders=made.write("orders"))
    run(made)
    return made


@pytest.fixture
def client(world: World) -> AddressClient:
    return AddressClient(address_of(world))


def rows(first: int, count: int = 2) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + count), pa.int64())})


def test_a_table_that_is_paused_here_takes_no_commit_until_it_is_resumed(world: World, client: AddressClient) -> None:
    context, before = world.context(), world.catalog.reference("main").hash
    pause(context, ["ns.orders"], "examined", apply=True)
    with pytest.raises(TableUnusable, match=r"paused by an operator since .*: examined"):
        client.load_table(KEY).append(rows(10))
    assert world.catalog.reference("main").hash == before
    assert client.load_table(KEY).scan().to_arrow().num_rows == 3
    resume(context, ["ns.orders"], apply=True)
    client.load_table(KEY).append(rows(10))
    assert client.load_table(KEY).scan().to_arrow().num_rows == 5


def test_where_what_is_paused_is_unknown_no_commit_is_taken(world: World, client: AddressClient) -> None:
    before, markers = world.catalog.reference("main").hash, f"file://{world.folder}/eu/replica/_sterna/paused"
    with refusing(markers, StoreUnreachable) as asked, pytest.raises(StoreUnreachable):
        client.load_table(KEY).append(rows(10))
    assert asked
    assert world.catalog.reference("main").hash == before


def head(world: World) -> str:
    return world.catalog.reference("main").hash


def main_metadata(world: World, key: tuple[str, ...] = KEY) -> dict[str, Any]:
    return read_json(world.catalog.contents("main", head(world), [key])[key].metadata_location or "")


def ids(client: AddressClient) -> list[int]:
    return sorted(client.load_table(KEY).scan().to_arrow()["id"].to_pylist())


def synced(client: AddressClient) -> None:
    assert client.address.sync.wait(client.address.sync.request(), 60)


def on_commit(world: World, action: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let something happen once, when the next commit to `main` arrives."""
    plain, actions = world.catalog.commit, [action]

    def commit(branch: str, *arguments: Any, **more: Any) -> str:
        if branch == "main" and actions:
            actions.pop()()
        return plain(branch, *arguments, **more)

    monkeypatch.setattr(world.catalog, "commit", commit)


def test_an_append_from_away_reaches_main_with_mains_own_names(world: World, client: AddressClient) -> None:
    before = world.catalog.contents("main", head(world), [KEY])[KEY]
    table = client.load_table(KEY)
    table.append(rows(10))
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [0, 1, 2, 10, 11]
    document = main_metadata(world)
    assert len(document["snapshots"]) == 2
    assert "/replica/" not in str(document)
    assert not {"write.data.path", "write.metadata.path", "gc.enabled"} & document["properties"].keys()
    assert document["metadata-log"][-1]["metadata-file"] == before.metadata_location
    own = f"file://{world.folder}/eu/lake/_sterna/rest/{document['table-uuid']}/"
    assert document["snapshots"][-1]["manifest-list"].startswith(own)
    after = world.catalog.contents("main", head(world), [KEY])[KEY]
    assert (after.id, after.metadata_location.startswith(own)) == (before.id, True)  # type: ignore[union-attr]
    assert Path(str(before.metadata_location).removeprefix("file://")).exists()


def test_the_answer_is_what_the_next_sync_publishes(world: World, client: AddressClient) -> None:
    table = client.load_table(KEY)
    table.append(rows(10))
    synced(client)
    assert world.replica()["ns.orders"].metadata_location == table.metadata_location
    assert client.address.recent.is_empty
    assert ids(client) == [0, 1, 2, 10, 11]


def test_commits_one_after_another_dont_wait_for_a_sync(world: World) -> None:
    client = AddressClient(address_of(world, limits=NONE))
    table = client.load_table(KEY)
    for number in range(3):
        table.append(rows(10 * number + 10))
    client.load_table(KEY).append(rows(90))
    assert len(ids(client)) == 11
    assert len(world.replica()["ns.orders"].metadata_location or "") and len(main_metadata(world)["snapshots"]) == 5
    run(world)
    assert len(ids(client)) == 11


def test_two_clients_on_one_base_lose_nothing(world: World, client: AddressClient) -> None:
    first, second = client.load_table(KEY), client.load_table(KEY)
    first.append(rows(10))
    commit = client.sent[-1]
    with pytest.raises(RequirementFailed) as caught:
        altered = {**commit.updates[0]["snapshot"], "snapshot-id": 77}
        updates = [{**commit.updates[0], "snapshot": altered}, {**commit.updates[1], "snapshot-id": 77}]
        commit_tables(client.address, [replace(commit, updates=updates)], Rights())
    assert caught.value.status == 409
    second.append(rows(20))
    assert ids(client) == [0, 1, 2, 10, 11, 20, 21]


def test_many_at_once_lose_nothing_that_was_acknowledged(world: World, client: AddressClient) -> None:
    def append(number: int) -> bool:
        table = client.load_table(KEY)
        for _ in range(20):
            try:
                table.append(rows(100 * number + 100))
                return True
            except CommitFailedException:
                table.refresh()
        return False

    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(append, range(4)))
    assert all(done)
    assert len(ids(client)) == 3 + 2 * 4
    synced(client)
    assert len(ids(client)) == 3 + 2 * 4


def test_a_snapshot_behind_the_tables_numbers_is_too_late(world: World, client: AddressClient) -> None:
    client.load_table(KEY).append(rows(10))
    update = client.sent[-1].updates[0]
    stale = {**update, "snapshot": {**update["snapshot"], "snapshot-id": 5}}
    with pytest.raises(RequirementFailed, match="sequence number"):
        commit_tables(client.address, [TableCommit(KEY, [], [stale])], Rights())


def test_a_repeated_commit_is_answered_and_not_done_again(world: World, client: AddressClient) -> None:
    client.load_table(KEY).append(rows(10))
    committed = head(world)
    other = AddressClient(address_of(world))  # another instance behind the balancer
    for again in (client, other):
        entry = commit_tables(again.address, [client.sent[-1]], Rights())[KEY]
        assert entry.snapshot_id == client.sent[-1].updates[0]["snapshot"]["snapshot-id"]
    assert head(world) == committed
    assert ids(client) == [0, 1, 2, 10, 11]


def test_a_request_that_another_instance_carries_out_meanwhile_is_answered(
    world: World, client: AddressClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A balancer sends a request again while the first instance still works on it."""
    table, other = client.load_table(KEY), address_of(world)
    plain = commit_module.swap_on_main
    raced: list[TableCommit] = []

    def overtaken(*arguments: Any, **more: Any) -> str:
        if not raced:
            raced.append(client.sent[-1])
            commit_tables(other, [client.sent[-1]], Rights())
        return plain(*arguments, **more)

    monkeypatch.setattr(commit_module, "swap_on_main", overtaken)
    table.append(rows(10))
    assert raced and ids(client) == [0, 1, 2, 10, 11]
    assert len(main_metadata(world)["snapshots"]) == 2


def test_the_answer_to_a_repeated_commit_takes_nothing_back_that_is_shown(
    world: World, client: AddressClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others commit, and a sync publishes it, after `main` was read for the answer."""
    client.load_table(KEY).append(rows(10))
    synced(client)
    plain, later = commit_module.read_main, [world.write("orders")]

    def overtaken(*arguments: Any) -> MainState:
        main = plain(*arguments)
        if later:
            world.commit(orders=later.pop())
            run(world)
        return main

    monkeypatch.setattr(commit_module, "read_main", overtaken)
    entry = commit_tables(client.address, [client.sent[-1]], Rights())[KEY]
    published = world.replica()["ns.orders"].metadata_location
    assert entry.metadata_location == published
    shown = client.address.shown([KEY])[KEY]
    assert shown is not None and shown.metadata_location == published


def test_a_transaction_that_is_sent_again_needs_no_snapshot_in_each_table(world: World, client: AddressClient) -> None:
    world.commit(other=world.write("other"))
    run(world)
    client.load_table(KEY).append(rows(10))
    appended = client.sent[-1]
    properties = TableCommit(("ns", "other"), [], [{"action": "set-properties", "updates": {"a": "1"}}])
    committed = head(world)
    assert commit_tables(client.address, [appended, properties], Rights()).keys() == {KEY, ("ns", "other")}
    assert head(world) == committed


def test_another_snapshot_under_the_same_id_is_no_replay(world: World, client: AddressClient) -> None:
    client.load_table(KEY).append(rows(10))
    update = client.sent[-1].updates[0]
    altered = {**update, "snapshot": {**update["snapshot"], "timestamp-ms": 1}}
    with pytest.raises(BadUpdate, match="another snapshot"):
        commit_tables(client.address, [TableCommit(KEY, [], [altered])], Rights())


def test_a_known_idempotency_key_is_answered(world: World, client: AddressClient) -> None:
    commit = TableCommit(KEY, [], [{"action": "set-properties", "updates": {"a": "1"}}])
    commit_tables(client.address, [commit], Rights(), "key-1")
    client.load_table(KEY).transaction().set_properties({"a": "2"}).commit_transaction()
    committed = head(world)
    commit_tables(address_of(world), [commit], Rights(), "key-1")
    assert head(world) == committed
    assert main_metadata(world)["properties"]["a"] == "2"


def test_a_known_idempotency_key_is_answered_though_the_metadata_is_another_ones_now(
    world: World, client: AddressClient
) -> None:
    """A refusal would have its client delete what it committed."""
    commit = TableCommit(KEY, [], [{"action": "set-properties", "updates": {"a": "1"}}])
    commit_tables(client.address, [commit], Rights(), "key-1")
    world.commit(orders=world.write("orders"))
    run(world)

    def fails(*_: Any) -> dict[str, Any]:
        raise HomeUnavailable("us is dark")

    address = address_of(world)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Address, Address.read_metadata.__name__, fails)
        commit_tables(address, [commit], Rights(), "key-1")
        with pytest.raises(HomeUnavailable):
            commit_tables(address, [commit], Rights(), "key-2")


def test_a_lost_race_that_cant_be_looked_up_is_no_refusal(
    world: World, client: AddressClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came first may be the same request, by another instance."""
    location, reads = world.write("orders"), list[str]()
    on_commit(world, lambda: world.commit(orders=location) and None, monkeypatch)
    read = Address.read_metadata

    def dark_later(address: Address, uri: str) -> dict[str, Any]:
        reads.append(uri)
        if len(set(reads)) > 1:
            raise HomeUnavailable("us is dark")
        return read(address, uri)

    monkeypatch.setattr(Address, Address.read_metadata.__name__, dark_later)
    table = client.load_table(KEY)
    with pytest.raises(CommitOutcomeUnknown) as caught:
        table.append(rows(10))
    assert "us is dark" in str(caught.value)


def test_a_region_that_is_behind_is_brought_up_first(world: World, client: AddressClient) -> None:
    world.commit(orders=world.write("orders"))
    client.load_table(KEY)
    commit_tables(
        client.address, [TableCommit(KEY, [], [{"action": "set-properties", "updates": {"a": "1"}}])], Rights()
    )
    assert len(main_metadata(world)["snapshots"]) == 2
    assert main_metadata(world)["properties"]["a"] == "1"
    assert len(ids(client)) == 6


def test_a_base_that_isnt_served_is_too_old(world: World) -> None:
    client = AddressClient(address_of(world, limits=NONE))
    world.commit(orders=world.write("orders"))
    committed = head(world)
    with pytest.raises(StaleBase) as caught:
        commit_tables(
            client.address, [TableCommit(KEY, [], [{"action": "set-properties", "updates": {"a": "1"}}])], Rights()
        )
    assert caught.value.status == 409
    assert head(world) == committed


@pytest.mark.parametrize("is_new", [False, True])
def test_a_sync_that_publishes_what_was_dropped_meanwhile_takes_no_drop_back(
    world: World, monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    """This region was behind, and shows the version that `main` had before the drop, until the next sync."""
    name = "other" if is_new else "orders"
    world.commit(**{name: world.write(name)})
    on_commit(world, lambda: run(world) and None, monkeypatch)
    address = address_of(world, limits=NONE)
    drop(address, ICEBERG_TABLE, ("ns", name))
    assert f"ns.{name}" in world.replica()
    assert address.shown([("ns", name)]) == {("ns", name): None}


def test_a_commit_that_came_first_on_main_wins(
    world: World, client: AddressClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = client.load_table(KEY)
    location = world.write("orders")
    on_commit(world, lambda: world.commit(orders=location) and None, monkeypatch)
    commit = TableCommit(KEY, [], [{"action": "set-properties", "updates": {"a": "1"}}])
    with pytest.raises(StaleBase):
        commit_tables(client.address, [commit], Rights())
    assert "a" not in main_metadata(world)["properties"]
    assert len(ids(client)) == 6  # the client that tries again sees what came first
    table.refresh()
    table.append(rows(50))
    assert len(ids(client)) == 8


def test_commits_to_other_tables_dont_matter(
    world: World, client: AddressClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = world.write("other")
    table = client.load_table(KEY)
    on_commit(world, lambda: world.commit(other=location) and None, monkeypatch)
    table.append(rows(10))
    assert ids(client) == [0, 1, 2, 10, 11]


def test_a_lost_answer_is_answered_with_what_was_committed(world: World, client: AddressClient) -> None:
    table = client.load_table(KEY)
    table.refresh()
    plain = world.catalog.commit

    def commit(branch: str, *arguments: Any, **more: Any) -> str:
        committed = plain(branch, *arguments, **more)
        if branch == "main":
            raise CatalogStateUnknown("no answer")
        return committed

    world.catalog.commit = commit  # type: ignore[method-assign]
    try:
        table.append(rows(10))
    finally:
        world.catalog.commit = plain  # type: ignore[method-assign]
    assert ids(client) == [0, 1, 2, 10, 11]
    assert len(main_metadata(world)["snapshots"]) == 2


def test_nothing_is_committed_while_the_catalog_cant_be_read(world: World, client: AddressClient) -> None:
    commit = TableCommit(KEY, [], [{"action": "set-properties", "updates": {"a": "1"}}])
    world.catalog.fail_next(CatalogUnreachable("no answer"))
    with pytest.raises(CatalogUnreachable):
        commit_tables(client.address, [commit], Rights())
    assert "a" not in main_metadata(world)["properties"]


def test_a_commit_that_cant_be_shown_is_unknown_to_the_client_and_stays(
    world: World, client: AddressClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = TableCommit(KEY, [], [{"action": "set-properties", "updates": {"a": "1"}}])

    def fail(*_: Any) -> None:
        raise CatalogUnreachable("the store is away")

    monkeypatch.setattr(commit_module, "localize_entry", fail)
    with pytest.raises(CommitOutcomeUnknown) as caught:
        commit_tables(client.address, [commit], Rights())
    assert caught.value.status == 500
    assert main_metadata(world)["properties"]["a"] == "1"


@pytest.mark.parametrize(
    ("updates", "error"),
    [
        ([{"action": "no-such"}], BadUpdate),
        ([{"action": "set-location", "location": "file://{world}/eu/lake/x"}], BadUpdate),
        ([{"action": "set-location", "location": "s3://elsewhere/x"}], BadUpdate),
        ([{"action": "set-properties", "updates": {"x": "file://{world}/eu/replica/us-lake/orders"}}], BadUpdate),
        ([{"action": "set-properties", "updates": {"sterna.applied.x": "1"}}], Forbidden),
        ([{"action": "remove-properties", "removals": ["sterna.applied.x"]}], Forbidden),
        ([{"action": "remove-properties", "removals": [["gc.enabled"]]}], BadUpdate),
        ([{"action": "add-schema", "schema": {"type": "struct", "fields": [INFINITE]}}], BadUpdate),
        ([{"action": "remove-snapshots", "snapshot-ids": [1]}], Forbidden),
        ([{"action": "set-statistics", "statistics": {}}], BadUpdate),
        ([{"action": "add-snapshot", "snapshot": {"snapshot-id": 1}}], BadUpdate),
    ],
)
def test_what_is_refused_changes_nothing(
    world: World, client: AddressClient, updates: list[dict[str, Any]], error: type[Exception]
) -> None:
    def filled(part: Any) -> Any:
        if isinstance(part, str):
            return part.replace("{world}", str(world.folder))
        return {name: filled(value) for name, value in part.items()} if isinstance(part, dict) else part

    committed = head(world)
    with pytest.raises(error) as caught:
        commit_tables(client.address, [TableCommit(KEY, [], [filled(update) for update in updates])], Rights())
    assert caught.value.status in (400, 403)  # type: ignore[attr-defined]
    assert head(world) == committed


def test_what_changes_nothing_is_no_commit(world: World, client: AddressClient) -> None:
    committed, served = head(world), client.load_table(KEY)
    updates = [
        {"action": "set-properties", "updates": {"gc.enabled": "true", "write.data.path": "s3://elsewhere"}},
        {"action": "set-location", "location": served.location()},
    ]
    commit_tables(client.address, [TableCommit(KEY, [], updates)], Rights())
    assert head(world) == committed


def test_maintenance_may_expire(world: World, client: AddressClient) -> None:
    client.load_table(KEY).append(rows(10))
    oldest = main_metadata(world)["snapshots"][0]["snapshot-id"]
    expiry = TableCommit(KEY, [], [{"action": "remove-snapshots", "snapshot-ids": [oldest]}])
    commit_tables(client.address, [expiry], Rights(expire=True))
    assert len(main_metadata(world)["snapshots"]) == 1


def test_a_table_that_is_gone(world: World, client: AddressClient) -> None:
    commit = TableCommit(("ns", "none"), [], [{"action": "set-properties", "updates": {"a": "1"}}])
    with pytest.raises(NoSuchTable):
        commit_tables(client.address, [commit], Rights())
    world.catalog.commit("main", head(world), [Delete(KEY)], "drop")
    with pytest.raises(NoSuchTable):
        commit_tables(client.address, [replace(commit, key=KEY)], Rights())


def test_a_transaction_is_one_commit_or_none(world: World, client: AddressClient) -> None:
    world.commit(other=world.write("other"))
    run(world)
    other = ("ns", "other")

    def change(key: tuple[str, ...], *updates: dict[str, Any]) -> TableCommit:
        return TableCommit(key, [], updates or [{"action": "set-properties", "updates": {"a": "1"}}])

    committed = head(world)
    with pytest.raises(BadUpdate):
        commit_tables(client.address, [change(KEY), change(other, {"action": "no-such"})], Rights())
    with pytest.raises(BadUpdate, match="two commits"):
        commit_tables(client.address, [change(KEY), change(KEY)], Rights())
    assert head(world) == committed
    assert set(commit_tables(client.address, [change(KEY), change(other)], Rights())) == {KEY, other}
    assert next(iter(world.catalog.history("main", operations=False))).parent == committed
    assert main_metadata(world)["properties"]["a"] == main_metadata(world, other)["properties"]["a"] == "1"


def test_a_policy_of_others_isnt_broken_by_a_place_here(world: World) -> None:
    rules = [{"locations": ["eu-lake"], "only": ["eu"]}]
    registry = world.registry.model_validate({**world.registry.model_dump(mode="json"), "residency": rules})
    ruled = replace(world, registry=registry)
    run(ruled)
    commit = TableCommit(KEY, [], [{"action": "set-properties", "updates": {"a": "1"}}])
    with pytest.raises(Forbidden):
        commit_tables(address_of(ruled), [commit], Rights())


def born_here(client: AddressClient, name: str) -> str:
    """Make a table of eu with one file; return its location."""
    create_table(client.address, ("ns",), {"name": name, "schema": SCHEMA})
    client.load_table(("ns", name)).append(rows(0))
    return client.load_table(("ns", name)).location()


@pytest.mark.parametrize("name", ["write.data.path", "write.metadata.path", "location"])
def test_no_commit_names_the_folder_that_its_own_files_are_in(world: World, client: AddressClient, name: str) -> None:
    victim, own = born_here(client, "victim"), born_here(client, "own")
    stolen = next(iter(client.load_table(("ns", "victim")).scan().plan_files())).file.file_path
    committed = head(world)
    transaction = client.load_table(("ns", "own")).transaction()
    transaction.add_files([stolen])
    change: dict[str, Any] = {"action": "set-properties", "updates": {name: victim}}
    if name == "location":
        change = {"action": "set-location", "location": victim}
    updates = [json.loads(update.model_dump_json(by_alias=True, exclude_none=True)) for update in transaction._updates]
    with pytest.raises(ForeignFile) as caught:
        commit_tables(client.address, [TableCommit(("ns", "own"), [], [change, *updates])], Rights())
    assert caught.value.file.endswith(stolen.rsplit("/", 1)[-1])
    assert head(world) == committed and own != victim


@pytest.mark.parametrize(
    ("place", "size", "error"),
    [
        ("{own}/metadata/s.stats", 4, None),
        ("{own}/metadata/s.stats", 5, BadUpdate),
        ("{own}/metadata/none.stats", 4, BadUpdate),
        ("{own}/_sterna/rest/s.stats", 4, ForeignFile),
        ("{own}/metadata/../metadata/s.stats", 4, ForeignFile),
        ("{victim}/metadata/s.stats", 4, ForeignFile),
    ],
)
def test_statistics_lie_where_the_tables_clients_write(
    client: AddressClient, place: str, size: int, error: type[Exception] | None
) -> None:
    folders = {name: born_here(client, name) for name in ("own", "victim")}
    for folder in (*folders.values(), f"{folders['own']}/_sterna/rest"):
        file = Path(folder.removeprefix("file://"), "" if folder.endswith("rest") else "metadata", "s.stats")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"stat")
    entry = {
        "snapshot-id": client.load_table(("ns", "own")).metadata.current_snapshot_id,
        "statistics-path": place.format(**folders),
        "file-size-in-bytes": size,
        "file-footer-size-in-bytes": 1,
        "blob-metadata": [],
    }
    commit = TableCommit(("ns", "own"), [], [{"action": "set-statistics", "statistics": entry}])
    with pytest.raises(error) if error else nullcontext():
        commit_tables(client.address, [commit], Rights())


@pytest.mark.parametrize("name", ["write.data.path", "write.metadata.path", "write.object-storage.path", "location"])
def test_files_are_written_where_a_table_may_be(world: World, client: AddressClient, name: str) -> None:
    own = born_here(client, "own")

    def place(uri: str) -> TableCommit:
        properties = {"action": "set-properties", "updates": {name: uri}}
        update = {"action": "set-location", "location": uri} if name == "location" else properties
        return TableCommit(("ns", "own"), [], [update])

    commit_tables(client.address, [place(f"{own}/d")], Rights())
    committed, lake = head(world), f"file://{world.folder}/eu/lake"
    elsewhere = (f"file://{world.folder}/us/lake/t", f"{lake}/near/x", f"{lake}/_sterna/rest/x", f"{own}/../victim")
    for uri in elsewhere:
        with pytest.raises(BadUpdate):
            commit_tables(client.address, [place(uri)], Rights())
        if name != "location":
            with pytest.raises(BadUpdate):
                request = {"name": "new", "schema": SCHEMA, "properties": {name: uri}}
                create_table(client.address, ("ns",), request)
    strict = ruled(world, residency=[{"locations": ["eu-lake"], "only": ["eu"]}])
    with pytest.raises(Forbidden):
        prepare(strict, place(f"{lake}/moved"))
    assert head(world) == committed


def test_a_table_that_a_policy_keeps_away_is_none(world: World, client: AddressClient) -> None:
    append = TableCommit(KEY, [], [{"action": "set-properties", "updates": {"a": "1"}}])
    hidden = address_of(ruled(world, policies=[{"tables": ["ns.*"], "replicate": False}]))
    committed = head(world)
    with pytest.raises(NoSuchTable):
        commit_tables(hidden, [append], Rights())
    create = TableCommit(KEY, [{"type": "assert-create"}], append.updates)
    with pytest.raises(Forbidden):
        commit_tables(hidden, [create], Rights())
    assert head(world) == committed


def test_a_table_whose_localized_files_were_written_again_has_to_be_loaded_again(
    world: World, client: AddressClient
) -> None:
    table = client.load_table(KEY)
    context = world.context()
    sync(context, rewrite_options(context, ["ns.orders"], 0), quiet, engine=here)
    table.append(rows(10))  # the client is refused, and tries again by itself
    assert len(client.sent) == 2
    assert ids(client) == [0, 1, 2, 10, 11]


def test_metadata_of_main_is_read_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    address = address_of(world)
    address.cache = ByteCache(1 << 20)
    objects, read = address.region().objects, list[str]()
    plain = objects.read

    def record(uri: str, **more: Any) -> bytes:
        read.append(uri)
        return plain(uri, **more)

    monkeypatch.setattr(objects, "read", record)
    uri = world.catalog.contents("main", head(world), [KEY])[KEY].metadata_location or ""
    client = AddressClient(address)
    for number in range(2):
        with pytest.raises(RequirementFailed):
            commit_tables(
                client.address, [TableCommit(KEY, [{"type": "assert-table-uuid", "uuid": "u"}], [])], Rights()
            )
        assert read.count(uri) == 1, number


def test_the_primary_is_looked_up_again_after_a_failure(world: World, client: AddressClient) -> None:
    address, renewed = client.address, list[str]()
    address.renew = lambda: renewed.append("again")
    commit = TableCommit(KEY, [], [{"action": "set-properties", "updates": {"a": "1"}}])
    world.catalog.fail_next(CatalogUnreachable("an old primary"))
    with pytest.raises(CatalogUnreachable):
        commit_tables(address, [commit], Rights())
    assert renewed == ["again"]
    commit_tables(address, [commit], Rights())
    assert renewed == ["again"]


def test_an_old_primary_that_still_answers_is_left_for_the_new_one(world: World, client: AddressClient) -> None:
    commit = TableCommit(KEY, [], [{"action": "set-properties", "updates": {"a": "1"}}])
    old = world.catalog.copied()
    client.load_table(KEY).append(rows(10))
    synced(client)
    regions = [with_ports(world.context(), catalog=world.catalog, primary=primary) for primary in (old, world.catalog)]
    address = client.address
    address.region, address.renew = lambda: regions[0], lambda: regions.reverse()
    with pytest.raises(StaleBase):
        commit_tables(address, [commit], Rights())
    commit_tables(address, [commit], Rights())
    assert main_metadata(world)["properties"]["a"] == "1"


def prepare(world: World, commit: TableCommit) -> None:
    """Prepare a commit under other rules."""
    address, key = address_of(world), commit.key
    content = world.catalog.contents("main", head(world), [key])[key]
    table = read_table(address.read_metadata, key, content)
    assert table is not None
    prepare_commit(address.region(), address.reserved, table, table.content, commit, Rights())


def unsent(client: AddressClient, monkeypatch: pytest.MonkeyPatch, append: pa.Table) -> TableCommit:
    """A commit whose files are written."""

    def refuse(*_: Any) -> None:
        raise CatalogUnreachable("not now")

    with monkeypatch.context() as patched:
        patched.setattr(rest_address, commit_tables.__name__, refuse)
        with pytest.raises(CatalogUnreachable):
            client.load_table(KEY).append(append)
    return client.sent[-1]


def test_a_job_commits_with_the_places_that_it_was_started_with(
    world: World, client: AddressClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = f"file://{world.folder}/eu/lake/earlier"
    commit = unsent(AddressClient(replace(client.address, near_root=earlier)), monkeypatch, rows(10))
    with pytest.raises(ForeignFile):
        commit_tables(client.address, [commit], Rights())
    address = replace(client.address, earlier_roots=[earlier])
    commit_tables(address, [commit], Rights())
    assert ids(client) == [0, 1, 2, 10, 11]
    lists = [snapshot["manifest-list"] for snapshot in main_metadata(world)["snapshots"]]
    assert lists[-1].startswith(f"file://{world.folder}/eu/lake/_sterna/rest/"), "where the address is now"


@pytest.mark.parametrize(
    ("folder", "accepted"), [("ns.orders-{uuid}", True), ("ns.other-{uuid}", False), ("ns.orders-00000000", False)]
)
def test_files_where_ingestion_put_them_before_are_the_tables(
    world: World, client: AddressClient, folder: str, accepted: bool
) -> None:
    name = folder.format(uuid=main_metadata(world)["table-uuid"][:8])
    file = world.folder / "eu" / "lake" / "near" / name / "x.parquet"
    file.parent.mkdir(parents=True)
    pq.write_table(rows(10), file)
    if accepted:
        client.load_table(KEY).add_files([f"file://{file}"])
    else:
        with pytest.raises(ForeignFile):
            client.load_table(KEY).add_files([f"file://{file}"])
    assert ids(client) == ([0, 1, 2, 10, 11] if accepted else [0, 1, 2])
