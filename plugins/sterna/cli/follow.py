"""The command `sterna follow`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from sterna.cli.context import credentials
from sterna.cli.options import DEFAULT_REGISTRY, AsJson, RegionName, RegistryPath
from sterna.cli.output import Output
from sterna.cli.signals import interrupt_on_sigterm

if TYPE_CHECKING:
    from sterna.replication.replica.model import Report

follow_app = typer.Typer()


MaxBytes = Annotated[int, typer.Option("--max-bytes", min=0, help="Leave a plan that copies more bytes to the DAG.")]
MaxFiles = Annotated[
    int, typer.Option("--max-files", min=0, help="Leave a plan that copies and localizes more files to the DAG.")
]
PollSeconds = Annotated[
    float,
    typer.Option("--poll", min=0.05, help="Seconds between two polls of main when idle; a fifth of it after a commit."),
]
Verbose = Annotated[bool, typer.Option("--verbose", help="Print each step of each sync.")]


@follow_app.command(epilog="Example: sterna follow --region eu")
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

    It prints one line for each publication. SIGTERM and Ctrl-C end it at any time; the next sync continues from there.
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
            with interrupt_on_sigterm():
                follower.run()
        except KeyboardInterrupt:
            progress("ended; the next sync continues from here")


def _report_printer(output: Output) -> Callable[[Report], None]:
    from sterna.text.sync import publication_text

    return lambda report: output.result(report, publication_text(report))
