"""Position delete files in Avro: their localized copy.

Rows stay the bytes that they are; only the string of the path is replaced in each, and so nothing that a row holds is
lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np  # noqa: TID253 - imported by workers that localize a position delete, and by nothing else

from sterna.iceberg.avro.container import Container, open_container
from sterna.iceberg.avro.locate import locate
from sterna.iceberg.avro.program import NotWalkable, Program, Take, Want, compile_schema
from sterna.iceberg.avro.splice import string_bytes
from sterna.iceberg.deletes.rows import PATH_ID, PATH_NAME, POS_ID, POS_NAME, Ranking, check_size, rank_paths, row_order
from sterna.limits import Limits

# The writer's record is put inside one of ours, behind a field that takes no bytes: where that stands, the row begins.
_START: Final = Want(0, ("start",), Take.SPAN)
_ROW: Final = 1
_WANTS: Final = {None: (_START,), _ROW: (Want(PATH_ID, (PATH_NAME,), Take.BYTES), Want(POS_ID, (POS_NAME,), Take.LONG))}


@dataclass(frozen=True)
class _Part:
    """The rows of one group of blocks.

    Args:
        data: the group's data.
        places: for each row, four numbers: where it starts, where its path starts (its length included) and ends, where
            the row ends.
        numbers: for each row, which of the distinct paths it has.
        positions: for each row, its position.
    """

    data: bytes
    places: Any
    numbers: Any
    positions: Any


def localize_avro(data: bytes, uri: str, content: Callable[[str], str], limits: Limits) -> bytes | None:
    """Return an Avro position delete file's localized copy.

    Header, sync marker and the number of rows in each block are the source's.

    Args:
        data: the file's bytes.
        uri: its URI, for errors.
        content: maps the URI of a data file; called once for each distinct path.
        limits: of the region.

    Returns:
        The new file, or None when no path changes.

    Raises:
        Unsupported: a codec that is not among null, deflate, snappy and zstandard, or a recursive schema.
        OverLimit: the file holds more than the limits allow.
        BrokenMetadata: no readable position delete file.
    """
    container = open_container(data, uri, limits, counted="delete_rows")
    distinct: dict[bytes, int] = {}
    counts: list[int] = []
    parts = list(_parts(container, distinct, counts))
    ranking = rank_paths([_text(path, container) for path in distinct], content)
    if ranking is None:
        return None
    ranks = np.array(ranking.ranks, np.int32)[np.concatenate([part.numbers for part in parts])]
    order = row_order(ranks, np.concatenate([part.positions for part in parts]))
    return b"".join((data[: container.header_end], *_blocks(container, parts, counts, ranking, order)))


def _parts(container: Container, distinct: dict[bytes, int], counts: list[int]) -> Iterator[_Part]:
    """Read the groups of a file; add to the distinct paths, and to the number of rows in each block."""
    program = _compile(container)
    size = 0
    for group in container.groups():
        counts += (block.count for block in group.blocks)
        size += len(group.data)
        check_size(sum(counts), size, container.uri, container.limits)
        found = locate(program, group, container)
        before, texts, after = (found.column(PATH_ID, part) for part in range(3))
        if -1 in before or -1 in found.column(POS_ID, 0):
            raise container.broken("a position delete without path or position")
        starts = found.column(_START.id, 0)
        paths = (group.data[start:end] for start, end in zip(texts, after, strict=True))
        yield _Part(
            data=group.data,
            places=np.array((starts, before, after, [*starts, len(group.data)][1:]), np.int32),
            numbers=np.fromiter((distinct.setdefault(path, len(distinct)) for path in paths), np.int32),
            positions=np.array(found.column(POS_ID, 1), np.int64),
        )


def _compile(container: Container) -> Program:
    fields = [
        {"name": "start", "field-id": _START.id, "type": "null"},
        {"name": "row", "field-id": _ROW, "type": container.schema},
    ]
    try:
        program = compile_schema({"type": "record", "fields": fields}, _WANTS, {_ROW: "row"}, container.uri)
    except NotWalkable as error:
        raise container.broken(f"no position deletes: {error}") from error
    for number, name in ((PATH_ID, PATH_NAME), (POS_ID, POS_NAME)):
        if number not in program.columns:
            raise container.broken(f"no column with the field id {number} ({name})")
    return program


def _text(path: bytes, container: Container) -> str:
    try:
        return path.decode()
    except UnicodeDecodeError:
        raise container.broken("a position delete with a path that is not UTF-8") from None


def _blocks(
    container: Container, parts: list[_Part], counts: list[int], ranking: Ranking, order: Any
) -> Iterator[bytes]:
    new = [string_bytes(ranking.paths[rank]) for rank in ranking.ranks]
    firsts = np.cumsum([0, *(len(part.numbers) for part in parts)])
    places = np.concatenate([part.places for part in parts], axis=1)
    numbers = np.concatenate([part.numbers for part in parts])
    at = 0
    for count in counts:
        rows = order[at : at + count]
        at += count
        homes = np.searchsorted(firsts, rows, side="right") - 1
        pieces: list[bytes] = []
        for home, number, (start, before, after, end) in zip(
            homes.tolist(), numbers[rows].tolist(), places[:, rows].T.tolist(), strict=True
        ):
            data = parts[home].data
            pieces += (data[start:before], new[number], data[after:end])
        yield container.encode(count, b"".join(pieces))
