"""The section `transforms` of the services file: tables that follow the snapshots of others (docs/transforms.md)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from sterna.config.sections.types import Duration, EmptyAs
from sterna.config.yaml import StrictModel

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_TABLE = re.compile(r"[^\s.@#`\x00-\x1f]{1,128}(\.[^\s.@#`\x00-\x1f]{1,128}){1,16}")
_MODE = re.compile(r"(merge|replace)\(\s*(\w{1,128}(\s*,\s*\w{1,128})*)\s*\)")
_ModeText = Annotated[str, Field(pattern=f"^(append|{_MODE.pattern})$")]
_FILE = re.compile(r"[^\s]+\.sql")
_MAX_SQL_CHARACTERS = 100_000


@dataclass(frozen=True)
class WriteMode:
    """How the rows of a step come into the target.

    Args:
        kind: `append`: they are added; `merge`: by key; `replace`: whole partitions at a time.
        columns: the key's columns, or the one that partitions.
    """

    kind: Literal["append", "merge", "replace"]
    columns: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(self.columns)})" if self.columns else self.kind


def _parse_mode(value: Any) -> Any:
    if value == "append":
        return WriteMode("append")
    match = _MODE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("expected append, merge(key) or replace(partition)")
    columns = tuple(part.strip() for part in match[2].split(","))
    if len(set(columns)) < len(columns):
        raise ValueError("a column appears twice")
    if match[1] == "replace":
        if len(columns) > 1:
            raise ValueError("replace takes the one column that the target is partitioned by")
        return WriteMode("replace", columns)
    return WriteMode("merge", columns)


def _validate_name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError("expected small letters, digits, _ and -, beginning with a letter")
    return value


def _validate_table(value: str) -> str:
    if not _TABLE.fullmatch(value):
        raise ValueError("expected a table with its namespace, such as acme.ods")
    return value


def _validate_sql(value: str) -> str:
    if not value.strip() or len(value) > _MAX_SQL_CHARACTERS:
        raise ValueError(
            f"expected a SELECT over the view `changes`, or a file such as dwd.sql, of {_MAX_SQL_CHARACTERS} letters "
            "at most"
        )
    return value


Table = Annotated[str, AfterValidator(_validate_table)]


class Transform(StrictModel):
    """One table that follows another.

    Args:
        name: its name; it is part of the property with the applied position on the target.
        source: the table that is followed; `from` in the file.
        into: the table that is written, which belongs to this transform alone.
        mode: how rows come into it.
        sql: a SELECT over the view `changes`, or a file's name that ends with `.sql`, beside the services file.
        every: seconds between two steps of one process.
        partition: with `replace`: of a row of the source, in SQL, which partition it belongs to; "": the column itself.
        credential_id: Airflow connection id of a login that may commit to `main` at the catalog; none: the region's own
            `catalog.credential_id`.
        spark: the Spark master; "": the region's.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=False)
    name: Annotated[str, AfterValidator(_validate_name)]
    source: Table = Field(alias="from")
    into: Table
    mode: Annotated[WriteMode, BeforeValidator(_parse_mode, json_schema_input_type=_ModeText)]
    sql: Annotated[str, AfterValidator(_validate_sql)]
    every: Duration = 30
    partition: str = ""
    credential_id: str | None = None
    spark: str = ""

    @model_validator(mode="after")
    def _validate_fields(self) -> Transform:
        if self.source == self.into:
            raise ValueError("a table can't follow itself")
        if self.partition and self.mode.kind != "replace":
            raise ValueError("partition is for mode replace alone")
        return self

    @property
    def file(self) -> str:
        """The file with the SQL, "" where it is inline."""
        return self.sql if _FILE.fullmatch(self.sql) else ""


def _validate_transforms(transforms: tuple[Transform, ...]) -> tuple[Transform, ...]:
    for field_name, names in (
        ("name", [transform.name for transform in transforms]),
        ("into", [transform.into for transform in transforms]),
    ):
        duplicates = sorted({name for name in names if names.count(name) > 1})
        if duplicates:
            raise ValueError(
                f"{field_name} {duplicates[0]} appears twice: a transform has a name and a target of its own"
            )
    _validate_acyclic(transforms)
    return transforms


def _validate_acyclic(transforms: Sequence[Transform]) -> None:
    sources = {transform.into: transform.source for transform in transforms}
    for transform in transforms:
        upstream, visited = transform.source, [transform.into]
        while upstream in sources and upstream not in visited:
            visited.append(upstream)
            upstream = sources[upstream]
        if upstream == transform.into:
            raise ValueError(f"the transforms go in a circle: {' ← '.join([*visited, upstream])}")


Transforms = Annotated[tuple[Transform, ...], EmptyAs(()), AfterValidator(_validate_transforms)]
