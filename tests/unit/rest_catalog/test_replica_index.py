"""What the address has in memory of a replica branch."""

from __future__ import annotations

from sterna.catalog.model import ICEBERG_TABLE, ICEBERG_VIEW, Content, Delete, Put, Reference, namespace_content
from sterna.serving.rest_catalog.byte_cache import ByteCache, ServedBody
from sterna.serving.rest_catalog.replica_index import ReplicaIndex, children
from tests.support.doubles.catalog import InMemoryCatalog

BRANCH = "main_replica_eu"


def content(name: str, kind: str = ICEBERG_TABLE) -> Content:
    return Content.of({"type": kind, "metadataLocation": f"s3://b/{name}", "snapshotId": 1})


def commit(catalog: InMemoryCatalog, *operations: Put | Delete) -> str:
    return catalog.commit(BRANCH, catalog.reference(BRANCH).hash, operations, "test")


def test_a_branch_that_is_not_there_yet_has_nothing() -> None:
    index = ReplicaIndex(InMemoryCatalog(), BRANCH)
    assert index.read().contents == {}


def test_a_new_head_is_read_by_what_differs() -> None:
    catalog = InMemoryCatalog()
    catalog.create_branch(BRANCH)
    index = ReplicaIndex(catalog, BRANCH)
    assert index.read().tables == []
    commit(
        catalog,
        Put(("a",), namespace_content(("a",))),
        Put(("a", "b"), namespace_content(("a", "b"))),
        Put(("a", "t"), content("1")),
        Put(("a", "v"), content("2", ICEBERG_VIEW)),
    )
    first = index.read()
    assert (first.tables, first.views, first.namespaces) == ([("a", "t")], [("a", "v")], [("a",), ("a", "b")])
    assert index.read() is first

    def no_entries(*_: object) -> None:
        raise AssertionError("all was read once more")

    catalog.entries = no_entries  # type: ignore[assignment]
    commit(catalog, Delete(("a", "v")), Put(("a", "b", "u"), content("3")))
    second = index.read()
    assert (second.tables, second.views) == ([("a", "b", "u"), ("a", "t")], [])
    assert first.views == [("a", "v")]


def test_a_change_of_this_process_is_shown_while_a_sync_publishes_it_and_ends() -> None:
    """The head is read before, and by then nothing is left of the change in memory."""
    catalog = InMemoryCatalog()
    catalog.create_branch(BRANCH)
    commit(catalog, Put(("a",), namespace_content(("a",))))
    index, plain = ReplicaIndex(catalog, BRANCH), catalog.reference
    index.recent.record({("a",): (namespace_content(("a",)), None)})

    def reference(name: str) -> Reference:
        head = plain(name)
        if not index.recent.is_empty:
            catalog.commit(BRANCH, head.hash, [Delete(("a",))], "a sync")
            index.recent.discard_until(index.recent.count)
        return head

    catalog.reference = reference  # type: ignore[method-assign]
    assert not index.read().has_namespace(("a",))


def test_a_branch_that_was_made_anew_is_read_whole() -> None:
    catalog, other = InMemoryCatalog(), InMemoryCatalog()
    for each in (catalog, other):
        each.create_branch(BRANCH)
        commit(each, Put(("a",), namespace_content(("a",))))
    commit(other, Put(("a", "t"), content("1")))
    index = ReplicaIndex(catalog, BRANCH)
    index.read()
    index._catalog = other
    assert index.read().tables == [("a", "t")]


def test_a_key_of_another_kind_is_none() -> None:
    catalog = InMemoryCatalog()
    catalog.create_branch(BRANCH)
    commit(catalog, Put(("a",), namespace_content(("a",))), Put(("a", "t"), content("1")))
    branch = ReplicaIndex(catalog, BRANCH).read()
    assert branch.content(("a", "t"), ICEBERG_TABLE) is not None
    assert branch.content(("a", "t"), ICEBERG_VIEW) is None
    assert branch.has_namespace(("a",)) and not branch.has_namespace(("a", "t"))


def test_children_are_one_level_down() -> None:
    keys = [("a",), ("a", "b"), ("a", "b", "c"), ("b",)]
    assert children(keys, ()) == [("a",), ("b",)]
    assert children(keys, ("a",)) == [("a", "b")]


def test_the_cache_has_a_bound_in_bytes() -> None:
    cache = ByteCache(4_000)
    bodies = [ServedBody(bytes(1_000), f'"{number}"') for number in range(4)]
    for number, body in enumerate(bodies[:2]):
        cache.put(number, body)
    assert cache.get(0) is bodies[0]
    cache.put(2, bodies[2])
    assert cache.get(1) is None and cache.get(0) is bodies[0] and cache.get(2) is bodies[2]
    cache.put(3, ServedBody(bytes(10_000), '"large"'))
    assert cache.get(3) is None and cache.bytes <= 4_000
