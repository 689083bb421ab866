"""The command `sterna follow`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from sterna.cli.context import credentials
from sterna.cli.ending import ended_by_sigterm
from sterna.cli.options import DEFAULT_REGISTRY, AsJson, RegionName, RegistryPath
from sterna.cli.output import Output

if TYPE_CHECKING:
    from sterna.replica.records import Report

follow_app = typer.Typer()


MostBytes = Annotated[int, typer.Option("--most-bytes", min=0, help="A plan that copies more is left to the DAG.")]
MostFiles = Annotated[
    int, typer.Option("--most-files", min=0, help="A plan that copies and localizes more files is left to the DAG.")
]
Poll = Annotated[
    float,
    typer.Option(
        "--poll", min=0.05, help="Seconds between two looks at main when nothing happens; a fifth of it after a commit."
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", help="Tell each step of each sync.")]


@follow_app.command(epilog="Example: sterna follow --region eu")
def follow(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    most_bytes: MostBytes = 256 << 20,
    most_files: MostFiles = 1_000,
    poll: Poll = 1.0,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Follow main, and publish each small change in the region at once, until told to end. Large plans are left to the
    region's DAG, beside which it may run.

    It tells one line a publication. SIGTERM and Ctrl-C end it at any moment; the next sync goes on from there.
    """
    from sterna.edges.spark.pandas_import import leave_pandas_out
    from sterna.replica.kept import KeptRegion
    from sterna.sync.follow import Follower, FollowOptions
    from sterna.sync.small import Small

    leave_pandas_out()
    output, options = Output(as_json), FollowOptions(Small(most_bytes, most_files), quick=poll / 5, slow=poll)
    with output.progress("follow") as progress:
        follower = Follower(KeptRegion(registry, region, credentials()), _telling(output), progress, options)
        if verbose:
            follower.progress = progress
        try:
            with ended_by_sigterm():
                follower.run()
        except KeyboardInterrupt:
            progress("ended; the next sync goes on from here")


def _telling(output: Output) -> Callable[[Report], None]:
    from sterna.render.sync import publication_text

    return lambda report: output.result(report, publication_text(report))
