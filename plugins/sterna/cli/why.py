"""The command `sterna why`."""

from __future__ import annotations

from typing import Annotated

import typer

from sterna.cli.context import open_context
from sterna.cli.options import DEFAULT_REGISTRY, AsJson, RegionName, RegistryPath
from sterna.cli.output import Output
from sterna.errors import ExitCode

why_app = typer.Typer()


@why_app.command(epilog="Example: sterna why sales.orders --region eu")
def why(
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="The table, view or namespace, as the catalog names it.")
    ],
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    as_json: AsJson = False,
) -> None:
    """Show why a table is in a region as it is: state, since when, reason, what blocks it, remedy and next try.

    Changes nothing. Exit 4 where its state is unknown, 6 where the replica branch can't be used.
    """
    from sterna.operations.status.explain_table import explain_table
    from sterna.operations.status.table_model import TableState
    from sterna.text.table_status import table_status_text

    with open_context(registry, region) as context:
        status = explain_table(context, table)
    codes = {TableState.UNKNOWN: ExitCode.RETRY_LATER, TableState.STOPPED: ExitCode.CHANGED}
    Output(as_json).result(status, table_status_text(status), codes.get(status.state, ExitCode.SUCCESS))
