"""The command `sterna capacity`: what a region needs for a load, and what gives way first."""

from __future__ import annotations

from typing import Annotated

import typer

from sterna.cli.options import AsJson
from sterna.cli.output import Output

capacity_app = typer.Typer()


@capacity_app.command(
    "capacity",
    epilog="Example: sterna capacity --tables 100000 --files 1e9 --largest 2e7 --commits 100 --regions 20",
)
def capacity(
    tables: Annotated[float, typer.Option("--tables", help="Tables on main.")] = 1_000,
    files: Annotated[float, typer.Option("--files", help="Live data files of all tables.")] = 1_000_000,
    largest: Annotated[float, typer.Option("--largest", help="Live data files of the largest table.")] = 100_000,
    file_mib: Annotated[float, typer.Option("--file-mib", help="MiB of a data file.")] = 64,
    commits: Annotated[float, typer.Option("--commits", help="Commits on main a second.")] = 1,
    commit_files: Annotated[float, typer.Option("--commit-files", help="New data files of a commit.")] = 1,
    snapshots: Annotated[float, typer.Option("--snapshots", help="Snapshots that a table keeps on main.")] = 100,
    regions: Annotated[float, typer.Option("--regions", help="Other regions.")] = 1,
    link_mb: Annotated[float, typer.Option("--link-mb", help="MB a second that this region may receive.")] = 125,
    egress_per_gb: Annotated[float, typer.Option("--egress-per-gb", help="Price of a GB from another region.")] = 0.02,
    as_json: AsJson = False,
) -> None:
    """Estimate what one region needs for a load: cores, requests, catalog, link and memory; and what breaks first.

    A model of measured unit costs, explained in docs/capacity.md. It needs no access to a region, and changes nothing.
    """
    from sterna.config.limits import MIB
    from sterna.operations.capacity import Load
    from sterna.operations.capacity import capacity as capacity_of
    from sterna.text.capacity import capacity_text

    load = Load(
        tables=tables,
        files=files,
        largest=largest,
        file_bytes=file_mib * MIB,
        commits=commits,
        commit_files=commit_files,
        snapshots=snapshots,
        regions=regions,
        link_bytes=link_mb * 1e6,
        egress_per_gb=egress_per_gb,
    )
    needs = capacity_of(load)
    Output(as_json).result(needs, capacity_text(needs))
