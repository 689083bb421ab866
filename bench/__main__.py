"""The benches, one command each: `python3 run.py bench NAME`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from sterna.servers.isolation import isolate


class Loads(StrEnum):
    """What the bench `copy` copies."""

    many = "many"
    """10,000 files of 64 KiB."""
    large = "large"
    """16 files of 256 MiB."""


class Kinds(StrEnum):
    """What grows in the bench `growth`."""

    tables = "tables"
    """Files in the table."""
    catalogs = "catalogs"
    """Tables in the catalog."""
    histories = "histories"
    """Snapshots that the table retains."""


class Targets(StrEnum):
    """Where the bench `outlet` sends to."""

    webhook = "webhook"
    kafka = "kafka"
    amqp = "amqp"


_GROWTH = {
    Kinds.tables: [1_000, 100_000, 1_000_000],
    Kinds.catalogs: [10, 1_000, 10_000],
    Kinds.histories: [10, 1_440, 43_200],
}

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
Work = Annotated[
    Path | None, typer.Option("--work", help="Keep everything in this folder, new or empty; default: a temporary one.")
]

_MILLION = [1_000_000]
_FEW = [4, 16, 64]
_CHANGED = [1, 20, 100]
_RATES = [5.0, 20.0, 0.0]
_LOADS = list(Loads)
_FEAST = Path.home() / ".cache" / "sterna" / "feast"
_DLT = Path.home() / ".cache" / "sterna" / "dlt"


@app.command(epilog="Example: python3 run.py bench scale --entries 200000 --rounds 1")
def scale(
    entries: Entries = _MILLION,
    rounds: Rounds = 1,
    cores: Cores = 2,
    per_manifest: PerManifest = 1000,
    work: Work = None,
    alone: Annotated[bool, typer.Option(help="Without the rival; the goal is 1 GiB a process.")] = False,
) -> None:
    """All metadata of a first seed against Iceberg's rewrite_table_path, on one Spark. Goal: at least 5 times."""
    from bench.scale import bench

    bench(entries, rounds, cores, per_manifest, work, alone=alone)


@app.command(epilog="Example: python3 run.py bench cores --entries 200000 --rounds 1")
def cores(
    entries: Annotated[int, typer.Option(min=1, help="Data files in the table.")] = 1_000_000,
    rounds: Rounds = 2,
    work: Work = None,
) -> None:
    """All metadata of a first seed with one core and with two, stores being folders. Goal: 1.7 times as fast."""
    from bench.scale import bench_cores

    bench_cores(entries, rounds, work)


@app.command(epilog="Example: python3 run.py bench beside --entries 10000000 --rounds 15")
def beside(
    entries: Annotated[int, typer.Option(min=1, help="Data files of the large table.")] = 1_000_000,
    rounds: Rounds = 7,
    work: Work = None,
) -> None:
    """A small table's first seed while a very large table is seeded. Goal: at most 2 times as long as alone."""
    from bench.beside import bench

    bench(entries, rounds, work)


@app.command(epilog="Example: python3 run.py bench place --manifests 64 --rounds 5")
def place(
    manifests: Annotated[
        list[int], typer.Option("--manifests", min=1, help="Manifests to localize; repeat for more tables.")
    ] = _FEW,
    rounds: Rounds = 5,
    per_manifest: PerManifest = 100,
    work: Work = None,
) -> None:
    """A few manifests localized here, against Spark. Goal: faster, up to where `localize: auto` changes over."""
    from bench.place import bench

    bench(manifests, rounds, per_manifest, work)


@app.command(epilog="Example: python3 run.py bench compact --files 1000 --rounds 3")
def compact(
    files: Annotated[int, typer.Option("--files", min=10, help="Files of 64 KiB in the table.")] = 10_000,
    rounds: Rounds = 3,
    work: Work = None,
) -> None:
    """Compaction by upkeep, alone and beside writers, against rewrite_data_files. Goal: at least as fast."""
    from bench.compact import bench

    bench(files, rounds, work)


@app.command(epilog="Example: python3 run.py bench upkeep-day --commits 240")
def upkeep_day(
    commits: Annotated[int, typer.Option("--commits", min=48, help="Commits of the day.")] = 1_440,
    work: Work = None,
) -> None:
    """A day of commits with upkeep: a read's plan, a sync, a commit. Goal: last third at most 1.5 times the first."""
    from bench.upkeep_day import bench

    bench(commits, work)


@app.command(epilog="Example: python3 run.py bench idle --tables 20 --rounds 10")
def idle(
    tables: Annotated[int, typer.Option("--tables", min=1, help="Tables in the catalog.")] = 20,
    rounds: Rounds = 10,
    work: Work = None,
) -> None:
    """A sync with nothing to do, beside one Nessie round trip and the whole command. Goal: at most 0.5 s."""
    from bench.idle import bench

    bench(tables, rounds, work)


@app.command(epilog="Example: python3 run.py bench capacity --tables 1 --tables 50 --rounds 3")
def capacity(
    tables: Annotated[
        list[int], typer.Option("--tables", min=1, help="Changed tables of a sync; repeat for more.")
    ] = _CHANGED,
    rounds: Rounds = 3,
    work: Work = None,
) -> None:
    """The model of `sterna capacity` against syncs of more and more tables. Goal: off by at most 1.5 times."""
    from bench.capacity import bench

    bench(tables, rounds, work)


@app.command(epilog="Example: python3 run.py bench lanes --gigabytes 2 --megabytes-per-second 5")
def lanes(
    commits: Annotated[int, typer.Option("--commits", min=1, help="Small commits, alone and beside the copy.")] = 60,
    gigabytes: Annotated[float, typer.Option("--gigabytes", min=0.0, help="Size of the large table.")] = 20.0,
    megabytes_per_second: Annotated[
        float, typer.Option("--megabytes-per-second", min=0.1, help="Speed of the link.")
    ] = 50.0,
    work: Work = None,
) -> None:
    """Small commits beside the copy of a large table. Goal: p99 at most 2 times that of the commits alone."""
    from bench.lanes import bench

    bench(commits, gigabytes, megabytes_per_second, work)


@app.command(epilog="Example: python3 run.py bench bandwidth --copies 8 --mebibytes 16")
def bandwidth(
    copies: Annotated[int, typer.Option("--copies", min=2, help="Copies at once.")] = 4,
    mebibytes: Annotated[int, typer.Option("--mebibytes", min=1, help="Size of the file that one copies.")] = 32,
    limit: Annotated[int, typer.Option("--limit", min=1, help="MiB a second.")] = 2,
    work: Work = None,
) -> None:
    """Copies from a location with a limit. Goal: one alone at least 0.9 of it, several together at most 1.1."""
    from bench.bandwidth import bench

    bench(copies, mebibytes, limit, work)


@app.command(epilog="Example: python3 run.py bench verify --entries 1000000 --rounds 3")
def verify(
    entries: Entries = _MILLION, rounds: Rounds = 3, per_manifest: PerManifest = 1000, work: Work = None
) -> None:
    """The structure of a whole table. Goals: at most 60 s for 1,000,000 files, and 1 GiB for any number.

    With two sizes, as in `--entries 1000000 --entries 10000000`: at most 1.15 times as long a file.
    """
    from bench.verify import bench

    bench(entries, rounds, per_manifest, work)


@app.command(epilog="Example: python3 run.py bench changes --files 20000 --rounds 5")
def changes(
    files: Annotated[
        list[int], typer.Option("--files", min=1, help="Data files of the large table; repeat for more.")
    ] = _MILLION,
    rounds: Rounds = 5,
    work: Work = None,
) -> None:
    """The rows of one commit in a large table and in a small one, and against reading both versions and subtracting.

    Goals: at most 1.3 times; at least 3 times as fast.
    """
    from bench.changes import bench

    bench(files, rounds, work)


@app.command(epilog="Example: python3 run.py bench copy --load many --rounds 3")
def copy(
    load: Annotated[list[Loads], typer.Option("--load", help="What to copy; repeat for both.")] = _LOADS,
    share: Annotated[float, typer.Option("--share", min=0.0, max=1.0, help="Copy only this part of the files.")] = 1.0,
    rounds: Rounds = 3,
    work: Work = None,
) -> None:
    """A sync's copy against plain rclone copy at its best flags, between two S3 endpoints. Goal.

    At least 0.9 times its throughput.
    """
    from dataclasses import replace

    from bench.copy import LOADS, bench

    loads = [LOADS[item.value] for item in load]
    bench([replace(item, files=max(1, round(item.files * share))) for item in loads], rounds, work)


@app.command(epilog="Example: python3 run.py bench memory --entries 1000000")
def memory(entries: Entries = _MILLION, per_manifest: PerManifest = 1000, work: Work = None) -> None:
    """Seeding a table: peak memory of the command, of each stage as a task, and of a Spark Python worker. Goal.

    At most 1 GiB each.
    """
    from bench.memory import bench

    bench(entries, per_manifest, work)


@app.command(epilog="Example: python3 run.py bench latency --commits 10 --airflow 5")
def latency(
    commits: Annotated[int, typer.Option("--commits", min=1, help="Commits by the command line.")] = 50,
    airflow: Annotated[int, typer.Option("--airflow", min=0, help="Commits through Airflow; 0: none.")] = 50,
    work: Work = None,
) -> None:
    """One small commit to visible: by the command line (goal.

    At most 2 s over rclone alone), through Airflow (1.2 times an empty DAG).
    """
    from bench.latency import bench

    bench(commits, airflow, work)


@app.command(epilog="Example: python3 run.py bench growth --kind tables --size 1000 --size 100000")
def growth(
    kind: Annotated[list[Kinds], typer.Option("--kind", help="What grows; repeat for more.")] = list(Kinds),  # noqa: B006
    size: Annotated[
        list[int] | None, typer.Option("--size", min=1, help="How large; repeat for more. Default: three sizes a kind.")
    ] = None,
    rounds: Rounds = 5,
    work: Work = None,
) -> None:
    """A commit of one file into ever larger tables, catalogs and histories. Goal.

    At most 1.3 times from the smallest to the largest.
    """
    from bench.growth import bench

    for item in kind:
        bench(item.value, size or _GROWTH[item], rounds, work)


@app.command(epilog="Example: python3 run.py bench churn --minutes 1")
def churn(
    minutes: Annotated[float, typer.Option("--minutes", help="For how long, each load; 0: none.")] = 10.0,
    commits: Annotated[int, typer.Option("--commits", help="To a table of long history: what is kept; 0: none.")] = 60,
    snapshots: Annotated[int, typer.Option("--snapshots", min=2, help="How long that history is.")] = 1_440,
    work: Work = None,
) -> None:
    """60 commits a minute over 20 tables, then 30 a minute on one: the lag. Goal: it doesn't grow.

    Then an hour of commits to a table of long history: the bytes kept beside the replica, before and after a clean-up.
    """
    from bench import kept
    from bench.churn import LOADS, bench

    if minutes:
        bench(LOADS, minutes, work)
    if commits:
        kept.bench(commits, snapshots, work)


@app.command(epilog="Example: python3 run.py bench clean --files 5000")
def clean(
    files: Annotated[int, typer.Option("--files", min=1, help="Files of garbage.")] = 50_000, work: Work = None
) -> None:
    """A clean-up beside a commit every second and syncs without a pause. Goal: at most 5 times as long as alone."""
    from bench.clean import bench

    bench(files, work)


@app.command(epilog="Example: python3 run.py bench sweep --files 50000 --rounds 1")
def sweep(
    files: Annotated[int, typer.Option("--files", min=100, help="Files in the table; 1 % garbage beside them.")] = (
        1_000_000
    ),
    rounds: Rounds = 3,
    work: Work = None,
) -> None:
    """The pass of a sweep that deletes, against Iceberg's remove_orphan_files. Goal: at least as fast."""
    from bench.sweep import bench

    bench(files, rounds, work)


@app.command(epilog="Example: python3 run.py bench seed --tables 20 --rounds 1")
def seed(
    tables: Annotated[int, typer.Option("--tables", min=1, help="Tables in the catalog.")] = 200,
    group: Annotated[int, typer.Option("--group", min=1, help="Tables published at once.")] = 100,
    rounds: Rounds = 3,
    work: Work = None,
) -> None:
    """A first seed of many small tables: until the first group can be read, and until all can."""
    from bench.seed import bench

    bench(tables, rounds, group, work)


@app.command(epilog="Example: python3 run.py bench distance --rounds 3")
def distance(rounds: Rounds = 5, work: Work = None) -> None:
    """us 100 ms and 100 Mbit/s away: a copy, a commit, and a query on main and on the replica."""
    from bench.distance import bench

    bench(rounds, work)


@app.command(epilog="Example: python3 run.py bench replication --rate 20 --seconds 10 --rounds 1")
def replication(
    rate: Annotated[
        list[float], typer.Option("--rate", min=0.0, help="Commits a second; repeat for more; 0: as many as go.")
    ] = _RATES,
    seconds: Annotated[float, typer.Option("--seconds", min=1.0, help="For how long, each round.")] = 20.0,
    rounds: Rounds = 3,
    work: Work = None,
) -> None:
    """Two regions with a catalog each: from an acknowledged commit until the other one shows it.

    A planned and a forced promotion.
    """
    from bench.replication import bench

    bench(rate, seconds, rounds, work)


@app.command(epilog="Example: python3 run.py bench kpi --rows 100000 --askers 100 --rounds 3")
def kpi(
    rows: Annotated[int, typer.Option("--rows", min=1, help="Rows of the table.")] = 10_000_000,
    askers: Annotated[int, typer.Option("--askers", min=1, help="Concurrent equal requests.")] = 1_000,
    rounds: Rounds = 5,
    work: Work = None,
) -> None:
    """A named query at one snapshot over HTTP, against the table in pandas. Goal: at least 3 times as fast.

    Then many equal requests: one run for all of them, and p99 of at most 50 ms where the answer is cached.
    """
    from bench.kpi import bench

    bench(rows, askers, rounds, work)


@app.command(epilog="Example: python3 run.py bench online --rows 100000 --rounds 3")
def online(
    rows: Annotated[int, typer.Option("--rows", min=10_000, help="Users in the table.")] = 1_000_000,
    rounds: Rounds = 3,
    work: Work = None,
    feast: Annotated[
        Path, typer.Option("--feast", help="The rival's Python environment; made where it isn't there.")
    ] = _FEAST,
) -> None:
    """Features: filled at least 3 times as fast as by Feast, and served at least as fast from the same Valkey.

    100 entities at once and throughput: at least 2 times. A thousand changes cost at most 1.3 times in ten times the
    rows.
    """
    from bench.online import bench

    bench(rows, rounds, work, feast)


@app.command(epilog="Example: python3 run.py bench training --labels 100000 --rounds 1")
def training(
    labels: Annotated[int, typer.Option("--labels", min=100, help="Labels; a tenth as many users.")] = 1_000_000,
    rounds: Rounds = 3,
    work: Work = None,
    feast: Annotated[
        Path, typer.Option("--feast", help="The rival's Python environment; made where it isn't there.")
    ] = _FEAST,
) -> None:
    """Training sets at labels' times, against Feast's historical retrieval. Goal: equal results, at least as fast."""
    from bench.training import bench

    bench(labels, rounds, work, feast)


@app.command(epilog="Example: python3 run.py bench fresh --commits 10 --airflow 0")
def fresh(
    commits: Annotated[int, typer.Option("--commits", min=0, help="Commits with sterna follow; 0: none.")] = 20,
    airflow: Annotated[int, typer.Option("--airflow", min=0, help="Commits through Airflow; 0: none.")] = 20,
    work: Work = None,
) -> None:
    """A commit on main in us until eu's gateway serves it online. Goals: 3 s with sterna follow, 10 s through Airflow
    (p50).
    """
    from bench.fresh import bench

    bench(commits, airflow, work)


@app.command(epilog="Example: python3 run.py bench layers --minutes 2")
def layers(
    rate: Annotated[int, typer.Option("--rate", min=1, help="Rows a second.")] = 2_000,
    every: Annotated[float, typer.Option("--every", min=1.0, help="Seconds between two commits.")] = 30.0,
    minutes: Annotated[float, typer.Option("--minutes", min=0.5, help="For how long, each side.")] = 10.0,
    work: Work = None,
) -> None:
    """Three layers over a replica, beside Spark's readStream on main. Goal: the third is at most 120 s late (p99).

    It has to equal the recomputation.
    """
    from bench.layers import bench

    bench(rate, every, minutes, work)


@app.command(epilog="Example: python3 run.py bench cdc --seconds 60")
def cdc(
    rate: Annotated[int, typer.Option("--rate", min=100, help="Changes a second.")] = 2_000,
    seconds: Annotated[float, typer.Option("--seconds", min=10, help="How long they come.")] = 120.0,
    rows: Annotated[int, typer.Option("--rows", min=1_000, help="Rows in the source before.")] = 100_000,
    work: Work = None,
) -> None:
    """Change capture: on main at most 10 s late (p99), and at most 1.5 times an upsert; at most 64 MiB of the source's
    log, and reads at most 1.5 times.

    Beside it the same engine with PyIceberg's upsert, a commit each 5 s.
    """
    from bench.cdc import bench

    bench(rate, seconds, rows, work)


@app.command(epilog="Example: python3 run.py bench flood --minutes 1 --rounds 3")
def flood(
    minutes: Annotated[float, typer.Option("--minutes", min=0.01, help="How long files come at the rate.")] = 2.0,
    rate: Annotated[float, typer.Option("--rate", min=1.0, help="Files a second.")] = 56.0,
    rounds: Rounds = 3,
    work: Work = None,
) -> None:
    """Small files into one table, acknowledged and put on main by a worker, against a PyIceberg append a file.

    Goals: a backlog of at most 60 s, and at least 50 files into one.
    """
    from bench.flood import bench

    bench(minutes, rate, rounds, work)


@app.command(epilog="Example: python3 run.py bench day --minutes 1 --share 0.25")
def day(
    minutes: Annotated[float, typer.Option("--minutes", min=0.05, help="How long files come at the rate.")] = 10.0,
    share: Annotated[float, typer.Option("--share", min=0.001, max=1.0, help="Of a day's bytes.")] = 0.5,
    work: Work = None,
    dlt: Annotated[
        Path, typer.Option("--dlt", help="The rival's Python environment; made where it isn't there.")
    ] = _DLT,
) -> None:
    """700,000 files and 1.5 TB a day over 7 tables, half of its bytes, against dlt into a catalog.

    Goal: it keeps up, with a backlog of at most 60 s.
    """
    from bench.day import bench

    bench(minutes, share, work, dlt)


@app.command(epilog="Example: python3 run.py bench commits --minutes 0.5")
def commits(
    minutes: Annotated[float, typer.Option("--minutes", min=0.05, help="How long batches come, in each case.")] = 1.0,
    work: Work = None,
) -> None:
    """60 batches a minute from one region, then 30 from each of two, into one table, against Sparks that append.

    Goal: none fails, none is lost, and p99 from durable to on main is at most 5 s.
    """
    from bench.commits import bench

    bench(minutes, work)


@app.command(epilog="Example: python3 run.py bench rest-load --seconds 20 --rounds 3")
def rest_load(
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="How long tables are loaded, in each round.")] = 20,
    rounds: Rounds = 3,
    work: Work = None,
) -> None:
    """50 loads a second of a table at a region's REST address, beside Nessie's own. Goals: p99 of 50 and 150 ms."""
    from bench.rest_catalog import bench_load

    bench_load(seconds, rounds, work)


@app.command(epilog="Example: python3 run.py bench rest-append --rounds 5")
def rest_append(rounds: Rounds = 5, work: Work = None) -> None:
    """Appends from eu to a table of us, 100 ms away, by the REST address and natively. Goal: half the time."""
    from bench.rest_catalog import bench_append

    bench_append(rounds, work)


@app.command(epilog="Example: python3 run.py bench rest-turns --minutes 2")
def rest_turns(
    minutes: Annotated[float, typer.Option("--minutes", min=0.1, help="How long clients commit.")] = 5.0,
    work: Work = None,
) -> None:
    """30 commits a minute from each of two regions to one table, by their REST addresses, with default retries.

    Goal: none that was acknowledged is lost, at most 2 % give up, and p99 is at most 5 s.
    """
    from bench.rest_catalog import bench_turns

    bench_turns(minutes, work)


@app.command(epilog="Example: python3 run.py bench rest-turns-model --minutes 20")
def rest_turns_model(
    minutes: Annotated[float, typer.Option("--minutes", min=1, help="How long clients commit, in the model.")] = 20,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How often it is played.")] = 4,
) -> None:
    """A model of what rest-turns measures, with and without turns: how many clients give up. Nothing is measured."""
    from bench.turns_model import bench

    bench(minutes, seeds)


@app.command(epilog="Example: python3 run.py bench arrive --rows 5")
def arrive(
    rows: Annotated[int, typer.Option("--rows", min=1, help="Rows, one after the other.")] = 30, work: Work = None
) -> None:
    """One row, from accepted in us to on main to served in eu. Goals: 5 s, and 1 s more with sterna follow (p50)."""
    from bench.arrive import bench

    bench(rows, work)


@app.command(epilog="Example: python3 run.py bench workers --rounds 1")
def workers(rounds: Rounds = 3, work: Work = None) -> None:
    """The same backlog with one and with two workers, far from the stores. Goal: at least 1.5 times as fast."""
    from bench.workers import bench

    bench(rounds, work)


@app.command(epilog="Example: python3 run.py bench kafka --rows 20000")
def kafka(
    rows: Annotated[int, typer.Option("--rows", min=1_000, help="Messages that come at once.")] = 1_000_000,
    work: Work = None,
) -> None:
    """Messages of a Kafka until on main, read directly and buffered, against Iceberg's sink for Kafka Connect.

    Then with a kill of each. Goals of the direct way: at least 1.2 times the sink's rows a second, half of its files at
    most, and no row lost or there twice.
    """
    from bench.kafka import bench

    bench(rows, work)


@app.command(epilog="Example: python3 run.py bench notify --clients 50 --commits 3")
def notify(
    clients: Annotated[int, typer.Option("--clients", min=1, help="Clients that wait, of each kind.")] = 1_000,
    commits: Annotated[int, typer.Option("--commits", min=1, help="Measured commits of each kind.")] = 20,
    nchan: Annotated[
        Path | None, typer.Option("--nchan", help="Measure nchan, too: where Debian's packages were unpacked to.")
    ] = None,
    work: Work = None,
) -> None:
    """A commit on main until each client in eu has its event: sterna follow and serve, against polling each 1.5 s.

    Goals: from the replica commit to 1,000 clients 0.5 s (p99), to 10,000 2 s, at most 1.5 times nchan's; from main to
    a client 1 s (p50).
    """
    from bench.notify import bench

    bench(clients, commits, nchan, work)


@app.command(epilog="Example: python3 run.py bench resume --clients 50 --events 100")
def resume(
    clients: Annotated[int, typer.Option("--clients", min=1, help="Clients that come back at once.")] = 1_000,
    events: Annotated[int, typer.Option("--events", min=1, help="Events that each of them missed.")] = 1_000,
    work: Work = None,
) -> None:
    """Clients that were away come back all at once: until each has every event that it missed.

    Goal: none lost, at most 10 s.
    """
    from bench.resume import bench

    bench(clients, events, work)


@app.command(epilog="Example: python3 run.py bench outlet --target kafka --events 2000 --rounds 1")
def outlet(
    target: Annotated[list[Targets], typer.Option("--target", help="Where to; repeat for more.")] = list(Targets),  # noqa: B006
    events: Annotated[int, typer.Option("--events", min=1, help="Events that wait to be delivered.")] = 10_000,
    tables: Annotated[int, typer.Option("--tables", min=1, help="Tables of each commit.")] = 100,
    rounds: Rounds = 3,
    work: Work = None,
) -> None:
    """An outlet that delivers what waits, against the bare client: a webhook, Kafka, AMQP 1.0. Goal.

    At least 0.8 times its events a second.
    """
    from bench.outlet import bench

    bench([kind.value for kind in target], events, tables, rounds, work)


@app.command(epilog="Example: python3 run.py bench table")
def table() -> None:
    """Update the table of results in bench/README.md."""
    from bench.table import write_table

    write_table()


if __name__ == "__main__":
    isolate()
    app(prog_name="python3 run.py bench")
