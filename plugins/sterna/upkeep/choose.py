"""Which files are rewritten: pure, from what a table's manifests say.

Sizes and thresholds are those of Iceberg's `rewrite_data_files`, but that files which are too large stay as they are:
splitting them would ship them again, and save a reader nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from sterna.services.upkeep import UpkeepRule
from sterna.upkeep.model import NOW, PRICE, QUIET, Group, LiveFile, TablePlan

SMALL: Final = 0.75
"""Of the target: smaller files are rewritten."""
_ENOUGH_FILES: Final = 5
_MANY_DELETED: Final = 0.3
_SMALL_TAIL: Final = 1.1
_TARGETS_A_GROUP: Final = 40
"""How many files a group becomes at most: what one commit brings, and what one conflict costs."""


def is_small(file: LiveFile, target: int) -> bool:
    """Tell whether a file is smaller than it should be."""
    return file.size < SMALL * target


def choose(files: Iterable[LiveFile], rule: UpkeepRule, now_ms: int, parts: int = 1) -> tuple[Group, ...]:
    """Choose what is rewritten of a table, without prices.

    Args:
        files: the data files of its current snapshot.
        rule: the table's.
        now_ms: the time, in milliseconds since 1970.
        parts: into how many smaller ones each group is cut: where somebody deletes rows all the time, less is in
            conflict.

    Returns:
        Groups, each of one region and partition; those of partitions that were written within `quiet` say so.
    """
    by_place: dict[tuple[str, int, str], list[LiveFile]] = {}
    last: dict[tuple[int, str], int] = {}
    for file in files:
        by_place.setdefault((file.region, file.spec_id, file.partition), []).append(file)
        last[file.spec_id, file.partition] = max(file.at, last.get((file.spec_id, file.partition), 0))
    groups: list[Group] = []
    for (region, spec_id, partition), there in sorted(by_place.items()):
        quiet = now_ms - last[spec_id, partition] >= rule.quiet * 1000
        wanted = [file for file in there if is_small(file, rule.target) or file.deleted >= _MANY_DELETED]
        for some in _cut(wanted, rule.target, parts):
            if _pays(some, rule.target):
                group = _group(region, partition, spec_id, some, rule.target)
                groups.append(group if quiet else replace(group, when=QUIET))
    return tuple(groups)


def afford(groups: Sequence[Group], left: float | None) -> tuple[tuple[Group, ...], float | None]:
    """Let those groups wait that don't fit what is left of a day's price; what saves most files for its price goes
    first.

    Returns:
        The groups in their order, and what is left then.
    """
    if left is None:
        return tuple(groups), None
    worth = sorted(
        (group for group in groups if group.when == NOW),
        key=lambda group: (group.price / max(1, group.files - group.new_files), group.partition),
    )
    waiting = set()
    for group in worth:
        if group.price > left + 1e-12:
            waiting.add(group.paths)
        else:
            left -= group.price
    return tuple(replace(group, when=PRICE) if group.paths in waiting else group for group in groups), left


def afford_tidying(table: TablePlan, left: float | None) -> tuple[TablePlan, float | None]:
    """Let files of deletes, and manifests, wait where they don't fit what is left of a day's price.

    Returns:
        The plan, and what is left then.
    """
    lines = []
    if left is not None and table.merge_deletes and table.deletes_price > left + 1e-12:
        lines.append(f"files of deletes wait for another day: shipping them costs {table.deletes_price:.4f}")
        table = replace(table, merge_deletes=False)
    elif left is not None and table.merge_deletes:
        left -= table.deletes_price
    if left is not None and table.merge_manifests and table.manifests_price > left + 1e-12:
        lines.append(f"manifests wait for another day: shipping them costs {table.manifests_price:.4f}")
        table = replace(table, merge_manifests=False)
    elif left is not None and table.merge_manifests:
        left -= table.manifests_price
    return replace(table, left=(*table.left, *lines)), left


def outputs(size: int, target: int) -> int:
    """Return how many files Iceberg makes of so many bytes."""
    if size < target:
        return 1
    whole, rest = divmod(size, target)
    if rest > SMALL * target:
        return whole + 1
    # What is left over is spread over the others where these don't become much larger.
    return whole if size / whole < _SMALL_TAIL * target else whole + 1


def enough_since(files: Iterable[LiveFile], target: int) -> int:
    """Return when there were enough of a group's files for a rewrite, in milliseconds since 1970.

    Args:
        files: the group's.
        target: the table's.

    Returns:
        When that file was written that made them enough. Where deleted rows alone make it pay, when the partition was
        last written: since when so many are deleted isn't known.
    """
    size, last = 0, 0
    for number, file in enumerate(sorted(files, key=lambda file: file.written), 1):
        size, last = size + file.size, max(last, file.at)
        if file.written and _saves(number, size, target):  # 0: a rewrite's, which is no write
            return file.written
    return last


def _cut(files: list[LiveFile], target: int, parts: int) -> Iterator[list[LiveFile]]:
    some: list[LiveFile] = []
    size = 0
    most = max(_ENOUGH_FILES, -(-len(files) // parts))
    for file in sorted(files, key=lambda file: file.path):
        if some and (size + file.size > _TARGETS_A_GROUP * target or len(some) >= most):
            yield some
            some, size = [], 0
        some.append(file)
        size += file.size
    if some:
        yield some


def _pays(files: Sequence[LiveFile], target: int) -> bool:
    if any(file.deleted >= _MANY_DELETED for file in files):
        return True
    return _saves(len(files), sum(file.size for file in files), target)


def _saves(number: int, size: int, target: int) -> bool:
    return outputs(size, target) < number and (number >= _ENOUGH_FILES or size > target)


def _group(region: str, partition: str, spec_id: int, files: Sequence[LiveFile], target: int) -> Group:
    size = sum(file.size for file in files)
    made = outputs(size, target)
    bodies = [file.size if file.columns < 0 else min(file.columns, file.size) for file in files]
    beside = sum(file.size for file in files) - sum(bodies)
    kept = sum(body * (1 - min(1.0, file.deleted)) for body, file in zip(bodies, files, strict=True))
    # What a format needs beside the columns stands once in each file.
    # Never nothing, whatever seems to be deleted: what happens is priced by what was planned. An equality delete
    # counts as a row, and may take none away.
    new = max(1, int(kept + made * beside / len(files)))
    return Group(
        region, partition, spec_id, len(files), size, made, new, {}, 0.0, NOW, frozenset(f.path for f in files)
    )
