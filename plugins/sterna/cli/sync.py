"""The commands that bring a replica branch up to `main`: `plan`, `sync`, `follow` and `reset-watermark`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sterna.cli.context import credentials, open_context
from sterna.cli.options import (
    DEFAULT_REGISTRY,
    AsJson,
    DryRun,
    Full,
    RegionName,
    RegistryPath,
    RestoreBranch,
    TablePatterns,
)
from sterna.cli.output import Output
from sterna.cli.prompts import should_apply
from sterna.cli.signals import interrupt_on_sigterm
from sterna.concurrency.priority import lower_process_priority
from sterna.errors import ExitCode
from sterna.tracing.export import exported_traces

if TYPE_CHECKING:
    from sterna.replication.plan.options import SyncOptions
    from sterna.replication.replica.model import Report
    from sterna.replication.replica.region import Progress, RegionContext

sync_app = typer.Typer()

Once = Annotated[bool, typer.Option("--once", help="Stop after one plan, even when a seed has more groups.")]
LaneOption = Annotated[
    Literal["all", "small", "large"],
    typer.Option(
        "--lane",
        help="small: publish what is small, and leave large copies in transit. large: copy what is in transit, and "
        "publish nothing.",
    ),
]
MaxBytes = Annotated[int, typer.Option("--max-bytes", min=0, help="Leave a plan that copies more bytes to the DAG.")]
MaxFiles = Annotated[
    int, typer.Option("--max-files", min=0, help="Leave a plan that copies and localizes more files to the DAG.")
]
PollSeconds = Annotated[
    float,
    typer.Option("--poll", min=0.05, help="Seconds between two polls of main when idle; a fifth of it after a commit."),
]
Verbose = Annotated[bool, typer.Option("--verbose", help="Print each step of each sync.")]


@sync_app.command(epilog="Example: sterna plan --region eu")
def plan(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    tables: TablePatterns = None,
    full: Full = False,
    as_json: AsJson = False,
) -> None:
    """Show what a sync would do: tables, files, bytes, price, and what is held and why. Changes nothing."""
    output, options = Output(as_json), _sync_options(tables, full=full, lane="small")
    with open_context(registry, region) as context, output.progress("plan") as progress:
        show_plan(output, context, options, progress)


@sync_app.command(
    epilog="Examples: sterna sync --region eu --table 'flights.*'; sterna sync --region eu --restore-branch"
)
def sync(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    tables: TablePatterns = None,
    full: Full = False,
    restore_branch: RestoreBranch = False,
    once: Once = False,
    lane: LaneOption = "all",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done, as plan does.")] = False,
    as_json: AsJson = False,
) -> None:
    """Replicate main to the region's replica branch: plan, copy, localize, publish. Safe to repeat and to interrupt.

    Tables with much to copy come last, so that the others needn't wait (bulk_copy_threshold in the registry).
    """
    from sterna.replication.sync.run import sync as run_sync

    if lane == "large":
        lower_process_priority()
    output = Output(as_json)
    options = _sync_options(tables, full=full, restore_branch=restore_branch, lane=lane, dry_run=dry_run)
    with open_context(registry, region) as context, output.progress("sync") as progress:
        if dry_run:
            show_plan(output, context, options, progress)
            return
        with interrupt_on_sigterm(), exported_traces(progress):
            report = run_sync(context, options, progress, until_done=not once)
    show_report(output, report, context.region.replica_branch)


@sync_app.command(epilog="Example: sterna follow --region eu")
def follow(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    max_bytes: MaxBytes = 256 << 20,
    max_files: MaxFiles = 1_000,
    poll: PollSeconds = 1.0,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Follow main and publish each small change in the region at once, until interrupted. Large plans are left to the
    region's DAG, which may run at the same time.

    It prints one line a publication. SIGTERM and Ctrl-C end it at any moment; the next sync continues from there.
    """
    from sterna.replication.replica.reloading_region import ReloadingRegion
    from sterna.replication.sync.follow import Follower, FollowerLimits, FollowOptions
    from sterna.spark.pandas_import import block_pandas

    block_pandas()
    output, options = (
        Output(as_json),
        FollowOptions(FollowerLimits(max_bytes, max_files), busy_poll_seconds=poll / 5, idle_poll_seconds=poll),
    )
    with output.progress("follow") as progress:
        follower = Follower(
            ReloadingRegion(registry, region, credentials()), _report_printer(output), progress, options
        )
        if verbose:
            follower.progress = progress
        try:
            with interrupt_on_sigterm(), exported_traces(progress):
                follower.run()
        except KeyboardInterrupt:
            progress("ended; the next sync continues from here")


@sync_app.command(
    "reset-watermark",
    epilog="Example: sterna reset-watermark --region eu "
    "--to 4f3c0c37b1fb9b2e6b1f4e1e9d8a7c6b5a4f3c0c37b1fb9b2e6b1f4e1e9d8a7c --dry-run",
)
def reset_watermark(
    region: RegionName,
    accepted: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="HASH",
            help="The commit of main to accept as the truth: its head, or one just before it.",
        ),
    ],
    registry: RegistryPath = DEFAULT_REGISTRY,
    yes: Annotated[
        bool, typer.Option("--yes", help="Has no effect: --to is the confirmation, and the command acts at once.")
    ] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Follow main after it was reassigned, reset or rewritten behind the watermark: compare all tables, publish on
    top of what is there.

    A sync stops there (exit 6) and shows both hashes: main may have lost commits by mistake, and the replica then still
    has them. It acts without --yes, unlike other commands that change more than a sync does: the hash is your word.
    """
    from sterna.replication.plan.options import SyncOptions
    from sterna.replication.sync.run import sync as run_sync

    should_apply(yes, dry_run)
    output, options = Output(as_json), SyncOptions(reset_watermark_to=accepted)
    with open_context(registry, region) as context, output.progress("reset-watermark") as progress:
        if dry_run:
            show_plan(output, context, options, progress)
            return
        with exported_traces(progress):
            report = run_sync(context, options, progress, until_done=False)
            if report.more:
                report = run_sync(context, SyncOptions(), progress)
    show_report(output, report, context.region.replica_branch)


def _sync_options(
    tables: list[str] | None,
    *,
    full: bool,
    restore_branch: bool = False,
    lane: Literal["all", "small", "large"] = "all",
    dry_run: bool = False,
) -> SyncOptions:
    """Return a sync's options from a command's; in a dry run those of one plan that commits nothing."""
    from sterna.replication.plan.options import SyncOptions

    options = SyncOptions(tables=tuple(tables or ()), full=full, restore_branch=restore_branch, lane=lane)
    if not dry_run:
        return options
    # To restore a branch is to commit: a dry run shows only what would be compared then.
    plan_lane: Literal["small", "large"] = "large" if lane == "large" else "small"
    return replace(options, full=full or restore_branch, restore_branch=False, lane=plan_lane)


def show_plan(
    output: Output, context: RegionContext, options: SyncOptions, progress: Progress, closing_line: str = ""
) -> None:
    """Show what a sync would do.

    Args:
        options: those of the sync.
        progress: called with lines for people.
        closing_line: a line to end with, for people.
    """
    from sterna.replication.plan.planner import make_plan
    from sterna.replication.sync.explain import explain
    from sterna.text.plan import plan_json, plan_text

    explained = explain(context, *make_plan(context, options, progress))
    output.result(plan_json(explained), "\n".join(filter(None, (plan_text(explained), closing_line))))


def show_report(output: Output, report: Report, branch: str) -> None:
    """Show how a sync ended.

    Raises:
        typer.Exit: something is held.
    """
    from sterna.text.sync import report_text

    is_behind = report.held or (report.outcome == "copied" and (report.copied + report.localized).failed)
    output.result(report, report_text(report, branch), ExitCode.HELD if is_behind else 0)


def _report_printer(output: Output) -> Callable[[Report], None]:
    from sterna.text.sync import publication_text

    return lambda report: output.result(report, publication_text(report))
