"""The compare-and-swap on `main`: others' commits, lost answers, and what can't be found out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sterna.catalog.model import Content, Put, namespace_content
from sterna.errors import (
    CatalogDenied,
    CatalogRefused,
    CatalogStateUnknown,
    CatalogUnreachable,
    CommitOutcomeUnknown,
    StaleBase,
)
from sterna.serving.rest_catalog.swap import REST_KEY, Swap, swap_on_main
from tests.support.doubles.catalog import InMemoryCatalog
from tests.support.small_world import table

KEY = ("ns", "t")


class Main(InMemoryCatalog):
    """A catalog to which something happens when a commit arrives."""

    def __init__(self) -> None:
        super().__init__()
        self.before: list[Callable[[], None]] = []
        self.commit("main", self.no_ancestor(), [Put(("ns",), namespace_content(("ns",)))], "namespace")

    def commit(self, branch, expected_hash, operations, message, properties=None, **more):  # type: ignore[no-untyped-def]
        if branch == "main" and properties and self.before:
            self.before.pop(0)()
        return super().commit(branch, expected_hash, operations, message, properties, **more)

    def put(self, key: tuple[str, ...], content: Content) -> None:
        self.commit("main", self.head, [Put(key, content)], "another")

    def now(self) -> Content | None:
        return self.contents("main", self.head, [KEY]).get(KEY)

    @property
    def head(self) -> str:
        return self.reference("main").hash


def swap(main: Main, *, seconds: float = 5.0) -> str:
    change = Swap({KEY: main.now()}, (Put(KEY, table("s3://lake/new")),), "commit")
    return swap_on_main(main, "eu", change, main.head, idempotency_key="key", seconds=seconds)


def location(main: Main) -> str:
    content = main.now()
    return (content and content.metadata_location) or ""


def test_a_commit_has_the_clients_key() -> None:
    main = Main()
    swap(main)
    commit = next(iter(main.history("main", operations=False)))
    assert (commit.properties[REST_KEY], commit.properties["sterna.region"]) == ("key", "eu")


def test_commits_to_other_keys_dont_matter() -> None:
    main = Main()
    main.before = [lambda: main.put(("ns", "u"), table("s3://lake/u"))] * 1
    swap(main)
    assert location(main) == "s3://lake/new"


def test_a_commit_to_the_same_key_came_first() -> None:
    main = Main()
    main.before = [lambda: main.put(KEY, table("s3://lake/theirs"))]
    with pytest.raises(StaleBase, match="came first"):
        swap(main)
    assert location(main) == "s3://lake/theirs"


def test_a_lost_answer_is_looked_up() -> None:
    main = Main()
    main.before = [main.lose_next_answer]
    assert swap(main) == main.head
    assert location(main) == "s3://lake/new"


def test_what_never_arrived_is_sent_again_under_the_same_id() -> None:
    main = Main()

    def fail() -> None:
        raise CatalogStateUnknown("no answer")

    main.before = [fail, fail]
    assert swap(main) == main.head
    assert len(list(main.history("main", operations=False))) == 2


@pytest.mark.parametrize("error", [CatalogStateUnknown, CatalogUnreachable])
def test_what_cant_be_found_out_is_said_to_be_unknown(error: type[CatalogUnreachable]) -> None:
    main = Main()

    def fail() -> None:
        raise error("no answer")

    main.before = [fail] * 1000
    with pytest.raises(CommitOutcomeUnknown) as caught:
        swap(main, seconds=0.2)
    assert caught.value.status == 500


@pytest.mark.parametrize("error", [CatalogRefused, CatalogDenied])
def test_a_refusal_says_that_nothing_was_committed(error: type[CatalogRefused]) -> None:
    main = Main()

    def fail() -> None:
        raise error("no")

    main.before = [fail]
    with pytest.raises(error):
        swap(main)


def test_a_refusal_of_what_was_committed_nevertheless_is_no_refusal() -> None:
    main = Main()
    plain = InMemoryCatalog.commit

    def commit(branch, expected_hash, operations, message, properties=None, **more):  # type: ignore[no-untyped-def]
        plain(main, branch, expected_hash, operations, message, properties, **more)
        raise CatalogRefused("an error, and a commit")

    main.commit = commit  # type: ignore[method-assign]
    assert swap(main) == main.head


def test_a_refusal_after_a_lost_answer_is_unknown() -> None:
    main = Main()

    def lose() -> None:
        raise CatalogStateUnknown("no answer")

    def refuse() -> None:
        raise CatalogDenied("the credential is not good any more")

    main.before = [lose, refuse]
    with pytest.raises(CommitOutcomeUnknown):
        swap(main)
