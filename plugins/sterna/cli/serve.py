"""The command `sterna serve`."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from sterna.cli.context import open_context
from sterna.cli.durations import parse_duration
from sterna.cli.options import DEFAULT_REGISTRY, RegionName, RegistryPath, ServicesPath
from sterna.config.services_file import read_services
from sterna.errors import UsageError

_ORIGIN = re.compile(r"\*|https?://[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?|https?://\[[0-9A-Fa-f:]{2,39}\](:[0-9]{1,5})?")
serve_app = typer.Typer()


@serve_app.command(epilog="Example: sterna serve --region eu --port 8080")
def serve(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    host: Annotated[str, typer.Option("--host", help="The address to listen on; without keys the loopback only.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0: any that is free.")] = 8080,
    only: Annotated[
        str, typer.Option("--only", help="Serve only these, such as events,ingest; default: all configured.")
    ] = "",
    keep: Annotated[
        str, typer.Option("--keep", help="How long events stay available; at most as long as gc keeps heads.")
    ] = "7d",
    connections: Annotated[int, typer.Option("--connections", min=1, help="Maximum number of open streams.")] = (
        10_000
    ),
    origins: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-origin", help="Allow pages of this origin, such as https://example.com; repeat for more."
        ),
    ] = None,
) -> None:
    """Serve a region over HTTP until interrupted: events, named queries, online features, ingestion, an Iceberg REST
    catalog.

    Tokens are those that the catalog takes; see docs/events.md, docs/queries.md, docs/features.md, docs/ingest.md and
    docs/rest-catalog.md.
    """
    try:
        from sterna.serving.http.context import ServeOptions
        from sterna.serving.http.logs import configure_logging
        from sterna.serving.http.region_status import READ_SECONDS
        from sterna.serving.http.server import build_server
        from sterna.serving.queries.sql import check_sql
    except ModuleNotFoundError as error:
        if str(error.name).startswith("sterna"):
            raise
        raise UsageError(f"{error.name} is missing", hint="pip install 'sterna[serve]'") from None

    if invalid_origins := [origin for origin in origins or () if not _ORIGIN.fullmatch(origin)]:
        raise UsageError(f"--allow-origin {invalid_origins[0]}: expected an origin such as https://example.com, or *")
    options = ServeOptions(host=host, port=port, max_connections=connections, origins=tuple(origins or ()))
    components = [name.strip() for name in only.split(",")] if only else None
    # Wrong queries don't matter where this process doesn't serve them.
    services_config = read_services(
        services, sql_check=check_sql if components is None or "queries" in components else None
    )
    with open_context(registry, region) as context:
        # Without a request: a missing credential is an error at once, a catalog that is down is waited for.
        _ = context.catalog
        server = build_server(
            context,
            services_config,
            options,
            parse_duration("--keep", keep),
            only=components,
            status_seconds=READ_SECONDS,
        )
        configure_logging()
        server.run()
