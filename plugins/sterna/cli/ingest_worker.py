"""The commands `sterna ingest run`, `replay`, `rebuild` and `add`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from sterna.cli.context import credentials
from sterna.cli.durations import parse_duration
from sterna.cli.options import DEFAULT_REGISTRY, AsJson, DryRun, RegionName, RegistryPath, ServicesPath, Yes
from sterna.cli.output import Output
from sterna.cli.prompts import should_apply
from sterna.config.services_file import read_services
from sterna.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from sterna.pipelines.ingest.region import RegionIngest
    from sterna.replication.replica.region import RegionContext

ingest_worker_app = typer.Typer()


@ingest_worker_app.command("run", epilog="Example: sterna ingest run --region eu --once")
def run(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    once: Annotated[bool, typer.Option("--once", help="Publish what is closed now, and exit.")] = False,
    length: Annotated[str, typer.Option("--for", help="Continue for this long, such as 10m.")] = "",
    as_json: AsJson = False,
) -> None:
    """Publish closed batches on main, as few files near the writer: staged, audited, published once.

    Without --once and --for it runs until it is stopped. Any number may run concurrently. With --once it ends with 4
    where batches are left that no worker has; else where the backlog is unknown.
    """
    from sterna.pipelines.ingest.worker_service import run_worker
    from sterna.text.ingest_worker import consolidated_text, work_text

    seconds = parse_duration("--for", length).total_seconds() if length else None
    output = Output(as_json)
    with (
        _open_ingest(registry, region, services) as (context, ingest),
        output.progress("ingest") as progress,
    ):
        summary = run_worker(
            context, ingest, lambda batch: progress(consolidated_text(batch)), progress, seconds, once=once
        )
    output.result(summary, work_text(summary))
    if summary.failed or summary.counts is None or (once and summary.counts.unclaimed):
        raise typer.Exit(ExitCode.RETRY_LATER)


@ingest_worker_app.command("replay", epilog="Example: sterna ingest replay --region eu --batch 4d1f… --yes")
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
    with _open_ingest(registry, region, services) as (context, ingest):
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


@ingest_worker_app.command("rebuild", epilog="Example: sterna ingest rebuild --region eu")
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
    with _open_ingest(registry, region, services) as (context, ingest):
        positions = AppliedPositions(context)
        rebuilt = rebuild_tracker(ingest.pool, ingest.objects, ingest.region_settings.inbox, positions, positions.head)
    output.result(rebuilt, rebuilt_text(rebuilt))


@ingest_worker_app.command("add", epilog="Example: sterna ingest add acme.events s3://lake-us/in/a.parquet --region eu")
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
        _open_ingest(registry, region, services) as (context, ingest),
        open_catalog(context, ingest) as catalog,
    ):
        added = build_addition(ingest, context.mapping, catalog, table, uris).run(apply=apply)
    output.result(added, added_text(added))


@contextmanager
def _open_ingest(registry: Path, region: str, services: Path | None) -> Iterator[tuple[RegionContext, RegionIngest]]:
    from sterna.pipelines.ingest.region import open_ingest
    from sterna.replication.replica.region import open_region

    with open_region(registry, region, credentials()) as context:
        ingest = open_ingest(context, read_services(services))
        try:
            yield context, ingest
        finally:
            ingest.close()
