"""The messages between a query's process and its parent, over a pipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from sterna import errors
from sterna.catalog.model import key_name
from sterna.errors import QueryFailed, SternaError


@dataclass(frozen=True)
class PinnedTable:
    """A table at the version that a request names.

    Args:
        key: as the SQL spells it, and the catalog.
        metadata: its metadata.json in this region.
        snapshot: the snapshot's id, None for a table without any.
        own_schema: it is read with the snapshot's own schema, else with the metadata's current one.
    """

    key: tuple[str, ...]
    metadata: str
    snapshot: int | None
    own_schema: bool

    @property
    def name(self) -> str:
        """The table's name in messages."""
        return key_name(self.key)


@dataclass(frozen=True)
class QueryJob:
    """One run of a query.

    Args:
        params: type and value by name.
        tables: what it reads.
        kpi: the answer is one row.
        seconds, memory, rows, bytes: its limits.
        stores: the region's stores, as `Objects.spec` returns them.
        credentials: theirs, as variables; secret.
        repair: the repair that overwrote files of the replica last; "": none.
    """

    sql: str
    params: Mapping[str, tuple[str, str]]
    tables: tuple[PinnedTable, ...]
    kpi: bool
    seconds: float
    memory: int
    rows: int
    bytes: int
    spark_bytes: int = 256 << 20
    stores: Mapping[str, Any] = field(default_factory=dict, repr=False)
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    repair: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> QueryJob:
        """Return the job that `to_json` described."""
        tables = tuple(PinnedTable(**{**table, "key": tuple(table["key"])}) for table in document["tables"])
        params = {name: (kind, text) for name, (kind, text) in document["params"].items()}
        return cls(**{**document, "tables": tables, "params": params})


@dataclass(frozen=True)
class SparkRequest:
    """A request of a running query's process: rows of a table that it can't read exactly itself.

    Args:
        table: the number of the table in its job.
        columns: those that it needs.
        where: which rows it needs at least, as Spark's SQL; "" for all.
        places: the ids of the locations in which the table's files lie.
        reason: why it doesn't read them itself.
    """

    table: int
    columns: tuple[str, ...]
    where: str
    places: tuple[str, ...]
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> SparkRequest:
        """Return the wish that `to_json` described."""
        return cls(**{**document, "columns": tuple(document["columns"]), "places": tuple(document["places"])})


def error_to_json(error: SternaError) -> dict[str, Any]:
    """Return an error as data."""
    return {"error": type(error).__name__, "message": error.message, "table": error.table, "file": error.file}


def error_from_json(document: Mapping[str, Any]) -> SternaError:
    """Return the error that `error_to_json` described."""
    kind = getattr(errors, str(document["error"]), QueryFailed)
    is_sterna_error = isinstance(kind, type) and issubclass(kind, SternaError)
    return (kind if is_sterna_error else QueryFailed)(
        document["message"], table=document["table"], file=document["file"]
    )
