"""The command `sterna changes`: the rows between two snapshots of a table."""

from __future__ import annotations

from typing import Annotated

import typer

from sterna.cli.context import open_context
from sterna.cli.options import DEFAULT_REGISTRY, AsJson, RegionName, RegistryPath
from sterna.cli.output import Output

changes_app = typer.Typer()


@changes_app.command(
    "changes",
    epilog="Example: sterna changes sales.orders --region eu --from 8744736658442914487 --to 2219846157934411103",
)
def changes(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The table, as the catalog names it.")],
    region: RegionName,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="A snapshot's id, a branch or tag of the table, or main@ and a moment, as main@2h; "
            "default: before the first row.",
        ),
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="The same, to end at; default: the current snapshot.")] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="Columns that identify rows, as a,b: each changed key comes once.")
    ] = None,
    branch: Annotated[
        str | None, typer.Option("--branch", help="A branch of the catalog; default: the region's replica branch.")
    ] = None,
    rows: Annotated[int, typer.Option("--rows", min=0, help="Number of rows to show.")] = 100,
    registry: RegistryPath = DEFAULT_REGISTRY,
    as_json: AsJson = False,
) -> None:
    """Show the rows that were inserted, deleted and updated between two snapshots of a table."""
    from sterna.pipelines.changes.region import ChangesRequest, summarize
    from sterna.text.changes import changes_json, changes_text

    request = ChangesRequest(table, start, end, tuple(key.split(",")) if key else (), branch or "")
    with open_context(registry, region) as context:
        row_changes = summarize(context, request, rows)
    output = Output(as_json)
    output.result(changes_json(row_changes), changes_text(row_changes))
