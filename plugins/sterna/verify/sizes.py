"""Whether files exist with the sizes that metadata claims: each asked for once, however many name it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sterna.edges.disk.rows import Rows
from sterna.edges.stores.objects import Objects
from sterna.verify.findings import MISSING, SIZE, Findings

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class Claims:
    """Files that must exist with their sizes, and who says so: on local disk, where they are many."""

    _rows: Rows = field(default_factory=lambda: Rows("uri"))
    _namers: list[str] = field(default_factory=list)

    def add(self, namer: str, uris: pa.ChunkedArray, sizes: pa.ChunkedArray) -> None:
        """Take down the files that a manifest or a metadata.json names.

        Raises:
            EngineError: there is no room on local disk.
        """
        import pyarrow as pa

        number = pa.chunked_array([pa.repeat(pa.scalar(len(self._namers), pa.int32()), len(uris))])
        self._namers.append(namer)
        # The names of very many files are more than the offsets of a plain string array can reach.
        self._rows.add(pa.table([uris.cast(pa.large_string()), sizes, number], ["uri", "size", "namer"]))

    def check(self, objects: Objects, found: Findings) -> None:
        """Ask the stores for the sizes of all files, in the order of keys, so that one listing answers for many.

        Args:
            objects: the stores.
            found: takes the faults, and counts.
        """
        for files in self._rows.sorted():
            self._check(objects, files, found)

    def uris(self) -> Iterator[str]:
        """Yield the URI of each file once, sorted."""
        import pyarrow.compute as pc

        for files in self._rows.sorted():
            yield from pc.unique(files.column("uri")).to_pylist()

    def _check(self, objects: Objects, files: pa.Table, found: Findings) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        once = files.group_by("uri").aggregate([("size", "min"), ("size", "max"), ("namer", "min")]).sort_by("uri")
        uris = once.column("uri").to_pylist()
        there = objects.sizes(uris)
        size = pa.array([there[uri] for uri in uris], pa.int64())
        found.files += len(uris)
        found.bytes += pc.sum(size).as_py() or 0
        right = pc.and_(pc.equal(size, once.column("size_min")), pc.equal(size, once.column("size_max")))
        for row in once.append_column("there", size).filter(pc.invert(pc.fill_null(right, False))).to_pylist():
            self._wrong(found, **row)

    def _wrong(
        self, found: Findings, uri: str, size_min: int, size_max: int, namer_min: int, there: int | None
    ) -> None:
        namer = self._namers[namer_min]
        if there is None:
            found.add(MISSING, uri, f"named by {namer}")
        elif size_min == size_max:
            found.add(SIZE, uri, f"{there} bytes, {namer} says {size_min}")
        else:
            found.add(SIZE, uri, f"{there} bytes, {namer} and others say from {size_min} to {size_max}")
