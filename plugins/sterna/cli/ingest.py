"""The commands `sterna ingest …`: what came in and how far it is, and the worker that publishes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sterna.cli.context import open_context
from sterna.cli.durations import parse_duration
from sterna.cli.options import DEFAULT_REGISTRY, AsJson, DryRun, RegionName, RegistryPath, ServicesPath, Yes
from sterna.cli.output import Output
from sterna.cli.prompts import should_apply
from sterna.config.services_file import read_services
from sterna.errors import ExitCode, UsageError, first_exit_code

if TYPE_CHECKING:
    from sterna.pipelines.ingest.region import RegionIngest
    from sterna.replication.replica.region import RegionContext

ingest_app = typer.Typer(help="Manage ingestion.", no_args_is_help=True)

TableFilter = Annotated[str | None, typer.Option("--table", help="Only of this table.")]


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

    with open_context(registry, region) as context, _open_ingest(context, services) as ingest:
        status = read_ingest_status(ingest)
    Output(as_json).result(ingest_fields(status), ingest_text(status), status.exit_code)


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
    with open_context(registry, region) as context, _open_ingest(context, services) as ingest:
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
    """Close batches of waiting uploads, by their table's rules. A gateway does this continuously."""
    from sterna.pipelines.ingest.batch_rules import close_due
    from sterna.text.ingest import batches_text

    with open_context(registry, region) as context, _open_ingest(context, services) as ingest:
        closed = close_due(ingest.pool, ingest.rules, table=table, force=now) if ingest.is_initialized() else []
    Output(as_json).result({"region": region, "closed": list(closed)}, batches_text(region, closed, " are closed"))


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
    from sterna.text.ingest import topics_text

    with open_context(registry, region) as context, _open_ingest(context, services) as ingest:
        counts = count_states(ingest.pool) if ingest.is_initialized() else {}
        partitions = []
        for topic in ingest.topics:
            source = open_topic(ingest, topic)
            try:
                partitions += list_partitions(ingest, topic, source, counts)
            finally:
                source.close()
    exit_code = first_exit_code(partition.exit_code for partition in partitions)
    fields = {"region": region, "partitions": [partition.fields() for partition in partitions]}
    Output(as_json).result(fields, topics_text(region, partitions), exit_code)


@ingest_app.command("run", epilog="Example: sterna ingest run --region eu --once")
def run(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    once: Annotated[bool, typer.Option("--once", help="Publish what is closed now, and exit.")] = False,
    length: Annotated[str, typer.Option("--for", help="Continue for this long, such as 10m.")] = "",
    as_json: AsJson = False,
) -> None:
    """Publish closed batches on main, as few files near the writer: staged, audited, published once.

    Without --once and --for it runs until it is ended. Several may run at the same time. It ends with the
    exit code of the first error, and with 4 where what waits is unknown; with --once also where batches are left that
    no worker has.
    """
    from sterna.pipelines.ingest.worker import run_worker
    from sterna.text.ingest_worker import consolidated_text, work_text

    seconds = parse_duration("--for", length).total_seconds() if length else None
    output = Output(as_json)
    with (
        open_context(registry, region) as context,
        _open_ingest(context, services) as ingest,
        output.progress("ingest") as progress,
    ):
        summary = run_worker(
            context, ingest, lambda batch: progress(consolidated_text(batch)), progress, seconds, once=once
        )
    is_left = summary.waiting is None or (once and summary.waiting.unclaimed)
    exit_code = summary.exit_code or (ExitCode.RETRY_LATER if is_left else ExitCode.SUCCESS)
    output.result({**summary.fields(), "exit_code": exit_code}, work_text(summary), exit_code)


@ingest_app.command("replay", epilog="Example: sterna ingest replay --region eu --batch 4d1f… --yes")
def replay(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    batch: Annotated[str, typer.Option("--batch", help="The rejected batch to replay, as a new batch.")] = "",
    table: Annotated[str, typer.Option("--table", help="The table that was rolled back or recreated.")] = "",
    channel: Annotated[str, typer.Option("--channel", help="The channel that the error Rewound names.")] = "",
    to: Annotated[
        int | None, typer.Option("--to", min=0, help="The last number whose rows the table still has.")
    ] = None,
    accept: Annotated[
        bool, typer.Option("--accept", help="Accept that rows are gone or bad: they are not replayed.")
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Replay a rejected batch, or what a table that was rolled back has lost. A dry run until --yes.

    With --batch and --accept a rejected batch, or the dead letters of a published one, are no alarm any more.
    """
    from sterna.pipelines.ingest.model import Destination
    from sterna.pipelines.ingest.replay import accept_batch, replay_rejected, replay_rewound
    from sterna.pipelines.ingest.step_context import open_step_context
    from sterna.text.ingest_worker import replayed_text

    apply, output = should_apply(yes, dry_run), Output(as_json)
    names_channel = bool(table and channel) and to is not None
    if bool(batch) == names_channel or (batch and (table or channel)):
        raise UsageError("expected --batch, or --table with --channel and --to")
    with open_context(registry, region) as context, _open_ingest(context, services) as ingest:
        if ingest.is_initialized():
            ingest.prepare()
        elif batch:
            raise UsageError(f"the tracker has no batch {batch!r}")
        if batch:
            replayed = (accept_batch if accept else replay_rejected)(ingest.pool, batch, apply=apply)
        else:
            assert to is not None
            destination = Destination("", table, channel)
            with open_step_context(context, ingest) as step_context:
                replayed = replay_rewound(
                    ingest.pool, step_context.catalog, destination, to, accept=accept, apply=apply
                )
    output.result(replayed, replayed_text(replayed))


@ingest_app.command("rebuild", epilog="Example: sterna ingest rebuild --region eu")
def rebuild(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    as_json: AsJson = False,
) -> None:
    """Rebuild the tracker from the inbox and the tables of main. What it has stays as it is."""
    from sterna.pipelines.ingest.applied_positions import AppliedPositions
    from sterna.pipelines.ingest.rebuild import rebuild as rebuild_tracker
    from sterna.text.ingest_worker import rebuilt_text

    output = Output(as_json)
    with open_context(registry, region) as context, _open_ingest(context, services) as ingest:
        positions = AppliedPositions(context)
        rebuilt = rebuild_tracker(ingest.pool, ingest.objects, ingest.region_settings.inbox, positions, positions.head)
    output.result(rebuilt, rebuilt_text(rebuilt))


@ingest_app.command("add", epilog="Example: sterna ingest add acme.events s3://lake-us/in/a.parquet --region eu")
def add(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The table, such as shop.orders.")],
    uris: Annotated[
        list[str], typer.Argument(metavar="URI", help="URIs of Parquet files in any region; the files stay there.")
    ],
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Add existing files to a table, where they are: all in one commit, once. A dry run until --yes."""
    from sterna.pipelines.ingest.add_files import build_addition
    from sterna.pipelines.ingest.step_context import open_catalog
    from sterna.text.ingest_worker import added_text

    apply, output = should_apply(yes, dry_run), Output(as_json)
    with (
        open_context(registry, region) as context,
        _open_ingest(context, services) as ingest,
        open_catalog(context, ingest) as catalog,
    ):
        added = build_addition(ingest, context.mapping, catalog, table, uris).run(apply=apply)
    output.result(added, added_text(added))


@contextmanager
def _open_ingest(context: RegionContext, services: Path | None) -> Iterator[RegionIngest]:
    """Open a region's ingestion.

    Raises:
        ServicesError: the services file is wrong, or was named and is missing.
        UsageError: it says nothing of the region's ingestion.
    """
    from sterna.pipelines.ingest.region import open_ingest

    ingest = open_ingest(context, read_services(services))
    try:
        yield ingest
    finally:
        ingest.close()


def _parse_since(text: str) -> timedelta:
    return parse_duration("--since", text)
