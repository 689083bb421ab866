"""Whether files exist with the sizes in metadata: each is checked once, however many files name it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from sterna.libraries import pa, pc
from sterna.replication.verify.findings import MISSING, SIZE, Findings
from sterna.storage.objects import Objects
from sterna.storage.spill.sorted_rows import ExternalSorter


@dataclass
class ExpectedFiles:
    """Files that must exist with their sizes, and the files that name them; spilled to local disk when many."""

    _rows: ExternalSorter = field(default_factory=lambda: ExternalSorter("uri"))
    _referrers: list[str] = field(default_factory=list)

    def add(self, referrer: str, uris: pa.ChunkedArray, sizes: pa.ChunkedArray) -> None:
        """Add the files that a manifest or a metadata.json names.

        Raises:
            EngineError: local disk is full.
        """
        number = pa.chunked_array([pa.repeat(pa.scalar(len(self._referrers), pa.int32()), len(uris))])
        self._referrers.append(referrer)
        # The names of very many files are more than the offsets of a plain string array can reach.
        self._rows.add(pa.table([uris.cast(pa.large_string()), sizes, number], ["uri", "size", "namer"]))

    def check(self, objects: Objects, findings: Findings) -> None:
        """Read the sizes of all files from the stores, in the order of keys, so that one listing covers many.

        Args:
            findings: takes the faults, and counts.
        """
        for files in self._rows.sorted():
            self._check(objects, files, findings)

    def uris(self) -> Iterator[str]:
        """Yield the URI of each file once, sorted."""
        for files in self._rows.sorted():
            yield from pc.unique(files.column("uri")).to_pylist()

    def _check(self, objects: Objects, files: pa.Table, findings: Findings) -> None:
        distinct = files.group_by("uri").aggregate([("size", "min"), ("size", "max"), ("namer", "min")]).sort_by("uri")
        uris = distinct.column("uri").to_pylist()
        sizes = objects.sizes(uris)
        size = pa.array([sizes[uri] for uri in uris], pa.int64())
        findings.files += len(uris)
        findings.bytes += pc.sum(size).as_py() or 0
        matches = pc.and_(pc.equal(size, distinct.column("size_min")), pc.equal(size, distinct.column("size_max")))
        for row in distinct.append_column("there", size).filter(pc.invert(pc.fill_null(matches, False))).to_pylist():
            self._add_fault(findings, **row)

    def _add_fault(
        self, findings: Findings, uri: str, size_min: int, size_max: int, namer_min: int, there: int | None
    ) -> None:
        referrer = self._referrers[namer_min]
        if there is None:
            findings.add(MISSING, uri, f"named by {referrer}")
        elif size_min == size_max:
            findings.add(SIZE, uri, f"{there} bytes, {referrer} says {size_min}")
        else:
            findings.add(SIZE, uri, f"{there} bytes, {referrer} and others say from {size_min} to {size_max}")
