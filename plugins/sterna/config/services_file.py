"""Finding and reading the services file on this machine."""

from __future__ import annotations

import os
from pathlib import Path

from sterna.config.sections.load import parse_services
from sterna.config.sections.model import Services
from sterna.config.sections.queries import SqlCheck
from sterna.errors import ServicesError

DEFAULT_SERVICES = Path("sterna_services.yaml")


def find_services(explicit_path: str | Path | None) -> Path | None:
    """Return the path of the services file.

    Args:
        explicit_path: its path, where the operator gave one; else None or empty.

    Returns:
        The named file, there or not; else the one in the current folder, None where there is none.
    """
    if explicit_path:
        return Path(explicit_path)
    # A dangling link is an error, not a missing file.
    return DEFAULT_SERVICES if os.path.lexists(DEFAULT_SERVICES) else None


def services_folder(explicit_path: str | Path | None) -> Path:
    """Return the folder from which the file's own paths lead on.

    Args:
        explicit_path: as `find_services` takes it.
    """
    return (find_services(explicit_path) or DEFAULT_SERVICES).parent


def read_services(explicit_path: str | Path | None, *, sql_check: SqlCheck | None = None) -> Services:
    """Find and read the services file, YAML or JSON; a missing one, without an explicit path, configures nothing.

    Args:
        explicit_path: its path, where the operator gave one; else None or empty.
        sql_check: parses the queries' SQL; without it that is not checked.

    Raises:
        ServicesError: the file is wrong or unreadable, or was named and is missing.
    """
    path = find_services(explicit_path)
    if path is None:
        return Services()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ServicesError(
            f"can't read the services file {path}: {error}",
            hint="name another one with --services, STERNA_SERVICES or [sterna] services",
        ) from None
    return parse_services(text, str(path), sql_check=sql_check)
