"""What an engine reads and writes, compared with what writers wrote and with what PyIceberg reads of `main`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from pyiceberg.table import StaticTable

from sterna.replication.verify.run import verify_structure
from tests.integration.rest_catalog import comparison
from tests.support.strangers import strangers, without
from tests.support.world import World, pyiceberg_properties

REGIONS = ("us", "eu")
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.0+)?(?:Z| UTC|\+00:00)?")


def compare(world: World, table: str, home: str = "us") -> list[tuple[Any, ...]]:
    """Compare as `comparison.compare`, and with the rows that PyIceberg reads of `main` and of both replicas.

    Both are proven complete, too. Returns the rows.
    """
    rows = comparison.compare(world, table, home)
    assert_replicas_are_whole(world, table)
    namespace, name = table.split(".")
    places = [(world.content((namespace, name)), world.stage.combined_endpoint)]
    places += [(world.replica(region)[table], world.stage.endpoints[region]) for region in REGIONS]
    for content, endpoint in places:
        read = StaticTable.from_metadata(content.metadata_location or "", pyiceberg_properties(endpoint))
        assert sorted((tuple(row.values()) for row in read.scan().to_arrow().to_pylist()), key=repr) == rows
    return rows


def assert_replicas_are_whole(world: World, table: str) -> None:
    """See that what both regions have of a table is what `main` has, and that nothing of it is missing."""
    world.sync("us")
    for region in REGIONS:
        assert world.snapshots(f"replica_{region}.{table}") == world.snapshots(f"main_us.{table}")
        with world.context(region) as context:
            verified = verify_structure(context, [table])
        assert (verified.findings, verified.foreign) == ((), 0), (region, verified)


def assert_replicas_are_read(
    world: World,
    read: Callable[[str], Iterable[Iterable[Any]]],
    refused: Mapping[str, str] = MappingProxyType({}),
    misread: Mapping[str, int] = MappingProxyType({}),
) -> None:
    """See that an engine reads eu's replicas of all tables of other writers, while the store of us is gone.

    Args:
        read: returns the rows of one of the tables, by its name.
        refused: table → a part of what the engine says instead of its rows.
        misread: table → the column that the engine misreads as null.
    """
    tables = strangers()
    with world.dark("us"):
        answers = {table.name: _rows_or_error(read, table.name) for table in tables}
    different = {
        table.name: answer
        for table in tables
        if not _is_expected(
            answer := answers[table.name], without(table.rows, misread.get(table.name)), refused.get(table.name)
        )
    }
    assert not different, different


def _is_expected(answer: list[list[Any]] | str, rows: list[list[Any]], refusal: str | None) -> bool:
    return answer == rows if refusal is None else isinstance(answer, str) and refusal in answer


def _rows_or_error(read: Callable[[str], Iterable[Iterable[Any]]], table: str) -> list[list[Any]] | str:
    try:
        return sorted(([_plain(value) for value in row] for row in read(table)), key=lambda row: row[0])
    except Exception as error:  # noqa: BLE001 - it is compared
        return f"{type(error).__name__}: {error}"


def _plain(value: Any) -> Any:
    """Return a value as `rows.json` has it: a number, or text."""
    if value is None or isinstance(value, int):
        return value
    text = str(value)
    found = _TIME.fullmatch(text)
    return f"{found[1]} {found[2]}" if found else text
