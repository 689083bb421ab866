"""The benches, one command each: `python3 run.py bench NAME`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Loads(StrEnum):
    """What the bench `copy` copies."""

    many = "many"
    """10,000 files of 64 KiB."""
    large = "large"
    """16 files of 256 MiB."""


app = typer.Typer(
    help="Measure sterna beside its rivals; each bench prints one JSON line a case and adds it to bench/results.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
Entries = Annotated[list[int], typer.Option("--entries", help="Data files in the table; repeat for more tables.")]
Rounds = Annotated[int, typer.Option("--rounds", min=1, help="How often each side is measured, in turn.")]
Cores = Annotated[int, typer.Option("--cores", min=1, help="How many tasks Spark runs at once, for both sides.")]
PerManifest = Annotated[int, typer.Option("--per-manifest", min=1, help="Entries in a manifest.")]
Work = Annotated[Path | None, typer.Option("--work", help="Keep everything in this folder, new or empty; default: a temporary one.")]

_MILLION = [1_000_000]
_SIZES = [100_000, *_MILLION]
_FEW = [4, 16, 64]
_LOADS = list(Loads)


@app.command(epilog="Example: python3 run.py bench localize --entries 100000 --rounds 3")
def localize(entries: Entries = _SIZES, rounds: Rounds = 3, cores: Cores = 2, per_manifest: PerManifest = 1000, work: Work = None) -> None:
    """The localize stage against Iceberg's rewrite_table_path, on one Spark. Goal: at least 10 times as fast."""
    from bench.localize import bench

    bench(entries, rounds, cores, per_manifest, work)


@app.command(epilog="Example: python3 run.py bench place --manifests 64 --rounds 5")
def place(
    manifests: Annotated[list[int], typer.Option("--manifests", min=1, help="Manifests to localize; repeat for more tables.")] = _FEW,
    rounds: Rounds = 5,
    per_manifest: PerManifest = 100,
    work: Work = None,
) -> None:
    """A few manifests localized here, against Spark. Goal: faster, up to where `localize: auto` changes over."""
    from bench.place import bench

    bench(manifests, rounds, per_manifest, work)


@app.command(epilog="Example: python3 run.py bench plan --entries 100000 --rounds 3")
def plan(entries: Entries = _SIZES, rounds: Rounds = 3, cores: Cores = 2, per_manifest: PerManifest = 1000, work: Work = None) -> None:
    """The plan stage against Spark's select file_path from t.files. Goal: at least 5 times as fast."""
    from bench.plan import bench

    bench(entries, rounds, cores, per_manifest, work)


@app.command(epilog="Example: python3 run.py bench idle --tables 20 --rounds 10")
def idle(
    tables: Annotated[int, typer.Option("--tables", min=1, help="Tables in the catalog.")] = 20, rounds: Rounds = 10, work: Work = None
) -> None:
    """A sync with nothing to do, beside one Nessie round trip and the whole command. Goal: at most 0.5 s."""
    from bench.idle import bench

    bench(tables, rounds, work)


@app.command(epilog="Example: python3 run.py bench verify --entries 1000000 --rounds 3")
def verify(entries: Entries = _MILLION, rounds: Rounds = 3, per_manifest: PerManifest = 1000, work: Work = None) -> None:
    """The structure of a whole table. Goal: at most 60 s for 1,000,000 files."""
    from bench.verify import bench

    bench(entries, rounds, per_manifest, work)


@app.command(epilog="Example: python3 run.py bench copy --load many --rounds 3")
def copy(
    load: Annotated[list[Loads], typer.Option("--load", help="What to copy; repeat for both.")] = _LOADS,
    share: Annotated[float, typer.Option("--share", min=0.0, max=1.0, help="Copy only this part of the files.")] = 1.0,
    rounds: Rounds = 3,
    work: Work = None,
) -> None:
    """A sync's copy against plain rclone copy at its best flags, between two S3 endpoints. Goal: at least 0.9 times its throughput."""
    from dataclasses import replace

    from bench.copy import LOADS, bench

    loads = [LOADS[item.value] for item in load]
    bench([replace(item, files=max(1, round(item.files * share))) for item in loads], rounds, work)


@app.command(epilog="Example: python3 run.py bench memory --entries 1000000")
def memory(entries: Entries = _MILLION, per_manifest: PerManifest = 1000, work: Work = None) -> None:
    """Seeding a table: peak memory of the command, of each stage as a task, and of a Spark Python worker. Goal: at most 1 GiB each."""
    from bench.memory import bench

    bench(entries, per_manifest, work)


@app.command(epilog="Example: python3 run.py bench table")
def table() -> None:
    """Bring the table of results in bench/README.md up to date."""
    from bench.table import write_table

    write_table()


if __name__ == "__main__":
    app(prog_name="python3 run.py bench")
