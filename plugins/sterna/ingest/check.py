"""What came in is looked at before it is taken, by its format."""

from __future__ import annotations

from pathlib import Path

from sterna.ingest.check_arrow import check_arrow
from sterna.ingest.check_json import check_json
from sterna.ingest.check_parquet import check_parquet
from sterna.ingest.model import Format
from sterna.services.ingest import TenantLimits

_CHECKS = {Format.JSON_LINES: check_json, Format.ARROW: check_arrow, Format.PARQUET: check_parquet}


def check(format: Format, path: Path, limits: TenantLimits) -> int:
    """Return how many rows something has.

    Args:
        format: what it is said to be.
        path: the content.
        limits: of whoever sent it.

    Raises:
        BadDrop: it isn't that.
        DropOverLimit: it is more than may be sent.
    """
    return _CHECKS[format](path, limits)
