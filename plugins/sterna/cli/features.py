"""The commands `sterna features …`: rows of tables that are kept for online reads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from sterna.cli.context import open_context
from sterna.cli.durations import parse_duration
from sterna.cli.options import DEFAULT_REGISTRY, AsJson, DryRun, RegionName, RegistryPath, ServicesPath, Yes
from sterna.cli.output import Output
from sterna.cli.prompts import should_apply
from sterna.config.services_file import read_services
from sterna.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from sterna.pipelines.features.materialize import Materialization
    from sterna.runtime.runner import RunSummary

features_app = typer.Typer(help="Manage online features: rows of tables in a fast store.", no_args_is_help=True)
ViewNames = Annotated[list[str] | None, typer.Argument(metavar="VIEW", help="Views; none: all.")]
_SAMPLE = re.compile(r"1/([1-9][0-9]{0,5})")


@features_app.command("materialize", epilog="Example: sterna features materialize --region eu --for 10m")
def materialize(
    region: RegionName,
    views: ViewNames = None,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    length: Annotated[str, typer.Option("--for", help="Follow new heads for this long, such as 10m.")] = "",
    as_json: AsJson = False,
) -> None:
    """Update the region's store from its replica: the rows that changed, or all where that is not known.

    Safe to interrupt and to repeat.
    """
    from sterna.pipelines.features.region import materialize_all, require_features

    follow_seconds = parse_duration("--for", length).total_seconds() if length else 0.0
    output, features = Output(as_json), require_features(read_services(services), region)
    with open_context(registry, region) as context, output.progress("features") as progress:
        summary = materialize_all(context, features, views or (), follow_for=follow_seconds, report=progress)
    _print_summary(output, summary)


@features_app.command("rebuild", epilog="Example: sterna features rebuild user --region eu --yes")
def rebuild(
    region: RegionName,
    views: ViewNames = None,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Fill views from scratch. A dry run until --yes. The replica answers meanwhile."""
    from sterna.pipelines.features.materialize import select_views
    from sterna.pipelines.features.region import materialize_all, require_features
    from sterna.text.lines import NOTHING_CHANGED

    output, features = Output(as_json), require_features(read_services(services), region)
    view_names = [view.name for view in select_views(features, views or (), UsageError)]
    if not should_apply(yes, dry_run):
        output.result({"views": view_names, "done": False}, f"would refill {', '.join(view_names)}\n{NOTHING_CHANGED}")
        return
    with open_context(registry, region) as context, output.progress("features") as progress:
        summary = materialize_all(context, features, view_names, rebuild=True, report=progress)
    _print_summary(output, summary, done=True)


@features_app.command("status", epilog="Example: sterna features status --region eu")
def status(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    as_json: AsJson = False,
) -> None:
    """Show how far each view is behind the replica. Exit code 5 while one needs an operator; needs no Spark."""
    from sterna.pipelines.features.region import open_feature_store, require_features
    from sterna.pipelines.features.status import read_status

    features = require_features(read_services(services), region)
    with open_context(registry, region) as context, open_feature_store(context, features) as store:
        views = read_status(context, features, store)
    Output(as_json).statuses(region, "views", views)


@features_app.command("verify", epilog="Example: sterna features verify --region eu --sample 1/30")
def verify(
    region: RegionName,
    views: ViewNames = None,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    sample: Annotated[str, typer.Option("--sample", help="Compare this part of the ids, such as 1/30.")] = "1/1",
    as_json: AsJson = False,
) -> None:
    """Compare store and replica in both directions, by reading the replica. Exit code 7 where they differ."""
    from sterna.pipelines.features.region import require_features, verify_all
    from sterna.text.features import verified_text

    match = _SAMPLE.fullmatch(sample)
    if match is None:
        raise UsageError(f"--sample {sample}: expected a part such as 1/30")
    output, features = Output(as_json), require_features(read_services(services), region)
    with open_context(registry, region) as context, output.progress("features") as progress:
        comparisons = verify_all(context, features, views or (), int(match[1]), progress)
    exit_code = 0 if all(comparison.matches for comparison in comparisons) else ExitCode.FAULTS
    output.result({"region": region, "sample": sample, "views": comparisons}, verified_text(comparisons), exit_code)


def _print_summary(output: Output, summary: RunSummary[Materialization], **fields: object) -> None:
    """Print what a run did, and exit with the code of its severest error."""
    from sterna.text.features import materialized_text

    views: dict[str, Materialization] = {}
    for step in summary.steps:  # of a view that was filled several times, the last one
        if step.how != "same" or step.view not in views:
            views[step.view] = step
    failed = [
        {"view": name, "error": type(error).__name__, "message": str(error)} for name, error in summary.errors.items()
    ]
    fields = {"views": list(views.values()), "idle": summary.idle, "failed": failed, **fields}
    output.result(fields, materialized_text(summary), summary.exit_code)
