"""Reading a metadata.json, by the standard library alone."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from typing import Any, Final, NoReturn

from sterna.config.limits import DEFAULT_LIMITS, Limits
from sterna.errors import BrokenMetadata

_GZIP_MAGIC: Final = b"\x1f\x8b"
# Engines take the codec from the name: such a file, without gzip, is unreadable for them.
_GZIP_SUFFIXES: Final = (".gz.metadata.json", ".metadata.json.gz")


def read_json(data: bytes, uri: str, limits: Limits = DEFAULT_LIMITS) -> dict[str, Any]:
    """Read a metadata.json, gzip or not.

    Raises:
        OverLimit: it is larger than the limits allow, or holds more.
        BrokenMetadata: it does not parse.
    """
    try:
        value = json.loads(_text(data, uri, limits), parse_constant=_reject_constant)
    except RecursionError:
        raise BrokenMetadata("JSON nests too deep", file=uri) from None
    except (ValueError, OSError, EOFError, zlib.error) as error:
        raise BrokenMetadata(f"not valid JSON: {error}", file=uri) from error
    if not isinstance(value, dict):
        raise BrokenMetadata("not a JSON object", file=uri)
    return value


def _text(data: bytes, uri: str, limits: Limits) -> str:
    if data.startswith(_GZIP_MAGIC):
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            data = stream.read(limits.json_bytes + 1)
    elif uri.endswith(_GZIP_SUFFIXES):
        raise BrokenMetadata("by its name it is gzip, by its content not", file=uri)
    validate_json_size(data, uri, limits)
    return data.decode("utf-8")


def validate_json_size(data: bytes, uri: str, limits: Limits) -> None:
    """Refuse JSON that is large, or decodes to many times its size: each value takes memory, however short it is.

    Raises:
        OverLimit: it is larger than the limits allow, or holds more.
    """
    limits.check("json_bytes", len(data), "bytes of JSON", uri)
    objects = data.count(b"{") + data.count(b"[")
    limits.check("json_objects", objects, "JSON objects", uri)
    limits.check("json_values", objects + data.count(b","), "JSON values", uri)


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
