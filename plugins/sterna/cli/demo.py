"""The command `sterna demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sterna.cli.options import AsJson
from sterna.cli.output import Output
from sterna.cli.signals import interrupt_on_sigterm
from sterna.errors import ExitCode, UsageError

demo_app = typer.Typer()

KeepRunning = Annotated[
    bool, typer.Option("--stay", help="Leave everything running and print the addresses; Ctrl-C ends it.")
]
WorkFolder = Annotated[
    Path | None, typer.Option("--work", help="Keep everything in this folder, new or empty; default: a temporary one.")
]
Disaster = Annotated[
    bool, typer.Option("--disaster", help="Run another demo: the region of the primary is lost, and rejoins.")
]
Regions = Annotated[
    int,
    typer.Option("--regions", min=2, max=3, help="With --disaster: 3 adds one that is seeded while another is down."),
]
Empty = Annotated[
    bool, typer.Option("--empty", help="Start only catalog, stores and a Postgres, all empty; Ctrl-C ends them.")
]


@demo_app.command(epilog="Examples: sterna demo --stay; sterna demo --disaster; sterna demo --empty")
def demo(
    stay: KeepRunning = False,
    work: WorkFolder = None,
    disaster: Disaster = False,
    regions: Regions = 2,
    empty: Empty = False,
    as_json: AsJson = False,
) -> None:
    """Run two whole regions on this machine: real Airflow, Nessie, Postgres, S3 endpoints, rclone and Spark."""
    from sterna.demo.disaster import run_disaster
    from sterna.demo.replication import run_demo
    from sterna.servers.isolation import isolate

    isolate()
    output = Output(as_json)
    if disaster + stay + empty > 1:
        raise UsageError("of --stay, --disaster and --empty one at most")
    if regions != 2 and not disaster:
        raise UsageError("--regions goes with --disaster")
    if empty:
        from sterna.demo.empty import run_empty

        with interrupt_on_sigterm(once=True):
            run_empty(work, output.line)
        return
    with interrupt_on_sigterm(once=True):
        outcome = run_disaster(work, output.line, regions=regions) if disaster else run_demo(work, stay, output.line)
    text = "ok" if outcome.ok else "failed:\n" + "\n".join(f"  {line}" for line in outcome.failures)
    output.result(outcome, text, 0 if outcome.ok else ExitCode.UNEXPECTED)
