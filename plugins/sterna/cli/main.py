"""The command line: thin; what the exit codes mean stands in its help."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sterna.cli.catalog import catalog_app
from sterna.cli.options import (
    DEFAULT_REGISTRY,
    EXIT_FAULTS,
    EXIT_HELD,
    EXIT_LATER,
    AsJson,
    Everything,
    Reassert,
    RegionName,
    RegistryPath,
    Tables,
    credentials,
    finder,
)
from sterna.cli.output import EXIT_INTERRUPTED, Output, plain
from sterna.cli.services import services_app
from sterna.edges.secrets import Secrets
from sterna.errors import SternaError, UsageError
from sterna.replica.region import RegionContext

if TYPE_CHECKING:
    from sterna.replica.records import Report

app = typer.Typer(
    name="sterna",
    help="Geo-distributed replication of Apache Iceberg tables.",
    epilog="Exit codes: 0 good; 1 unexpected; 2 wrong registry, services file, option or name; 3 credential missing or "
    "refused; 4 something does not answer, a later run resumes; 5 tables are held; 6 the replica branch was changed by "
    "somebody else, or main has diverged; 7 verify found faults, repair left some, or gc met a file that it can't "
    "read; 130 interrupted. Errors go to stderr, with --json as one JSON object.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
registry_app = typer.Typer(help="Work with the storage registry.", no_args_is_help=True)
app.add_typer(registry_app, name="registry")
app.add_typer(catalog_app, name="catalog")
app.add_typer(services_app, name="services")


@app.command(epilog="Example: sterna plan --region eu")
def plan(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    tables: Tables = None,
    everything: Everything = False,
    as_json: AsJson = False,
) -> None:
    """Show what a sync would do: tables, files, bytes, price, and what is held and why. Changes nothing."""
    from sterna.render.plan import plan_json, plan_text
    from sterna.sync.explain import explain
    from sterna.sync.options import SyncOptions
    from sterna.sync.plan.make import make_plan

    output = Output(as_json)
    with _context(registry, region) as context, output.progress("plan") as progress:
        made, files = make_plan(context, SyncOptions(tables=tuple(tables or ()), everything=everything), progress)
    explained = explain(context, made, files)
    output.result(plan_json(explained), plan_text(explained))


@app.command(epilog="Examples: sterna sync --region eu --table 'flights.*'; sterna sync --region eu --reassert")
def sync(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    tables: Tables = None,
    everything: Everything = False,
    reassert: Reassert = False,
    once: Annotated[
        bool, typer.Option("--once", help="Stop after one plan, even when a seed has more groups.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Bring the region's replica branch up to main: plan, copy, localize, publish. Safe to repeat and to interrupt."""
    from sterna.sync.options import SyncOptions
    from sterna.sync.run import sync as run_sync

    output = Output(as_json)
    with _context(registry, region) as context, output.progress("sync") as progress:
        options = SyncOptions(tables=tuple(tables or ()), everything=everything, reassert=reassert)
        report = run_sync(context, options, progress, again=not once)
    _tell_sync(output, report, context.region.replica_branch)


def _tell_sync(output: Output, report: Report, branch: str) -> None:
    held = "".join(f"\n  held {item.key}: {item.kind}: {item.reason} {item.file}".rstrip() for item in report.held)
    text = (
        f"{report.outcome}: {branch} stands for main@{report.watermark[:12] or 'nothing yet'}; "
        f"{len(report.published)} keys changed; "
        f"{report.copied.files} files, {report.copied.bytes} bytes copied; lag {report.lag_seconds:.1f} s; "
        f"{report.seconds:.1f} s"
    )
    output.result(report, text + held)
    if report.held:
        raise typer.Exit(EXIT_HELD)


@app.command(
    epilog="Example: sterna reseed --region eu --from 4f3c0c37b1fb9b2e6b1f4e1e9d8a7c6b5a4f3c0c37b1fb9b2e6b1f4e1e9d8a7c"
)
def reseed(
    region: RegionName,
    accepted: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="HASH",
            help="The commit of main that you take for the truth: its head, or one just before it.",
        ),
    ],
    registry: RegistryPath = DEFAULT_REGISTRY,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what it would do.")] = False,
    as_json: AsJson = False,
) -> None:
    """Follow main after it was reassigned, reset or rewritten behind the watermark: compare all tables, publish on
    top of what is there.

    A sync stops there (exit 6) and shows both hashes: main may have lost commits by mistake, and the replica then still
    has them.
    """
    from sterna.render.plan import plan_json, plan_text
    from sterna.sync.explain import explain
    from sterna.sync.options import SyncOptions
    from sterna.sync.plan.make import make_plan
    from sterna.sync.run import sync as run_sync

    output, options = Output(as_json), SyncOptions(reseed_from=accepted)
    with _context(registry, region) as context, output.progress("reseed") as progress:
        if dry_run:
            explained = explain(context, *make_plan(context, options, progress))
            output.result(plan_json(explained), plan_text(explained))
            return
        report = run_sync(context, options, progress, again=False)
        if report.more:
            report = run_sync(context, SyncOptions(), progress)
    _tell_sync(output, report, context.region.replica_branch)


@app.command(epilog="Example: sterna status --region eu --json")
def status(region: RegionName, registry: RegistryPath = DEFAULT_REGISTRY, as_json: AsJson = False) -> None:
    """Show where a region stands: watermark, lag, held tables, last run. Cut off from the primary (exit 4).

    What its own copy says.
    """
    from sterna.render.status import as_text
    from sterna.status.attempts import with_attempts
    from sterna.status.refused import with_sizes
    from sterna.status.region import read_status
    from sterna.status.retention import short_retention

    output = Output(as_json)
    with _context(registry, region) as context:
        found = with_attempts(context, with_sizes(context, read_status(context)))
        short = short_retention(context, found)
    output.result({**plain(found), "short_retention": [plain(item) for item in short]}, as_text(found, short))
    if found.problem:
        raise typer.Exit(6)
    if found.cut_off:
        raise typer.Exit(EXIT_LATER)


@app.command(epilog="Example: sterna verify --region eu --table 'nyc.*' --sample 1/30")
def verify(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    tables: Tables = None,
    structure: Annotated[
        bool,
        typer.Option(
            "--structure", help="Every path reachable is local, exists and has its size: what is always done."
        ),
    ] = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also compare every file with its source on main, which must be reachable.")
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

    from sterna.verify.run import Depth
    from sterna.verify.run import verify as run_verify
    from sterna.verify.sample import parse_sample

    share = None if sample is None else parse_sample(sample, datetime.now(UTC).date())
    output = Output(as_json)
    with _context(registry, region) as context, output.progress("verify") as progress:
        found = run_verify(context, Depth(deep or share is not None, share), tables or (), progress)
    compared = (
        f", {found.compared} files compared with main, {found.not_comparable} not comparable" if deep or share else ""
    )
    lines = [
        f"{found.tables} tables and views, {found.files} files, {found.bytes} bytes{compared}: {found.faults} faults"
    ]
    lines += [f"  {item.table}: {item.kind}: {item.file}: {item.message}" for item in found.findings]
    output.result(found, "\n".join(lines))
    if found.faults:
        raise typer.Exit(EXIT_FAULTS)


@app.command(epilog="Example: sterna repair --region eu --table 'nyc.*' --deep --yes")
def repair(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    tables: Tables = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Compare every file with its source on main, too: finds a flipped byte.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this it is only shown.")] = False,
    as_json: AsJson = False,
) -> None:
    """Verify a replica, and bring wrong and missing files below the replica root anew from main, over what is there."""
    from sterna.repair.run import repair as run_repair

    output = Output(as_json)
    with _context(registry, region) as context, output.progress("repair") as progress:
        found = run_repair(context, tables or (), progress, deep=deep, apply=yes)
    said = "brought anew" if found.applied else "could be brought anew, by --yes"
    lines = [f"{found.faults} faults: {len(found.mends)} files {said}; {found.faults_left} faults left"]
    lines += [f"  {item.table}: {item.how}: {item.file} from {item.source}: {item.why}" for item in found.mends]
    lines += [f"  {item.table}: left: {item.file}: {item.fault} -> {item.why}" for item in found.left]
    output.result(found, "\n".join(lines))
    if found.faults_left:
        raise typer.Exit(EXIT_FAULTS)


@app.command(epilog="Example: sterna collect --region eu --keep 7d --grace 24h --yes")
def collect(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    keep: Annotated[
        str, typer.Option("--keep", help="Keep what heads of the replica branch that are no older than this reach.")
    ] = "7d",
    grace: Annotated[
        str,
        typer.Option(
            "--grace", help="Delete what has been unreachable, and is old, for this long: longer than any run or query."
        ),
    ] = "24h",
    evict: Annotated[
        bool,
        typer.Option(
            "--evict",
            help="Files of tables that policies or residency refuse go at once, whatever --keep and --grace say.",
        ),
    ] = False,
    wait: Annotated[
        str, typer.Option("--wait", help="Wait this long for a sync that is between its plan and its publication.")
    ] = "10m",
    yes: Annotated[
        bool, typer.Option("--yes", help="Delete; without it the files are only counted, and written down for later.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Delete what no kept head of the replica branch reaches, below the replica root only.

    In two passes, grace apart.
    """
    from sterna.gc.run import collect as run_collect
    from sterna.render.gc import as_text, options_of

    options = options_of(keep, grace, wait, delete=yes, evict=evict)
    output = Output(as_json)
    with _context(registry, region) as context, output.progress("collect") as progress:
        found = run_collect(context, options, progress)
    output.result(found, as_text(found, evict))
    if found.failed:
        raise typer.Exit(EXIT_LATER)


@registry_app.command("check", epilog="Example: sterna registry check --registry storage_registry.yaml")
def registry_check(
    registry: RegistryPath = DEFAULT_REGISTRY,
    region: Annotated[
        str | None, typer.Option("--region", envvar="STERNA_REGION", help="Only what this region needs.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Read the registry, then probe every catalog, store and Spark that it names, and say what works."""
    from sterna.cli.check import check_registry

    output = Output(as_json)
    with output.progress("check") as progress:
        probes = check_registry(registry, region, credentials(), progress)
    lines = [
        f"{'ok  ' if probe.good else 'FAIL'} {probe.region}: "
        f"{probe.what}{': ' + probe.message if probe.message else ''}"
        for probe in probes
    ]
    output.result(
        {"ok": all(probe.good for probe in probes), "probes": [vars(probe) for probe in probes]}, "\n".join(lines)
    )
    failed = [probe for probe in probes if not probe.good]
    if failed:
        raise typer.Exit(max(probe.exit_code for probe in failed))


@app.command(epilog="Examples: sterna demo --stay; sterna demo --disaster")
def demo(
    stay: Annotated[
        bool, typer.Option("--stay", help="Leave everything running and print the addresses; Ctrl-C ends it.")
    ] = False,
    work: Annotated[
        Path | None,
        typer.Option("--work", help="Keep everything in this folder, new or empty; default: a temporary one."),
    ] = None,
    disaster: Annotated[
        bool,
        typer.Option("--disaster", help="Another story: a region with the primary catalog is lost, and comes back."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run two whole regions on this machine: real Airflow, Nessie, Postgres, S3 endpoints, rclone and Spark."""
    from sterna.demo.disaster import run_disaster
    from sterna.demo.replication import run_demo

    output = Output(as_json)
    if disaster and stay:
        raise UsageError("--stay and --disaster don't go together")
    result = run_disaster(work, output.line) if disaster else run_demo(work, stay, output.line)
    output.result(result, "ok" if result.ok else "failed:\n" + "\n".join(f"  {line}" for line in result.failures))
    if not result.ok:
        raise typer.Exit(1)


def _context(registry: Path, region: str) -> RegionContext:
    from sterna.edges.spark.pandas_import import leave_pandas_out
    from sterna.replica.region import open_region

    leave_pandas_out()
    return open_region(registry, region, credentials())


def main(argv: Sequence[str] | None = None, secrets: Secrets | None = None) -> None:
    """Run the command line; every error of sterna becomes one message and its exit code.

    Args:
        argv: the arguments; None: the process's own.
        secrets: finds credentials; None: the environment's `AIRFLOW_CONN_*`.
    """
    finder.set(secrets)
    arguments = list(sys.argv[1:] if argv is None else argv)
    output = Output("--json" in arguments)
    try:
        app(args=arguments, prog_name="sterna")
    except SternaError as error:
        output.error(error)
        sys.exit(error.exit_code)
    except SystemExit as ended:
        if ended.code == EXIT_INTERRUPTED:
            sys.stderr.write("interrupted; a later run resumes\n")
        raise


if __name__ == "__main__":
    main()
