"""The commands `sterna ingest …`: what came in, and how far it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sterna.cli import exits
from sterna.cli.context import open_context
from sterna.cli.durations import parse_duration
from sterna.cli.options import DEFAULT_REGISTRY, AsJson, RegionName, RegistryPath, ServicesPath
from sterna.cli.output import Output
from sterna.edges.services_file import read_services
from sterna.errors import UsageError

if TYPE_CHECKING:
    from sterna.ingest.region import RegionIngest

ingest_app = typer.Typer(help="What came in from outside, and how far it is.", no_args_is_help=True)

OneTable = Annotated[str | None, typer.Option("--table", help="Of this table alone.")]


@contextmanager
def opened(registry: Path, region: str, services: Path | None) -> Iterator[RegionIngest]:
    """Open a region's ingestion.

    Raises:
        SternaError: the registry or the services file is wrong, or says nothing of it.
    """
    from sterna.ingest.region import open_ingest

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
    """Say what waits for being published, by table, and what was rejected or went to the dead letters.

    Exit code 5: something waits for too long, or nobody has answered what was rejected or is in the dead letters.
    """
    from sterna.ingest.status import read_ingest
    from sterna.render.ingest import ingest_fields, ingest_text

    with opened(registry, region, services) as ingest:
        found = read_ingest(ingest)
    Output(as_json).result(ingest_fields(found), ingest_text(found))
    if found.alarms or found.counts.unanswered:
        raise typer.Exit(exits.HELD)


@ingest_app.command("batches", epilog="Example: sterna ingest batches --region eu --state rejected --since 7d")
def ingest_batches(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Of this tenant alone.")] = None,
    table: OneTable = None,
    state: Annotated[
        str | None, typer.Option("--state", help="In this state alone: closed, staged, published, rejected.")
    ] = None,
    since: Annotated[str | None, typer.Option("--since", help="Closed within this time, such as 2h or 7d.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most so many.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List batches, the newest first."""
    from sterna.ingest.model import State
    from sterna.render.ingest import batches_text

    states = [each.value for each in State if each is not State.BUFFERED]
    if state is not None and state not in states:
        raise UsageError(f"--state {state}: expected one of {', '.join(states)}")
    wished = None if state is None else State(state)
    after = None if since is None else datetime.now(UTC) - _duration(since)
    with opened(registry, region, services) as ingest:
        tenants = None if tenant is None else [tenant]
        found = ingest.tracker.batches(tenants, table, wished, after, limit) if ingest.is_begun() else []
    Output(as_json).result({"region": region, "batches": list(found)}, batches_text(region, found))


@ingest_app.command("close", epilog="Example: sterna ingest close --region eu --table acme.events --now")
def ingest_close(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    table: OneTable = None,
    now: Annotated[bool, typer.Option("--now", help="Whatever waits, whether its rules are met or not.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make batches of what waits, as the rules of its table say. A gateway does so all the time."""
    from sterna.ingest.closing import close_due
    from sterna.render.ingest import closed_text

    with opened(registry, region, services) as ingest:
        found = close_due(ingest.pool, ingest.rules, table=table, asked=now) if ingest.is_begun() else []
    Output(as_json).result({"region": region, "closed": list(found)}, closed_text(region, found))


@ingest_app.command("topics", epilog="Example: sterna ingest topics --region eu --json")
def ingest_topics(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    as_json: AsJson = False,
) -> None:
    """Say how far each partition of the region's topics is read, and what of it waits or is bad.

    Exit code 5: one can't be read on.
    """
    from sterna.ingest.counts import count_states
    from sterna.ingest.topic_places import look_at_topic, open_topic
    from sterna.render.ingest import topics_fields, topics_text

    with opened(registry, region, services) as ingest:
        counts = count_states(ingest.pool) if ingest.is_begun() else {}
        found = []
        for topic in ingest.topics:
            source = open_topic(ingest, topic)
            try:
                found += look_at_topic(ingest, topic, source, counts)
            finally:
                source.close()
    Output(as_json).result(topics_fields(region, found), topics_text(region, found))
    if any(each.problem for each in found):
        raise typer.Exit(exits.HELD)


def _duration(text: str) -> timedelta:
    return parse_duration("--since", text)
