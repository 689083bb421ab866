"""Separating a writer's mistakes from faults of the replica: the source has the same contradiction.

A replica repeats its source's metadata, and so its counts and logs are as wrong as the writer left them. Only a
contradiction that the check of the source finds too is attributed to `main`: where the source is gone, unreadable or
unreachable, it remains a fault of the replica.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Final

from sterna.catalog.model import Content
from sterna.errors import CredentialError, StoreError
from sterna.libraries import pa
from sterna.replication.replica.region import RegionContext
from sterna.replication.verify.findings import Findings
from sterna.replication.verify.locations import Places
from sterna.replication.verify.source_versions import source_metadata_uri
from sterna.replication.verify.table import check_source

_WORD: Final = re.compile(r"[^\s()]+")


def source_contradictions(context: RegionContext, origin: Content | None, findings: Findings) -> frozenset[bytes]:
    """Return the digests of the contradictions that `main` has, too.

    Reads the source's metadata where the replica contradicts itself, and nothing otherwise.

    Args:
        origin: what `main` held when the replica's version was written, None where that is no longer known.
        findings: the result of the replica's check.
    """
    if origin is None or not findings.contradictions():
        return frozenset()
    source_findings = Findings(findings.table, findings.digest)
    try:
        check_source(context, SourcePlaces(context.mapping), origin, source_findings)
    except (StoreError, CredentialError):
        return frozenset()
    return frozenset(source_findings.contradictions())


def source_digest_function(context: RegionContext) -> Callable[[str, str], bytes]:
    """Return a digest of contradictions: equal for one of the replica and the same one of its source."""
    places = SourcePlaces(context.mapping)

    def digest(file: str, message: str) -> bytes:
        text = "\0".join(_translate_to_source(file, message, places))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()

    return digest


class SourcePlaces(Places):
    """Classifies every URI as local, as it is for readers of `main`."""

    def is_local(self, uri: str) -> bool:
        return True

    def is_foreign(self, value: str) -> bool:
        return False

    def below_root(self, uri: str) -> bool:
        return True

    def select_foreign(self, uris: pa.Array | pa.ChunkedArray) -> list[str]:
        return []

    def is_stray(self, uri: str) -> bool:
        return False


def _translate_to_source(file: str, message: str, places: Places) -> tuple[str, str]:
    """Return a finding's file and message, with every URI taken back to its origin."""

    def origin(match: re.Match[str]) -> str:
        word = match[0].rstrip(",")
        return (source_metadata_uri(word, places) or word) + match[0][len(word) :]

    return source_metadata_uri(file, places) or file, _WORD.sub(origin, message)
