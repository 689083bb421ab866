"""A region's own storage that has no room left, before each stage and for real."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from sterna.errors import EngineError, Remedy, SternaError
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.model import StageReport
from sterna.replication.replica.region import RegionContext
from sterna.replication.sync import stages
from tests.faults.test_network import faulty, new_data
from tests.support.faults.pair import BRANCH, Pair
from tests.support.faults.proxy import Proxy, full

_STAGES = ("plan", "copy", "localize", "publish")
_MAX_FILE_BYTES = 600  # bytes a file: no Parquet file is so small


def strike_before(context: RegionContext, proxy: Proxy, stage: str) -> None:
    """Sync stage by stage; before one of them the store becomes full."""
    run, reports = "", [StageReport(), StageReport()]
    for name in _STAGES:
        if name == stage:
            proxy.strike(full)
        if name == "plan":
            run = stages.plan(context, SyncOptions(), lambda line: None).run
        elif name == "copy":
            reports[0] = stages.copy(context, run, 0, lambda line: None)
        elif name == "localize":
            reports[1] = stages.localize(context, run, reports[0], lambda line: None)
        else:
            stages.publish(context, run, *reports, lambda line: None)


@pytest.mark.parametrize("stage", _STAGES)
def test_a_store_without_room_is_told_and_a_later_run_goes_on(pair: Pair, stage: str) -> None:
    new_data(pair)
    before, mark = pair.catalog.reference(BRANCH).hash, len(pair.stage.endpoints["eu"].requests())
    with faulty(pair, "eu") as (context, proxy):
        with pytest.raises(SternaError, match=r"507 Insufficient Storage|InsufficientStorage") as caught:
            strike_before(context, proxy, stage)
        nothing_sent_again = pair.nothing_sent_again(mark)
        assert caught.value.remedy is Remedy.RETRY
        # Only the report comes after the commit, and it is evidence.
        assert (pair.catalog.reference(BRANCH).hash == before) == (stage != "publish")
        proxy.heal()
        assert pair.sync(context).held == ()
    assert pair.copied(mark) and nothing_sent_again()
    pair.assert_equal()


@contextmanager
def no_room(pair: Pair, region: str) -> Iterator[None]:
    """Let a region's server get no file larger than a few bytes onto its disk."""
    process = pair.stage.endpoints[region].process
    assert process is not None
    servers = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    for server in servers:
        server.rlimit(resource.RLIMIT_FSIZE, (_MAX_FILE_BYTES, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        for server in servers:
            server.rlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def test_a_disk_that_takes_no_file_leaves_none_that_is_believed(pair: Pair) -> None:
    new_data(pair)
    before = pair.catalog.reference(BRANCH).hash
    with pair.context() as context:
        planned = stages.plan(context, SyncOptions(), lambda line: None)
        with no_room(pair, "eu"), pytest.raises(EngineError, match="2 files were not copied") as caught:
            stages.copy(context, planned.run, 0, lambda line: None)
    assert caught.value.remedy is Remedy.RETRY
    assert pair.catalog.reference(BRANCH).hash == before
    report = pair.sync()
    assert report.held == ()
    assert report.copied.files == 2
    pair.assert_equal()
