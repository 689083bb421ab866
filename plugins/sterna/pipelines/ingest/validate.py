"""Validation of uploads by their format, before they are taken."""

from __future__ import annotations

from pathlib import Path

from sterna.config.sections.ingest import TenantLimits
from sterna.pipelines.ingest.model import Format
from sterna.pipelines.ingest.validate_arrow import check_arrow
from sterna.pipelines.ingest.validate_json import check_json
from sterna.pipelines.ingest.validate_parquet import check_parquet

_CHECKS = {Format.JSON_LINES: check_json, Format.ARROW: check_arrow, Format.PARQUET: check_parquet}


def check(format: Format, path: Path, limits: TenantLimits) -> int:
    """Validate an upload, and return how many rows it has.

    Args:
        format: the declared format.
        path: the content.

    Raises:
        BadDrop: it isn't that.
        DropOverLimit: it is more than may be sent.
    """
    return _CHECKS[format](path, limits)
