"""Reading a metadata.json, by the standard library alone."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from typing import Any, Final, NoReturn

from sterna.errors import BrokenMetadata
from sterna.iceberg.files import MAX_JSON_BYTES

_GZIP_MAGIC: Final = b"\x1f\x8b"
# Engines take the codec from the name: such a file, without gzip, is unreadable for them.
_ZIPPED: Final = (".gz.metadata.json", ".metadata.json.gz")


def read_json(data: bytes, uri: str) -> dict[str, Any]:
    """Read a metadata.json, gzip or not.

    Raises:
        BrokenMetadata: it does not parse, or is over a limit.
    """
    try:
        value = json.loads(_text(data, uri), parse_constant=_refuse)
    except RecursionError:
        raise BrokenMetadata("JSON nests too deep", file=uri) from None
    except (ValueError, OSError, EOFError, zlib.error) as error:
        raise BrokenMetadata(f"not valid JSON: {error}", file=uri) from error
    if not isinstance(value, dict):
        raise BrokenMetadata("not a JSON object", file=uri)
    return value


def _text(data: bytes, uri: str) -> str:
    if data.startswith(_GZIP_MAGIC):
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            data = stream.read(MAX_JSON_BYTES + 1)
    elif uri.endswith(_ZIPPED):
        raise BrokenMetadata("the name says gzip, the content does not", file=uri)
    if len(data) > MAX_JSON_BYTES:
        raise BrokenMetadata(f"over {MAX_JSON_BYTES} bytes of JSON", file=uri)
    return data.decode("utf-8")


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
