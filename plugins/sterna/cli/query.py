"""The command `sterna query`: one named query, pinned."""

from __future__ import annotations

from typing import Annotated

import typer

from sterna.cli.context import open_context
from sterna.cli.options import DEFAULT_REGISTRY, AsJson, RegionName, RegistryPath, ServicesPath
from sterna.cli.output import Output
from sterna.errors import UsageError

query_app = typer.Typer()


@query_app.command("query", epilog="Example: sterna query revenue --region eu --snapshot-id 8744736658442914487")
def query(
    region: RegionName,
    name: Annotated[
        str | None, typer.Argument(metavar="QUERY", help="The query; default: the default one, or the only one.")
    ] = None,
    snapshot_id: Annotated[
        str | None, typer.Option("--snapshot-id", help="Read its one table at this snapshot.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            help="Read its tables at this commit of the replica branch, or at a moment of main, as main@2h.",
        ),
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option("--param", help="A parameter, as name=value; repeat for more.")
    ] = None,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    as_json: AsJson = False,
) -> None:
    """Answer a query of the services file from a region's replica, as one snapshot or one replica commit shows it."""
    from sterna.config.services_file import read_services
    from sterna.serving.queries.run_once import run_once
    from sterna.serving.queries.sql import check_sql
    from sterna.text.query import query_text

    queries = read_services(services, sql_check=check_sql).queries
    if queries is None:
        raise UsageError("the services file has no queries", hint="name another one with --services")
    options = {"name": name, "snapshotId": snapshot_id, "at": at}
    params = {key: [text] for key, text in options.items() if text is not None}
    for key, text in map(_parse_param, param or ()):
        params.setdefault(key, []).append(text)
    with open_context(registry, region) as context:
        body = run_once(context, queries, params)
    Output(as_json).result(body, query_text(body))


def _parse_param(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--param {text}: expected name=value")
    return name, value
