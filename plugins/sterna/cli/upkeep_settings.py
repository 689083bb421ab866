"""The section `upkeep` of the services file, for its commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sterna.services.model import Services
    from sterna.services.upkeep import Upkeep


def upkeep_settings(services: Path | None) -> Upkeep:
    """Return the section `upkeep` of the services file.

    Raises:
        ServicesError: the file is wrong, or was named and is missing.
        UsageError: it has no such section.
    """
    from sterna.edges.services_file import read_services

    return settings_of(read_services(services))


def settings_of(services: Services) -> Upkeep:
    """Return the section `upkeep` of a services file that was read.

    Raises:
        UsageError: it has no such section.
    """
    from sterna.errors import UsageError

    if services.upkeep is None:
        raise UsageError(
            "the services file has no section upkeep", hint="say there which tables are kept in shape: docs/upkeep.md"
        )
    return services.upkeep
