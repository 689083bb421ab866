"""The names that version 0.1 had, and the new ones: no alias is read, an old name is refused with the new one.

The tables in CHANGELOG.md are held to these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

COMMANDS: Final[Mapping[str, str]] = {
    "collect": "gc",
    "hold": "pin",
}
"""Commands, and groups of them, below `sterna`."""

FLAGS: Final[Mapping[str, str]] = {
    "--everything": "--full",
    "--reassert": "--restore-branch",
    "--relocalize": "--rewrite-metadata",
}
"""Flags of any command."""

REGISTRY_SETTINGS: Final[Mapping[str, str]] = {
    "regions.*.large_copy": "bulk_copy_threshold",
}
"""Settings of the registry: where the old one stood, with `*` for a list's number or a mapping's key, and the new one's
last part."""

SERVICES_SETTINGS: Final[Mapping[str, str]] = {
    "upkeep.patience": "max_wait",
    "upkeep.without": "exclude_regions",
    "upkeep.heads": "keep_heads",
    "upkeep.reproduce": "time_travel",
    "upkeep.tables.*.quiet": "min_age",
    "features.views.*.reproduce": "time_travel",
    "features.views.*.late": "max_staleness",
    "outlets.*.give_up": "retry_timeout",
    "ingest.tenants.*.limits.at_once": "max_concurrency",
    "queries.limits.at_once": "max_concurrency",
}
"""Settings of the services file, written as those of the registry, below sections that have their new names."""

AIRFLOW_OPTIONS: Final[Mapping[str, str]] = {
    "allow_held": "ignore_held",
    "linger": "follow_for",
    "ingest_linger": "ingest_follow_for",
    "cdc_linger": "cdc_follow_for",
    "flows_linger": "flows_follow_for",
    "features_linger": "features_follow_for",
}
"""Options of section [sterna] in Airflow's configuration."""


def find_renamed(path: Sequence[str | int], renamed: Mapping[str, str]) -> str:
    """Return the new name of a setting, "" where the old one isn't in the table.

    Args:
        path: the names and numbers that lead to the setting in its file.
        renamed: `REGISTRY_SETTINGS` or `SERVICES_SETTINGS`.
    """
    for pattern, name in renamed.items():
        parts = pattern.split(".")
        if len(parts) == len(path) and all(part in ("*", element) for part, element in zip(parts, path, strict=True)):
            return name
    return ""
