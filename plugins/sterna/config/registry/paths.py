"""Which paths may be followed, and which keys a store can hold."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from sterna.config.registry.azure import AMBIGUOUS_KEY, AZURE
from sterna.errors import UnsafeUri

_MAX_KEY_BYTES: Final = 1024  # bytes of an object key in S3, GCS and Azure
_MAX_NAME_BYTES: Final = 255  # bytes of a file name
# Nearly every file name: this check is much faster than looking for each odd character.
PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_=-]+(?:\.[A-Za-z0-9_=-]+)*")
# What hardly any path contains, and each that `validate_path` refuses: a plan checks millions.
UNUSUAL_PATH: Final = re.compile(r"[\x00-\x1f\x7f?\\\ud800-\udfff]|^/|//|/$|(?:^|/)\.|\.(?:/|$)|%2[eEfF]")


def validate_path(uri: str, path: str) -> None:
    """Refuse a URI that must not be followed.

    Args:
        path: what it has below its location's prefix.

    Raises:
        UnsafeUri: a control character, half a surrogate pair, a query, an empty part, a part that is or decodes to `.`
            or `..`, or what is another key in Azure's stores.
    """
    _validate_azure(uri, uri)
    if not UNUSUAL_PATH.search(path):
        return
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in uri):
        raise UnsafeUri("the URI contains a control character, which a list of files can't carry", file=uri)
    if any(0xD800 <= ord(letter) <= 0xDFFF for letter in uri):
        raise UnsafeUri("the URI contains half a surrogate pair, which no object key can hold", file=uri)
    if "?" in uri:
        raise UnsafeUri("the URI contains a query", file=uri)
    if path:
        _validate_parts(uri, path)


def _validate_parts(uri: str, path: str) -> None:
    for part in path.split("/"):
        if part == "":
            raise UnsafeUri("the URI has an empty path part ('//'), which rclone can't copy", file=uri)
        if {".", ".."} & set(unquote(part).split("/")):
            raise UnsafeUri("the URI has a path part that is, or decodes to, '.' or '..'", file=uri)


def _validate_azure(uri: str, place: str) -> None:
    if place.startswith(AZURE.schemes) and AMBIGUOUS_KEY.search(place):
        raise UnsafeUri("a backslash, or a path part that ends with a dot, is another key in Azure's stores", file=uri)


def validate_key(uri: str, mapped: str) -> None:
    """Refuse a URI whose place in a replica the store can't hold.

    Args:
        uri: the URI, for errors.
        mapped: its URI in a replica.

    Raises:
        UnsafeUri: the key is too long, a name in it is, or it is another key in Azure's stores.
    """
    _validate_azure(uri, mapped)
    key = mapped.partition("://")[2].partition("/")[2].encode()
    if mapped.startswith("file:"):
        if any(len(part) > _MAX_NAME_BYTES for part in key.split(b"/")):
            raise UnsafeUri(f"its place in the replica has a name longer than {_MAX_NAME_BYTES} bytes", file=uri)
    elif len(key) > _MAX_KEY_BYTES:
        raise UnsafeUri(
            f"its key in the replica would have {len(key)} bytes, {_MAX_KEY_BYTES} is the stores' limit", file=uri
        )
