"""Types that several sections of the services file use."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import core_schema

from sterna.config.durations import DURATION_PATTERN, DURATION_UNITS, duration_seconds

_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}:[0-9]{1,5}")
_URI = re.compile(r"[a-z][a-z0-9]{0,15}://[^?#\\]{1,900}")
_SIZE = re.compile(r"([0-9]{1,9}) ?(B|KiB|MiB|GiB)")
_SIZES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def _parse_size(value: Any) -> Any:
    if isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        return int(match[1]) * _SIZES[match[2]]
    raise ValueError("expected a size such as 256MiB (units B, KiB, MiB, GiB)")


def _parse_duration(value: Any) -> Any:
    seconds = duration_seconds(value)
    if seconds is None:
        raise ValueError(f"expected a duration such as 90s or 7d ({DURATION_UNITS})")
    return seconds


def _validate_prefix(value: str) -> str:
    path = value.partition("://")[2].strip("/").split("/")
    if not _URI.fullmatch(value) or not value.isprintable() or {"", ".", ".."} & set(path) or "@" in path[0]:
        raise ValueError("expected a URI such as s3://bucket/inbox, without a query and user-info")
    return value.rstrip("/")


def validate_hosts(value: list[str]) -> list[str]:
    """Return addresses of a database, each as `host:port`.

    Raises:
        ValueError: one isn't.
    """
    if any(not _HOST.fullmatch(host) for host in value):
        raise ValueError("expected hosts such as db.example.com:5432")
    return value


@dataclass(frozen=True)
class EmptyAs:
    """Takes a default for an empty section: nothing, `[]` or `{}`. It annotates the section's type."""

    default: Any

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(self._replace_empty, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [handler(schema), {"enum": [None, [], {}]}]}

    def _replace_empty(self, value: Any) -> Any:
        return self.default if value is None or value == [] or value == {} else value


SizeText = Annotated[str, Field(pattern=f"^{_SIZE.pattern}$")]
DurationText = Annotated[str, Field(pattern=f"^{DURATION_PATTERN}$")]
Size = Annotated[int, BeforeValidator(_parse_size, json_schema_input_type=SizeText)]
"""Bytes, written such as `256MiB`."""
Duration = Annotated[int, BeforeValidator(_parse_duration, json_schema_input_type=DurationText)]
"""Seconds, written such as `15m`."""
Prefix = Annotated[str, AfterValidator(_validate_prefix)]
"""A URI prefix, without a slash at its end."""
