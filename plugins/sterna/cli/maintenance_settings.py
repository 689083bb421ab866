"""The section `maintenance` of the services file, for its commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sterna.config.sections.maintenance import Maintenance
    from sterna.config.sections.model import Services


def read_maintenance_settings(services: Path | None) -> Maintenance:
    """Return the section `maintenance` of the services file.

    Raises:
        ServicesError: the file is wrong, or was named and is missing.
        UsageError: it has no such section.
    """
    from sterna.config.services_file import read_services

    return require_maintenance_settings(read_services(services))


def require_maintenance_settings(services: Services) -> Maintenance:
    """Return the section `maintenance` of a services file that was read.

    Raises:
        UsageError: it has no such section.
    """
    from sterna.errors import UsageError

    if services.maintenance is None:
        raise UsageError(
            "the services file has no section maintenance",
            hint="list there the tables to be maintained: docs/maintenance.md",
        )
    return services.maintenance
