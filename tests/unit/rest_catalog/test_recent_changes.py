"""Clients read their own writes before the replica branch has them, and never an older version afterwards."""

from __future__ import annotations

from sterna.catalog.model import namespace_content
from sterna.serving.rest_catalog.recent_changes import RecentChanges
from tests.support.small_world import table

KEY, OTHER = ("ns", "t"), ("ns", "u")
V1, V2, V3, V4 = (table(f"s3://lake/{number}", "id") for number in range(1, 5))


def test_a_change_is_shown_until_the_branch_has_it() -> None:
    recent = RecentChanges()
    recent.record({KEY: (V1, V2)})
    assert recent.content(KEY, V1) == V2.with_id(None)
    assert recent.content(KEY, V2) == V2
    recent.discard_published(recent.count)
    assert recent.content(KEY, V1) == V1  # it was forgotten: the branch was put back by an operator


def test_a_sync_that_was_under_way_doesnt_take_a_later_change_away() -> None:
    recent = RecentChanges()
    recent.record({KEY: (V1, V2)})
    recent.record({KEY: (recent.content(KEY, V1), V3)})
    assert recent.content(KEY, V2) == V3.with_id(None)  # what the sync published was the first change alone


def test_what_is_dropped_before_a_sync_has_published_it_stays_away() -> None:
    recent = RecentChanges()
    recent.record({KEY: (None, V1)})
    before = recent.count
    recent.record({KEY: (recent.content(KEY, None), None)})
    assert recent.content(KEY, None) is None
    assert recent.content(KEY, V1) is None  # a sync that began in between has published it
    recent.discard_published(before)
    assert recent.content(KEY, V1) is None
    recent.discard_published(recent.count)
    assert recent.content(KEY, V1) == V1  # others have made it again


def test_what_a_sync_publishes_that_was_planned_before_a_drop_stays_away() -> None:
    """The region was behind: what was dropped isn't what it showed."""
    recent = RecentChanges()
    recent.record({KEY: (V1, None), OTHER: (None, None)}, replaced={KEY: V2, OTHER: V2})
    for key in (KEY, OTHER):
        assert recent.content(key, V2) is None
    assert recent.content(KEY, V1) is None
    assert recent.content(KEY, V3) == V3


def test_what_was_read_before_another_change_takes_nothing_back() -> None:
    recent = RecentChanges()
    count = recent.count
    recent.record({KEY: (V1, V3)})
    recent.record({KEY: (V1, V2), OTHER: (None, V1)}, count)
    assert recent.content(KEY, V1) == V3.with_id(None)
    assert recent.content(OTHER, None) == V1.with_id(None)


def test_what_others_committed_afterwards_is_shown_once_the_branch_has_it() -> None:
    recent = RecentChanges()
    recent.record({KEY: (V1, V2)})
    assert recent.content(KEY, V4) == V4


def test_what_was_made_and_dropped_is_in_listings_and_not() -> None:
    recent = RecentChanges()
    recent.record({KEY: (None, V1), OTHER: (V2, None), ("ns",): (None, namespace_content(("ns",)))})
    assert recent.entries({OTHER: V2}) == {KEY: V1.with_id(None), ("ns",): namespace_content(("ns",))}
    assert recent.content(OTHER, V2) is None
    assert recent.content(KEY, None) == V1.with_id(None)


def test_a_sync_that_saw_a_change_ends_it_unless_the_key_is_held() -> None:
    recent = RecentChanges()
    recent.record({KEY: (None, V1), OTHER: (None, V2)})
    count = recent.count
    recent.record({("ns", "later"): (None, V3)})
    recent.discard_until(count, held={OTHER})
    assert recent.content(KEY, None) is None  # others have dropped it before any sync saw it
    assert recent.content(OTHER, None) == V2.with_id(None)
    assert recent.content(("ns", "later"), None) == V3.with_id(None)


def test_what_was_read_before_a_sync_published_it_is_read_again() -> None:
    """Else a client would see what was before its own write, for which nothing is left here."""
    recent, branch = RecentChanges(), [V1]
    recent.record({KEY: (V1, V2)})

    def look() -> object:
        shown = branch[0]
        if branch == [V1]:  # a sync publishes the change, and ends, before it is laid over what was read
            branch[0] = V2
            recent.content(KEY, V2)
            recent.discard_until(recent.count)
        return recent.content(KEY, shown)

    assert recent.with_branch(look) == V2


def test_what_was_read_before_a_later_change_was_published_is_read_again() -> None:
    """Another reader finds the later one first: nothing is left here to lay over what this one has read."""
    recent, branch = RecentChanges(), [V1]
    recent.record({KEY: (V1, V2)})

    def look() -> object:
        shown = branch[0]
        if branch == [V1]:
            branch[0] = V4
            recent.content(KEY, V4)
        return recent.content(KEY, shown)

    assert recent.with_branch(look) == V4
