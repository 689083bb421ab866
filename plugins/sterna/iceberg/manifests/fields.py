"""The fields of a manifest's entries that localizing and planning read, and the values that they may have."""

from __future__ import annotations

from typing import Final

from sterna.iceberg.avro.program import Capture, ProjectedField

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

BOUND_FIELDS: Final = (LOWER_BOUNDS, UPPER_BOUNDS)
LAYOUT_FIELDS: Final = (COLUMN_SIZES, SPLIT_OFFSETS)
"""Both describe the file's bytes, so they go where a position delete file is written anew."""

DATA, POSITION_DELETES, EQUALITY_DELETES = 0, 1, 2
PUFFIN: Final = "PUFFIN"
ROW_FORMATS: Final = ("PARQUET", "ORC", "AVRO")
"""Formats of position deletes that hold their paths in rows; deletion vectors have PUFFIN."""

ADDED_OR_EXISTING: Final = (0, 1)
DELETED: Final = 2

ENTRY_FIELDS: Final = (ProjectedField(STATUS, ("status",), Capture.LONG),)
FILE_FIELDS: Final = (
    ProjectedField(CONTENT, ("content",), Capture.LONG),
    ProjectedField(FILE_PATH, ("file_path",), Capture.BYTES),
    ProjectedField(FILE_FORMAT, ("file_format",), Capture.BYTES),
    ProjectedField(FILE_SIZE, ("file_size_in_bytes",), Capture.LONG),
    ProjectedField(KEY_METADATA, ("key_metadata",), Capture.BYTES),
    ProjectedField(REFERENCED_DATA_FILE, ("referenced_data_file",), Capture.BYTES),
    ProjectedField(CONTENT_OFFSET, ("content_offset",), Capture.LONG),
)
DELETE_FIELDS: Final = (
    ProjectedField(COLUMN_SIZES, ("column_sizes",), Capture.SPAN),
    ProjectedField(LOWER_BOUNDS, ("lower_bounds",), Capture.SPAN),
    ProjectedField(UPPER_BOUNDS, ("upper_bounds",), Capture.SPAN),
    ProjectedField(SPLIT_OFFSETS, ("split_offsets",), Capture.SPAN),
)
REQUIRED_FIELDS: Final = (STATUS, FILE_PATH, FILE_FORMAT, FILE_SIZE)
