"""What a catalog promises, shown on the real Nessie and on the in-memory double alike."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from sterna.edges.catalog import (
    ICEBERG_TABLE,
    ICEBERG_VIEW,
    Catalog,
    Content,
    Delete,
    DiffEntry,
    Key,
    Operation,
    Put,
    Unchanged,
    key_name,
    namespace_content,
    parse_key,
    parse_time,
)
from sterna.edges.nessie import NessieCatalog
from sterna.errors import CatalogConflict, CatalogRefused, ReferenceNotFound, UsageError
from tests.doubles.catalog import InMemoryCatalog

NS: Key = ("ns",)
TABLE: Key = ("ns", "t")
UNKNOWN_HASH = "ab" * 32


@pytest.fixture(params=["nessie", "double"])
def catalog(request: pytest.FixtureRequest) -> Iterator[Catalog]:
    if request.param == "double":
        yield InMemoryCatalog()
        return
    # Pages of 3, so that every list in these tests has several.
    with NessieCatalog(request.getfixturevalue("nessie_server").uri, page_size=3) as real:
        yield real


@pytest.fixture
def branch(catalog: Catalog) -> str:
    """An empty branch of this test's own."""
    return catalog.create_branch(f"test-{uuid.uuid4().hex}").name


def table(location: str = "s3://lake/t/metadata/1.json", content_id: str | None = None) -> Content:
    payload = {"type": ICEBERG_TABLE, "metadataLocation": location, "snapshotId": 1, "schemaId": 0, "specId": 0, "sortOrderId": 0}
    return Content.of(payload).with_id(content_id)


def view(location: str = "s3://lake/v/metadata/1.json") -> Content:
    return Content.of({"type": ICEBERG_VIEW, "metadataLocation": location, "versionId": 1, "schemaId": 0})


def commit(catalog: Catalog, branch: str, *operations: Operation, **properties: str) -> str:
    """Commit to the branch's current head."""
    return catalog.commit(branch, catalog.reference(branch).hash, operations, "a test", properties)


def commit_table(catalog: Catalog, branch: str) -> tuple[str, str]:
    """Commit a namespace and a table; return the commit's hash and the table's content id."""
    head = commit(catalog, branch, Put(NS, namespace_content(NS)), Put(TABLE, table()))
    content_id = catalog.contents(branch, head, [TABLE])[TABLE].id
    assert content_id
    return head, content_id


# References


def test_a_branch_is_created_empty(catalog, branch):
    head = catalog.reference(branch)

    assert (head.name, head.hash, head.kind) == (branch, catalog.no_ancestor(), "BRANCH")
    assert head in catalog.references()
    assert list(catalog.history(branch, operations=True)) == []
    assert list(catalog.entries(branch, head.hash)) == []


def test_a_branch_is_created_at_a_commit(catalog, branch):
    head, _ = commit_table(catalog, branch)

    copy = catalog.create_branch(f"{branch}/copy", head)

    assert copy.hash == head
    assert catalog.reference(f"{branch}/copy") == copy
    assert TABLE in catalog.contents(copy.name, head, [TABLE])


def test_creating_a_branch_again_is_harmless_at_the_same_commit_only(catalog, branch):
    assert catalog.create_branch(branch) == catalog.reference(branch)

    head, _ = commit_table(catalog, branch)

    with pytest.raises(CatalogConflict, match=head):
        catalog.create_branch(branch)


def test_a_branch_at_an_unknown_commit_is_not_created(catalog, branch):
    with pytest.raises(ReferenceNotFound):
        catalog.create_branch(f"{branch}-2", UNKNOWN_HASH)


def test_an_unknown_reference_names_those_that_exist(catalog):
    with pytest.raises(ReferenceNotFound, match=r"nowhere.*main"):
        catalog.reference("nowhere")


def test_all_references_are_listed_over_several_pages(catalog, branch):
    names = [catalog.create_branch(f"{branch}-{index}").name for index in range(7)]

    listed = [reference.name for reference in catalog.references()]

    assert set(names) < set(listed)
    assert listed == sorted(listed)
    assert catalog.default_branch in listed


def test_whether_a_commit_is_known(catalog, branch):
    head, _ = commit_table(catalog, branch)

    assert catalog.exists(head)
    assert catalog.exists(catalog.no_ancestor())
    assert not catalog.exists(UNKNOWN_HASH)


# History


def test_history_is_newest_first_with_properties_and_operations(catalog, branch):
    before = datetime.now(UTC)
    first, content_id = commit_table(catalog, branch)
    second = commit(catalog, branch, Put(TABLE, table("s3://lake/t/metadata/2.json", content_id)), source="abc", größe="ü 1")

    newest, oldest = catalog.history(branch, operations=True)

    assert (newest.hash, newest.parent) == (second, first)
    assert (oldest.hash, oldest.parent) == (first, catalog.no_ancestor())
    assert newest.properties == {"source": "abc", "größe": "ü 1"}
    assert (newest.author, newest.message) == ("sterna", "a test")
    assert newest.operations == (Put(TABLE, table("s3://lake/t/metadata/2.json", content_id)),)
    assert {operation.key for operation in oldest.operations} == {NS, TABLE}
    assert newest.commit_time.utcoffset() is not None
    assert abs(newest.commit_time - before).total_seconds() < 600


def test_history_without_operations_has_none(catalog, branch):
    commit_table(catalog, branch)

    (only,) = catalog.history(branch, operations=False)

    assert only.operations is None


def test_history_pages_through_more_than_a_hundred_commits(catalog, branch):
    hashes = [commit(catalog, branch, Unchanged(TABLE), n=str(n)) for n in range(105)]

    assert [entry.hash for entry in catalog.history(branch, operations=False)] == hashes[::-1]


def test_history_starts_where_asked_and_stops_before_until(catalog, branch):
    hashes = [commit(catalog, branch, Unchanged(TABLE), n=str(n)) for n in range(6)]

    found = list(catalog.history(f"{branch}@{hashes[4]}", operations=True, until=hashes[1]))

    assert [entry.hash for entry in found] == [hashes[4], hashes[3], hashes[2]]
    assert found[-1].parent == hashes[1]
    assert list(catalog.history(hashes[4], operations=True, until=hashes[1])) == found
    assert list(catalog.history(branch, operations=False, until=hashes[5])) == []


def test_history_that_never_meets_until_ends_at_the_first_commit(catalog, branch):
    hashes = [commit(catalog, branch, Unchanged(TABLE), n=str(n)) for n in range(4)]

    found = list(catalog.history(branch, operations=False, until=UNKNOWN_HASH))

    assert [entry.hash for entry in found] == hashes[::-1]
    assert found[-1].parent == catalog.no_ancestor()


@pytest.mark.parametrize("start", ["nowhere", UNKNOWN_HASH, f"main@{UNKNOWN_HASH}"])
def test_history_of_something_unknown(catalog, start):
    with pytest.raises(ReferenceNotFound):
        next(catalog.history(start, operations=False))


# Contents and differences


def test_contents_come_in_bulk_and_missing_keys_are_absent(catalog, branch):
    keys = [(f"table {n}",) for n in range(8)]
    head = commit(catalog, branch, *(Put(key, table(f"s3://lake/{key[0]}")) for key in keys))

    found = catalog.contents(branch, head, [*keys, ("missing",)])

    assert {key: content.metadata_location for key, content in found.items()} == {key: f"s3://lake/{key[0]}" for key in keys}
    assert dict(catalog.entries(branch, head)) == found
    assert catalog.contents(branch, head, []) == {}


def test_contents_of_every_kind_and_odd_names_come_back_whole(catalog, branch):
    odd = ("a.b/c\\d %2e", "ünïcode 表")
    puts = {
        ("a.b/c\\d %2e",): namespace_content(("a.b/c\\d %2e",), {"owner": "someone"}),
        odd: table("s3://lake/é/%20/m.json"),
        ("v",): view(),
        ("delta",): Content.of(
            {"type": "DELTA_LAKE_TABLE", "metadataLocationHistory": [], "checkpointLocationHistory": ["x"], "lastCheckpoint": "y"}
        ),
        ("f",): Content.of({"type": "UDF", "dialect": "spark", "sqlText": "1"}),
    }
    head = commit(catalog, branch, *(Put(key, content) for key, content in puts.items()))

    found = dict(catalog.entries(branch, head))

    assert {key: content.with_id(None) for key, content in found.items()} == puts
    assert all(content.id for content in found.values())


def test_a_diff_has_what_was_added_changed_and_removed(catalog, branch):
    keys = [(f"t{n}",) for n in range(9)]
    old_hash = commit(catalog, branch, *(Put(key, table()) for key in keys))
    old = catalog.contents(branch, old_hash, keys)
    changed = {key: table("s3://lake/new", old[key].id) for key in keys[:4]}
    operations = [Put(key, content) for key, content in changed.items()] + [Delete(keys[8])]
    commit(catalog, branch, *operations)
    new_hash = commit(catalog, branch, Put(("new",), table("s3://lake/added")))

    found = {entry.key: entry for entry in catalog.diff(branch, old_hash, new_hash)}

    assert found.keys() == {*keys[:4], keys[8], ("new",)}
    assert found[keys[0]] == DiffEntry(keys[0], old[keys[0]], changed[keys[0]])
    assert found[keys[8]] == DiffEntry(keys[8], old[keys[8]], None)
    assert found[("new",)].old is None
    assert found[("new",)].new.metadata_location == "s3://lake/added"


@pytest.mark.parametrize("old", [None, "no ancestor"])
def test_a_diff_from_nothing_lists_everything(catalog, branch, old):
    head, _ = commit_table(catalog, branch)

    found = list(catalog.diff(branch, old and catalog.no_ancestor(), head))

    assert {entry.key: entry.new for entry in found} == dict(catalog.entries(branch, head))
    assert all(entry.old is None for entry in found)


def test_a_diff_does_not_ask_for_ancestors(catalog, branch):
    """The caller has to walk the history: an unrelated commit is compared as if it were one."""
    head, _ = commit_table(catalog, branch)
    other = catalog.create_branch(f"{branch}-2").name
    unrelated = commit(catalog, other, Put(("x",), table()))

    assert {entry.key for entry in catalog.diff(branch, unrelated, head)} == {("x",), NS, TABLE}


def test_a_diff_from_an_unknown_commit(catalog, branch):
    head, _ = commit_table(catalog, branch)

    with pytest.raises(ReferenceNotFound):
        list(catalog.diff(branch, UNKNOWN_HASH, head))


# Commits


def test_an_update_keeps_the_id(catalog, branch):
    _, content_id = commit_table(catalog, branch)

    head = commit(catalog, branch, Put(TABLE, table("s3://lake/2", content_id)))

    found = catalog.contents(branch, head, [TABLE])[TABLE]
    assert (found.metadata_location, found.id) == ("s3://lake/2", content_id)


def test_a_rename_keeps_the_id(catalog, branch):
    _, content_id = commit_table(catalog, branch)

    head = commit(catalog, branch, Delete(TABLE), Put(("ns", "renamed"), table("s3://lake/2", content_id)))

    (kept,) = (content for key, content in catalog.entries(branch, head) if key != NS)
    assert (kept.metadata_location, kept.id) == ("s3://lake/2", content_id)
    newest = next(catalog.history(branch, operations=True))
    assert set(newest.operations) == {Delete(TABLE), Put(("ns", "renamed"), kept)}


def test_a_re_creation_in_one_commit_gives_a_new_id(catalog, branch):
    _, content_id = commit_table(catalog, branch)

    head = commit(catalog, branch, Delete(TABLE), Put(TABLE, table("s3://lake/2")))

    found = catalog.contents(branch, head, [TABLE])[TABLE]
    assert found.metadata_location == "s3://lake/2"
    assert found.id not in (None, content_id)


def test_a_drop_and_a_new_table_of_that_name_have_different_ids(catalog, branch):
    _, content_id = commit_table(catalog, branch)
    commit(catalog, branch, Delete(TABLE))

    head = commit(catalog, branch, Put(TABLE, table()))

    assert catalog.contents(branch, head, [TABLE])[TABLE].id not in (None, content_id)


def test_a_namespace_goes_with_its_last_table(catalog, branch):
    commit_table(catalog, branch)

    head = commit(catalog, branch, Delete(NS), Delete(TABLE))

    assert list(catalog.entries(branch, head)) == []


def test_a_commit_of_properties_alone_is_one_unchanged_operation(catalog, branch):
    first = commit(catalog, branch, Unchanged(("never", "existed")), source="1")
    second = commit(catalog, branch, Unchanged(("never", "existed")), source="2")

    newest = next(catalog.history(branch, operations=True))

    assert (newest.hash, newest.parent) == (second, first)
    assert newest.operations == ()
    assert newest.properties == {"source": "2"}


def test_a_large_property_is_kept(catalog, branch):
    commit(catalog, branch, Unchanged(TABLE), held="x" * 1_000_000)

    assert len(next(catalog.history(branch, operations=False)).properties["held"]) == 1_000_000


@pytest.mark.parametrize(
    "operations",
    [
        pytest.param(lambda given: [], id="none at all"),
        pytest.param(lambda given: [Put(TABLE, table("s3://lake/2"))], id="existing key without id"),
        pytest.param(lambda given: [Put(TABLE, table("s3://lake/2", str(uuid.uuid4())))], id="existing key with another id"),
        pytest.param(lambda given: [Put(("new",), table("s3://lake/2", str(uuid.uuid4())))], id="new key with an id"),
        pytest.param(lambda given: [Put(NS, namespace_content(NS, {"a": "b"}))], id="existing namespace without id"),
        pytest.param(lambda given: [Put(TABLE, view().with_id(given))], id="another kind"),
        pytest.param(lambda given: [Delete(TABLE), Put(TABLE, view())], id="re-created as another kind"),
        pytest.param(lambda given: [Delete(TABLE), Put(("new",), view().with_id(given))], id="renamed as another kind"),
        pytest.param(lambda given: [Put(("nowhere", "t"), table())], id="no parent namespace"),
        pytest.param(lambda given: [Put(("ns", "t", "x"), table())], id="parent is a table"),
        pytest.param(lambda given: [Delete(NS)], id="namespace not empty"),
        pytest.param(lambda given: [Delete(("missing",))], id="deleted key missing"),
        pytest.param(lambda given: [Unchanged(TABLE), Put(TABLE, table("s3://lake/2", given))], id="key twice"),
    ],
)
def test_wrong_operations_are_refused_and_nothing_changes(catalog, branch, operations):
    head, content_id = commit_table(catalog, branch)

    with pytest.raises(CatalogRefused):
        commit(catalog, branch, *operations(content_id))

    assert catalog.reference(branch).hash == head
    assert next(catalog.history(branch, operations=True)).hash == head
    assert catalog.contents(branch, head, [TABLE])[TABLE].id == content_id


def test_a_kind_changes_in_two_commits(catalog, branch):
    commit_table(catalog, branch)
    commit(catalog, branch, Delete(TABLE))

    head = commit(catalog, branch, Put(TABLE, view()))

    assert catalog.contents(branch, head, [TABLE])[TABLE].kind == ICEBERG_VIEW


def test_a_commit_to_an_unknown_branch_or_hash(catalog, branch):
    with pytest.raises(ReferenceNotFound):
        catalog.commit("nowhere", catalog.no_ancestor(), [Unchanged(TABLE)], "a test")
    with pytest.raises(ReferenceNotFound):
        catalog.commit(branch, UNKNOWN_HASH, [Unchanged(TABLE)], "a test")


# Compare and swap: nothing is committed unless the head is the expected one, whatever the keys are


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param(lambda given: Put(TABLE, table("s3://lake/mine", given)), id="same key"),
        pytest.param(lambda given: Put(("other",), table()), id="another key"),
        pytest.param(lambda given: Unchanged(NS), id="unchanged"),
        pytest.param(lambda given: Delete(NS), id="delete that contradicts the new head"),
    ],
)
@pytest.mark.parametrize(
    "theirs",
    [
        pytest.param(lambda given: Put(TABLE, table("s3://lake/theirs", given)), id="after a put"),
        pytest.param(lambda given: Unchanged(TABLE), id="after properties alone"),
    ],
)
def test_a_stale_hash_conflicts(catalog, branch, operation, theirs):
    stale, content_id = commit_table(catalog, branch)
    head = commit(catalog, branch, theirs(content_id))

    with pytest.raises(CatalogConflict, match=head):
        catalog.commit(branch, stale, [operation(content_id)], "too late")

    assert catalog.reference(branch).hash == head


def test_the_empty_branch_is_a_stale_hash_too(catalog, branch):
    head, _ = commit_table(catalog, branch)

    with pytest.raises(CatalogConflict, match=head):
        catalog.commit(branch, catalog.no_ancestor(), [Put(("other",), table())], "too late")


def test_of_many_at_once_exactly_one_commits(catalog, branch):
    start, _ = commit_table(catalog, branch)

    def race(number: int) -> str | None:
        try:
            return catalog.commit(branch, start, [Put((f"t{number}",), table())], "a race")
        except CatalogConflict:
            return None

    with ThreadPoolExecutor(8) as pool:
        winners = [hash for hash in pool.map(race, range(16)) if hash]

    assert winners == [catalog.reference(branch).hash]
    assert len(list(catalog.history(branch, operations=False, until=start))) == 1


# Values


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (("a",), "a"),
        (("a", "b"), "a.b"),
        (("a.b", "c"), r"a\.b.c"),
        (("a", "b.c"), r"a.b\.c"),
        (("a\\", ".b"), r"a\\.\.b"),
        (("ü 表",), "ü 表"),
    ],
)
def test_a_key_has_one_name(key, name):
    assert key_name(key) == name
    assert parse_key(name) == key


@pytest.mark.parametrize("name", ["", ".", "a.", ".a", "a..b", "a\\", "a\\b"])
def test_what_is_no_key_name(name):
    with pytest.raises(UsageError):
        parse_key(name)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2026-01-02T03:04:05.123456789Z", datetime(2026, 1, 2, 3, 4, 5, 123456, tzinfo=UTC)),
        ("2026-01-02T03:04:05.12Z", datetime(2026, 1, 2, 3, 4, 5, 120000, tzinfo=UTC)),
        ("2026-01-02T03:04:05+02:00", datetime(2026, 1, 2, 1, 4, 5, tzinfo=UTC)),
    ],
)
def test_times_are_read_in_utc(text, moment):
    assert parse_time(text) == moment
    assert parse_time(text).tzinfo is UTC


def test_a_content_keeps_fields_that_nobody_knows():
    given = {"type": ICEBERG_TABLE, "id": "1", "metadataLocation": "s3://a", "future": {"x": [1, None, 1.5]}}

    content = Content.of(given)

    assert content.payload == given
    assert content.with_metadata_location("s3://b").payload == {**given, "metadataLocation": "s3://b"}
    assert "id" not in content.with_id(None).payload
    assert content.with_id("2").id == "2"
    content.payload["future"]["x"].append("changed")
    assert content.payload == given
    assert pickle.loads(pickle.dumps(content)) == content
    assert len({content, Content.of(dict(reversed(given.items())))}) == 1


def test_a_content_without_a_type_is_refused():
    with pytest.raises(CatalogRefused):
        Content.of({"id": "1"})
