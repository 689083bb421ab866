"""Which edition of a table's localized files this version of sterna writes."""

from __future__ import annotations

from sterna.errors import Unsupported
from sterna.iceberg import LOCALIZER_VERSION
from sterna.registry.edition import Edition
from sterna.registry.mapping import Mapping


def edition_now(mapping: Mapping, here: str = "", generation: int = 0) -> Edition:
    """Return the edition in which this version of sterna writes a table's localized files.

    Args:
        mapping: the region's.
        here: the replica's file that says what the table's generation is; "" for none.
        generation: the least one.
    """
    before = mapping.edition(here)
    return Edition(LOCALIZER_VERSION, max(before.generation if before else 0, generation))


def edition_at(mapping: Mapping, target: str) -> Edition:
    """Return the edition of a file that localizing is to write.

    Raises:
        Unsupported: nothing that sterna localizes belongs there.
    """
    edition = mapping.edition(target)
    if edition is None:
        raise Unsupported("what is localized doesn't belong there", file=target)
    return edition
