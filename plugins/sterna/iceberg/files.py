"""What the subpackages share: a localized file, the newest format, and the size from which ratios are checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sterna.config.limits import MIB

MAX_FORMAT_VERSION: Final = 3
"""The newest table format version that is localized."""

JSON_RATIO_FREE_BYTES: Final = MIB
"""Below this many decompressed bytes the limit `ratio` does not matter for a metadata.json; real ones reach 30."""

RATIO_FREE_BYTES: Final = 4 * MIB
"""Below this many decompressed bytes the limit `ratio` does not matter for an Avro file."""


@dataclass(frozen=True)
class LocalizedFile:
    """The URI of a path-bearing file of the replica, and its length.

    Args:
        uri: the replica's URI of the file.
        length: the size of the object at that URI, in bytes.
    """

    uri: str
    length: int
