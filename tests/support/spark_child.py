"""What the Spark suite does in a process of its own, a master each: a process can have one classic session, and it
stays.

Called with the master, a folder and, where a web UI is to be searched, its address; prints one JSON object at the end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from sterna.errors import EngineError
from sterna.replication.plan import sharded_listing
from sterna.replication.plan.options import SyncOptions
from sterna.replication.sync.run import sync
from sterna.replication.verify.run import verify_structure
from sterna.spark import worker_code as spark_code
from sterna.spark.session import Session, close_session, map_items, open_session
from sterna.spark.start import require_iceberg
from tests.support import spark_jobs
from tests.support.small_world import make_world, with_registry

CANARY = "canary-5d1f"
CONNECTION = json.dumps(
    {
        "conn_type": "aws",
        "login": f"{CANARY}-login",
        "password": f'{CANARY}-${{x}}-"ü"',
        "extra": {"k": f"{CANARY}-extra"},
    }
)
ENVIRONMENT = {"AIRFLOW_CONN_LAKE": CONNECTION}
Trouble = Callable[[str, Callable[[str], str], str], str]


def main(master: str, folder: Path, ui: str) -> dict[str, Any]:
    settings = json.loads(os.environ.get("SPARK_CHILD_SETTINGS", "{}"))
    report: dict[str, Any] = {"master": master}
    report |= {"unfit": _unfit_workers(master) if master.startswith("sc://") else ""}
    session = open_session(master, settings=settings)
    try:
        report |= _results(session)
        report |= _secrets(session, ui)
        report |= _failures(session)
        report["cancelled"] = _cancelled(session, folder)
        report["whole sync"] = _synced(master, folder)
        report["in parts"] = _in_parts(session, folder, spark_jobs.die_once)
        if settings.get("spark.speculation"):
            report["speculated"] = _in_parts(session, folder, spark_jobs.until_done_again)
        report["after"] = map_items(session, spark_jobs.upper, ["still there"])
        if not session.connect:
            report["reused"] = _reused(master, session)
            report["bare"] = _error(lambda: require_iceberg(session.spark))
    finally:
        close_session(session)
    return report


def _unfit_workers(master: str) -> str:
    fit = dict(spark_code.WORKER_PACKAGES)
    spark_code.WORKER_PACKAGES |= {"no_such_package": "no-such-package"}
    try:
        return _error(lambda: open_session(master))
    finally:
        spark_code.WORKER_PACKAGES.clear()
        spark_code.WORKER_PACKAGES.update(fit)


def _results(session: Session) -> dict[str, Any]:
    counts: list[int] = []
    items = [f"item {number}" for number in range(40)]
    return {
        "ordered": map_items(session, spark_jobs.upper, items, on_done=counts.append)
        == [item.upper() for item in items],
        "counts": counts,
        "none": map_items(session, spark_jobs.upper, []),
        "slots": session.slots,
        "two heavy items": map_items(session, spark_jobs.process, ["1", "1"]),
        "later": map_items(session, spark_jobs.process, ["0.2", "0.2"]),
        "sterna": map_items(session, spark_jobs.source_of_sterna, [""])[0],
    }


def _secrets(session: Session, ui: str) -> dict[str, Any]:
    seen: dict[str, int] = {}
    with _searching(seen, ui):
        during = map_items(
            session, spark_jobs.variable, ["AIRFLOW_CONN_LAKE"], environment=ENVIRONMENT, label="localize manifest"
        )
        map_items(session, spark_jobs.process, ["2"], environment=ENVIRONMENT, label="localize manifest")
    return {
        "during": during == [CONNECTION],
        "seen": seen,
        "before and after": map_items(session, spark_jobs.variable, ["AIRFLOW_CONN_LAKE"] * 4, parallelism=4),
        "configuration": CANARY in json.dumps([row.asDict() for row in session.spark.sql("SET").collect()]),
    }


@contextmanager
def _searching(seen: dict[str, int], ui: str) -> Iterator[None]:
    """Search command lines and the web UI while a job with secrets runs: how often the canary was found, by place."""
    ended = threading.Event()

    def search() -> None:
        while not ended.wait(0.3):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    line = path.read_bytes()
                except OSError:
                    continue  # it has ended
                seen["command lines"] = seen.get("command lines", 0) + line.count(CANARY.encode())
            if ui:
                _search_ui(seen, ui)

    thread = threading.Thread(target=search)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _search_ui(seen: dict[str, int], ui: str) -> None:
    application = json.loads(_get(f"{ui}/api/v1/applications"))[0]["id"]
    api = f"/api/v1/applications/{application}"
    for page in (
        f"{api}/environment",
        f"{api}/jobs",
        f"{api}/stages?details=true",
        f"{api}/sql?details=true",
        "/environment/",
        "/SQL/",
    ):
        seen[page.removeprefix(api)] = seen.get(page.removeprefix(api), 0) + _get(ui + page).count(CANARY.encode())


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return bytes(answer.read())


def _failures(session: Session) -> dict[str, Any]:
    return {
        "raised": _error(
            lambda: map_items(session, spark_jobs.fail_with, ["AIRFLOW_CONN_LAKE"], environment=ENVIRONMENT)
        ),
        "died": _error(lambda: map_items(session, spark_jobs.die, [""])),
    }


def _error(call: Callable[[], object]) -> str:
    try:
        call()
    except EngineError as error:
        return str(error)
    return ""


def _cancelled(session: Session, folder: Path) -> dict[str, Any]:
    """Press Ctrl-C when the first of many tasks runs."""
    marks = folder / "marks"
    marks.mkdir()
    items = [json.dumps({"path": str(marks / str(number))}) for number in range(40)]

    def interrupt() -> None:
        while not any(marks.iterdir()):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    interrupted = False
    try:
        map_items(session, spark_jobs.leave_mark, items, parallelism=len(items))
    except KeyboardInterrupt:
        interrupted = True
    map_items(session, spark_jobs.process, ["2"])
    return {"interrupted": interrupted, "items": len(items), "started": len(list(marks.iterdir()))}


def _synced(master: str, folder: Path) -> list[str]:
    """Bring two tables to another region, and localize all that is theirs on the same Spark; return what was told."""
    world = make_world(folder / "world")
    regions = [{**region, "spark": master, "localize": "spark"} for region in world.registry.model_dump()["regions"]]
    world = with_registry(world, regions=regions)
    world.commit(a=[world.write("a") for _ in range(4)][-1], b=world.write("b"))
    lines: list[str] = []
    report = sync(world.context(), SyncOptions(), lines.append)
    assert set(report.published) == {"ns", "ns.a", "ns.b"}, report
    assert verify_structure(world.context()).findings == ()
    return lines


def _in_parts(session: Session, folder: Path, trouble: Trouble) -> dict[str, Any]:
    """Bring a table whose files are listed in parts, while workers have some trouble.

    Returns what the first sync held, what both published, the labels of the jobs, and the trouble's marks.
    """
    sharded_listing.LIMITS = sharded_listing.ShardingLimits(min_manifests=5, max_group_manifests=2)
    marks = folder / f"marks-{trouble.__name__}"
    marks.mkdir()
    world, labels = make_world(folder / f"in-parts-{trouble.__name__}"), list[str]()
    regions = [{**region, "localize": "auto"} for region in world.registry.model_dump()["regions"]]
    world = with_registry(world, regions=regions)
    world.commit(a=[world.write("a") for _ in range(7)][-1], b=world.write("b"))

    def engine(function: Callable[[str], str], items: Sequence[str], label: str) -> list[str]:
        labels.append(label)
        return map_items(session, partial(trouble, str(marks), function), items, label=label)

    reports = [
        sync(world.context(), SyncOptions(files_per_batch=2), lambda line: None, engine=engine) for _ in range(2)
    ]
    assert verify_structure(world.context()).findings == ()
    return {
        "held": [[f"{item.key} {item.kind}" for item in report.held] for report in reports],
        "published": sorted(key for report in reports for key in report.published),
        "copied": sum(report.copied.files for report in reports),
        "labels": sorted(set(labels)),
        "marks": sorted(path.name.partition("-")[0] for path in marks.iterdir()),
    }


def _reused(master: str, session: Session) -> dict[str, Any]:
    other = open_session(master)
    result = map_items(other, spark_jobs.upper, ["other"])
    close_session(other)
    return {"owned": other.owned, "result": result, "first": map_items(session, spark_jobs.upper, ["first"])}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "")))
