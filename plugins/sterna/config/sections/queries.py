"""The section `queries` of the services file: questions that operators write and that have a name (docs/queries.md)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from sterna.config.sections.types import Size
from sterna.config.yaml import StrictModel

SQL_CHECK = "sql_check"
"""The name under which a loader finds what reads SQL in the context that it was given."""
ParamType = Literal["boolean", "int", "long", "double", "decimal", "string", "date", "timestamp", "timestamptz"]
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_PARAM = re.compile(r"[a-z_][a-z0-9_]{0,63}")
_RESERVED = ("name", "at")  # what a request has beside the parameters; `snapshotId` is no valid name of one anyway
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)")
_MAX_DECIMAL_DIGITS = 38
_MAX_TEXT_CHARACTERS = 10_000  # characters of a parameter


@dataclass(frozen=True)
class SqlFacts:
    """A query's SQL, parsed: the tables that it names, and the parameters that it uses."""

    tables: tuple[tuple[str, ...], ...]
    parameters: frozenset[str]


SqlCheck = Callable[[str], SqlFacts]
"""Parses SQL; raises ValueError where a named query may not contain it."""


def normalize_parameter(kind: ParamType, text: str) -> str:
    """Return a parameter's value in its canonical form: one spelling a value.

    Args:
        kind: the parameter's type.
        text: what the request has.

    Raises:
        ValueError: it is no such value; the message has what was expected.
    """
    try:
        return _PARSERS[kind](text)
    except (ValueError, InvalidOperation, OverflowError):
        raise ValueError(f"expected {_EXPECTED[kind]}") from None


def _boolean(text: str) -> str:
    if text not in ("true", "false"):
        raise ValueError
    return text


def _integer_parser(bits: int) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if not _INTEGER.fullmatch(text) or not -(1 << bits - 1) <= int(text) < 1 << bits - 1:
            raise ValueError
        return str(int(text))

    return parse


def _double(text: str) -> str:
    if not text.isascii() or text != text.strip() or "_" in text or not math.isfinite(float(text)):
        raise ValueError
    return repr(float(text))


def _decimal(text: str) -> str:
    if not _DECIMAL.fullmatch(text):
        raise ValueError
    # A default is read twice: what is returned has to be taken, too, so a 0 before the point counts for nothing.
    formatted = format(Decimal(text), "f")
    if len(formatted.lstrip("-0").replace(".", "")) > _MAX_DECIMAL_DIGITS:
        raise ValueError
    return formatted


def _string(text: str) -> str:
    if (
        len(text) > _MAX_TEXT_CHARACTERS
        or "\x00" in text
        or any("\ud800" <= character <= "\udfff" for character in text)
    ):
        raise ValueError
    return text


def _timestamp(text: str) -> str:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is not None or len(text) < len("2026-01-01T00:00"):
        raise ValueError
    return moment.isoformat()


def _timestamptz(text: str) -> str:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError
    return moment.astimezone(UTC).isoformat()


_PARSERS: dict[str, Callable[[str], str]] = {
    "boolean": _boolean,
    "int": _integer_parser(32),
    "long": _integer_parser(64),
    "double": _double,
    "decimal": _decimal,
    "string": _string,
    "date": lambda text: date.fromisoformat(text).isoformat(),
    "timestamp": _timestamp,
    "timestamptz": _timestamptz,
}
_EXPECTED = {
    "boolean": "true or false",
    "int": "a whole number of 32 bits",
    "long": "a whole number of 64 bits",
    "double": "a finite number",
    "decimal": f"a decimal number of at most {_MAX_DECIMAL_DIGITS} digits",
    "string": f"text of at most {_MAX_TEXT_CHARACTERS} characters",
    "date": "a date such as 2026-01-31",
    "timestamp": "a time without an offset, such as 2026-01-31T12:00:00",
    "timestamptz": "a time with an offset, such as 2026-01-31T12:00:00+00:00",
}


def _default_text(value: Any) -> Any:
    """Return a default as the text of a request: YAML reads dates and numbers by itself."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value) if isinstance(value, int | float) else value


class Param(StrictModel):
    """One parameter, `$name` in the SQL.

    Args:
        type: what values it takes.
        default: the value where a request gives none; without it a request must.
    """

    type: ParamType
    default: Annotated[str | None, BeforeValidator(_default_text, json_schema_input_type=str | float | bool | None)] = (
        None
    )

    @field_validator("default")
    @classmethod
    def _validate_default(cls, value: str | None, info: ValidationInfo) -> str | None:
        kind = info.data.get("type")
        return normalize_parameter(kind, value) if value is not None and kind else value


Seconds = Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)]
Memory = Annotated[Size, Field(ge=64 << 20)]
Rows = Annotated[int, Field(ge=1, le=1_000_000)]
TransferSize = Annotated[Size, Field(ge=1 << 20)]
AnswerSize = Annotated[Size, Field(ge=1 << 10, le=1 << 30)]


class QueryLimits(StrictModel):
    """Limits of one query; by default those of the section."""

    seconds: Seconds | None = None
    memory: Memory | None = None
    rows: Rows | None = None
    bytes: Size | None = None
    spark_bytes: TransferSize | None = None


class SharedLimits(StrictModel):
    """The defaults of each query, and what all of them share.

    Args:
        seconds: that a run may take.
        memory: a run's memory, beside what its process takes idle.
        rows, bytes: limits of an answer's size.
        spark_bytes: bytes that the region's Spark returns for a run; they are spooled to this machine's disk.
        max_concurrency: runs at the same time.
        queue: runs that wait for one of those.
        cache: bytes of answers that are kept.
    """

    seconds: Seconds = 10.0
    memory: Memory = 256 << 20
    rows: Rows = 10_000
    bytes: Size = 1 << 20
    spark_bytes: TransferSize = 256 << 20
    max_concurrency: Annotated[int, Field(ge=1, le=64)] = 2
    queue: Annotated[int, Field(ge=0, le=10_000)] = 32
    cache: Size = 64 << 20


class NamedQuery(StrictModel):
    """One query.

    Args:
        sql: one SELECT; tables by their full names, parameters as `$name`.
        params: its parameters, by name.
        answer: `kpi`: one row, as one object; `rows`: a list.
        default: the one that a request without a name means.
        limits: what it may take.
    """

    sql: str
    params: dict[str, Param] = Field(default_factory=dict)
    answer: Literal["kpi", "rows"] = "kpi"
    default: bool = False
    limits: QueryLimits = QueryLimits()

    @field_validator("sql")
    @classmethod
    def _validate_sql(cls, value: str, info: ValidationInfo) -> str:
        if (check := _get_sql_check(info)) is not None:
            check(value)
        return value

    @field_validator("params", mode="before", json_schema_input_type=dict[str, Param | ParamType] | None)
    @classmethod
    def _expand_params(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: {"type": param} if isinstance(param, str) else param for name, param in value.items()}

    @field_validator("params")
    @classmethod
    def _validate_params(cls, value: dict[str, Param], info: ValidationInfo) -> dict[str, Param]:
        for name in value:
            if not _PARAM.fullmatch(name) or name in _RESERVED:
                raise ValueError(f"{name!r} is no parameter's name: small letters, digits, _, not {_RESERVED}")
        if (check := _get_sql_check(info)) is not None and "sql" in info.data:
            _validate_parameters(check(info.data["sql"]).parameters, frozenset(value))
        return value

    @model_validator(mode="before")
    @classmethod
    def _default_params(cls, value: Any) -> Any:
        # A field that is absent isn't validated, and SQL may use parameters all the same.
        return {**value, "params": value.get("params") or {}} if isinstance(value, dict) else value


def _get_sql_check(info: ValidationInfo) -> SqlCheck | None:
    return (info.context or {}).get(SQL_CHECK)


def _validate_parameters(used: frozenset[str], declared: frozenset[str]) -> None:
    if used - declared:
        raise ValueError(f"the SQL uses {_format_names(used - declared)}, which is declared nowhere")
    if declared - used:
        raise ValueError(f"the SQL doesn't use {_format_names(declared - used)}")


def _format_names(names: frozenset[str]) -> str:
    return ", ".join(f"${name}" for name in sorted(names))


class NamedQueries(StrictModel):
    """The section: `limits`, and each query under its name."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, NamedQuery] = Field(init=False)
    limits: SharedLimits = SharedLimits()

    @model_validator(mode="after")
    def _validate_names(self) -> NamedQueries:
        for name in self.by_name:
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} is no query's name: letters, digits, _ and -, beginning with a letter")
        defaults = [name for name, query in self.by_name.items() if query.default]
        if len(defaults) > 1:
            raise ValueError(f"one query may be the default, not {', '.join(defaults)}")
        return self

    @property
    def by_name(self) -> Mapping[str, NamedQuery]:
        """The queries by name."""
        return self.__pydantic_extra__

    @property
    def default(self) -> str | None:
        """The query that a request without a name means: the one marked so, or the only one."""
        defaults = [name for name, query in self.by_name.items() if query.default]
        return next(iter(defaults or (self.by_name if len(self.by_name) == 1 else ())), None)

    def __bool__(self) -> bool:
        return bool(self.by_name)
