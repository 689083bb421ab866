"""The commands `sterna features …`: rows of tables that are kept for online reads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from sterna.cli import exits
from sterna.cli.context import open_context
from sterna.cli.durations import parse_duration
from sterna.cli.options import DEFAULT_REGISTRY, AsJson, DryRun, RegionName, RegistryPath, ServicesPath, Yes
from sterna.cli.output import Output
from sterna.cli.prompts import acts
from sterna.edges.services_file import read_services
from sterna.errors import Remedy, UsageError

if TYPE_CHECKING:
    from sterna.features.region import Failed

features_app = typer.Typer(help="Keep rows of tables for online reads.", no_args_is_help=True)
Views = Annotated[list[str] | None, typer.Argument(metavar="VIEW", help="Views; none: all.")]
_SAMPLE = re.compile(r"1/([1-9][0-9]{0,5})")


@features_app.command("materialize", epilog="Example: sterna features materialize --region eu --for 10m")
def materialize(
    region: RegionName,
    views: Views = None,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    length: Annotated[str, typer.Option("--for", help="Go on with each new head for this long, such as 10m.")] = "",
    as_json: AsJson = False,
) -> None:
    """Bring the region's store to what its replica shows: the rows that changed, or all where nothing tells which.

    Safe to interrupt and to repeat.
    """
    from sterna.features.region import features_of, materialize_all
    from sterna.render.features import materialized_text, run_text

    linger = parse_duration("--for", length).total_seconds() if length else 0.0
    output, features = Output(as_json), features_of(read_services(services), region)
    with open_context(registry, region) as context, output.progress("features") as say:
        made, failed = materialize_all(
            context, features, views or (), linger=linger, done=lambda each: say(materialized_text(each)), say=say
        )
    output.result({"views": made, "failed": _failures(failed)}, run_text(made, failed))
    if failed:
        later = all(each.error.remedy is Remedy.RETRY for each in failed)
        raise typer.Exit(exits.LATER if later else failed[0].error.exit_code)


@features_app.command("rebuild", epilog="Example: sterna features rebuild user --region eu --yes")
def rebuild(
    region: RegionName,
    views: Views = None,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Fill views as a whole, whatever the store holds. A dry run until --yes. The replica answers meanwhile."""
    from sterna.features.materialize import each_view
    from sterna.features.region import features_of, materialize_all
    from sterna.render.dry_run import NOTHING_CHANGED
    from sterna.render.features import run_text

    output, features = Output(as_json), features_of(read_services(services), region)
    wanted = [view.name for view in each_view(features, views or (), UsageError)]
    if not acts(yes, dry_run):
        output.result({"views": wanted, "done": False}, f"would fill {', '.join(wanted)} anew\n{NOTHING_CHANGED}")
        return
    with open_context(registry, region) as context, output.progress("features") as say:
        made, failed = materialize_all(context, features, wanted, rebuild=True, say=say)
    output.result({"views": made, "failed": _failures(failed), "done": True}, run_text(made, failed))
    if failed:
        raise typer.Exit(failed[0].error.exit_code)


@features_app.command("status", epilog="Example: sterna features status --region eu")
def status(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    as_json: AsJson = False,
) -> None:
    """Show how far each view is behind the replica. Exit code 5 while one needs somebody; needs no Spark."""
    from sterna.features.region import features_of, opened_store
    from sterna.features.status import status as look
    from sterna.render.features import status_text

    features = features_of(read_services(services), region)
    with open_context(registry, region) as context, opened_store(context, features) as store:
        found = look(context, features, store)
    Output(as_json).result({"region": region, "views": found}, status_text(found))
    if any(each.alarm for each in found):
        raise typer.Exit(exits.HELD)


@features_app.command("verify", epilog="Example: sterna features verify --region eu --sample 1/30")
def verify(
    region: RegionName,
    views: Views = None,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    sample: Annotated[str, typer.Option("--sample", help="Compare this part of the ids, such as 1/30.")] = "1/1",
    as_json: AsJson = False,
) -> None:
    """Compare store and replica, both ways, by reading the replica anew. Exit code 7 where they differ."""
    from sterna.features.region import features_of, verify_all
    from sterna.render.features import verified_text

    part = _SAMPLE.fullmatch(sample)
    if part is None:
        raise UsageError(f"--sample {sample}: expected a part such as 1/30")
    output, features = Output(as_json), features_of(read_services(services), region)
    with open_context(registry, region) as context, output.progress("features") as say:
        found = verify_all(context, features, views or (), int(part[1]), say)
    output.result({"region": region, "sample": sample, "views": found}, verified_text(found))
    if not all(each.good for each in found):
        raise typer.Exit(exits.FAULTS)


def _failures(failed: Sequence[Failed]) -> list[dict[str, str]]:
    return [{"view": each.view, "error": type(each.error).__name__, "message": str(each.error)} for each in failed]
