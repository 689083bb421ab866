"""How much is run: options, marks by cost, and which tests share a process. docs/testing.md tells how to use it."""

from __future__ import annotations

import atexit
import gc
import signal
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import settings
from xdist.remote import Producer

from sterna.servers.isolation import isolate
from tests.support import authorities, left_out
from tests.support.sharing import SPARK, BySharedServers, group_of, turn_of

isolate()
# 5 seconds, which a busy machine may take; a test that waits for less says so.
httpx._config.DEFAULT_TIMEOUT_CONFIG.read = 60.0
authorities.read_once()
_TESTS = Path(__file__).parent
# Random suites: how much of each is played in every run, with --quick and with --long.
_SIZES: dict[str, tuple[Any, Any, Any]] = {
    "histories": (1, 0, 300),
    "history_minutes": (None, None, 60.0),
    "fuzz_seconds": (20.0, 2.0, 1800.0),
    "poisons": (60, 6, 20_000),
    "simulation_seeds": (100, 10, 20_000),
    "soak_minutes": (0.3, 0.0, 60.0),
    "writer_rounds": (2, 0, 20),
}
# What tests need, by folders and files: the more marks, the dearer. A single test of a file may be marked `slow`, too:
# it starts a process of its own, waits for a limit to pass, or plays a lane for days.
_MARKS = {
    "server": ("integration/", "faults/", "ha/", "airflow/test_dag.py", "airflow/test_hands.py"),
    "spark": (
        "integration/demo/test_demo.py",
        "integration/spark/test_spark.py",
        "faults/test_spark_dies.py",
        "airflow/test_dag.py",
        "airflow/test_hands.py",
    ),
    "airflow": (
        "airflow/",
        "integration/demo/test_demo.py",
        "ha/failover/test_promotion_dag.py",
        "ha/test_site_airflow.py",
    ),
    "regions": (
        "ha/failover/",
        "ha/test_copies.py",
        "ha/test_cutoff.py",
        "ha/test_site_airflow.py",
    ),
    "engines": ("integration/rest_catalog/engines/",),
    "slow": (
        "simulation/test_simulation.py",
        "simulation/test_upgrade.py",
        "unit/airflow/test_dag_runs.py",
        "unit/airflow/test_pages.py",
        "unit/spark/test_pandas_import.py",
        "unit/postgres/test_unresponsive.py",
        "unit/storage/test_unresponsive_store.py",
        "unit/http/test_features_replica.py",
        "unit/http/test_odd_requests.py",
        "unit/gc/test_concurrent_commits.py",
        "unit/iceberg/test_metadata_large.py",
        "unit/sinks/test_kafka_failures.py",
        "unit/queries/test_by_spark.py",
        "unit/queries/test_workers.py",
        "unit/replica/test_many_held.py",
        "unit/sync/plan/test_in_parts.py",
        "unit/sync/test_bulk_complete.py",
        "unit/sync/test_bulk_copy.py",
    ),
    "long": (
        "faults/test_soak.py",
        "integration/sync/test_histories.py",
        "integration/sync/test_writers_at_once.py",
        "simulation/test_compacting.py",
        "simulation/test_rest_catalog.py",
        "simulation/test_seeds.py",
        "unit/iceberg/test_fuzz.py",
        "unit/sync/test_poison_at_random.py",
    ),
}
_TIMEOUT = 900.0
_QUICK_EXAMPLES = 10
_LONG_TIMES = 20  # so many times the examples of a `long` test that has a number of its own
_LEFT_OUT = pytest.StashKey[Mapping[str, int]]()

# A slow machine proves nothing: the first example of a test also pays for its imports.
settings.register_profile("sterna", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=_QUICK_EXAMPLES)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("how much")
    group.addoption("--quick", action="store_true", help="only what needs no server and little time, with few seeds")
    group.addoption("--long", action="store_true", help="only what is random, long or rare: about two hours")
    group.addoption("--engines", action="store_true", help="only engines such as Trino and Flink, unmodified")
    group.addoption("--regions", action="store_true", help="also the rare ways in which regions die (tests/ha)")
    group = parser.getgroup("random suites", "each with its own number; the seed of a failure plays it again")
    group.addoption("--histories", type=int, help="how many random histories to play (1)")
    group.addoption("--history-minutes", type=float, help="start no further history after so many minutes")
    group.addoption("--history-seed", type=int, help="play the history of this seed, and no other")
    group.addoption("--fuzz-seconds", type=float, help="how long to damage files, all kinds together (20)")
    group.addoption("--fuzz-seed", type=int, help="the one file of this seed")
    group.addoption("--poisons", type=int, help="how many tables to poison in whole syncs (60)")
    group.addoption("--simulation-seeds", type=int, help="how many seeds to play (100)")
    group.addoption("--simulation-seed", type=int, help="play this seed, and no other")
    group.addoption("--writer-rounds", type=int, help="how often to let several writers meet in one table (2)")
    group.addoption("--soak-minutes", type=float, help="how long to kill syncs while writers go on (0.3)")


def pytest_configure(config: pytest.Config) -> None:
    """Fill in the sizes that nobody gave, and heed Ctrl-C."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # So a shell starts what it runs in the background, and so the tests' own processes would start.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    settings.load_profile("quick" if config.getoption("quick") else "sterna")
    column = 1 if config.getoption("quick") else 2 if config.getoption("long") else 0
    for name, sizes in _SIZES.items():
        if config.getoption(name) is None:
            setattr(config.option, name, sizes[column])


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name bytes by how many they are: some hold the time of their making, and workers must agree on a test's name."""
    return f"{len(val)} bytes" if isinstance(val, bytes) else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    dear = _MARKS["server"] + _MARKS["airflow"] + _MARKS["slow"]
    return True if config.getoption("quick") and _path(collection_path).startswith(dear) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Spare the garbage collector what stays until the end: modules, and the tests themselves.

    It looks at all of them again and again while they are imported, and later in each of its full passes.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        atexit.register(gc.unfreeze)  # DuckDB tells of all that a process leaves behind


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        _mark(item)
        if config.getoption("quick"):
            _limit_examples(item)
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.timeout(_TIMEOUT + _seconds_asked_for(config)))
    long = config.getoption("long")
    if long:
        _play_more_examples([item for item in items if item.get_closest_marker("long")])
    refused = {"slow"} if config.getoption("quick") else set()
    regions, engines = config.getoption("regions"), config.getoption("engines")
    wanted = {item: _is_wanted(item, long=long, regions=regions, engines=engines, refused=refused) for item in items}
    unwanted = [item for item in items if not wanted[item]]
    config.hook.pytest_deselected(items=unwanted)
    quick = config.getoption("quick")
    reasons = (left_out.why_not(_names(item), quick=quick, long=long, engines=engines) for item in unwanted)
    _record_left_out(config, Counter(reasons))
    items[:] = [item for item in items if wanted[item]]
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: turn_of(_path(item.path)))


def _record_left_out(config: pytest.Config, counts: Mapping[str, int]) -> None:
    # Of processes that share a run's tests each collects all of them: the one that tells people asks any other.
    if hasattr(config, "workeroutput"):
        config.workeroutput["left_out"] = dict(counts)
    else:
        config.stash[_LEFT_OUT] = dict(counts)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    counts = getattr(node, "workeroutput", {}).get("left_out")
    if counts is not None:
        node.config.stash[_LEFT_OUT] = counts


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was not run, and why."""
    reports = terminalreporter.stats.get("skipped", [])
    reasons = [report.longrepr[2].removeprefix("Skipped: ") for report in reports if isinstance(report.longrepr, tuple)]
    whole = config.args_source is not pytest.Config.ArgsSource.ARGS and not (
        config.option.keyword or config.option.markexpr
    )
    lines = left_out.lines(
        reasons,
        config.stash.get(_LEFT_OUT, {}),
        whole=whole,
        quick=config.getoption("quick"),
        long=config.getoption("long"),
        engines=config.getoption("engines"),
    )
    if lines:
        terminalreporter.section("what was not run")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> BySharedServers | None:
    return BySharedServers(config, log) if config.getoption("dist") == "loadfile" else None


def _is_wanted(item: pytest.Item, *, long: bool, regions: bool, engines: bool, refused: set[str]) -> bool:
    marks = _names(item)
    if marks & refused:
        return False
    if engines or "engines" in marks:
        return engines and "engines" in marks
    if regions and "regions" in marks:
        return True
    return bool(marks & {"long", "regions", "rare"}) if long else "rare" not in marks


def _names(item: pytest.Item) -> set[str]:
    return {mark.name for mark in item.iter_markers()}


def _mark(item: pytest.Item) -> None:
    """Say what a test costs."""
    path = _path(item.path)
    for mark, places in _MARKS.items():
        if path.startswith(places):
            item.add_marker(mark)
    if "spark" in getattr(item, "fixturenames", ()):
        item.add_marker("spark")
        if group_of(path) not in SPARK:
            raise pytest.UsageError(f"{path} uses the Spark that tests share: name it in tests/support/sharing.py")


def _limit_examples(item: pytest.Item) -> None:
    """Let `--quick` also play few examples where a test has a number of its own."""
    test = _function_of(item)
    own = getattr(test, "_hypothesis_internal_use_settings", None)
    if own is not None and own.max_examples > _QUICK_EXAMPLES:
        test._hypothesis_internal_use_settings = settings(own, max_examples=_QUICK_EXAMPLES)


def _play_more_examples(items: Collection[pytest.Item]) -> None:
    """Let `--long` play many examples where a test has a number of its own."""
    for test in {_function_of(item) for item in items}:  # which a test's cases share
        own = getattr(test, "_hypothesis_internal_use_settings", None)
        if own is not None:
            test._hypothesis_internal_use_settings = settings(own, max_examples=_LONG_TIMES * own.max_examples)


def _function_of(item: pytest.Item) -> Any:
    return getattr(getattr(item, "obj", None), "__func__", getattr(item, "obj", None))


def _path(path: Path) -> str:
    """Return a path below tests/ as the tables above name it, a folder's with a slash at its end."""
    if not path.is_relative_to(_TESTS):
        return ""
    return path.relative_to(_TESTS).as_posix() + ("/" if path.is_dir() else "")


def _seconds_asked_for(config: pytest.Config) -> float:
    """Return how long a single random test may go on by what was asked for."""
    option = config.option
    return max(60 * option.soak_minutes, option.fuzz_seconds, option.poisons / 2, option.simulation_seeds / 10)
