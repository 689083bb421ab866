"""The commands `sterna services …`: the file that configures everything beside replication."""

from __future__ import annotations

import typer

from sterna.cli.options import AsJson, ServicesPath
from sterna.cli.output import Output
from sterna.config.sections.model import SECTIONS
from sterna.config.services_file import DEFAULT_SERVICES, find_services, read_services

services_app = typer.Typer(help="Manage the services file.", no_args_is_help=True)


@services_app.command("check", epilog="Example: sterna services check --services sterna_services.yaml")
def services_check(services: ServicesPath = None, as_json: AsJson = False) -> None:
    """Validate the services file and list its sections. Contacts no server. A missing file has none.

    A file that was named must be there.
    """
    from sterna.serving.queries.sql import check_sql

    file = find_services(services)
    config = read_services(file, sql_check=check_sql)
    empty = [name for name in SECTIONS if name not in config.configured_sections]
    fields = {"file": None if file is None else str(file), "version": config.version}
    lines = [
        f"no {DEFAULT_SERVICES} in this folder, and --services names none" if file is None else f"ok   {file}",
        f"configured: {', '.join(config.configured_sections) or 'none'}",
        f"empty: {', '.join(empty) or 'none'}",
    ]
    Output(as_json).result(
        {"ok": True, **fields, "configured": config.configured_sections, "empty": empty}, "\n".join(lines)
    )


@services_app.command("schema", epilog="Example: sterna services schema > services.schema.json")
def services_schema() -> None:
    """Print the services file's JSON Schema, by which editors complete and check it. Contacts no server."""
    from sterna.text.schemas import services_schema_text

    typer.echo(services_schema_text(), nl=False)
