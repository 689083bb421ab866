"""Deleting in parts: what can't be deleted is told, and a store that deletes nothing ends it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sterna.cleaning.files import amount, gone
from sterna.cleaning.model import NOTHING, Amount
from sterna.errors import SternaError

if TYPE_CHECKING:
    import pyarrow as pa

AT_ONCE = 5_000
"""Files between two looks at whether the deletion may go on."""


@dataclass
class Tally:
    """What was deleted, and what could not be."""

    done: Amount = NOTHING
    failures: dict[str, SternaError] = field(default_factory=dict)


def delete_part(garbage: pa.Table, tally: Tally, delete: Callable[[Sequence[str]], dict[str, SternaError]]) -> pa.Table:
    """Delete the first part of some files; return the rest.

    Args:
        garbage: the files.
        tally: takes what was deleted, and what wasn't.
        delete: returns the error of each file that may still be there.

    Raises:
        SternaError: none could be deleted: it is the store, not the files.
    """
    part = garbage.slice(0, AT_ONCE)
    failures = delete(part.column("uri").to_pylist())
    tally.failures |= failures
    if len(failures) == part.num_rows:
        raise next(iter(failures.values()))
    tally.done += amount(gone(part, failures))
    return garbage.slice(part.num_rows)
