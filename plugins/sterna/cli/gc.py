"""The commands `sterna gc` and `sterna pin`."""

from __future__ import annotations

from typing import Annotated

import typer

from sterna.cli.context import open_context
from sterna.cli.durations import parse_duration
from sterna.cli.options import DEFAULT_REGISTRY, AsJson, DryRun, RegionName, RegistryPath, ServicesPath, YesToDeletion
from sterna.cli.output import Output
from sterna.cli.prompts import should_apply
from sterna.cli.signals import interrupt_on_sigterm
from sterna.errors import ExitCode

gc_app = typer.Typer()


@gc_app.command("gc", epilog="Example: sterna gc --region eu --keep 7d --grace 24h --yes")
def gc(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
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
            help="Delete files of tables that policies or residency exclude at once, regardless of --keep and --grace.",
        ),
    ] = False,
    wait: Annotated[
        str, typer.Option("--wait", help="Wait this long for a sync that is between its plan and its publication.")
    ] = "10m",
    yes: YesToDeletion = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Delete what no kept head of the replica branch reaches, below the replica root only.

    In two passes, grace apart. A dry run until --yes.
    """
    from sterna.config.services_file import read_services
    from sterna.maintenance.gc.model import GcOptions
    from sterna.maintenance.gc.run import run_gc
    from sterna.text.gc import collected_text

    services_config = read_services(services)
    options = GcOptions(
        keep=parse_duration("--keep", keep),
        grace=parse_duration("--grace", grace),
        delete=should_apply(yes, dry_run),
        evict=evict,
        max_wait_seconds=parse_duration("--wait", wait).total_seconds(),
        excluded_regions=services_config.retired_regions,
        keep_heads=services_config.keep_heads,
    )
    output = Output(as_json)
    with open_context(registry, region) as context, output.progress("gc") as progress, interrupt_on_sigterm():
        collected = run_gc(context, options, progress)
    exit_code = ExitCode.RETRY_LATER if collected.failed else 0
    output.result(collected, collected_text(collected, evict=evict), exit_code)


@gc_app.command("pin", epilog="Example: sterna pin --region eu --cursor 4d1f… --for 30d")
def pin(
    region: RegionName,
    cursor: Annotated[
        str,
        typer.Option(
            "--cursor", help="A commit of the replica branch, an event's id, or a moment of main, as main@2h."
        ),
    ],
    length: Annotated[str, typer.Option("--for", help="How long to keep it.")] = "30d",
    registry: RegistryPath = DEFAULT_REGISTRY,
    as_json: AsJson = False,
) -> None:
    """Keep a commit of the replica branch readable for longer than `gc --keep` does, by a tag that gc deletes once it
    has expired.
    """
    from sterna.maintenance.gc.pin import pin as create_pin
    from sterna.replication.replica.past_replica import PAST_PREFIX, PastReplica
    from sterna.serving.queries.request import parse_cursor_commit
    from sterna.text.gc import pin_text

    moment = cursor.removeprefix(PAST_PREFIX) if cursor.startswith(PAST_PREFIX) else ""
    commit, duration = "" if moment else parse_cursor_commit(cursor, "--cursor"), parse_duration("--for", length)
    output = Output(as_json)
    with open_context(registry, region) as context, output.progress("pin") as progress:
        commit = PastReplica(context).find(moment).commit if moment else commit
        created = create_pin(context, commit, duration, progress)
    output.result(created, pin_text(created))
