"""The names of the tags and branches that sterna sets in the catalog, written and parsed here alone.

Maintenance retains what a tag shows for the region whose replica it belongs to; a name that can't be parsed belongs to
no region. The catalog's access rules name the sinks' tags too (`servers/access.properties`).
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from sterna.config.sections.sinks import SINK_NAME
from sterna.replication.replica.ids import format_timestamp, parse_timestamp

_PIN_PREFIX: Final = "sterna-hold-"
_SINK_PREFIX: Final = "sterna-outlet-"
_HASH_DIGITS: Final = 12
_BEFORE_RESTORE_PREFIX: Final = "sterna-before-restore-"
LOST_PREFIX: Final = "lost/"
"""What the names of branches begin with that keep the commits which only an old primary had."""


def pin_tag(region: str, until: datetime, commit: str) -> str:
    """Return the name of a tag that holds a commit of a region's replica branch.

    Args:
        until: when the pin expires.
        commit: the commit's hash.
    """
    return f"{_PIN_PREFIX}{region}-{format_timestamp(until)}-{commit[:_HASH_DIGITS]}"


def pinned_until(region: str, tag: str) -> datetime | None:
    """Return until when a tag holds a commit of a region; None where it is no hold of that region."""
    match = re.fullmatch(rf"{_PIN_PREFIX}{re.escape(region)}-(\d{{8}}T\d{{6}}Z)-[0-9a-f]{{{_HASH_DIGITS}}}", tag)
    try:
        return None if match is None else parse_timestamp(match[1])
    except ValueError:
        return None  # digits that are no time: not a tag of sterna's


def sink_tag(region: str, sink: str) -> str:
    """Return the name of the tag that records the offset of a region's sink."""
    return f"{_SINK_PREFIX}{region}-{sink}"


def parse_sink_tag(region: str, tag: str) -> str | None:
    """Return the sink of a region whose position a tag is; None where it is none of that region's.

    Another region's name may begin as this one's does; a sink's has no dash.
    """
    prefix = sink_tag(region, "")
    name = tag.removeprefix(prefix)
    return name if tag.startswith(prefix) and SINK_NAME.fullmatch(name) else None


def branch_before_restore(at: datetime, commit: str) -> str:
    """Return the name of a branch that keeps `main` as it was before a restore replaced tables.

    Args:
        at: when the restore was made.
        commit: hash of the head of `main` before it.
    """
    return f"{_BEFORE_RESTORE_PREFIX}{format_timestamp(at)}-{commit[:_HASH_DIGITS]}"


def has_region_prefix(region: str, tag: str) -> bool:
    """Return whether a tag's name begins with a region's; it may belong to a region with a longer name."""
    return tag.startswith((f"{_PIN_PREFIX}{region}-", f"{_SINK_PREFIX}{region}-"))
