"""Whether files exist with the sizes that metadata claims: each asked for once, however many name it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sterna.edges.stores.objects import Objects
from sterna.verify.findings import MISSING, SIZE, Findings

if TYPE_CHECKING:
    import pyarrow as pa

_AT_ONCE = 50_000  # files whose sizes are asked for at once


@dataclass
class Claims:
    """Files that must exist with their sizes, and who says so."""

    _tables: list[pa.Table] = field(default_factory=list)
    _namers: list[str] = field(default_factory=list)

    def add(self, namer: str, uris: pa.ChunkedArray, sizes: pa.ChunkedArray) -> None:
        """Take down the files that a manifest or a metadata.json names."""
        import pyarrow as pa

        number = pa.chunked_array([pa.repeat(pa.scalar(len(self._namers), pa.int32()), len(uris))])
        self._namers.append(namer)
        # The names of many millions of files are more than the offsets of a plain string array can reach.
        self._tables.append(pa.table([uris.cast(pa.large_string()), sizes, number], ["uri", "size", "namer"]))

    def check(self, objects: Objects, found: Findings, listed: list[pa.Array] | None) -> None:
        """Ask the stores for the sizes of all files, in the order of keys, so that one listing answers for many;
        forget the claims.

        Args:
            objects: the stores.
            found: takes the faults, and counts.
            listed: takes the URIs, each once; None: nobody needs them.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        files = pa.concat_tables(self._tables).combine_chunks()
        self._tables.clear()
        order = pc.sort_indices(files, [("uri", "ascending")])
        carried = files.slice(0, 0)
        for start in range(0, len(order), _AT_ONCE):
            part = pa.concat_tables([carried, files.take(order.slice(start, _AT_ONCE))])
            last = pc.equal(part.column("uri"), part.column("uri")[-1])
            carried = part.filter(last)  # its other rows may be in the next part
            self._check(objects, part.filter(pc.invert(last)), found, listed)
        self._check(objects, carried, found, listed)

    def _check(self, objects: Objects, files: pa.Table, found: Findings, listed: list[pa.Array] | None) -> None:
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
        if listed is not None:
            listed += once.column("uri").chunks

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
