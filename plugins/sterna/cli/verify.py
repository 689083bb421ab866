"""The commands that check a replica and mend it: `verify` and `repair`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sterna.cli.context import open_context
from sterna.cli.options import DEFAULT_REGISTRY, AsJson, DryRun, RegionName, RegistryPath, TablePatterns, Yes
from sterna.cli.output import Output
from sterna.cli.prompts import should_apply
from sterna.errors import ExitCode, UsageError
from sterna.text.lines import NOTHING_CHANGED

verify_app = typer.Typer()

DeepRepair = Annotated[
    bool, typer.Option("--deep", help="Compare every file with its source on main, too: finds a flipped byte.")
]
RewriteMetadata = Annotated[
    bool,
    typer.Option(
        "--rewrite-metadata",
        help="Write all localized metadata of the tables again, under a prefix of its own, and publish.",
    ),
]
Generation = Annotated[
    int,
    typer.Option(
        "--generation",
        metavar="N",
        help="With --rewrite-metadata: skip tables whose metadata version counts N rewrites already. Default: one more "
        "than the highest, for all.",
    ),
]


@verify_app.command(epilog="Example: sterna verify --region eu --table 'nyc.*' --sample 1/30")
def verify(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    tables: TablePatterns = None,
    structure: Annotated[
        bool,
        typer.Option(
            "--structure", help="Check that every reachable path is local, exists and has its size. Always on."
        ),
    ] = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also compare every file with its source on main, which has to be reachable.")
    ] = False,
    sample: Annotated[
        str | None,
        typer.Option(
            "--sample", metavar="N/M", help="As --deep, with N of M parts of the files, others each day: 1/30."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a replica.

    That it is closed and agrees with itself, and on request that its content is the source's. Changes nothing.
    """
    from datetime import UTC, datetime

    from sterna.replication.verify.run import Depth, parse_sample
    from sterna.replication.verify.run import verify as run_verify
    from sterna.text.verify import verified_text

    share = None if sample is None else parse_sample(sample, datetime.now(UTC).date())
    output, depth = Output(as_json), Depth(deep or share is not None, share)
    with open_context(registry, region) as context, output.progress("verify") as progress:
        verified = run_verify(context, depth, tables or (), progress)
    output.result(verified, verified_text(verified, deep=depth.deep), ExitCode.FAULTS if verified.faults else 0)


@verify_app.command(
    epilog="Examples: sterna repair --region eu --table 'nyc.*' --deep --yes; "
    "sterna repair --region eu --rewrite-metadata nyc.flights nyc.planes --yes"
)
def repair(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    tables: TablePatterns = None,
    deep: DeepRepair = False,
    rewrite_metadata: RewriteMetadata = False,
    names: Annotated[list[str] | None, typer.Argument(metavar="TABLE", help="Tables, as with --table.")] = None,
    generation: Generation = 0,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Verify a replica, and copy wrong and missing files below the replica root again from main.

    A dry run until --yes.

    With --rewrite-metadata nothing is verified: all that sterna writes for the tables itself is written again, beside
    what is there, and one commit points to it. Content is copied only where it is missing.
    """
    from sterna.replication.repair.run import repair as run_repair
    from sterna.text.verify import repaired_text

    apply, output, tables = should_apply(yes, dry_run), Output(as_json), [*(tables or ()), *(names or ())]
    if generation and not rewrite_metadata:
        raise UsageError("--generation goes with --rewrite-metadata")
    if rewrite_metadata:
        _rewrite_metadata(region, registry, tables, output, generation=generation, deep=deep, apply=apply)
        return
    with open_context(registry, region) as context, output.progress("repair") as progress:
        repaired = run_repair(context, tables, progress, deep=deep, apply=apply)
    output.result(repaired, repaired_text(repaired), ExitCode.FAULTS if repaired.faults_left else 0)


def _rewrite_metadata(
    region: str, registry: Path, tables: list[str], output: Output, *, generation: int, deep: bool, apply: bool
) -> None:
    from sterna.cli.sync import show_plan, show_report
    from sterna.replication.sync.rewrite_metadata import rewrite_options
    from sterna.replication.sync.run import sync

    if deep:
        raise UsageError("--deep verifies, and --rewrite-metadata doesn't: they don't go together")
    with open_context(registry, region) as context, output.progress("repair") as progress:
        options = rewrite_options(context, tables, generation)
        progress(f"metadata version: rewrite {options.generation}")
        if not apply:
            show_plan(output, context, options, progress, closing_line=NOTHING_CHANGED)
            return
        report = sync(context, options, progress)
    show_report(output, report, context.region.replica_branch)
