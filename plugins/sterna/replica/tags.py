"""The tags that sterna sets in the catalog: their names are written and read here alone.

Upkeep keeps what a tag shows for the sake of a region whose replica it belongs to: one whose name isn't understood is
nobody's. The catalog's rules of access name the outlets' tags too (`embedded/access.properties`).
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from sterna.replica.ids import parse_stamp, stamp
from sterna.services.outlets import OUTLET_NAME

_HOLD: Final = "sterna-hold-"
_OUTLET: Final = "sterna-outlet-"
_HASH_DIGITS: Final = 12


def hold_tag(region: str, until: datetime, commit: str) -> str:
    """Return the name of a tag that holds a commit of a region's replica branch.

    Args:
        region: the region.
        until: when the hold is over.
        commit: the commit's hash.
    """
    return f"{_HOLD}{region}-{stamp(until)}-{commit[:_HASH_DIGITS]}"


def held_until(region: str, tag: str) -> datetime | None:
    """Return until when a tag holds a commit of a region; None where it is no hold of that region."""
    match = re.fullmatch(rf"{_HOLD}{re.escape(region)}-(\d{{8}}T\d{{6}}Z)-[0-9a-f]{{{_HASH_DIGITS}}}", tag)
    try:
        return None if match is None else parse_stamp(match[1])
    except ValueError:
        return None  # digits that are no moment: somebody else's


def outlet_tag(region: str, outlet: str) -> str:
    """Return the name of the tag that says how far an outlet of a region is."""
    return f"{_OUTLET}{region}-{outlet}"


def outlet_of(region: str, tag: str) -> str | None:
    """Return the outlet of a region whose position a tag is; None where it is none of that region's.

    Another region's name may begin as this one's does; an outlet's has no dash.
    """
    start = outlet_tag(region, "")
    name = tag.removeprefix(start)
    return name if tag.startswith(start) and OUTLET_NAME.fullmatch(name) else None


def may_be_of(region: str, tag: str) -> bool:
    """Tell whether a tag is a region's by how its name begins; it may be that of one with a longer name."""
    return tag.startswith((f"{_HOLD}{region}-", f"{_OUTLET}{region}-"))
