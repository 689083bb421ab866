"""The paths of an inbox, and whether a table's name is allowed in a path.

<inbox>/<tenant>/<table>/<id[:2]>/<id>-<digest[:16]>.<jsonl|arrow|parquet>      an upload's content
<inbox>/<tenant>/<table>/<id[:2]>/<id>.drop.json                                its marker, which makes it an upload
<inbox>/<tenant>/<table>/_batches/<channel>/<number>.json                       a batch, before it is staged
<inbox>/<tenant>/<table>/_batches/<channel>/<number>.rejected.json              that it never will be published
<inbox>/<tenant>/<table>/_topics/<channel>.json                                 which topic a channel reads, from where
<inbox>/<tenant>/<table>/_topics/<channel>.empty.json                           its end that has no row
<inbox>/<tenant>/<table>/_dead/<channel>/<number>.parquet                       its bad rows

A clean-up deletes an upload's marker before its batch's file: a marker without one is an upload that waits.
"""

from __future__ import annotations

import re

from sterna.config.mapping import Mapping
from sterna.config.registry.model import canonical_prefix, is_inside
from sterna.errors import TableError, UsageError
from sterna.pipelines.ingest.model import Destination, Format

UPLOAD_SUFFIX = ".drop.json"
REJECTED_SUFFIX = ".rejected.json"
BATCHES_FOLDER = "_batches"
DEAD_LETTERS_FOLDER = "_dead"
TOPICS_FOLDER = "_topics"
_TABLE = re.compile(r"[A-Za-z0-9_]{1,128}(\.[A-Za-z0-9_]{1,128}){1,16}")
_CONTENT_SUFFIXES = {Format.JSON_LINES: "jsonl", Format.ARROW: "arrow", Format.PARQUET: "parquet"}
_MAX_TABLE_LENGTH = 200


def is_valid_table(name: str) -> bool:
    """Return whether a dotted key is valid for a table that takes rows: it is part of paths, and has to be plain."""
    return len(name) <= _MAX_TABLE_LENGTH and bool(_TABLE.fullmatch(name))


def table_folder(inbox: str, tenant: str, table: str) -> str:
    """Return the folder of one table of one tenant."""
    return f"{inbox}/{tenant}/{table}"


def content_uri(inbox: str, destination: Destination, upload: str, digest: str, format: Format) -> str:
    """Return the URI of an upload's content; other content has another URI."""
    folder = table_folder(inbox, destination.tenant, destination.table)
    return f"{folder}/{upload[:2]}/{upload}-{digest[:16]}.{_CONTENT_SUFFIXES[format]}"


def upload_marker_uri(inbox: str, destination: Destination, upload: str) -> str:
    """Return the URI of an upload's marker, which doesn't depend on its content."""
    return f"{table_folder(inbox, destination.tenant, destination.table)}/{upload[:2]}/{upload}{UPLOAD_SUFFIX}"


def batch_uri(inbox: str, destination: Destination, number: int) -> str:
    """Return the URI of a batch's file."""
    folder = table_folder(inbox, destination.tenant, destination.table)
    return f"{folder}/{BATCHES_FOLDER}/{destination.channel}/{number:012}.json"


def rejected_uri(inbox: str, destination: Destination, number: int) -> str:
    """Return the URI of a batch's rejection."""
    return batch_uri(inbox, destination, number).removesuffix(".json") + REJECTED_SUFFIX


def topic_uri(inbox: str, destination: Destination) -> str:
    """Return the URI of a channel's anchor: which topic's partition it reads, and from which offset."""
    return f"{table_folder(inbox, destination.tenant, destination.table)}/{TOPICS_FOLDER}/{destination.channel}.json"


def empty_range_uri(inbox: str, destination: Destination) -> str:
    """Return the URI of the range behind a channel's last upload that has no row."""
    return topic_uri(inbox, destination).removesuffix(".json") + ".empty.json"


def is_managed(uri: str) -> bool:
    """Return whether an object of an inbox was written for uploads, batches or topics."""
    return uri.endswith(UPLOAD_SUFFIX) or any(
        f"/{folder}/" in uri for folder in (BATCHES_FOLDER, DEAD_LETTERS_FOLDER, TOPICS_FOLDER)
    )


def check_inbox(mapping: Mapping, inbox: str, label: str = "inbox") -> None:
    """See that an inbox is in the region's own storage, and in no replica root.

    Args:
        inbox: its URI.
        label: how messages call it.

    Raises:
        UsageError: it doesn't.
    """
    region = mapping.region.name
    try:
        location = mapping.locate(f"{inbox}/x").location
    except TableError as error:
        raise UsageError(f"the {label} {inbox} of {region}: {error.message}", hint=error.hint) from None
    if location.region != region:
        raise UsageError(f"the {label} {inbox} of {region} is in {location.region}: it has to be in its own region")
    for replica_region in mapping.registry.regions:
        if prefixes_overlap(inbox, replica_region.replica_root):
            raise UsageError(
                f"the {label} {inbox} of {region} and the replica root {replica_region.replica_root} overlap"
            )


def prefixes_overlap(left: str, right: str) -> bool:
    """Return whether one of two prefixes contains the other."""
    canonical_left, canonical_right = canonical_prefix(left), canonical_prefix(right)
    return is_inside(canonical_left, canonical_right) or is_inside(canonical_right, canonical_left)
