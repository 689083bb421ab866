"""Position delete files in Avro: their localized copy.

Rows stay the bytes that they are; only the string of the path is replaced in each, and so nothing that a row holds is
lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from sterna.config.limits import Limits
from sterna.iceberg.avro.container import Container, open_container
from sterna.iceberg.avro.locate import locate
from sterna.iceberg.avro.program import Capture, NotWalkable, Program, ProjectedField, compile_schema
from sterna.iceberg.avro.splice import encode_string
from sterna.iceberg.deletes.rows import (
    PATH_ID,
    PATH_NAME,
    POS_ID,
    POS_NAME,
    Ranking,
    rank_paths,
    row_order,
    validate_size,
)
from sterna.libraries import np

# The writer's record is wrapped in another one, behind a field that takes no bytes: its position is the row's start.
_START: Final = ProjectedField(0, ("start",), Capture.SPAN)
_ROW: Final = 1
_PROJECTED_FIELDS: Final = {
    None: (_START,),
    _ROW: (ProjectedField(PATH_ID, (PATH_NAME,), Capture.BYTES), ProjectedField(POS_ID, (POS_NAME,), Capture.LONG)),
}


@dataclass(frozen=True)
class _Rows:
    """The rows of one group of blocks.

    Args:
        data: the group's data.
        offsets: for each row, four numbers: where it starts, where its path starts (its length included) and ends,
            where the row ends.
        path_indexes: for each row, which of the distinct paths it has.
        positions: for each row, its position.
    """

    data: bytes
    offsets: Any
    path_indexes: Any
    positions: Any


def localize_avro(data: bytes, uri: str, map_content: Callable[[str], str], limits: Limits) -> bytes | None:
    """Return an Avro position delete file's localized copy.

    Header, sync marker and the number of rows in each block are the source's.

    Args:
        data: the file's bytes.
        uri: its URI, for errors.
        map_content: maps the URI of a data file; called once for each distinct path.

    Returns:
        The new file, or None when no path changes.

    Raises:
        Unsupported: a codec that is not among null, deflate, snappy and zstandard, or a recursive schema.
        OverLimit: the file holds more than the limits allow.
        BrokenMetadata: no readable position delete file.
    """
    container = open_container(data, uri, limits, record_limit="delete_rows")
    distinct: dict[bytes, int] = {}
    counts: list[int] = []
    parts = list(_read_rows(container, distinct, counts))
    ranking = rank_paths([_decode_path(path, container) for path in distinct], map_content)
    if ranking is None:
        return None
    ranks = np.array(ranking.ranks, np.int32)[np.concatenate([part.path_indexes for part in parts])]
    order = row_order(ranks, np.concatenate([part.positions for part in parts]))
    return b"".join((data[: container.header_end], *_encode_blocks(container, parts, counts, ranking, order)))


def _read_rows(container: Container, distinct: dict[bytes, int], counts: list[int]) -> Iterator[_Rows]:
    """Read the groups of a file; add to the distinct paths, and to the number of rows in each block."""
    program = _compile(container)
    size = 0
    for group in container.groups():
        counts += (block.count for block in group.blocks)
        size += len(group.data)
        validate_size(sum(counts), size, container.uri, container.limits)
        fields = locate(program, group, container)
        path_starts, text_starts, path_ends = (fields.column(PATH_ID, part) for part in range(3))
        if -1 in path_starts or -1 in fields.column(POS_ID, 0):
            raise container.broken("a position delete without path or position")
        starts = fields.column(_START.id, 0)
        paths = (group.data[start:end] for start, end in zip(text_starts, path_ends, strict=True))
        yield _Rows(
            data=group.data,
            offsets=np.array((starts, path_starts, path_ends, [*starts, len(group.data)][1:]), np.int32),
            path_indexes=np.fromiter((distinct.setdefault(path, len(distinct)) for path in paths), np.int32),
            positions=np.array(fields.column(POS_ID, 1), np.int64),
        )


def _compile(container: Container) -> Program:
    fields = [
        {"name": "start", "field-id": _START.id, "type": "null"},
        {"name": "row", "field-id": _ROW, "type": container.schema},
    ]
    try:
        program = compile_schema({"type": "record", "fields": fields}, _PROJECTED_FIELDS, {_ROW: "row"}, container.uri)
    except NotWalkable as error:
        raise container.broken(f"no position deletes: {error}") from error
    for field_id, name in ((PATH_ID, PATH_NAME), (POS_ID, POS_NAME)):
        if field_id not in program.columns:
            raise container.broken(f"no column with the field id {field_id} ({name})")
    return program


def _decode_path(path: bytes, container: Container) -> str:
    try:
        return path.decode()
    except UnicodeDecodeError:
        raise container.broken("a position delete with a path that is not UTF-8") from None


def _encode_blocks(
    container: Container, parts: list[_Rows], counts: list[int], ranking: Ranking, order: Any
) -> Iterator[bytes]:
    new_paths = [encode_string(ranking.paths[rank]) for rank in ranking.ranks]
    first_rows = np.cumsum([0, *(len(part.path_indexes) for part in parts)])
    offsets = np.concatenate([part.offsets for part in parts], axis=1)
    path_indexes = np.concatenate([part.path_indexes for part in parts])
    at = 0
    for count in counts:
        rows = order[at : at + count]
        at += count
        part_indexes = np.searchsorted(first_rows, rows, side="right") - 1
        pieces: list[bytes] = []
        for part_index, path_index, (start, path_start, path_end, end) in zip(
            part_indexes.tolist(), path_indexes[rows].tolist(), offsets[:, rows].T.tolist(), strict=True
        ):
            data = parts[part_index].data
            pieces += (data[start:path_start], new_paths[path_index], data[path_end:end])
        yield container.encode_block(count, b"".join(pieces))
