"""What a restore brings back, and by which operations: of any two states of `main`."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.catalog.model import (
    ICEBERG_VIEW,
    NAMESPACE,
    Content,
    Delete,
    Key,
    Put,
    key_name,
    namespace_content,
)
from sterna.errors import NothingToRestore, TableLives, UsageError
from sterna.maintenance.restore.model import RestoreRequest, Selection
from sterna.maintenance.restore.select import restore_operations, select
from tests.support.small_world import table

NAMES = [("a", "t"), ("a", "u"), ("b", "t"), ("b", "c", "t")]
OF = "0" * 64
State = dict[Key, Content]


def state(tables: Mapping[Key, Content]) -> State:
    """The tables, and the namespaces that they are in."""
    namespaces = {key[:length] for key in tables for length in range(1, len(key))}
    return {**{key: namespace_content(key, content_id=key_name(key)) for key in namespaces}, **tables}


CONTENTS = st.builds(table, st.sampled_from(["s3://x/1.json", "s3://x/2.json"]), st.sampled_from(["id1", "id2"]))
STATES = st.dictionaries(st.sampled_from(NAMES), CONTENTS).map(state)


def applied(selection: Selection, present: State) -> State:
    """What `main` holds once the operations are committed, deletes first, as the catalog does it."""
    contents = {selected.target: selected.content for selected in selection.tables}
    operations = restore_operations(selection, contents)
    after = dict(present)
    for operation in operations:
        if isinstance(operation, Delete):
            del after[operation.key]
    for operation in operations:
        if isinstance(operation, Put):
            existing = after.get(operation.key)
            assert operation.content.id == (existing.id if existing else None), "the catalog refuses it"
            assert all(operation.key[:length] in after for length in range(1, len(operation.key)))
            after[operation.key] = operation.content.with_id(existing.id if existing else "new")
    return after


def shown(contents: State) -> dict[Key, str | None]:
    return {key: content.metadata_location for key, content in contents.items() if content.kind != NAMESPACE}


@given(STATES, STATES)
def test_everything_over_what_lives_is_the_past_and_what_came_since(past: State, present: State) -> None:
    selection = select(RestoreRequest(OF, everything=True, over=True), past, present)
    after = applied(selection, present)
    assert shown(after) == {**shown(present), **shown(past)}
    assert past.keys() <= after.keys()
    # Once done, there is nothing left to do.
    assert not [it for it in select(RestoreRequest(OF, everything=True), past, after).tables if it.present is None]


@given(STATES, STATES)
def test_nothing_that_lives_is_touched_unless_it_is_to_be_replaced(past: State, present: State) -> None:
    selection = select(RestoreRequest(OF, everything=True), past, present)
    after = applied(selection, present)
    assert shown(after) == {**shown(past), **shown(present)}
    assert selection.left.keys() == {key_name(key) for key in shown(past).keys() & shown(present).keys()}


@given(STATES, STATES, st.sampled_from(NAMES))
def test_a_table_comes_back_alone_or_is_refused_by_name(past: State, present: State, key: Key) -> None:
    request = RestoreRequest(OF, (key_name(key),))
    if key not in past:
        with pytest.raises(NothingToRestore, match=key_name(key)):
            select(request, past, present)
    elif key in present and present[key].with_id(None) != past[key].with_id(None):
        with pytest.raises(TableLives) as refused:
            select(request, past, present)
        assert refused.value.table == key_name(key)
    else:
        after = applied(select(request, past, present), present)
        assert shown(after) == {**shown(present), key: past[key].metadata_location}


def test_a_namespace_comes_back_with_what_is_below_it() -> None:
    past = state({key: table("s3://x/1.json", "id1") for key in NAMES})
    selection = select(RestoreRequest(OF, ("b",)), past, {})
    assert [key_name(selected.target) for selected in selection.tables] == ["b.c.t", "b.t"]
    assert [put.key for put in selection.namespaces] == [("b",), ("b", "c")]


def test_a_table_is_put_beside() -> None:
    past = state({("a", "t"): table("s3://x/1.json", "id1")})
    present = state({("a", "t"): table("s3://x/2.json", "id1")})
    after = applied(select(RestoreRequest(OF, ("a.t",), new_name="a.old"), past, present), present)
    assert shown(after) == {("a", "t"): "s3://x/2.json", ("a", "old"): "s3://x/1.json"}
    with pytest.raises(NothingToRestore, match="no namespace z"):
        select(RestoreRequest(OF, ("a.t",), new_name="z.old"), past, present)
    with pytest.raises(NothingToRestore, match="one table"):
        select(RestoreRequest(OF, ("a",), new_name="a.old"), past, present)
    with pytest.raises(TableLives):
        select(RestoreRequest(OF, ("a.t",), new_name="a.t"), past, present)


@pytest.mark.parametrize("content_id", ["id1", "id2"])
def test_an_unchanged_table_is_replaced_by_a_regions_copies_alone(content_id: str) -> None:
    past = state({("a", "t"): table("s3://x/1.json", "id1")})
    present = state({("a", "t"): table("s3://x/1.json", content_id)})
    for source, over in (("", True), ("home", True), ("eu", False)):
        request = RestoreRequest(OF, ("a.t",), over=over, source=source)
        assert select(request, past, present).left == {"a.t": "it is as it was then"}
    selection = select(RestoreRequest(OF, ("a.t",), over=True, source="eu"), past, present)
    copy = table("s3://eu/1.json", "id1")
    assert restore_operations(selection, {("a", "t"): copy}) == [Put(("a", "t"), copy.with_id(content_id))]


def test_what_is_of_another_kind_now_stays() -> None:
    past = state({("a", "t"): table("s3://x/1.json", "id1")})
    view = Content.of({"type": ICEBERG_VIEW, "metadataLocation": "s3://x/v.json", "id": "id2"})
    with pytest.raises(NothingToRestore, match="another kind"):
        select(RestoreRequest(OF, ("a.t",), over=True), past, state({("a", "t"): view}))
    left = select(RestoreRequest(OF, ("a",), over=True), past, state({("a", "t"): view})).left
    assert list(left) == ["a.t"]
    with pytest.raises(NothingToRestore, match="no namespace any more"):
        select(RestoreRequest(OF, ("a.t",)), past, {("a",): table("s3://x/2.json", "id3")})
    with pytest.raises(NothingToRestore, match="came after"):
        select(RestoreRequest(OF, ("b",)), past, state({("b", "t"): view}))


def test_a_request_says_one_thing() -> None:
    for wrong in (
        lambda: RestoreRequest(OF),
        lambda: RestoreRequest(OF, ("a",), everything=True),
        lambda: RestoreRequest(OF, ("a", "b"), new_name="c"),
        lambda: RestoreRequest(OF, everything=True, new_name="c"),
        lambda: RestoreRequest(OF, ("",)),
        lambda: RestoreRequest(OF, ("a", "")),
    ):
        with pytest.raises(UsageError):
            wrong()
