"""What the packages of this room share: a written file, and the limits that bound hostile or broken input.

The limits are far above what real tables hold. They exist because a table's writers are trusted less than the operator:
a few kilobytes of crafted metadata (a bomb in an Avro block or a gzip, lengths that lie) must not take a worker's
memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NEWEST_FORMAT: Final = 3
"""The newest table format version that is localized."""

MIB: Final = 1 << 20

MAX_FILE_BYTES: Final = 512 * MIB
"""An Avro, Parquet or metadata.json file as it is stored."""

MAX_JSON_BYTES: Final = 256 * MIB
"""A metadata.json after gzip."""

MAX_JSON_RATIO: Final = 200
"""Decompressed bytes per compressed byte of a metadata.json, once past `JSON_RATIO_FREE_BYTES`; real ones reach 30."""

JSON_RATIO_FREE_BYTES: Final = MIB
"""Below this many decompressed bytes a metadata.json's ratio does not matter."""

MAX_JSON_OBJECTS: Final = 500_000
"""Objects and arrays of one metadata.json, each of which takes up to a kilobyte; a snapshot has three."""

MAX_JSON_VALUES: Final = 8_000_000
"""Values of one metadata.json; a snapshot has about thirty."""

MAX_BLOCK_BYTES: Final = 256 * MIB
"""One Avro block after its codec; writers make blocks of 16 to 64 KiB."""

MAX_TOTAL_BYTES: Final = 8192 * MIB
"""All blocks of one Avro file after their codec. They are never in memory together."""

MAX_RATIO: Final = 200
"""Decompressed bytes per compressed byte of an Avro file, once past `RATIO_FREE_BYTES`."""

RATIO_FREE_BYTES: Final = 4 * MIB
"""Below this many decompressed bytes an Avro file's ratio does not matter."""

MAX_RECORDS: Final = 20_000_000
"""Entries of one manifest, or manifests of one list."""

MAX_DELETE_ROWS: Final = 1 << 25
"""Rows of one position delete file; sorting them takes some 20 bytes a row."""

MAX_DELETE_BYTES: Final = 4096 * MIB
"""All column chunks of one position delete file after their codec."""


@dataclass(frozen=True)
class Written:
    """Where a path-bearing file of the replica stands, and how long it is.

    Args:
        uri: the replica's URI of the file.
        length: the size of the object at that URI, in bytes.
    """

    uri: str
    length: int
