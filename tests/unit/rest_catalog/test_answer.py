"""Localizing one table for an answer: the next sync writes the same, and finds it there."""

from __future__ import annotations

from pathlib import Path

import pytest

from sterna.catalog.model import Content, Key, namespace_content
from sterna.serving.rest_catalog.answer import localize_entry, stands_for
from tests.support.small_world import World, make_world, run

KEY = ("ns", "orders")


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = make_world(tmp_path)
    made.commit(orders=made.write("orders"))
    run(made)
    return made


def on(world: World, branch: str, key: Key = KEY) -> Content:
    return world.catalog.contents(branch, world.catalog.reference(branch).hash, [key])[key]


def files(world: World) -> dict[str, bytes]:
    folder = world.folder / "eu" / "replica"
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and "_sterna" not in str(path)}


def test_what_is_localized_is_what_a_sync_publishes(world: World) -> None:
    before, head, earlier = on(world, "main_replica_eu"), world.catalog.reference("main_replica_eu").hash, files(world)
    world.commit(orders=world.write("orders"))
    run(world)
    published, written = on(world, "main_replica_eu"), files(world)
    # The content files stay: they are here as those are that this region's clients write.
    new = {path for path in written.keys() - earlier.keys() if "/_localized/" in path}
    assert len(new) == 3  # a manifest, a list, a metadata.json
    for path in new:
        Path(path).unlink()
    world.catalog.assign("main_replica_eu", head)
    assert localize_entry(world.context(), KEY, on(world, "main"), before) == published.with_id(None)
    assert files(world) == written
    run(world)
    assert on(world, "main_replica_eu").with_id(None) == published.with_id(None)
    assert files(world) == written


def test_what_has_to_be_copied_is_left_to_a_sync(world: World) -> None:
    before = on(world, "main_replica_eu")
    world.commit(orders=world.write("orders"))
    assert localize_entry(world.context(), KEY, on(world, "main"), before) is None


def test_the_first_version_is_localized_where_all_is_here(world: World) -> None:
    assert localize_entry(world.context(), KEY, on(world, "main"), None) == on(world, "main_replica_eu").with_id(None)


def test_a_namespace_is_shown_as_it_is(world: World) -> None:
    content = on(world, "main", ("ns",))
    assert localize_entry(world.context(), ("ns",), content, None) == namespace_content(("ns",))
    assert stands_for(world.context(), ("ns",), on(world, "main_replica_eu", ("ns",)), content)


def test_what_is_shown_stands_for_what_main_has_until_main_goes_on(world: World) -> None:
    context, shown = world.context(), on(world, "main_replica_eu")
    assert stands_for(context, KEY, shown, on(world, "main"))
    assert not stands_for(context, KEY, None, on(world, "main"))
    world.commit(orders=world.write("orders"))
    assert not stands_for(context, KEY, shown, on(world, "main"))
