"""Answers of named queries, as typed values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any


@dataclass(frozen=True)
class QueryAnswer:
    """The answer of a named query.

    Args:
        rows: the rows; values of the types `long` and `decimal` as `int` and `Decimal`, others as JSON has them.
        types: Iceberg's name of each column's type.
        snapshots: the snapshot of each table, for a query at a cursor.
        snapshot_id: the snapshot, for a query at a snapshot.
        cursor: the commit of the replica branch, "" for a query at a snapshot.
        document: the whole response body.
    """

    rows: tuple[Mapping[str, Any], ...]
    types: Mapping[str, str]
    snapshots: Mapping[str, int | None]
    snapshot_id: int | None
    cursor: str
    document: Mapping[str, Any] = field(repr=False, compare=False)

    @property
    def kpi(self) -> Mapping[str, Any]:
        """The only row, by name.

        Raises:
            ValueError: there is another number of rows.
        """
        (row,) = self.rows
        return row


def parse_query_answer(text: bytes) -> QueryAnswer:
    """Return the answer in a response body.

    Raises:
        ValueError: the body is not the answer of a query.
    """
    try:
        document = json.loads(text)
        types = {str(name): str(kind) for name, kind in document["types"].items()}
        rows = [document["kpi"]] if "kpi" in document else document["rows"]
        return QueryAnswer(
            rows=tuple({name: _convert(row[name], kind) for name, kind in types.items()} for row in rows),
            types=types,
            snapshots={name: _parse_snapshot_id(id) for name, id in document.get("snapshots", {}).items()},
            snapshot_id=_parse_snapshot_id(document.get("snapshot_id")),
            cursor=str(document.get("cursor", "")),
            document=document,
        )
    except (KeyError, TypeError, AttributeError, ArithmeticError):
        raise ValueError("this is no answer of a query") from None


def _parse_snapshot_id(text: str | None) -> int | None:
    return None if text is None else int(text)


def _convert(value: Any, kind: str) -> Any:
    convert = _CONVERTERS.get(kind.partition("(")[0])
    return value if value is None or convert is None else convert(value)


_CONVERTERS: dict[str, Callable[[Any], Any]] = {"long": int, "decimal": Decimal, "double": float, "float": float}
