"""The commands `sterna registry …`."""

from __future__ import annotations

from typing import Annotated

import typer

from sterna.cli.context import credentials
from sterna.cli.options import DEFAULT_REGISTRY, AsJson, RegistryPath
from sterna.cli.output import Output
from sterna.errors import first_exit_code

registry_app = typer.Typer(help="Manage the storage registry.", no_args_is_help=True)


@registry_app.command(
    "check", epilog="Examples: sterna registry check --registry storage_registry.yaml; sterna registry check --offline"
)
def registry_check(
    registry: RegistryPath = DEFAULT_REGISTRY,
    region: Annotated[
        str | None, typer.Option("--region", envvar="STERNA_REGION", help="Probe only what this region needs.")
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Only validate the file: no server, no credential, no Spark.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Validate the registry, and probe every catalog, store and Spark that it names."""
    from sterna.operations.registry_check import check_registry, check_settings
    from sterna.text.registry import check_text

    output = Output(as_json)
    if offline:
        settings = check_settings(registry, region)
        output.result(settings, check_text(settings))
        return
    with output.progress("check") as progress:
        check = check_registry(registry, region, credentials(), progress)
    output.result(check, check_text(check), first_exit_code(probe.exit_code for probe in check.probes))


@registry_app.command("schema", epilog="Example: sterna registry schema > registry.schema.json")
def registry_schema() -> None:
    """Print the registry's JSON Schema, by which editors complete and check it. Contacts no server."""
    from sterna.text.schemas import registry_schema_text

    typer.echo(registry_schema_text(), nl=False)
