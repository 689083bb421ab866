"""What is two things on `main` is two on the replica branch, and what stays one stays one, however a sync finds it.

The kind: identity read off a name. A key's content has an id on `main` and another one on the replica branch; over all
that either branch ever held, no id of the replica's stands for two of `main`'s. What falls under it: a table or view
dropped and made again under its name, also where it says no UUID (format version 1); two that swap their names; one
that is renamed, onto a free name or one that another just left; a table that becomes a view, and back. Each by all that
a sync goes by: the difference since the last one, all keys (on request, or under another registry), what the replica's
own metadata no longer says, after a while in which it was held, and after a sync of chosen tables, which brings some of
them and leaves the watermark. And no id of `main`'s becomes two, but where one commit of Nessie's can't say it: a table
takes a name that the replica still has for another one. Namespaces keep their place, and their id, by what stands in
them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sterna.catalog.model import ICEBERG_VIEW, NAMESPACE, Content, Delete, Key, Operation, Put
from sterna.config.registry.policy import Policy
from sterna.replication.replica.head import read_head
from tests.support.small_world import World, run, table, with_registry


class Main:
    """Makes and changes what `main` holds under three names of one namespace.

    Args:
        world: whose catalog it is.

    Attributes:
        between: the ids on `main` and on the replica branch that were there on the way.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.serial = 0
        self.between: set[tuple[str | None, str | None]] = set()

    def table(self, *, uuid: bool = True) -> Content:
        """A table that is no other's."""
        self.serial += 1
        return table(self._location(f"t{self.serial}", uuid=uuid))

    def view(self) -> Content:
        """A view that is no other's."""
        self.serial += 1
        base = self.world.folder / "us" / "lake" / f"v{self.serial}"
        document = {"view-uuid": f"uuid-{self.serial}", "format-version": 1, "location": f"file://{base}"}
        more = {"current-version-id": 1, "versions": [], "version-log": [], "schemas": []}
        path = base / "metadata" / "00000-v.metadata.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({**document, **more}))
        return Content.of({"type": ICEBERG_VIEW, "metadataLocation": f"file://{path}", "versionId": 1, "schemaId": 0})

    def changed(self, content: Content) -> Content:
        """The next version of the same table or view."""
        old = Path((content.metadata_location or "").removeprefix("file://"))
        self.serial += 1
        new = old.with_name(f"1{self.serial:04}-next.metadata.json")
        new.write_bytes(old.read_bytes())
        return content.with_metadata_location(f"file://{new}")

    def now(self) -> dict[str, Content]:
        """What `main` holds, but for the namespace."""
        head = self.world.catalog.reference("main").hash
        entries = self.world.catalog.entries("main", head) if head != self.world.catalog.no_ancestor() else ()
        return {key[-1]: content for key, content in entries if content.kind != NAMESPACE}

    def commit(self, *operations: Operation) -> None:
        """Commit."""
        self.world.catalog.commit("main", self.world.catalog.reference("main").hash, operations, "write")

    def _location(self, name: str, *, uuid: bool) -> str:
        location = self.world.write(name)
        if not uuid:
            path = Path(location.removeprefix("file://"))
            document = json.loads(path.read_text())
            del document["table-uuid"]
            document |= {"format-version": 1, "schema": document["schemas"][0], "partition-spec": []}
            path.write_text(json.dumps(document))
        return location


def key(name: str) -> Key:
    """One of the namespace's keys."""
    return ("ns", name)


def anew(main: Main, new: Content) -> None:
    """Drop what `a` holds, and put something else there."""
    main.commit(Delete(key("a")))
    main.commit(Put(key("a"), new))


def table_anew(main: Main) -> None:
    """Another table."""
    anew(main, main.table())


def table_anew_in_one_commit(main: Main) -> None:
    """Another table, as `CREATE OR REPLACE` by a writer that drops and makes."""
    main.commit(Delete(key("a")), Put(key("a"), main.table()))


def table_without_uuid_anew(main: Main) -> None:
    """Another table, and neither says a UUID."""
    main.commit(Delete(key("w")))
    main.commit(Put(key("w"), main.table(uuid=False)))


def view_anew(main: Main) -> None:
    """Another view."""
    main.commit(Delete(key("v")))
    main.commit(Put(key("v"), main.view()))


def view_becomes_table(main: Main) -> None:
    """A table where a view was."""
    main.commit(Delete(key("v")))
    main.commit(Put(key("v"), main.table()))


def table_becomes_view(main: Main) -> None:
    """A view where a table was."""
    anew(main, main.view())


def swapped(main: Main) -> None:
    """Two tables that have each other's names."""
    now = main.now()
    main.commit(Delete(key("a")), Put(key("c"), now["a"]))
    main.commit(Delete(key("b")), Put(key("a"), now["b"]))
    main.commit(Delete(key("c")), Put(key("b"), now["a"]))


def renamed(main: Main) -> None:
    """A table under a free name."""
    now = main.now()
    main.commit(Delete(key("a")), Put(key("c"), main.changed(now["a"])))


def view_renamed(main: Main) -> None:
    """A view under a free name."""
    now = main.now()
    main.commit(Delete(key("v")), Put(key("c"), main.changed(now["v"])))


def handed_on(main: Main) -> None:
    """A table under the name of another one that was dropped."""
    now = main.now()
    main.commit(Delete(key("b")))
    main.commit(Delete(key("a")), Put(key("b"), now["a"]))


def versions(main: Main) -> None:
    """Each a version further, and still itself."""
    main.commit(*(Put(key(name), main.changed(content)) for name, content in main.now().items()))


CHANGES = [
    table_anew,
    table_anew_in_one_commit,
    table_without_uuid_anew,
    view_anew,
    view_becomes_table,
    table_becomes_view,
    swapped,
    renamed,
    view_renamed,
    handed_on,
    versions,
]
OVER_ANOTHER = [swapped, handed_on]
"""What no single commit can say with ids that are there: Nessie takes a Delete and a Put of one key without id only."""


@contextmanager
def by_difference(main: Main) -> Iterator[World]:
    """What changed since the last sync."""
    yield main.world
    run(main.world)


@contextmanager
def on_request(main: Main) -> Iterator[World]:
    """All keys, as somebody asked for."""
    yield main.world
    run(main.world, full=True)


@contextmanager
def under_another_registry(main: Main) -> Iterator[World]:
    """All keys, since a policy came."""
    other = with_registry(main.world, policies=[Policy(tables=["ns.zzz"], replicate=False)])
    yield other
    run(other)


@contextmanager
def lost_table(main: Main) -> Iterator[Content]:
    """A table whose metadata.json is gone for as long as the block runs."""
    lost = main.table()
    path = Path((lost.metadata_location or "").removeprefix("file://"))
    aside = path.rename(path.with_suffix(".aside"))
    yield lost
    aside.rename(path)


@contextmanager
def held_meanwhile(main: Main) -> Iterator[World]:
    """What was held for a file of another table, and syncs went on without it."""
    with lost_table(main) as lost:
        yield main.world
        changed = [name for name in main.now() if name != "x"]
        main.commit(Put(key("x"), lost), *(Put(key(name), main.changed(main.now()[name])) for name in changed))
        assert {item.key for item in run(main.world).held} >= {f"ns.{name}" for name in changed}
        main.commit(Put(("other",), Content.of({"type": NAMESPACE, "elements": ["other"]})))
        run(main.world)
    run(main.world)


@contextmanager
def chosen_first(main: Main) -> Iterator[World]:
    """What was brought by a sync of chosen tables, and changed before the next one of all."""
    yield main.world
    run(main.world, tables=("ns.*",))
    main.between |= pairs(main)
    versions(main)
    run(main.world)


@contextmanager
def chosen_first_and_held(main: Main) -> Iterator[World]:
    """What was brought by a sync of chosen tables, and held by the next one of all."""
    with lost_table(main) as lost:
        yield main.world
        run(main.world, tables=("ns.*",))
        main.between |= pairs(main)
        now = main.now()
        main.commit(Put(key("x"), lost), *(Put(key(name), main.changed(content)) for name, content in now.items()))
        assert {item.key for item in run(main.world).held} >= {f"ns.{name}" for name in now}
    run(main.world)


@contextmanager
def without_the_replicas_metadata(main: Main) -> Iterator[World]:
    """All keys, and what readers have is gone: no UUID can be read there."""
    yield main.world
    for path in (main.world.folder / "eu" / "replica").rglob("*.metadata.json"):
        path.unlink()
    run(main.world, full=True)


@pytest.mark.parametrize(
    "way",
    [
        by_difference,
        on_request,
        under_another_registry,
        held_meanwhile,
        chosen_first,
        chosen_first_and_held,
        without_the_replicas_metadata,
    ],
)
@pytest.mark.parametrize("change", CHANGES)
def test_an_id_of_the_replica_stands_for_one_of_main(
    world: World, change: Callable[[Main], None], way: Callable[[Main], contextmanager[World]]
) -> None:
    main = Main(world)
    main.commit(Put(("ns",), Content.of({"type": NAMESPACE, "elements": ["ns"]})))
    main.commit(Put(key("a"), main.table()), Put(key("b"), main.table()))
    main.commit(Put(key("v"), main.view()), Put(key("w"), main.table(uuid=False)))
    run(world)
    before = pairs(main)
    with way(main):
        change(main)
    after = pairs(main)
    assert {mine for mine, _ in after} == {content.id for content in main.now().values()}, "all came"
    every = before | main.between | after
    assert len({its for _, its in every}) == len(every), every
    assert change in OVER_ANOTHER or len({mine for mine, _ in every}) == len(every), every


def forgotten(main: Main) -> None:
    """The catalog lost the commit that the replica stands for, and a sync looks at all keys."""
    lost = read_head(main.world.catalog, "main_replica_eu").watermark
    main.commit(Put(("other",), Content.of({"type": NAMESPACE, "elements": ["other"]})))
    main.world.catalog.forget(lost)
    run(main.world)


def rewritten(main: Main) -> None:
    """Somebody wrote `main`'s history anew, as it was, and an operator takes it for the truth."""
    head = main.world.catalog.reference("main").hash
    entries = dict(main.world.catalog.entries("main", head))
    main.world.catalog.assign("main", main.world.catalog.no_ancestor())
    main.world.catalog.commit(
        "main",
        main.world.catalog.no_ancestor(),
        [Put(at, content.with_id(None)) for at, content in entries.items()],
        "anew",
    )
    run(main.world, reset_watermark_to=main.world.catalog.reference("main").hash)


@pytest.mark.parametrize("way", [forgotten, rewritten])
@pytest.mark.parametrize("change", [table_anew, view_anew, versions])
def test_where_no_id_of_main_tells_what_was_here_uuids_do(
    world: World, change: Callable[[Main], None], way: Callable[[Main], None]
) -> None:
    main = Main(world)
    main.commit(Put(("ns",), Content.of({"type": NAMESPACE, "elements": ["ns"]})))
    main.commit(Put(key("a"), main.table()), Put(key("v"), main.view()))
    run(world)
    before = world.replica()
    change(main)
    way(main)
    after = world.replica()
    same = {name for name in ("ns.a", "ns.v") if before[name].id == after[name].id}
    assert same == {"ns.a", "ns.v"} - {table_anew: {"ns.a"}, view_anew: {"ns.v"}}.get(change, set())
    assert all(before[name] != after[name] for name in {"ns.a", "ns.v"} - same)


def pairs(main: Main) -> set[tuple[str | None, str | None]]:
    """The ids on `main` and on the replica branch, for each key that both have."""
    replica = main.world.replica()
    return {(content.id, replica[f"ns.{name}"].id) for name, content in main.now().items() if f"ns.{name}" in replica}
