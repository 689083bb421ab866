"""What a catalog promises, shown on the real Nessie and on the in-memory double alike: contents and commits."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from sterna.catalog.model import ICEBERG_VIEW, Content, Delete, DiffEntry, Put, Unchanged, namespace_content
from sterna.errors import CatalogConflict, CatalogRefused, ReferenceNotFound
from tests.support.catalogs import NS, TABLE, UNKNOWN_HASH, commit, commit_table, table, view

# Contents and differences


def test_contents_come_in_bulk_and_missing_keys_are_absent(catalog, branch):
    keys = [(f"table {n}",) for n in range(8)]
    head = commit(catalog, branch, *(Put(key, table(f"s3://lake/{key[0]}")) for key in keys))

    contents = catalog.contents(branch, head, [*keys, ("missing",)])

    assert {key: content.metadata_location for key, content in contents.items()} == {
        key: f"s3://lake/{key[0]}" for key in keys
    }
    assert dict(catalog.entries(branch, head)) == contents
    assert catalog.contents(branch, head, []) == {}
    assert catalog.read_current(branch, [*keys, ("missing",)]) == (head, contents)
    assert catalog.read_current(branch, []) == (head, {})


def test_contents_of_an_empty_branch_and_of_none(catalog, branch):
    assert catalog.read_current("main", []) == (catalog.reference("main").hash, {})
    empty = catalog.create_branch(f"{branch}-empty", catalog.no_ancestor())
    assert catalog.read_current(empty.name, [TABLE]) == (catalog.no_ancestor(), {})
    with pytest.raises(ReferenceNotFound):
        catalog.read_current(f"{branch}-none", [TABLE])


def test_contents_of_every_kind_and_odd_names_come_back_whole(catalog, branch):
    odd = ("a.b/c\\d %2e", "ünïcode 表")
    puts = {
        ("a.b/c\\d %2e",): namespace_content(("a.b/c\\d %2e",), {"owner": "someone"}),
        odd: table("s3://lake/é/%20/m.json"),
        ("v",): view(),
        ("delta",): Content.of(
            {
                "type": "DELTA_LAKE_TABLE",
                "metadataLocationHistory": [],
                "checkpointLocationHistory": ["x"],
                "lastCheckpoint": "y",
            }
        ),
        ("f",): Content.of({"type": "UDF", "dialect": "spark", "sqlText": "1"}),
    }
    head = commit(catalog, branch, *(Put(key, content) for key, content in puts.items()))

    contents = dict(catalog.entries(branch, head))

    assert {key: content.with_id(None) for key, content in contents.items()} == puts
    assert all(content.id for content in contents.values())


def test_a_diff_has_what_was_added_changed_and_removed(catalog, branch):
    keys = [(f"t{n}",) for n in range(9)]
    old_hash = commit(catalog, branch, *(Put(key, table()) for key in keys))
    old = catalog.contents(branch, old_hash, keys)
    changed = {key: table("s3://lake/new", old[key].id) for key in keys[:4]}
    operations = [Put(key, content) for key, content in changed.items()] + [Delete(keys[8])]
    commit(catalog, branch, *operations)
    new_hash = commit(catalog, branch, Put(("new",), table("s3://lake/added")))

    differences = {entry.key: entry for entry in catalog.diff(branch, old_hash, new_hash)}

    assert differences.keys() == {*keys[:4], keys[8], ("new",)}
    assert differences[keys[0]] == DiffEntry(keys[0], old[keys[0]], changed[keys[0]])
    assert differences[keys[8]] == DiffEntry(keys[8], old[keys[8]], None)
    assert differences[("new",)].old is None
    assert differences[("new",)].new.metadata_location == "s3://lake/added"


@pytest.mark.parametrize("old", [None, "no ancestor"])
def test_a_diff_from_nothing_lists_everything(catalog, branch, old):
    head, _ = commit_table(catalog, branch)

    differences = list(catalog.diff(branch, old and catalog.no_ancestor(), head))

    assert {entry.key: entry.new for entry in differences} == dict(catalog.entries(branch, head))
    assert all(entry.old is None for entry in differences)


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

    updated = catalog.contents(branch, head, [TABLE])[TABLE]
    assert (updated.metadata_location, updated.id) == ("s3://lake/2", content_id)


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

    recreated = catalog.contents(branch, head, [TABLE])[TABLE]
    assert recreated.metadata_location == "s3://lake/2"
    assert recreated.id not in (None, content_id)


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
        pytest.param(lambda content_id: [], id="none at all"),
        pytest.param(lambda content_id: [Put(TABLE, table("s3://lake/2"))], id="existing key without id"),
        pytest.param(
            lambda content_id: [Put(TABLE, table("s3://lake/2", str(uuid.uuid4())))], id="existing key with another id"
        ),
        pytest.param(
            lambda content_id: [Put(("new",), table("s3://lake/2", str(uuid.uuid4())))], id="new key with an id"
        ),
        pytest.param(
            lambda content_id: [Put(NS, namespace_content(NS, {"a": "b"}))], id="existing namespace without id"
        ),
        pytest.param(lambda content_id: [Put(TABLE, view().with_id(content_id))], id="another kind"),
        pytest.param(lambda content_id: [Delete(TABLE), Put(TABLE, view())], id="re-created as another kind"),
        pytest.param(
            lambda content_id: [Delete(TABLE), Put(("new",), view().with_id(content_id))], id="renamed as another kind"
        ),
        pytest.param(lambda content_id: [Put(("nowhere", "t"), table())], id="no parent namespace"),
        pytest.param(lambda content_id: [Put(("ns", "t", "x"), table())], id="parent is a table"),
        pytest.param(lambda content_id: [Delete(NS)], id="namespace not empty"),
        pytest.param(lambda content_id: [Delete(("missing",))], id="deleted key missing"),
        pytest.param(
            lambda content_id: [Unchanged(TABLE), Put(TABLE, table("s3://lake/2", content_id))], id="key twice"
        ),
    ],
)
@pytest.mark.parametrize("is_read", [False, True], ids=["", "with what is there"])
def test_wrong_operations_are_refused_and_nothing_changes(catalog, branch, operations, is_read):
    head, content_id = commit_table(catalog, branch)
    wrong = operations(content_id)
    contents = catalog.contents(branch, head, [operation.key for operation in wrong])
    existing = {operation.key: contents.get(operation.key) for operation in wrong} if is_read else None

    with pytest.raises(CatalogRefused):
        catalog.commit(branch, head, wrong, "a test", existing=existing)

    assert catalog.reference(branch).hash == head
    assert next(catalog.history(branch, operations=True)).hash == head
    assert catalog.contents(branch, head, [TABLE])[TABLE].id == content_id


def test_what_the_caller_has_read_is_not_read_again(catalog, branch, monkeypatch):
    head, content_id = commit_table(catalog, branch)
    existing = catalog.contents(branch, head, [TABLE])
    changed = Put(TABLE, table("s3://lake/2", content_id))

    def read(*arguments, **more):
        raise AssertionError("it is read again")

    with monkeypatch.context() as patch:
        patch.setattr(catalog, "contents", read)
        head = catalog.commit(branch, head, [changed], "a test", existing=existing)
    assert catalog.contents(branch, head, [TABLE])[TABLE].metadata_location == "s3://lake/2"


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
        pytest.param(lambda content_id: Put(TABLE, table("s3://lake/mine", content_id)), id="same key"),
        pytest.param(lambda content_id: Put(("other",), table()), id="another key"),
        pytest.param(lambda content_id: Unchanged(NS), id="unchanged"),
        pytest.param(lambda content_id: Delete(NS), id="delete that contradicts the new head"),
    ],
)
@pytest.mark.parametrize(
    "theirs",
    [
        pytest.param(lambda content_id: Put(TABLE, table("s3://lake/theirs", content_id)), id="after a put"),
        pytest.param(lambda content_id: Unchanged(TABLE), id="after properties alone"),
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
