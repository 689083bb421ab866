"""Where a topic's partition is read on: what one reader noted, no later one takes back.

The kind: an object that several write over, each by what it has seen. A reader that was late ends earlier in the same
stretch, or is still at an earlier one; two write at the same moment; and a store that has no conditional requests.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from obstore.store import MemoryStore

from sterna.config.sections.topics import SourceTopic
from sterna.errors import BadDrop, StoreUnreachable
from sterna.pipelines.ingest.layout import empty_range_uri
from sterna.pipelines.ingest.topic_offsets import EMPTY_RANGE_FILE, EmptyRange, TopicPositions
from sterna.storage.objects import Objects
from sterna.storage.write import create, update
from tests.support.small_world import make_world


@pytest.fixture
def inbox(tmp_path: Path) -> str:
    return f"file://{tmp_path}/eu/lake/inbox"


@pytest.fixture(params=["disk", "memory"])
def objects(tmp_path: Path, inbox: str, request: pytest.FixtureRequest) -> Objects:
    """Stores without conditional requests, and with them."""
    return opened(tmp_path, inbox, memory=request.param == "memory")


def opened(folder: Path, inbox: str, *, memory: bool = True) -> Objects:
    objects = make_world(folder).context().objects
    if memory:
        objects.open(objects.mapping.locate(f"{inbox}/x").location).client = MemoryStore()
    return objects


@pytest.fixture
def places(objects: Objects, inbox: str) -> TopicPositions:
    topic = SourceTopic.model_construct(name="clicks", topic="eu.clicks", into="acme.events", begin={})
    ingest: Any = SimpleNamespace(
        name="eu",
        objects=objects,
        region_settings=SimpleNamespace(inbox=inbox),
        settings=SimpleNamespace(tenant_of=lambda table: "acme"),
    )
    return TopicPositions(ingest, topic)


@pytest.mark.parametrize("late", [(10, 15), (10, 20), (4, 9), (4, 90)])
def test_a_reader_that_was_late_takes_nothing_back(
    places: TopicPositions, objects: Objects, inbox: str, late: tuple[int, int]
) -> None:
    uri = empty_range_uri(inbox, places.destination(0))
    for first, end in ((4, 10), (10, 12), (10, 20), late):
        places.record_empty_range(0, first, end)
    assert EMPTY_RANGE_FILE.loads(objects.read(uri)) == EmptyRange(10, 20)
    places.record_empty_range(0, 10, 21)
    assert EMPTY_RANGE_FILE.loads(objects.read(uri)) == EmptyRange(10, 21)


def test_a_note_that_can_not_be_read_is_left_and_told(places: TopicPositions, objects: Objects, inbox: str) -> None:
    uri = empty_range_uri(inbox, places.destination(0))
    create(objects, uri, b"{")
    with pytest.raises(BadDrop, match="no topic's file"):
        places.record_empty_range(0, 10, 20)
    assert objects.read(uri) == b"{"


def test_of_two_who_write_at_the_same_moment_none_is_lost(tmp_path: Path, inbox: str) -> None:
    """Each adds a letter to what it has read; the first time another one is quicker."""
    objects = opened(tmp_path, inbox)
    for there in (None, b"x"):
        uri, seen = f"{inbox}/{there!r}", list[bytes | None]()
        if there:
            create(objects, uri, there)

        def add(content: bytes | None) -> bytes:
            seen.append(content)  # noqa: B023
            if len(seen) == 1:  # noqa: B023
                assert update(objects, uri, lambda other: (other or b"") + b"a")  # noqa: B023
            return (content or b"") + b"b"

        assert update(objects, uri, add)
        assert seen == [there, (there or b"") + b"a"]
        assert objects.read(uri) == (there or b"") + b"ab"


def test_one_that_is_never_first_is_told(tmp_path: Path, inbox: str) -> None:
    objects, uri = opened(tmp_path, inbox), f"{inbox}/x"
    create(objects, uri, b"")

    def slow(content: bytes | None) -> bytes:
        update(objects, uri, lambda other: (other or b"") + b"a")
        return b"b"

    with pytest.raises(StoreUnreachable, match="changed by others each time"):
        update(objects, uri, slow)
