"""Verifying a replica's structure alone: what every run of `verify` does, needing no other region."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sterna.replication.replica.region import RegionContext
from sterna.replication.verify.findings import Finding, VerificationReport
from sterna.replication.verify.run import Depth, verify

__all__ = ["Finding", "VerificationReport", "verify_structure"]


def verify_structure(
    context: RegionContext, tables: Iterable[str] = (), progress: Callable[[str], None] = lambda line: None
) -> VerificationReport:
    """Check the structure of a region's replica branch.

    Args:
        context: the region.
        tables: key names or patterns, as in a policy; default: all tables and views.
        progress: called with a line per table.

    Returns:
        Counts and findings; no finding means that the replica is closed.

    Raises:
        UsageError: a table isn't on the branch; the message names those that are.
        CatalogError, StoreError: something does not answer.
        EngineError: there is no room on local disk for the files of a very large table.
    """
    return verify(context, Depth(), tables, progress)
