"""How a flow is told to be, whatever ends its steps: the kind is a status that stays green while nothing comes.

What ends a step: an error of sterna's, one that nobody foresaw, a time limit (no `Exception`), a SIGKILL, and what
comes before there is any work: a catalog that the worker alone can't reach. What hides it: a try that is at work, a
record of another version, a damaged one, a clean-up (`tests/unit/gc/test_decide.py`), a clock that is wrong, a flow
whose SQL is gone, here or at the worker, or was changed since, and another flow's trouble.

A rebuild falls under it, whatever state its flow is in: behind, up to date, or stopped for what the rebuild would cure.

The other way round falls under it, too: an alarm of what is long over, which comes back with the next row.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from sterna.config.registry.folders import TRANSFORMS, state_folder
from sterna.config.sections.transforms import Transform
from sterna.errors import (
    CatalogUnreachable,
    EngineError,
    FlowError,
    Gap,
    ServicesError,
    StepUnfinished,
    SternaError,
    StoreUnreachable,
)
from sterna.pipelines.publish.model import SnapshotState, Step, TableState, transform_channel
from sterna.pipelines.transforms import rebuild as rebuilding
from sterna.pipelines.transforms import status as told_status
from sterna.pipelines.transforms import step as stepping
from sterna.pipelines.transforms.decide import is_sql_changed, with_sql_digest
from sterna.pipelines.transforms.failure import read_failure, rebuild_in_progress, step_in_progress, write_failure
from sterna.pipelines.transforms.rebuild import rebuild
from sterna.pipelines.transforms.run import run_transforms
from sterna.pipelines.transforms.status import read_transform_statuses
from sterna.pipelines.transforms.step import StepSummary, TransformReconciler
from sterna.pipelines.transforms.step_context import TransformSpark
from sterna.runtime.reconciler import Idle, reconcile
from sterna.runtime.status import ReconcilerStatus
from tests.support.small_world import World, make_world, run

SQL = "SELECT id FROM changes"


def flow(sql: str = SQL) -> Transform:
    settings = {"name": "dwd", "from": "ns.ods", "into": "ns.dwd", "mode": "append", "sql": sql, "every": "30s"}
    return Transform.model_validate(settings)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A source that a region has, and an empty target."""
    prepared = make_world(tmp_path)
    schema = pa.schema([("id", pa.int64())])
    prepared.write("ods")
    prepared.writer.create_table(("ns", "dwd"), schema, location=f"file://{tmp_path}/us/lake/dwd")
    prepared.commit(**{name: prepared.writer.load_table(("ns", name)).metadata_location for name in ("ods", "dwd")})
    run(prepared)
    return prepared


def status(
    world: World, which: Transform | None = None, minutes: float = 0.0, folder: Path = Path()
) -> ReconcilerStatus:
    now = datetime.now(UTC) + timedelta(minutes=minutes)
    return read_transform_statuses(world.context(), [which or flow()], folder, now=now)[0]


class FailingContext:
    """A Spark that ends each step in some way."""

    def __init__(self, ends: BaseException) -> None:
        self.ends = ends

    @contextmanager
    def open_step(self, *_: object) -> Iterator[None]:
        raise self.ends
        yield


def take_step(world: World, ends: BaseException) -> StepSummary | Idle:
    spark = cast(TransformSpark, FailingContext(ends))
    return reconcile(TransformReconciler(world.context, flow(), lambda: SQL, spark))


def fail(world: World, ends: BaseException) -> None:
    with pytest.raises(type(ends)):
        take_step(world, ends)


class TimeLimit(BaseException):
    """As Airflow's is no `Exception`."""


@pytest.mark.parametrize("ends", [ZeroDivisionError("x / 0"), TimeLimit("1 h"), KeyboardInterrupt(), EngineError("no")])
def test_whatever_ends_a_step_is_told(world: World, ends: BaseException) -> None:
    assert (status(world).message, status(world).exit_code) == ("behind", 0)
    fail(world, ends)
    shown = status(world)
    assert shown.lag == 1
    assert shown.exit_code != 0
    assert shown.message.startswith("failed at ")
    assert f"{type(ends).__name__}: {ends}" in shown.message


def test_a_message_that_nobody_foresaw_is_told_without_secrets(world: World) -> None:
    message = (
        "GET https://ann:hunter2@nessie:19120/api?sig=s3cr3t, {'password': 'hunter3', \"secret_key\": \"hunter4\"} "
        "aws.secretAccessKey=hunter5 token: hunter6 Authorization: Bearer hunter7 eyJhbGciOi.hunter8.x\x1b[2J"
    )
    fail(world, ValueError(message))
    failure = read_failure(world.context(), "dwd", "")
    assert failure is not None
    for secret in ("hunter", "s3cr3t", "\x1b"):
        assert secret not in failure.reason
    assert "https://nessie:19120/api" in failure.reason


def test_since_when_it_fails_is_told(world: World) -> None:
    fail(world, ValueError("first"))
    first = read_failure(world.context(), "dwd", "")
    fail(world, KeyError("second"))
    last = read_failure(world.context(), "dwd", "")
    assert first is not None and last is not None
    assert (last.kind, last.since) == ("KeyError", first.at)
    assert last.at > first.at


def fail_to_inspect(world: World, monkeypatch: pytest.MonkeyPatch, error: SternaError) -> None:
    def unreachable(*_: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(stepping, "read_transform_state", unreachable)
        fail(world, error)


def test_a_failure_before_there_is_work_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker's catalog may be dark, and that of whoever asks be well."""
    fail_to_inspect(world, monkeypatch, StoreUnreachable("dark"))
    assert "StoreUnreachable: dark" in status(world).message
    assert status(world).exit_code == StoreUnreachable.exit_code
    # The next step has read the mark: once it has come further, nothing of that is left.
    fail(world, ValueError("later"))
    assert read_failure(world.context(), "dwd", "7") is None


def idle(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(stepping, "next_step", lambda *_: Idle("up to date"))
        assert take_step(world, ValueError()) == Idle("up to date")


def test_a_catalog_that_was_away_is_no_alarm_once_a_step_had_nothing_to_do(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_to_inspect(world, monkeypatch, CatalogUnreachable("dark"))
    assert status(world).exit_code == CatalogUnreachable.exit_code
    idle(world, monkeypatch)
    assert (status(world, minutes=7200).message, status(world).exit_code) == ("behind", 0)


def test_a_failure_that_the_flow_has_passed_hides_no_catalog_that_is_away(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_failure(world.context(), "dwd", "7", ValueError("long over"))
    idle(world, monkeypatch)
    fail_to_inspect(world, monkeypatch, CatalogUnreachable("dark"))
    assert "CatalogUnreachable: dark" in status(world).message
    fail(world, ValueError("at this mark"))
    idle(world, monkeypatch)
    assert "ValueError: at this mark" in status(world).message, "it stays while its mark does"
    with step_in_progress(world.context(), "dwd", ""):
        pass  # a step that ends well
    fail_to_inspect(world, monkeypatch, CatalogUnreachable("dark"))
    assert "CatalogUnreachable: dark" in status(world).message


def test_a_catalog_that_is_away_takes_no_failure_with_a_mark_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(world, ValueError("broken"))
    first = read_failure(world.context(), "dwd", "")
    fail_to_inspect(world, monkeypatch, CatalogUnreachable("dark"))
    assert read_failure(world.context(), "dwd", "") == first
    with step_in_progress(world.context(), "dwd", ""):
        assert "ValueError: broken" in status(world).message


KILLED = """
import os, signal, sys
from pathlib import Path
from sterna.pipelines.transforms.failure import step_in_progress
from sterna.config.registry.model import Registry
from tests.support.regions import injected
registry = Registry.model_validate_json(Path(sys.argv[1]).read_text())
with step_in_progress(injected(registry, "eu", None, catalog=None, primary=None), "dwd", ""):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(world: World, script: str) -> None:
    registry_file = world.folder / "registry.json"
    registry_file.write_text(world.registry.model_dump_json())
    ended = subprocess.run(
        [sys.executable, "-c", script, str(registry_file)], cwd=Path(__file__).parents[3], timeout=120
    )
    assert ended.returncode == -9


def test_a_step_that_was_killed_does_not_look_well(world: World) -> None:
    killed(world, KILLED)
    shown = status(world)
    assert shown.message.startswith("a step is at work since ")
    shown = status(world, minutes=3)
    assert "StepUnfinished: the step that began at" in shown.message
    assert "its process was killed" in shown.message
    assert shown.exit_code == StepUnfinished.exit_code
    # A clock that is far behind proves no sign of life.
    assert status(world, minutes=-60).exit_code == StepUnfinished.exit_code
    # The next step takes no word of it back while it is at work, and is told where it fails.
    with step_in_progress(world.context(), "dwd", ""):
        assert "StepUnfinished" in status(world, minutes=3).message
    fail(world, ValueError("again"))
    assert "ValueError: again" in status(world).message


def fail_to_rebuild(world: World, ends: BaseException) -> None:
    with pytest.raises(type(ends)):
        rebuild(world.context(), flow(), SQL, FailingContext(ends), act=True)  # type: ignore[arg-type]


def up_to_date(*_: object) -> Idle:
    return Idle("up to date")


def expired(*_: object) -> Idle:
    raise Gap("it is not kept")


REBUILT = {
    None: ("", EngineError.exit_code),
    up_to_date: ("up to date; ", EngineError.exit_code),
    expired: ("Gap: it is not kept; ", Gap.exit_code),
}


@pytest.mark.parametrize("ends", [ZeroDivisionError("x / 0"), TimeLimit("1 h"), KeyboardInterrupt(), EngineError("no")])
@pytest.mark.parametrize("decided", REBUILT)
def test_whatever_ends_a_rebuild_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch, decided: Any, ends: BaseException
) -> None:
    if decided:
        monkeypatch.setattr(told_status, "next_step", decided)
    fail_to_rebuild(world, ends)
    shown = status(world)
    begin, code = REBUILT[decided]
    assert shown.message.startswith(f"{begin}the rebuild failed at ")
    assert f"{type(ends).__name__}: {ends}" in shown.message
    assert shown.exit_code == code
    # A step that has nothing to do takes no word of it back; one that ends well does.
    idle(world, monkeypatch)
    assert "the rebuild failed" in status(world).message
    with step_in_progress(world.context(), "dwd", ""):
        assert "the rebuild failed" in status(world).message
    assert "rebuild" not in status(world).message


def test_a_rebuild_that_was_not_begun_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object) -> None:
        raise CatalogUnreachable("dark")

    with monkeypatch.context() as patched:
        patched.setattr(rebuilding, "read_transform_state", unreachable)
        for act in (False, True):
            with pytest.raises(CatalogUnreachable):
                rebuild(world.context(), flow(), SQL, FailingContext(ValueError()), act=act)  # type: ignore[arg-type]
            assert ("the rebuild failed" in status(world).message) is act


def test_a_rebuild_says_that_it_is_at_work_in_the_place_of_what_it_cures(world: World) -> None:
    fail(world, ValueError("broken"))
    with rebuild_in_progress(world.context(), "dwd", "") as moved:
        assert (status(world).message[:26], status(world).exit_code) == ("a rebuild is at work since", 0)
        assert "StepUnfinished: the rebuild that began at" in status(world, minutes=3).message
        assert status(world, minutes=3).exit_code == StepUnfinished.exit_code
        moved("rebuilding/1")
        failure = read_failure(world.context(), "dwd", "rebuilding/1")
        assert failure is not None and failure.rebuild
    assert (status(world).message, status(world).exit_code) == ("behind", 0)


def test_a_rebuild_that_was_killed_does_not_look_well(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(world, KILLED.replace("step_in_progress", "rebuild_in_progress"))
    for decided in (up_to_date, expired):
        monkeypatch.setattr(told_status, "next_step", decided)
        shown = status(world, minutes=3)
        assert "; StepUnfinished: the rebuild that began at" in shown.message
        assert shown.exit_code in (StepUnfinished.exit_code, Gap.exit_code)


def test_what_cannot_be_read_is_no_alarm_for_ever(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    context = world.context()
    context.objects.overwrite(f"{state_folder(context.region.replica_root, TRANSFORMS)}/dwd.json", b"{")
    monkeypatch.setattr(told_status, "next_step", up_to_date)
    assert status(world).exit_code == FlowError.exit_code
    idle(world, monkeypatch)
    assert (status(world).message, status(world).exit_code) == ("up to date", 0)


def test_a_failure_stays_while_the_next_try_is_at_work(world: World) -> None:
    fail(world, ValueError("broken"))
    with step_in_progress(world.context(), "dwd", ""):
        assert "ValueError: broken" in status(world).message
    with step_in_progress(world.context(), "dwd", "7"):
        assert read_failure(world.context(), "dwd", "") is None


NEWER: dict[str, Any] = {"version": 2, "flow": "dwd", "failures": []}
WHOLE = {"at": "2026-11-01T00:00:00+00:00", "mark": "", "kind": "Gap", "reason": "gone", "exit_code": 6}


@pytest.mark.parametrize("written", [b"", b"{", json.dumps(NEWER).encode(), json.dumps(WHOLE | {"more": 1}).encode()])
def test_what_cannot_be_read_is_no_good_news(world: World, written: bytes) -> None:
    context = world.context()
    context.objects.overwrite(f"{state_folder(context.region.replica_root, TRANSFORMS)}/dwd.json", written)
    shown = status(world)
    assert "FlowError: whether the last step of transform dwd failed is unknown" in shown.message
    assert shown.exit_code == FlowError.exit_code
    fail(world, ValueError("anew"))  # and the next step cures the file
    assert "ValueError: anew" in status(world).message


def test_what_an_older_sterna_wrote_is_read(world: World) -> None:
    context = world.context()
    context.objects.overwrite(
        f"{state_folder(context.region.replica_root, TRANSFORMS)}/dwd.json",
        json.dumps(WHOLE | {"exit_code": 0}).encode(),
    )
    shown = status(world)
    assert shown.message == "failed at 2026-11-01 00:00:00 UTC: Gap: gone"
    assert shown.exit_code != 0  # a failure is none that ends with 0, whatever it says


def test_sql_that_is_gone_is_told(world: World, tmp_path: Path) -> None:
    named = flow("dwd.sql")
    shown = status(world, named, folder=tmp_path)
    assert "ServicesError: transform dwd: can't read dwd.sql" in shown.message
    assert shown.exit_code == ServicesError.exit_code
    (tmp_path / "dwd.sql").write_text(SQL)
    assert status(world, named, folder=tmp_path).exit_code == 0
    (tmp_path / "dwd.sql").write_text(" ")
    assert "is empty" in status(world, named, folder=tmp_path).message


def test_sql_that_the_worker_alone_cannot_read_is_told(world: World, tmp_path: Path) -> None:
    """Whoever asks may have the file; a failure that the flow has passed is in the way of nothing."""
    (tmp_path / "dwd.sql").write_text(SQL)
    named = flow("dwd.sql")
    write_failure(world.context(), "dwd", "7", ValueError("long over"))
    summary = run_transforms(world.context, [named], tmp_path / "elsewhere", print)
    assert (summary.stopped, summary.exit_code) == (("dwd",), ServicesError.exit_code)
    shown = status(world, named, folder=tmp_path)
    assert "ServicesError: transform dwd: can't read dwd.sql" in shown.message
    assert (shown.lag, shown.exit_code) == (1, ServicesError.exit_code)


def test_sql_that_was_changed_since_the_last_rows_is_told() -> None:
    step_id = with_sql_digest(Step("flow.all.dwd/start-7", transform_channel("dwd"), "7"), flow(), SQL).id
    compacted = SnapshotState(3, 2, operation="replace")
    for rows in (SnapshotState(2, 1, wap_id=step_id), SnapshotState(2, 1, published_wap_id=step_id)):
        target = TableState((SnapshotState(1, None), rows, compacted), 3, {})
        assert not is_sql_changed(flow(), target, SQL)
        assert is_sql_changed(flow(), target, f"{SQL} WHERE id > 3")
        assert is_sql_changed(flow().model_copy(update={"name": "dw"}), target, "x") is False
    assert not is_sql_changed(flow(), replace(target, snapshots=()), "x")


def test_what_nobody_foresaw_of_one_flow_hides_no_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def odd(context: object, which: Transform) -> object:
        if which.name == "odd":
            raise KeyError("snapshots")
        return read_real_state(context, which)  # type: ignore[arg-type]

    read_real_state = told_status.read_transform_state
    monkeypatch.setattr(told_status, "read_transform_state", odd)
    others = [flow().model_copy(update={"name": "odd"}), flow()]
    first, second = read_transform_statuses(world.context(), others, Path())
    assert first.message == "KeyError: 'snapshots'"
    assert first.exit_code == EngineError.exit_code
    assert (second.message, second.exit_code) == ("behind", 0)
