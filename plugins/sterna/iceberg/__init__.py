"""Iceberg's own files and the paths inside them: bytes in, bytes out.

`manifests`, `deletes` and `metadata` are siblings, each for one kind of path-bearing file. Below them is `avro`, which
handles the file format without Iceberg, then `json_text`, then `files` with the limits for all.
"""

LOCALIZER_VERSION = 2
"""Part of the path of each localized file, and of a metadata.json's name.

A change in what localizing writes increments it, so that tables are rewritten (`sterna.config.registry.fingerprint`).
The same rows in other bytes, as another version of a library may write them, are no such change: a manifest has the
length of the file that is there, and a file that is there stays.
"""
