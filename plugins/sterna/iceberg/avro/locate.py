"""Finding the wanted fields in the records of an Avro file."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sterna.iceberg.avro.container import Container, Group
from sterna.iceberg.avro.program import Program
from sterna.iceberg.avro.walk import MAX_DEPTH, NO_MISMATCH, compiled_walk, walk

if TYPE_CHECKING:
    import pyarrow as pa

COMPILE_THRESHOLD_BYTES: Final = 8_000_000
"""Decompressed bytes that plain Python walks in about the time that numba takes to be imported and to load its
cache (1.2 s).
"""

_COMPILE_THRESHOLD_CELLS: Final = 2_000_000
"""Numbers that plain Python would keep as objects, of some 40 bytes each."""

interpreted_bytes = 0
_compile_lock = threading.Lock()  # threads that come first together would have a compiler each


@dataclass(frozen=True)
class FieldPositions:
    """The positions of the wanted fields in a group's records.

    Args:
        records: the number of records.
        columns: field id → its first column.
        cells: all columns, one after the other; -1 where a record has no value.
    """

    records: int
    columns: Mapping[int, int]
    cells: Any

    def column(self, field_id: int, part: int) -> list[int]:
        """Return one part of a wanted field for all records: 0 its start, 1 value or start of content, 2 its end.

        A field that the schema lacks counts as null in every record: -1.
        """
        values = self._part(field_id, part)
        return list(values) if isinstance(values, list) else list(values.tolist())

    def column_array(self, field_id: int, part: int) -> Any:
        """Return what `column` returns as a numpy array of int64."""
        import numpy as np

        return np.array(self._part(field_id, part), np.int64)  # a copy: keeping it doesn't keep all cells

    def strings(self, data: bytes, field_id: int) -> pa.StringArray:
        """Return a wanted string of all records, null where a record has none.

        Args:
            data: the group's.
            field_id: the field's id.

        Raises:
            pyarrow.ArrowInvalid: one is not UTF-8.
        """
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        # The strings and the gaps between them, by turns, are the data itself: Arrow extracts the strings at once.
        # An absent one is empty, at the end of the one before it.
        bounds = np.append(np.stack([self.column_array(field_id, part) for part in (1, 2)], axis=1).ravel(), len(data))
        bounds = np.maximum.accumulate(np.maximum(bounds, 0)).astype(np.int32)
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
        pieces = pa.BinaryArray.from_buffers(pa.binary(), len(bounds) - 1, buffers)
        pieces.validate(full=True)
        texts = pieces.take(pa.array(np.arange(0, len(bounds) - 1, 2))).cast(pa.string())
        return pc.if_else(pa.array(self.column_array(field_id, 0) >= 0), texts, None)

    def _part(self, field_id: int, part: int) -> Any:
        if field_id not in self.columns:
            return [-1] * self.records
        at = (self.columns[field_id] + part) * self.records
        return self.cells[at : at + self.records]


def locate(program: Program, group: Group, container: Container) -> FieldPositions:
    """Take down the wanted fields of all records of a group.

    Args:
        program: compiled from the container's schema.
        group: decompressed blocks.
        container: where they come from, for errors.

    Returns:
        The positions, as offsets in the group's data.

    Raises:
        BrokenMetadata: the bytes don't fit the schema.
    """
    blocks: list[int] = []
    for block, start, end in zip(group.blocks, group.bounds, group.bounds[1:], strict=False):
        blocks += (block.count, start, end)
    run = run_compiled if should_compile(len(group.data), program.width * group.records) else _run_interpreted
    cells, mismatch = run(program, group, blocks, program.width * group.records)
    if mismatch != NO_MISMATCH:
        raise container.broken(f"the records don't fit the schema, near decompressed byte {mismatch}")
    return FieldPositions(group.records, program.columns, cells)


def expect_bytes(size: int) -> None:
    """Announce that at least so many decompressed bytes will follow: compiling may pay off from the first of them on.

    Args:
        size: bytes; less than `COMPILE_THRESHOLD_BYTES` change nothing.
    """
    global interpreted_bytes
    if size >= COMPILE_THRESHOLD_BYTES:
        interpreted_bytes = size


def should_compile(size: int, cells: int) -> bool:
    # Rent until the rent paid equals the price: many small manifests in one process deserve the compiler as one large
    # one does.
    global interpreted_bytes
    if compiled_walk.cache_info().currsize:
        return True
    interpreted_bytes += size
    return interpreted_bytes >= COMPILE_THRESHOLD_BYTES or cells >= _COMPILE_THRESHOLD_CELLS


def _run_interpreted(program: Program, group: Group, blocks: list[int], size: int) -> tuple[Any, int]:
    cells = [-1] * size
    return cells, walk(group.data, program.code, blocks, [0] * (MAX_DEPTH + 1), group.records, cells)


def run_compiled(program: Program, group: Group, blocks: list[int], size: int) -> tuple[Any, int]:
    """Run the compiled walk over a group of blocks; return the cells that it filled, and how many were wrong."""
    import numpy as np

    cells = np.full(size, -1, dtype=np.int64)
    with _compile_lock:
        run = compiled_walk()
    mismatch = run(
        np.frombuffer(group.data, dtype=np.uint8),
        np.array(program.code, dtype=np.int64),
        np.array(blocks, dtype=np.int64),
        np.zeros(MAX_DEPTH + 1, dtype=np.int64),
        group.records,
        cells,
    )
    return cells, int(mismatch)
