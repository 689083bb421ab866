"""What a catalog promises, shown on the real Nessie and on the in-memory double alike: references and history."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sterna.catalog.model import Put, Unchanged
from sterna.errors import CatalogConflict, ReferenceNotFound
from tests.support.catalogs import NS, TABLE, UNKNOWN_HASH, commit, commit_table, table

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


def test_a_tag_stands_at_a_commit_until_it_is_deleted_there(catalog, branch):
    head, _ = commit_table(catalog, branch)
    name = f"{branch}-tag"

    tag = catalog.create_tag(name, branch, head)

    assert (tag.name, tag.hash, tag.kind) == (name, head, "TAG")
    assert catalog.create_tag(name, branch, head) == tag == catalog.reference(name)
    assert TABLE in catalog.contents(name, head, [TABLE])
    with pytest.raises(CatalogConflict):
        catalog.create_tag(name, branch, catalog.no_ancestor())
    with pytest.raises(ReferenceNotFound):
        catalog.create_tag(f"{name}-2", branch, UNKNOWN_HASH)
    with pytest.raises(CatalogConflict):
        catalog.delete_tag(name, catalog.no_ancestor())
    catalog.delete_tag(name, head)
    catalog.delete_tag(name, head)
    assert name not in [reference.name for reference in catalog.references()]


def test_a_tag_is_moved_from_where_it_is_known_to_stand(catalog, branch):
    name = f"{branch}-moving"
    catalog.create_tag(name, catalog.default_branch, catalog.no_ancestor())
    first, content_id = commit_table(catalog, branch)
    second = commit(catalog, branch, Put(TABLE, table("s3://lake/t/metadata/2.json", content_id)))

    assert catalog.move_tag(name, catalog.no_ancestor(), branch, first) == catalog.reference(name)
    assert catalog.reference(name).hash == first
    with pytest.raises(CatalogConflict):
        catalog.move_tag(name, catalog.no_ancestor(), branch, second)
    with pytest.raises(ReferenceNotFound):
        catalog.move_tag(name, first, branch, UNKNOWN_HASH)
    with pytest.raises(ReferenceNotFound):
        catalog.move_tag(f"{name}-none", first, branch, second)
    assert catalog.move_tag(name, first, branch, second).hash == second
    with pytest.raises(CatalogConflict):  # it stands there already, and whoever moved it there wasn't this one
        catalog.move_tag(name, first, branch, second)
    catalog.delete_tag(name, second)


def test_whether_a_commit_is_known(catalog, branch):
    head, _ = commit_table(catalog, branch)

    assert catalog.exists(head)
    assert catalog.exists(catalog.no_ancestor())
    assert not catalog.exists(UNKNOWN_HASH)


# History


def test_history_is_newest_first_with_properties_and_operations(catalog, branch):
    before = datetime.now(UTC)
    first, content_id = commit_table(catalog, branch)
    second = commit(
        catalog, branch, Put(TABLE, table("s3://lake/t/metadata/2.json", content_id)), source="abc", größe="ü 1"
    )

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

    commits = list(catalog.history(f"{branch}@{hashes[4]}", operations=True, until=hashes[1]))

    assert [entry.hash for entry in commits] == [hashes[4], hashes[3], hashes[2]]
    assert commits[-1].parent == hashes[1]
    assert list(catalog.history(hashes[4], operations=True, until=hashes[1])) == commits
    assert list(catalog.history(branch, operations=False, until=hashes[5])) == []


def test_history_that_never_meets_until_ends_at_the_first_commit(catalog, branch):
    hashes = [commit(catalog, branch, Unchanged(TABLE), n=str(n)) for n in range(4)]

    commits = list(catalog.history(branch, operations=False, until=UNKNOWN_HASH))

    assert [entry.hash for entry in commits] == hashes[::-1]
    assert commits[-1].parent == catalog.no_ancestor()


@pytest.mark.parametrize("start", ["nowhere", UNKNOWN_HASH, f"main@{UNKNOWN_HASH}"])
def test_history_of_something_unknown(catalog, start):
    with pytest.raises(ReferenceNotFound):
        next(catalog.history(start, operations=False))
