"""The commands `sterna transforms …`: tables that follow others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sterna.cli.context import open_context
from sterna.cli.durations import parse_duration
from sterna.cli.options import DEFAULT_REGISTRY, AsJson, DryRun, RegionName, RegistryPath, ServicesPath, Yes
from sterna.cli.output import Output
from sterna.cli.prompts import should_apply
from sterna.errors import first_exit_code

if TYPE_CHECKING:
    from sterna.config.sections.transforms import Transform

transform_app = typer.Typer(help="Manage transforms: tables that follow the snapshots of others.", no_args_is_help=True)

TransformNames = Annotated[
    list[str] | None, typer.Argument(metavar="TRANSFORM", help="Only these transforms; default: all.")
]


@transform_app.command("check", epilog="Example: sterna transforms check --region eu")
def check(
    region: RegionName,
    names: TransformNames = None,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    as_json: AsJson = False,
) -> None:
    """Check transforms: settings, SQL, source and target. Changes nothing, and starts Spark."""
    from sterna.pipelines.transforms.status import check_transforms
    from sterna.text.transforms import checked_text

    transforms, folder = _select_transforms(services, names)
    with open_context(registry, region) as context:
        checks = check_transforms(context, transforms, folder)
    exit_code = first_exit_code(check_status.exit_code for check_status in checks)
    Output(as_json).result({"region": region, "transforms": list(checks)}, checked_text(checks), exit_code)


@transform_app.command("run", epilog="Example: sterna transforms run dwd --region eu --for 10m")
def run(
    region: RegionName,
    names: TransformNames = None,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    length: Annotated[str, typer.Option("--for", help="Continue for this long, such as 10m.")] = "",
    as_json: AsJson = False,
) -> None:
    """Update targets from this region's replicas of their sources. Safe to interrupt and to repeat."""
    from sterna.pipelines.transforms.run import run_transforms
    from sterna.text.transforms import transformed_text

    seconds = parse_duration("--for", length).total_seconds() if length else 0.0
    transforms, folder = _select_transforms(services, names)
    output = Output(as_json)
    with open_context(registry, region) as context, output.progress("transforms") as progress:
        summary = run_transforms(lambda: context, transforms, folder, progress, seconds)
    output.result(summary.fields(), transformed_text(summary), summary.exit_code)


@transform_app.command("status", epilog="Example: sterna transforms status --region eu --json")
def status(
    region: RegionName,
    names: TransformNames = None,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    as_json: AsJson = False,
) -> None:
    """Show the position of each transform. The exit code is that of the first one that stopped."""
    from sterna.pipelines.transforms.status import read_transform_statuses

    transforms, folder = _select_transforms(services, names)
    with open_context(registry, region) as context:
        statuses = read_transform_statuses(context, transforms, folder)
    Output(as_json).statuses(region, "transforms", statuses)


@transform_app.command("rebuild", epilog="Example: sterna transforms rebuild dws --region eu --yes")
def rebuild(
    name: Annotated[str, typer.Argument(metavar="TRANSFORM", help="The transform.")],
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Replace all rows of a transform's target by what its SQL gives of the whole source. A dry run until --yes.

    In one snapshot: readers see the old rows until the new ones are there.
    """
    from sterna.pipelines.transforms.rebuild import rebuild as work
    from sterna.pipelines.transforms.run import read_sql
    from sterna.pipelines.transforms.step_context import TransformSpark
    from sterna.text.transforms import rebuilt_text

    apply = should_apply(yes, dry_run)
    (transform,), folder = _select_transforms(services, [name])
    step_context = TransformSpark()
    try:
        with open_context(registry, region) as context:
            rebuilt = work(context, transform, read_sql(transform, folder), step_context, act=apply)
    finally:
        step_context.close()
    Output(as_json).result(rebuilt, rebuilt_text(rebuilt))


def _select_transforms(services: Path | None, names: list[str] | None) -> tuple[list[Transform], Path]:
    """Return the transforms that are named, and the folder of their SQL files.

    Raises:
        ServicesError: the file is wrong, or was named and is missing.
        UsageError: there is no such transform.
    """
    from sterna.config.services_file import read_services, services_folder
    from sterna.pipelines.transforms.run import select_transforms

    return select_transforms(read_services(services).transforms, names or ()), services_folder(services)
