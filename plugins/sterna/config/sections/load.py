"""Reading the services file's text: YAML or JSON, with errors that name file, line and field."""

from __future__ import annotations

from sterna.config.renamed import SERVICES_SETTINGS
from sterna.config.sections.model import Services
from sterna.config.sections.queries import SQL_CHECK, SqlCheck
from sterna.config.yaml import parse_model
from sterna.errors import ServicesError


def parse_services(text: str, name: str, *, sql_check: SqlCheck | None = None) -> Services:
    """Read the services file from YAML or JSON text.

    Args:
        text: the file's content.
        name: the file's name, for errors.
        sql_check: parses the queries' SQL; without it that is not checked.

    Returns:
        The settings of the services.

    Raises:
        ServicesError: with file, line, field and what was expected, for every fault found.
    """
    return parse_model(text, name, Services, ServicesError, renamed=SERVICES_SETTINGS, context={SQL_CHECK: sql_check})
