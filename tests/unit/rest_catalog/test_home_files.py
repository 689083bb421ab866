"""With the store of a table's home dark, a region's address commits to it from the verbatim copies that are here."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from sterna.config.metadata_names import without_digest
from sterna.errors import (
    CommitOutcomeUnknown,
    HomeUnavailable,
    StaleBase,
    SternaError,
    StoreDenied,
    StoreUnreachable,
    TableUnusable,
)
from sterna.replication.replica.head import Head
from sterna.replication.replica.held import WAITS, Held
from sterna.replication.replica.held_list import HeldList
from sterna.replication.sync.follow import FollowerLimits
from sterna.serving.rest_catalog import held_tables
from sterna.serving.rest_catalog.byte_cache import ByteCache
from sterna.serving.rest_catalog.commit import commit_tables
from sterna.serving.rest_catalog.held_tables import raise_for_held
from sterna.serving.rest_catalog.home_files import TABLE_FAULTS
from sterna.serving.rest_catalog.parent_files import ParentFiles
from sterna.serving.rest_catalog.rules import Rights
from sterna.serving.rest_catalog.table_commit import TableCommit
from tests.support.rest_address import AddressClient, address_of, read_json
from tests.support.small_world import World, make_world, refusing, run
from tests.support.verbatim import keeping

KEY = ("ns", "orders")
NEVER = FollowerLimits(max_bytes=-1)
"""No sync is small enough for the address."""


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A table of us with two snapshots, that eu has."""
    made = keeping(make_world(tmp_path), "eu", "us")
    for _ in range(2):
        made.commit(orders=made.write("orders"))
        run(made)
    return made


@pytest.fixture
def client(world: World) -> AddressClient:
    return AddressClient(address_of(world))


def us(world: World) -> str:
    return f"file://{world.folder}/us/"


def rows(first: int, count: int = 2) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + count), pa.int64())})


def ids(client: AddressClient) -> list[int]:
    return sorted(client.load_table(KEY).scan().to_arrow()["id"].to_pylist())


def snapshots(world: World) -> int:
    head = world.catalog.reference("main").hash
    return len(read_json(world.catalog.contents("main", head, [KEY])[KEY].metadata_location or "")["snapshots"])


def set_comment(client: AddressClient) -> None:
    update = {"action": "set-properties", "updates": {"comment": "x"}}
    commit_tables(client.address, [TableCommit(KEY, [], [update])], Rights())


def copy(world: World, pattern: str) -> Path:
    """The newest copy of a kind, and no marker."""
    copies = (world.folder / "eu/replica/_sterna/verbatim/us-lake/orders").rglob(pattern)
    found = (path for path in copies if without_digest(path.name) == path.name)
    return max(found, key=lambda path: path.stat().st_mtime_ns)


@pytest.mark.parametrize("outage", [StoreUnreachable, StoreDenied])
def test_eu_writes_while_us_is_dark(
    world: World, client: AddressClient, outage: type[StoreUnreachable | StoreDenied]
) -> None:
    with refusing(us(world), outage) as asked:
        client.load_table(KEY).append(rows(10))
        client.load_table(KEY).delete("id = 1")  # entries of manifests on main are compared
        assert ids(client) == [0, 0, 2, 2, 10, 11]
        assert client.address.sync.wait(client.address.sync.request(), 60)
        assert ids(client) == [0, 0, 2, 2, 10, 11], "published, too"
        assert [uri for uri in asked if "/us/lake/" in uri] == [], "us isn't even asked"
    assert snapshots(world) >= 4
    # us is back, and its own readers see what eu committed.
    report = run(world, "us")
    assert (report.held, "ns.orders" in report.published) == ((), True)
    assert sorted(AddressClient(address_of(world, "us")).load_table(KEY).scan().to_arrow()["id"].to_pylist()) == [
        *(0, 0, 2, 2, 10, 11)
    ]


def test_after_eu_committed_last_us_writes_while_eu_is_dark(world: World, client: AddressClient) -> None:
    client.load_table(KEY).append(rows(10))
    run(world, "us")
    client = AddressClient(address_of(world, "us"))
    with refusing(f"file://{world.folder}/eu/", StoreUnreachable):
        client.load_table(KEY).append(rows(20))
        client.load_table(KEY).delete("id = 10")
        assert ids(client) == [0, 0, 1, 1, 2, 2, 11, 20, 21]


def test_without_copies_the_file_and_the_table_are_named_at_once(world: World) -> None:
    client = AddressClient(address_of(keeping(world)))
    table = client.load_table(KEY)
    before = snapshots(world)
    with refusing(us(world), StoreUnreachable), pytest.raises(HomeUnavailable) as failure:
        table.append(rows(10))
    error = failure.value
    assert (error.table, error.status) == ("ns.orders", 429)
    assert error.file.startswith(us(world))
    assert error.message == "the store of us can't be used (StoreUnreachable), and no verbatim copy of the file is here"
    assert snapshots(world) == before
    client.load_table(KEY).append(rows(10))


@pytest.mark.parametrize("is_synced", [False, True])
def test_a_commit_that_is_sent_again_where_it_cant_be_seen_is_not_refused(
    world: World, client: AddressClient, is_synced: bool
) -> None:
    """Its metadata.json is in eu, which is dark: us can't see whether it is the commit's own."""
    run(world, "us")
    client.load_table(KEY).append(rows(10))
    us_client = AddressClient(address_of(keeping(world), "us", limits=NEVER))
    if is_synced:
        run(keeping(world), "us")
    before = snapshots(world)
    with refusing(f"file://{world.folder}/eu/", StoreUnreachable):
        with pytest.raises(CommitOutcomeUnknown, match="may have been made before") as failure:
            commit_tables(us_client.address, [client.sent[-1]], Rights())
        assert failure.value.status == 500
        with pytest.raises(HomeUnavailable):
            set_comment(us_client)
        # What was made for the version that is served can't be on `main`.
        with pytest.raises(HomeUnavailable if is_synced else CommitOutcomeUnknown):
            us_client.load_table(KEY).append(rows(20))
    assert snapshots(world) == before


APPEND: Callable[[AddressClient], None] = lambda client: client.load_table(KEY).append(rows(10))  # noqa: E731
DELETE: Callable[[AddressClient], None] = lambda client: client.load_table(KEY).delete("id = 1")  # noqa: E731


@pytest.mark.parametrize(
    ("pattern", "write", "damage"),
    [
        *(("*.metadata.json", APPEND, damage) for damage in ("short", "gone", "other bytes")),
        *(("snap-*.avro", APPEND, damage) for damage in ("short", "gone", "other bytes")),
        *(("*-m0.avro", DELETE, damage) for damage in ("short", "gone", "other bytes")),
    ],
)
def test_a_copy_that_is_not_whole_is_not_used(
    world: World, client: AddressClient, pattern: str, write: Callable[[AddressClient], None], damage: str
) -> None:
    damaged = copy(world, pattern)
    content = damaged.read_bytes()
    if damage == "gone":
        damaged.unlink()
    else:
        damaged.write_bytes(content[: len(content) // 2] if damage == "short" else b"x" * len(content))
    before = snapshots(world)
    with refusing(us(world), StoreUnreachable), pytest.raises(HomeUnavailable) as failure:
        write(client)
    assert failure.value.file.endswith(damaged.name)
    assert (str(damaged) in failure.value.message) == (damage != "gone")
    assert snapshots(world) == before
    write(client)  # with us's store on
    assert snapshots(world) > before


def test_what_is_read_at_home_is_kept_in_memory_and_no_broken_copy(world: World, client: AddressClient) -> None:
    address = replace(client.address, cache=ByteCache(1 << 20))
    uri = world.catalog.contents("main", world.catalog.reference("main").hash, [KEY])[KEY].metadata_location or ""
    damaged = copy(world, "*.metadata.json")
    damaged.write_bytes(damaged.read_bytes()[:-9])
    for _ in range(2):
        assert address.read_metadata(uri) == read_json(uri)
    with refusing(us(world), StoreUnreachable):
        assert address.read_metadata(uri) == read_json(uri)


def test_a_list_that_lost_its_rows_is_not_used(world: World, client: AddressClient) -> None:
    """A file that is whole by itself, and isn't the list that is served."""
    lists = sorted((world.folder / "us/lake/orders").rglob("snap-*.avro"), key=lambda path: path.stat().st_mtime_ns)
    newest = copy(world, "snap-*.avro")
    older = next(path for path in lists if path.name != newest.name)
    newest.write_bytes(older.read_bytes())
    with refusing(us(world), StoreUnreachable), pytest.raises(HomeUnavailable, match="isn't whole"):
        client.load_table(KEY).append(rows(10))
    client.load_table(KEY).append(rows(10))


@pytest.mark.parametrize("fault", TABLE_FAULTS)
def test_a_file_of_the_tables_that_is_no_good_is_no_clients_fault(
    world: World, client: AddressClient, fault: type[SternaError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a copy can be parsed, and isn't the manifest that is served."""
    uri = f"{us(world)}lake/orders/metadata/m.avro"

    def read(*_: object) -> None:
        raise fault("another number of entries", file=uri)

    monkeypatch.setattr(ParentFiles, ParentFiles.live_entries.__name__, read)
    before = snapshots(world)
    with pytest.raises(TableUnusable, match=f": {fault.__name__}: another number of entries") as failure:
        DELETE(client)
    assert (failure.value.table, failure.value.file, failure.value.status) == ("ns.orders", uri, 422)
    assert f"{world.folder}/eu/replica/_sterna/verbatim/us-lake/orders/metadata/m.avro" in failure.value.hint
    assert snapshots(world) == before


def main_file(world: World) -> Path:
    head = world.catalog.reference("main").hash
    return Path(str(world.catalog.contents("main", head, [KEY])[KEY].metadata_location).removeprefix("file://"))


@pytest.mark.parametrize(("content", "kind"), [("{]", "BrokenMetadata"), (None, "SourceGone")])
def test_metadata_of_main_that_is_no_good_is_said_so_for_good(world: World, content: str | None, kind: str) -> None:
    """No later try helps: clients neither come again nor count the commit as unknown."""
    client = AddressClient(address_of(keeping(world)))
    path = main_file(world)
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(TableUnusable, match=f": {kind}: ") as failure:
        set_comment(client)
    assert (failure.value.table, failure.value.file) == ("ns.orders", f"file://{path}")


def unsupported(world: World) -> str:
    """A metadata.json of a format of the future."""
    path = main_file(world)
    later = path.with_name(f"9{path.name}")
    later.write_text(json.dumps({**json.loads(path.read_text()), "format-version": 99}))
    return f"file://{later}"


def test_a_version_that_can_not_be_taken_is_no_conflict(world: World, client: AddressClient) -> None:
    world.commit(orders=unsupported(world))
    with pytest.raises(TableUnusable, match="eu doesn't serve the table as main has it: Unsupported: ") as failure:
        set_comment(client)
    assert (failure.value.table, failure.value.status) == ("ns.orders", 422)


def test_a_table_that_waits_for_one_that_can_not_be_taken_is_no_conflict(world: World, client: AddressClient) -> None:
    world.commit(other=world.write("other"))
    run(world)
    path = Path(str(world.write("other")).removeprefix("file://"))
    path.write_text("{]")
    world.commit(orders=world.write("orders"), other=f"file://{path}")
    with pytest.raises(TableUnusable, match=r"ns\.other is held: BrokenMetadata"):
        set_comment(client)


def raise_for_chain(world: World, monkeypatch: pytest.MonkeyPatch, *held: Held) -> None:
    """Raise what is raised where the region stays behind with some keys."""
    watermark = world.catalog.reference("main").hash
    head = Head("replica", True, watermark=watermark, held_list=HeldList(len(held), held))
    monkeypatch.setattr(held_tables, "read_head", lambda *_: head)
    monkeypatch.setattr(held_tables, "load_held_list", lambda _, head: head)
    source = world.catalog.contents("main", watermark, [KEY])[KEY]
    raise_for_held(world.context(), KEY, source, None, "eu is behind")


@pytest.mark.parametrize(("kind", "error"), [("StoreUnreachable", HomeUnavailable), ("BrokenMetadata", TableUnusable)])
def test_what_a_table_waits_for_is_followed_to_its_end(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str, error: type[SternaError]
) -> None:
    first, second = (
        Held(key, WAITS, "", waits_for=leader) for key, leader in (("ns.orders", "ns.b"), ("ns.b", "ns.c"))
    )
    with pytest.raises(error):
        raise_for_chain(world, monkeypatch, first, second, Held("ns.c", kind, "", f"{us(world)}lake/c"))


@pytest.mark.parametrize("after", ["ns.b", "ns.gone"])
def test_a_table_that_waits_for_what_is_unknown_is_behind_and_not_unusable(
    world: World, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    circle = (Held(key, WAITS, "", waits_for=leader) for key, leader in (("ns.orders", after), ("ns.b", "ns.orders")))
    raise_for_chain(world, monkeypatch, *circle)


def test_a_table_that_was_held_is_one_that_is_behind_once_it_is_mended(world: World) -> None:
    good = world.write("orders")
    world.commit(orders=unsupported(world))
    run(world)
    world.commit(orders=good)
    with pytest.raises(StaleBase):
        set_comment(AddressClient(address_of(world, limits=NEVER)))


def test_a_version_that_is_not_here_is_said_so_and_not_a_conflict(world: World, client: AddressClient) -> None:
    world.commit(orders=world.write("orders"))  # eu hasn't got it yet
    with refusing(us(world), StoreUnreachable), pytest.raises(HomeUnavailable) as failure:
        set_comment(client)
    assert failure.value.table == "ns.orders"


@pytest.mark.parametrize("files", ["*.parquet", "*/lake/orders/data/*"])
def test_a_version_whose_data_can_not_come_is_said_so(world: World, client: AddressClient, files: str) -> None:
    world.commit(orders=world.write("orders"))
    with refusing(us(world), StoreUnreachable, files), pytest.raises(HomeUnavailable) as failure:
        set_comment(client)
    assert (failure.value.table, failure.value.file.rpartition(".")[2]) == ("ns.orders", "parquet")
    assert "eu doesn't serve the table as main has it" in failure.value.message


def test_the_regions_own_store_is_no_home_of_others(world: World, client: AddressClient) -> None:
    copies = f"file://{world.folder}/eu/replica/_sterna/verbatim"
    with refusing(copies, StoreUnreachable), pytest.raises(StoreUnreachable):
        set_comment(client)
