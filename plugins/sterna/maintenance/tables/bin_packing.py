"""Which files are rewritten; pure, from a table's manifests.

Sizes and thresholds are those of Iceberg's `rewrite_data_files`, but that files which are too large stay as they are:
splitting them would ship them again, and save a reader nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from sterna.config.sections.maintenance import MaintenanceRule
from sterna.maintenance.tables.model import DUE, OVER_BUDGET, TOO_RECENT, Group, LiveFile, TablePlan

SMALL_FILE_RATIO: Final = 0.75
"""Of the target: smaller files are rewritten."""
_MIN_INPUT_FILES: Final = 5
_MIN_DELETED_RATIO: Final = 0.3
_MAX_SPREAD_RATIO: Final = 1.1
_MAX_OUTPUT_FILES_PER_GROUP: Final = 40
"""The most files that a group becomes: the size of a commit, and the cost of a conflict."""


def is_small(file: LiveFile, target: int) -> bool:
    """Return whether a file is below `SMALL_FILE_RATIO` of its target size."""
    return file.size < SMALL_FILE_RATIO * target


def plan_groups(files: Iterable[LiveFile], rule: MaintenanceRule, now_ms: int, parts: int = 1) -> tuple[Group, ...]:
    """Choose what is rewritten of a table, without prices.

    Args:
        files: the data files of its current snapshot.
        now_ms: the time, in milliseconds since 1970.
        parts: how many smaller groups each group is split into: where rows are deleted all the time, a conflict then
            costs less.

    Returns:
        Groups, each of one region and partition; those of recently written partitions have `when=TOO_RECENT`.
    """
    by_partition: dict[tuple[str, int, str], list[LiveFile]] = {}
    last_written: dict[tuple[int, str], int] = {}
    for file in files:
        by_partition.setdefault((file.region, file.spec_id, file.partition), []).append(file)
        last_written[file.spec_id, file.partition] = max(
            file.last_changed_ms, last_written.get((file.spec_id, file.partition), 0)
        )
    groups: list[Group] = []
    for (region, spec_id, partition), partition_files in sorted(by_partition.items()):
        settled = now_ms - last_written[spec_id, partition] >= rule.min_age * 1000
        candidates = [
            file for file in partition_files if is_small(file, rule.target) or file.deleted_ratio >= _MIN_DELETED_RATIO
        ]
        for chunk in _split(candidates, rule.target, parts):
            if _is_worthwhile(chunk, rule.target):
                group = _build_group(region, partition, spec_id, chunk, rule.target)
                groups.append(group if settled else replace(group, when=TOO_RECENT))
    return tuple(groups)


def fit_budget(groups: Sequence[Group], budget: float | None) -> tuple[tuple[Group, ...], float | None]:
    """Defer the groups that don't fit what is left of a day's budget, those that save most files for their price last.

    Returns:
        The groups in their order, and what is left then.
    """
    if budget is None:
        return tuple(groups), None
    by_value = sorted(
        (group for group in groups if group.when == DUE),
        key=lambda group: (group.price / max(1, group.files - group.new_files), group.partition),
    )
    waiting = set()
    for group in by_value:
        if group.price > budget + 1e-12:
            waiting.add(group.paths)
        else:
            budget -= group.price
    return tuple(replace(group, when=OVER_BUDGET) if group.paths in waiting else group for group in groups), budget


def fit_merges_in_budget(table: TablePlan, budget: float | None) -> tuple[TablePlan, float | None]:
    """Defer the merge of delete files, and of manifests, where it doesn't fit what is left of a day's budget.

    Returns:
        The plan, and what is left then.
    """
    lines = []
    if budget is not None and table.merge_deletes and table.deletes_price > budget + 1e-12:
        lines.append(f"files of deletes wait for another day: shipping them costs {table.deletes_price:.4f}")
        table = replace(table, merge_deletes=False)
    elif budget is not None and table.merge_deletes:
        budget -= table.deletes_price
    if budget is not None and table.merge_manifests and table.manifests_price > budget + 1e-12:
        lines.append(f"manifests wait for another day: shipping them costs {table.manifests_price:.4f}")
        table = replace(table, merge_manifests=False)
    elif budget is not None and table.merge_manifests:
        budget -= table.manifests_price
    return replace(table, left=(*table.left, *lines)), budget


def count_output_files(size: int, target: int) -> int:
    """Return how many files Iceberg makes of so many bytes."""
    if size < target:
        return 1
    whole, remainder = divmod(size, target)
    if remainder > SMALL_FILE_RATIO * target:
        return whole + 1
    # What is left over is spread over the others where these don't become much larger.
    return whole if size / whole < _MAX_SPREAD_RATIO * target else whole + 1


def eligible_since(files: Iterable[LiveFile], target: int) -> int:
    """Return when there were enough of a group's files for a rewrite, in milliseconds since 1970.

    Args:
        target: the table's.

    Returns:
        When the file was written that completed the group. Where only deleted rows make it worthwhile, when the
        partition was last written: since when so many are deleted isn't known.
    """
    size, last_changed = 0, 0
    for number, file in enumerate(sorted(files, key=lambda file: file.written_ms), 1):
        size, last_changed = size + file.size, max(last_changed, file.last_changed_ms)
        if file.written_ms and _reduces_files(number, size, target):  # 0: a rewrite's, which is no write
            return file.written_ms
    return last_changed


def _split(files: list[LiveFile], target: int, parts: int) -> Iterator[list[LiveFile]]:
    chunk: list[LiveFile] = []
    size = 0
    max_files = max(_MIN_INPUT_FILES, -(-len(files) // parts))
    for file in sorted(files, key=lambda file: file.path):
        if chunk and (size + file.size > _MAX_OUTPUT_FILES_PER_GROUP * target or len(chunk) >= max_files):
            yield chunk
            chunk, size = [], 0
        chunk.append(file)
        size += file.size
    if chunk:
        yield chunk


def _is_worthwhile(files: Sequence[LiveFile], target: int) -> bool:
    if any(file.deleted_ratio >= _MIN_DELETED_RATIO for file in files):
        return True
    return _reduces_files(len(files), sum(file.size for file in files), target)


def _reduces_files(number: int, size: int, target: int) -> bool:
    return count_output_files(size, target) < number and (number >= _MIN_INPUT_FILES or size > target)


def _build_group(region: str, partition: str, spec_id: int, files: Sequence[LiveFile], target: int) -> Group:
    size = sum(file.size for file in files)
    new_files = count_output_files(size, target)
    column_sizes = [file.size if file.column_bytes < 0 else min(file.column_bytes, file.size) for file in files]
    overhead = sum(file.size for file in files) - sum(column_sizes)
    live_bytes = sum(
        column_size * (1 - min(1.0, file.deleted_ratio)) for column_size, file in zip(column_sizes, files, strict=True)
    )
    # Each file has the overhead of its format once.
    # Never 0, however much seems deleted: the actual cost is estimated from the plan. An equality delete counts as a
    # row, and may match none.
    new_bytes = max(1, int(live_bytes + new_files * overhead / len(files)))
    return Group(
        region,
        partition,
        spec_id,
        len(files),
        size,
        new_files,
        new_bytes,
        {},
        0.0,
        DUE,
        frozenset(f.path for f in files),
    )
