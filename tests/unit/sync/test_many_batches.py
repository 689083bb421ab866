"""A copy of many batches: how far all of it is, what a kill in the middle costs, and tables that are whole before it
ends.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from sterna.errors import StoreDenied
from sterna.replication.execution.copy import CopyProgress
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica import progress
from sterna.replication.replica.bulk_state import read_bulk_state
from sterna.replication.replica.model import CopyBatch, StageReport
from sterna.replication.replica.progress import ProgressLine, throttled
from sterna.replication.replica.run_folder import load_files, load_plan
from sterna.replication.sync import stages
from sterna.replication.sync.copy_progress import RunProgress, format_duration, read_run_progress
from sterna.replication.sync.run import sync
from sterna.replication.verify.run import verify_structure
from sterna.storage import objects
from tests.support.patching import replace_functions
from tests.support.small_world import World, here, quiet
from tests.unit.sync.test_bulk_copy import LARGE, SMALL, moving, small, with_lanes

ROUND = SyncOptions(lane="large", files_per_batch=1)

# Another process: it copies all batches of a run, and tells of each that is done.
_COPY = """
import sys
from sterna.errors import CredentialError
from sterna.config.registry.model import Registry
from sterna.replication.replica.region import RegionContext
from sterna.replication.sync import stages

def no_secrets(name):
    raise CredentialError(name)

registry = Registry.model_validate_json(sys.stdin.read())
context = RegionContext.of(registry, registry.region("eu"), no_secrets)
for number in range(int(sys.argv[2])):
    stages.copy(context, sys.argv[1], number, lambda line: None)
    print(number, flush=True)
"""


@pytest.fixture
def two(world: World) -> World:
    """A table that is large, and one that is larger, of three files; both in transit."""
    world = with_lanes(world)
    world.commit(aaa=[world.write("aaa", LARGE) for _ in range(3)][-1])
    world.commit(zzz=world.write("zzz", LARGE))
    small(world)
    assert set(moving(world)) == {"ns.aaa", "ns.zzz"}
    return world


def test_a_table_is_published_while_a_larger_one_is_still_on_its_way(two: World):
    planned = stages.plan(two.context(), ROUND, quiet)
    assert [batch.files for batch in planned.batches] == [1, 1, 1, 1]
    copied = stages.copy(two.context(), planned.run, 0, quiet)
    assert copied.here == ("ns.zzz",), "what is small comes first"
    report = small(two)
    assert (report.published, report.copied.sent) == (("ns.zzz",), 0)
    assert set(moving(two)) == {"ns.aaa"}
    for batch in planned.batches[1:]:
        copied += stages.copy(two.context(), planned.run, batch.number, quiet)
    assert copied.here == ("ns.zzz",), "of the last one the end of the round tells"
    localized = stages.localize(two.context(), planned.run, copied, quiet, here)
    files = load_files(two.context(), planned.run).column("table").to_pylist()
    assert localized.files == files.count("ns.aaa") < len(files), "the small lane has localized the other"
    stages.finish_bulk(two.context(), planned.run, copied, localized, quiet)
    assert small(two).published == ("ns.aaa",)
    assert verify_structure(two.context()).findings == ()


def test_a_sync_of_everything_publishes_each_table_as_soon_as_it_is_here(two: World):
    lines: list[str] = []
    report = sync(two.context(), SyncOptions(files_per_batch=1), lines.append, engine=here)
    assert set(report.published) == {"ns.aaa", "ns.zzz"}
    assert (report.held, report.transit) == ((), ())
    steps = [line.partition(":")[0] for line in lines if line.startswith(("published", "copied", "copying"))]
    copying = [f"copying batch {number} of 4 from us-lake" for number in range(1, 5)]
    assert steps == [copying[0], "published", *copying[1:], "copied", "published"]
    assert verify_structure(two.context()).findings == ()


def test_what_moves_together_is_whole_together(world: World):
    world = with_lanes(world)
    world.commit(a=world.write("a"))
    small(world)
    world.commit(x=world.write("x", LARGE), y=[world.write("y", LARGE) for _ in range(2)][-1])
    world.commit(z=[world.write("z", LARGE) for _ in range(5)][-1])
    small(world)
    planned = stages.plan(world.context(), ROUND, quiet)
    reports = [stages.copy(world.context(), planned.run, number, quiet) for number in range(3)]
    assert [report.here for report in reports] == [(), (), ("ns.x", "ns.y")]
    assert set(small(world).published) == {"ns.x", "ns.y"}


def test_a_table_that_could_not_be_brought_is_not_whole(two: World):
    planned = stages.plan(two.context(), ROUND, quiet)
    (data,) = (two.folder / "us/lake/zzz").rglob("*.parquet")
    data.unlink()
    assert stages.copy(two.context(), planned.run, 0, quiet).here == ()
    assert stages.copy(two.context(), planned.run, 1, quiet).here == ()
    assert set(moving(two)) == {"ns.aaa", "ns.zzz"}


@pytest.fixture
def neighbours(world: World) -> World:
    """Two tables whose files are copied by one batch, and a larger one; all in transit."""
    world = with_lanes(world)
    world.commit(zzz=[world.write("zzz", LARGE) for _ in range(3)][-1])
    for name in ("aaa", "bbb"):
        world.commit(**{name: world.write(name, LARGE)})
    small(world)
    assert set(moving(world)) == {"ns.aaa", "ns.bbb", "ns.zzz"}
    (data,) = (world.folder / "us/lake/aaa").rglob("*.parquet")
    data.unlink()
    return world


def test_a_table_whose_file_is_gone_holds_up_none_that_is_copied_by_the_same_batch(neighbours: World):
    context = neighbours.context()
    planned = stages.plan(context, replace(ROUND, files_per_batch=2), quiet)
    assert [batch.files for batch in planned.batches] == [2, 1, 2]
    for _ in range(2):  # also where the task is done again
        copied = stages.copy(context, planned.run, 0, quiet)
        assert (copied.here, [item.kind for item in copied.failed]) == (("ns.bbb",), ["SourceGone"])
    assert small(neighbours).published == ("ns.bbb",)
    copied = sum((stages.copy(context, planned.run, number, quiet) for number in (1, 2)), copied)
    assert copied.here == ("ns.bbb",)
    stages.finish_bulk(context, planned.run, copied, stages.localize(context, planned.run, copied, quiet, here), quiet)
    report = small(neighbours)
    assert report.published == ("ns.zzz",)
    assert [(item.key, item.kind) for item in report.held] == [("ns.aaa", "SourceGone")]
    assert verify_structure(context).findings == ()


def test_what_a_batch_could_not_copy_is_known_until_it_could(neighbours: World):
    context = neighbours.context()
    planned = stages.plan(context, replace(ROUND, files_per_batch=1), quiet)
    data = neighbours.folder / "us/lake/aaa"
    assert [stages.copy(context, planned.run, number, quiet).here for number in range(2)] == [(), ("ns.bbb",)]
    plan = load_plan(context, planned.run)
    whole = read_run_progress(context, planned.run, plan)
    assert (whole.done, whole.finished, whole.failed_tables) == ({1}, {0, 1}, {"ns.aaa"})
    (row,) = [row for row in _rows(neighbours, planned.run, 0) if "aaa" in row["source"]]
    Path(row["source"].removeprefix("file://")).write_bytes(b"x" * row["size"])
    assert data.exists()
    assert stages.copy(context, planned.run, 0, quiet).failed == ()
    whole = read_run_progress(context, planned.run, plan)
    assert (whole.done, whole.failed_tables) == ({0, 1}, set())


def test_what_moves_together_with_a_table_whose_file_is_gone_waits_for_it(neighbours: World):
    neighbours.commit(aaa=neighbours.write("aaa"), bbb=neighbours.write("bbb"))
    small(neighbours)
    planned = stages.plan(neighbours.context(), replace(ROUND, files_per_batch=4), quiet)
    assert [batch.files for batch in planned.batches] == [4, 3]
    assert stages.copy(neighbours.context(), planned.run, 0, quiet).here == ()


def test_a_table_that_is_whole_and_grew_much_meanwhile_stays_in_transit(two: World):
    planned = stages.plan(two.context(), ROUND, quiet)
    assert stages.copy(two.context(), planned.run, 0, quiet).here == ("ns.zzz",)
    two.commit(zzz=two.write("zzz", LARGE))
    assert small(two).published == ()
    assert set(moving(two)) == {"ns.aaa", "ns.zzz"}
    bulk_state = read_bulk_state(two.context().objects, two.context().region)
    assert bulk_state is not None
    assert [bulk_state.is_copying(item) for item in moving(two).values()] == [True, False]


def test_each_batch_tells_how_far_all_of_them_are(two: World):
    planned = stages.plan(two.context(), ROUND, quiet)
    lines: list[object] = []
    for batch in planned.batches:
        stages.copy(two.context(), planned.run, batch.number, lines.append)
    progress = [line for line in lines if isinstance(line, ProgressLine)]
    steps = [line for line in progress if line.is_step]
    assert [re.findall(r"batch (\d) of 4, (\d) done: (\d) of 4 files", line) for line in steps] == [
        [(str(number), str(number), str(number))] for number in range(1, 5)
    ]
    shares = [line.fraction for line in progress]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_marks_that_can_not_be_written_stop_no_copy(two: World):
    planned = stages.plan(two.context(), ROUND, quiet)
    with (
        patch.object(objects.Objects, "overwrite", side_effect=StoreDenied("no")),
        patch.object(objects.Objects, "list", side_effect=StoreDenied("no")),
    ):
        reports = [stages.copy(two.context(), planned.run, batch.number, quiet) for batch in planned.batches]
    assert sum(report.files for report in reports) == 4


def test_a_run_of_one_batch_leaves_no_marks(world: World):
    world.commit(a=world.write("a"))
    planned = stages.plan(world.context(), SyncOptions(), quiet)
    stages.copy(world.context(), planned.run, 0, quiet)
    assert not list((world.folder / "eu/replica/_sterna/runs").rglob("copied"))


@pytest.mark.slow
def test_a_killed_copy_of_many_batches_sends_nothing_again_that_arrived(two: World):
    planned = stages.plan(two.context(), ROUND, quiet)
    command = [sys.executable, "-c", _COPY, planned.run, "4"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin and child.stdout
    child.stdin.write(two.registry.model_dump_json())
    child.stdin.close()
    while child.stdout.readline().strip() != "1":
        assert child.poll() is None
    child.kill()
    child.wait()
    child.stdout.close()
    root = two.folder / "eu/replica/us-lake"
    sizes = {row["target"]: row["size"] for number in range(4) for row in _rows(two, planned.run, number)}
    arrived = {path: path.stat() for path in root.rglob("*.parquet") if path.stat().st_size == sizes[path.as_uri()]}
    assert len(arrived) >= 2
    copied = sum((stages.copy(two.context(), planned.run, number, quiet) for number in range(4)), StageReport())
    assert (copied.files, copied.failed) == (4, ())
    assert copied.sent == sum(sizes.values()) - sum(stat.st_size for stat in arrived.values())
    assert all(path.stat().st_mtime_ns == stat.st_mtime_ns for path, stat in arrived.items())
    localized = stages.localize(two.context(), planned.run, copied, quiet, here)
    stages.finish_bulk(two.context(), planned.run, copied, localized, quiet)
    assert set(sync(two.context(), SMALL, quiet, engine=here).published) == {"ns.aaa", "ns.zzz"}


def _rows(world: World, run: str, number: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = load_files(world.context(), run, batch=number).to_pylist()
    return rows


def test_how_long_the_rest_takes_is_told_by_all_tasks_together():
    batches = tuple(CopyBatch(number, "us-lake", 100, 1_000_000_000) for number in range(4))
    whole = RunProgress(batches)
    now = CopyProgress(50, 500_000_000, 100, 1_000_000_000)
    assert whole.progress_line(0) == "batch 1 of 4, 0 done: 0 of 400 files, 0 B of 4 GB are here, 0 %"
    assert whole.progress_line(0, now, 60.0).endswith(
        "50 of 400 files, 500 MB of 4 GB are here, 12 %, about 7 min left"
    )
    # Two other tasks were done within 100 s: 20 MB a second.
    others = replace(whole, done=frozenset({1, 2}), seconds=100.0)
    assert others.progress_line(0, now, 60.0).endswith(
        "2 done: 250 of 400 files, 2.5 GB of 4 GB are here, 62 %, about 1 min 15 s left"
    )
    assert others.with_batch(0).with_batch(3).progress_line(3).endswith("4 GB of 4 GB are here, 100 %")
    alone = RunProgress(batches[:1]).progress_line(0, now, 60.0)
    assert alone == "50 of 100 files, 500 MB of 1 GB are here, 50 %, about 1 min left"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "1 s"), (59.9, "59 s"), (60, "1 min"), (7_800, "2 h 10 min"), (90_000, "1 d 1 h"), (10**9, "11574 d 1 h")],
)
def test_durations_are_for_people(seconds: float, text: str):
    assert format_duration(seconds) == text


def test_a_log_shows_how_far_it_is_now_and_then_and_each_step(monkeypatch: pytest.MonkeyPatch):
    clock = [0.0]
    replace_functions(monkeypatch, progress, time, monotonic=lambda: clock[0])
    shown: list[str] = []
    show = throttled(shown.append, 10.0)
    for second in range(30):
        clock[0] = float(second)
        show(ProgressLine(f"at {second}", 0.5, is_step=second == 25))
    show("a line")
    assert shown == ["at 10", "at 20", "at 25", "a line"]
