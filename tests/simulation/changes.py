"""What writers do to a table: each change takes a version of it and gives the next one, without writing anything."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from random import Random

from tests.simulation import tables
from tests.simulation.tables import (
    ADDED,
    DATA,
    DELETED,
    EQUALITY_DELETES,
    EXISTING,
    POSITION_DELETES,
    File,
    Manifest,
    Snapshot,
    Table,
)

HOMES = ("s3://us-lake", "s3://eu-lake")
FAR = "s3://ap-lake"
"""Where no table is at home, and a file of one may be."""
LARGE = 1_000
"""Bytes that only a large file has."""


class Changes:
    """Random changes of tables.

    Args:
        rng: decides everything.
        now_ms: the clock.
        first: the number before the first that is given.

    Attributes:
        scattered: whether a table's files may lie elsewhere than the table itself.
        large: how many of the data files are large.
    """

    def __init__(self, rng: Random, now_ms: Callable[[], int], first: int = 0) -> None:
        self.rng = rng
        self._now_ms = now_ms
        self._count = first
        self.scattered = True
        self.large = rng.choice((0.0, 0.1, 0.4))

    def number(self) -> int:
        """Return a number that was never given before."""
        self._count += 1
        return self._count

    def create(self, name: str, home: str = "") -> Table:
        """Return a new table, without snapshots, at home in some region."""
        home = home or self.rng.choices(HOMES, (3, 1))[0]
        return self._version(Table(f"uuid-{self.number()}", f"{home}/{name}-{self._count}"))

    def change(self, table: Table) -> Table:
        """Return a next version that some writer made."""
        changes = [
            (self.append, 5),
            (self.overwrite, 3),
            (self.rewrite_manifests, 3),
            (self.delete_rows, 2),
            (self.tag, 1),
            (self.roll_back, 1),
        ]
        changes.append((self.expire, 4))
        return self.rng.choices([method for method, _ in changes], [weight for _, weight in changes])[0](table)

    def append(self, table: Table) -> Table:
        """One or two files more, some of them at home in the other region, and perhaps an equality delete."""
        id, sequence = self.number(), table.sequence + 1
        files = [self._file(table, DATA, id, sequence) for _ in range(self.rng.randint(1, 2))]
        added = [self._manifest(table, DATA, id, sequence, [(ADDED, file) for file in files])]
        if self.rng.random() < 0.15:
            added.append(
                self._manifest(
                    table, EQUALITY_DELETES, id, sequence, [(ADDED, self._file(table, EQUALITY_DELETES, id, sequence))]
                )
            )
        return self._next(table, id, [*added, *self._carried(table)])

    def overwrite(self, table: Table) -> Table:
        """Copy on write: a file goes, another one takes its place.

        Its manifest is written anew and lists the others as existing.
        """
        live = [file for manifest in self._carried(table) for file in manifest.live]
        if not live:
            return self.append(table)
        id, sequence, gone = self.number(), table.sequence + 1, self.rng.choice(live)
        manifests = []
        for manifest in self._carried(table):
            if gone in manifest.live:
                entries = [(DELETED if file == gone else EXISTING, file) for file in manifest.live]
                manifest = self._manifest(table, manifest.content, id, sequence, entries)
            manifests.append(manifest)
        if gone.content == DATA and self.rng.random() < 0.7:
            manifests.insert(
                0, self._manifest(table, DATA, id, sequence, [(ADDED, self._file(table, DATA, id, sequence))])
            )
        return self._next(table, id, manifests)

    def rewrite_manifests(self, table: Table) -> Table:
        """One manifest for all data, one for all deletes; each entry keeps the snapshot that added it."""
        id, sequence = self.number(), table.sequence + 1
        carried = self._carried(table)
        if not carried:
            return self.append(table)
        kinds = [
            [file for manifest in carried if (manifest.content == DATA) == data for file in manifest.live]
            for data in (True, False)
        ]
        manifests = [
            self._manifest(table, kind, id, sequence, [(EXISTING, file) for file in files])
            for kind, files in zip((DATA, POSITION_DELETES), kinds, strict=True)
            if files
        ]
        return self._next(table, id, manifests)

    def delete_rows(self, table: Table) -> Table:
        """Merge on read: a file of position deletes."""
        data = [file for manifest in self._carried(table) for file in manifest.live if file.content == DATA]
        if not data:
            return self.append(table)
        id, sequence = self.number(), table.sequence + 1
        chosen = sorted(self.rng.sample(data, min(len(data), 2)), key=lambda file: file.path)
        file = self._file(
            table, POSITION_DELETES, id, sequence, tuple((file.path, self.rng.randrange(9)) for file in chosen)
        )
        return self._next(
            table, id, [*self._carried(table), self._manifest(table, POSITION_DELETES, id, sequence, [(ADDED, file)])]
        )

    def tag(self, table: Table) -> Table:
        """A tag comes or goes."""
        if table.tags:
            return self._version(replace(table, tags={}))
        ids = [snapshot.id for snapshot in table.snapshots]
        return self._version(replace(table, tags={"kept": self.rng.choice(ids)})) if ids else self.append(table)

    def roll_back(self, table: Table) -> Table:
        """An older snapshot is current again."""
        if not table.snapshots:
            return self.append(table)
        id = self.rng.choice(table.snapshots).id
        return self._version(replace(table, current=id, log=(*table.log, id)))

    def expire(self, table: Table) -> Table:
        """Only the newest snapshots stay, with the current one and the tagged."""
        kept = {
            table.current,
            *table.tags.values(),
            *(item.id for item in table.snapshots[len(table.snapshots) - self.rng.randint(0, 2) :]),
        }
        return self.without(table, {item.id for item in table.snapshots} - kept)

    def without(self, table: Table, gone: Collection[int]) -> Table:
        """The same without some snapshots."""
        left = tuple(snapshot for snapshot in table.snapshots if snapshot.id not in gone)
        gap = max((at for at, id in enumerate(table.log) if id not in {item.id for item in left}), default=-1)
        return self._version(replace(table, snapshots=left, log=table.log[gap + 1 :]))

    def _file(
        self, table: Table, content: int, snapshot: int, sequence: int, deletes: tuple[tuple[str, int], ...] = ()
    ) -> File:
        number = self.number()
        away = [f"{home}/elsewhere" for home in (*HOMES, FAR)] if self.scattered else []
        home = self.rng.choices([table.location, *away], (8, 1, 1, 1)[: 1 + len(away)])[0]
        data = tables.position_deletes(deletes) if content == POSITION_DELETES else f"file {number}".encode()
        if content == DATA and self.rng.random() < self.large:
            data = data.ljust(LARGE + number % 7, b".")
        return File(
            f"{home}/data/{number}.{'avro' if deletes else 'parquet'}", data, content, snapshot, sequence, deletes
        )

    def _manifest(
        self, table: Table, content: int, snapshot: int, sequence: int, entries: list[tuple[int, File]]
    ) -> Manifest:
        path = f"{table.location}/metadata/{self.number()}-m0.avro"
        return tables.manifest(path, min(content, 1), snapshot, sequence, entries)

    def _carried(self, table: Table) -> list[Manifest]:
        """The manifests that a new snapshot takes over: those that still have live entries."""
        current = table.snapshot(table.current)
        return [manifest for manifest in (current.manifests if current else ()) if manifest.live]

    def _next(self, table: Table, id: int, manifests: Sequence[Manifest], operation: str = "overwrite") -> Table:
        """Add a snapshot and make it current."""
        listed = tuple(manifests)
        path = f"{table.location}/metadata/snap-{id}.avro"
        sequence = table.sequence + 1
        list_data = tables.manifest_list(listed)
        snapshot = Snapshot(id, table.current, sequence, self._now_ms(), path, list_data, listed, operation)
        return self._version(
            replace(table, sequence=sequence, current=id, snapshots=(*table.snapshots, snapshot), log=(*table.log, id))
        )

    def _version(self, table: Table) -> Table:
        changed = replace(table, path=f"{table.location}/metadata/{self.number():05}-x.metadata.json")
        return replace(changed, data=tables.metadata(changed, self._now_ms()))
