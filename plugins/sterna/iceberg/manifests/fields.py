"""The fields of a manifest's entries that localizing and planning look at, and the values that they may have."""

from __future__ import annotations

from typing import Final

from sterna.iceberg.avro.program import Take, Want

# Field ids: Iceberg specification, "Manifests".
STATUS: Final = 0
DATA_FILE: Final = 2
FILE_PATH: Final = 100
FILE_FORMAT: Final = 101
FILE_SIZE: Final = 104
COLUMN_SIZES: Final = 108
LOWER_BOUNDS: Final = 125
UPPER_BOUNDS: Final = 128
KEY_METADATA: Final = 131
SPLIT_OFFSETS: Final = 132
CONTENT: Final = 134
REFERENCED_DATA_FILE: Final = 143
CONTENT_OFFSET: Final = 144

PATH_COLUMN: Final = 2147483546
"""The reserved field id of `file_path` in position delete files, and so the key of its bounds."""

DATA, POSITION_DELETES, EQUALITY_DELETES = 0, 1, 2
PUFFIN: Final = "PUFFIN"
ROW_FORMATS: Final = ("PARQUET", "ORC", "AVRO")
"""Formats of position deletes that hold their paths in rows; deletion vectors have PUFFIN."""

ADDED_OR_EXISTING: Final = (0, 1)
DELETED: Final = 2

ENTRY_WANTS: Final = (Want(STATUS, ("status",), Take.LONG),)
FILE_WANTS: Final = (
    Want(CONTENT, ("content",), Take.LONG),
    Want(FILE_PATH, ("file_path",), Take.BYTES),
    Want(FILE_FORMAT, ("file_format",), Take.BYTES),
    Want(FILE_SIZE, ("file_size_in_bytes",), Take.LONG),
    Want(KEY_METADATA, ("key_metadata",), Take.BYTES),
    Want(REFERENCED_DATA_FILE, ("referenced_data_file",), Take.BYTES),
    Want(CONTENT_OFFSET, ("content_offset",), Take.LONG),
)
DELETE_WANTS: Final = (
    Want(COLUMN_SIZES, ("column_sizes",), Take.SPAN),
    Want(LOWER_BOUNDS, ("lower_bounds",), Take.SPAN),
    Want(UPPER_BOUNDS, ("upper_bounds",), Take.SPAN),
    Want(SPLIT_OFFSETS, ("split_offsets",), Take.SPAN),
)
REQUIRED: Final = (STATUS, FILE_PATH, FILE_FORMAT, FILE_SIZE)
