"""Telling a writer's own mistake from a fault of the replica: the source contradicts itself in the same words.

A replica repeats what its source says, and so its counts and logs are as wrong as the writer left them. Only a
contradiction that the check of the source finds too is moved: where the source is gone, can't be read or is silent, the
replica is at fault until somebody has looked.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from sterna.catalog.model import Content
from sterna.errors import CredentialError, StoreError
from sterna.replica.region import RegionContext
from sterna.verify.findings import DISAGREES, Finding, Findings
from sterna.verify.origins import source_of
from sterna.verify.places import Places
from sterna.verify.table import check_source

if TYPE_CHECKING:
    import pyarrow as pa

_WORD: Final = re.compile(r"[^\s()]+")


def move_writers_mistakes(context: RegionContext, origin: Content | None, found: Findings) -> None:
    """Move contradictions that `main` has, too, out of a table's faults.

    Reads the source's metadata where the replica contradicts itself, and nothing otherwise.

    Args:
        context: the region.
        origin: what `main` held when the replica's version was made, None where nobody can tell any more.
        found: what the check of the replica found.
    """
    doubtful = [finding for finding in found.kept if finding.kind == DISAGREES]
    if not doubtful or origin is None:
        return
    source, places = Findings(found.table), _AllOfMain(context.mapping)
    try:
        check_source(context, places, origin, source)
    except (StoreError, CredentialError):
        return
    own = {_as_on_main(finding, places) for finding in source.kept if finding.kind == DISAGREES}
    found.move_to_main([finding for finding in doubtful if _as_on_main(finding, places) in own])


class _AllOfMain(Places):
    """A judgement of URIs to which every place is at home, as it is to those who read `main`."""

    def is_local(self, uri: str) -> bool:
        return True

    def is_foreign(self, value: str) -> bool:
        return False

    def below_root(self, uri: str) -> bool:
        return True

    def foreign(self, uris: pa.Array | pa.ChunkedArray) -> list[str]:
        return []

    def is_stray(self, uri: str) -> bool:
        return False


def _as_on_main(finding: Finding, places: Places) -> tuple[str, str]:
    """Return a finding's file and message, with every URI taken back to its origin."""

    def origin(match: re.Match[str]) -> str:
        word = match[0].rstrip(",")
        return (source_of(word, places) or word) + match[0][len(word) :]

    return source_of(finding.file, places) or finding.file, _WORD.sub(origin, finding.message)
