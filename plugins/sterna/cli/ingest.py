"""The commands `sterna ingest …`: status and batches of ingestion."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sterna.cli.context import open_context
from sterna.cli.durations import parse_duration
from sterna.cli.options import DEFAULT_REGISTRY, AsJson, RegionName, RegistryPath, ServicesPath
from sterna.cli.output import Output
from sterna.config.services_file import read_services
from sterna.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from sterna.pipelines.ingest.region import RegionIngest

ingest_app = typer.Typer(help="Manage ingestion.", no_args_is_help=True)

TableFilter = Annotated[str | None, typer.Option("--table", help="Only of this table.")]


@contextmanager
def open_region_ingest(registry: Path, region: str, services: Path | None) -> Iterator[RegionIngest]:
    """Open a region's ingestion.

    Raises:
        SternaError: the registry or the services file is wrong, or lacks ingestion.
    """
    from sterna.pipelines.ingest.region import open_ingest

    with open_context(registry, region) as context:
        ingest = open_ingest(context, read_services(services))
        try:
            yield ingest
        finally:
            ingest.close()


@ingest_app.command("status", epilog="Example: sterna ingest status --region eu --json")
def ingest_status(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    as_json: AsJson = False,
) -> None:
    """Show what waits to be published, by table, and what was rejected or went to the dead letters.

    Exit code 5: something waits for too long, or rejected batches or dead letters are not handled yet.
    """
    from sterna.pipelines.ingest.status import read_ingest_status
    from sterna.text.ingest import ingest_fields, ingest_text

    with open_region_ingest(registry, region, services) as ingest:
        status = read_ingest_status(ingest)
    Output(as_json).result(ingest_fields(status), ingest_text(status))
    if status.overdue_tables or status.counts.unacknowledged:
        raise typer.Exit(ExitCode.HELD)


@ingest_app.command("batches", epilog="Example: sterna ingest batches --region eu --state rejected --since 7d")
def ingest_batches(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only of this tenant.")] = None,
    table: TableFilter = None,
    state: Annotated[
        str | None, typer.Option("--state", help="Only in this state: closed, staged, published, rejected.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Only closed within this time, such as 2h or 7d.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Maximum number of batches.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List batches, the newest first."""
    from sterna.pipelines.ingest.model import State
    from sterna.text.ingest import batches_text

    states = [batch_state.value for batch_state in State if batch_state is not State.BUFFERED]
    if state is not None and state not in states:
        raise UsageError(f"--state {state}: expected one of {', '.join(states)}")
    state_filter = None if state is None else State(state)
    closed_after = None if since is None else datetime.now(UTC) - _parse_since(since)
    with open_region_ingest(registry, region, services) as ingest:
        tenants = None if tenant is None else [tenant]
        batches = (
            ingest.tracker.list_batches(tenants, table, state_filter, closed_after, limit)
            if ingest.is_initialized()
            else []
        )
    Output(as_json).result({"region": region, "batches": list(batches)}, batches_text(region, batches))


@ingest_app.command("close", epilog="Example: sterna ingest close --region eu --table acme.events --now")
def ingest_close(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    table: TableFilter = None,
    now: Annotated[bool, typer.Option("--now", help="Close whatever waits, also where its rules are not met.")] = False,
    as_json: AsJson = False,
) -> None:
    """Close batches of waiting drops, by their table's rules. A gateway does this continuously."""
    from sterna.pipelines.ingest.batch_rules import close_due
    from sterna.text.ingest import closed_text

    with open_region_ingest(registry, region, services) as ingest:
        closed = close_due(ingest.pool, ingest.rules, table=table, force=now) if ingest.is_initialized() else []
    Output(as_json).result({"region": region, "closed": list(closed)}, closed_text(region, closed))


@ingest_app.command("topics", epilog="Example: sterna ingest topics --region eu --json")
def ingest_topics(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    as_json: AsJson = False,
) -> None:
    """Show the offset of each partition of the region's topics, and what of it waits or is bad.

    Exit code 5: one can't be read on.
    """
    from sterna.pipelines.ingest.counts import count_states
    from sterna.pipelines.ingest.topic_offsets import list_partitions, open_topic
    from sterna.text.ingest import topics_fields, topics_text

    with open_region_ingest(registry, region, services) as ingest:
        counts = count_states(ingest.pool) if ingest.is_initialized() else {}
        partitions = []
        for topic in ingest.topics:
            source = open_topic(ingest, topic)
            try:
                partitions += list_partitions(ingest, topic, source, counts)
            finally:
                source.close()
    Output(as_json).result(topics_fields(region, partitions), topics_text(region, partitions))
    if any(partition.problem for partition in partitions):
        raise typer.Exit(ExitCode.HELD)


def _parse_since(text: str) -> timedelta:
    return parse_duration("--since", text)
