"""A large copy that hangs, or dies, between real servers: small commits of other tables go on being published."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import pyarrow as pa

from sterna.operations.status.read import read_alarm_status
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.model import Report
from sterna.replication.replica.region import RegionContext
from sterna.replication.sync.run import sync
from tests.support.faults.pair import Pair
from tests.support.faults.proxy import proxy_to, stuck

_LARGE = 12 << 20
_LIMIT = 5 << 20
_WAIT_SECONDS = 60.0


def small(context: RegionContext) -> Report:
    return sync(context, SyncOptions(lane="small"), lambda line: None)


def large_table(pair: Pair) -> str:
    """A table with one more file, of some 12 MB."""
    table = pair.create()
    values = random.Random(1).choices(range(1 << 62), k=_LARGE // 8)
    schema = pair.writers["us"].load_table(table).schema().as_arrow()
    numbers, nothing = pa.array(values, pa.int64()), pa.nulls(len(values))
    columns = [(numbers if pa.types.is_int64(field.type) else nothing).cast(field.type) for field in schema]
    pair.append(table, pa.table(columns, schema=schema))
    return table


def until(happens: Callable[[], bool]) -> None:
    end = time.monotonic() + _WAIT_SECONDS
    while not happens():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_small_commits_are_published_while_a_large_copy_hangs(pair: Pair) -> None:
    near = pair.create()
    pair.sync()
    far = large_table(pair)
    name = next(iter(pair.writers["us"].load_table(far).scan().plan_files())).file.file_path.rpartition("/")[2]
    released = threading.Event()
    reports: list[Report] = []
    with (
        proxy_to(urlsplit(pair.stage.endpoints["us"].url).port or 0) as proxy,
        pair.context(us=proxy.url, bulk_copy_threshold=_LIMIT) as slow,
        pair.context(bulk_copy_threshold=_LIMIT) as quick,
    ):
        proxy.strike(stuck(name, released))
        whole = threading.Thread(target=lambda: reports.append(sync(slow, SyncOptions(), lambda line: None)))
        whole.start()
        try:
            until(lambda: any(item.under_way for item in read_alarm_status(quick).transit))
            for _ in range(3):
                pair.append(near)
                report = small(quick)
                assert report.published == (near,)
                assert [item.key for item in report.transit] == [far]
            status = read_alarm_status(quick)
            assert (status.held, status.watermark) == ((), status.source_hash)
            (moving,) = status.transit
            assert moving.bytes_left > _LIMIT
            assert status.lag_seconds == status.transit_lag_seconds
        finally:
            released.set()
            whole.join(_WAIT_SECONDS)
    (done,) = reports
    assert far in done.published
    assert (done.held, done.transit) == ((), ())
    pair.assert_equal()
