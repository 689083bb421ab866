"""Spark that dies while it localizes: one of its Python workers, and the Spark Connect server with all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from pyspark.sql.connect.client import retries

from sterna.errors import EngineError, Remedy
from sterna.replication.execution.spark_executor import spark_engine
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.region import RegionContext
from sterna.replication.sync import stages
from sterna.servers.process import free_port
from tests.faults.test_network import faulty, new_data
from tests.support.faults.pair import BRANCH, Pair
from tests.support.faults.proxy import Proxy, half_open
from tests.support.often import often
from tests.support.servers.spark_connect import SparkConnect, start_spark_connect


@pytest.fixture(autouse=True)
def _brief_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let requests be tried as often as always, with pauses of half a second at most in place of eight seconds."""
    policy = retries.DefaultPolicy
    monkeypatch.setattr(retries, "DefaultPolicy", lambda **settings: policy(**{**settings, "max_backoff": 500}))


@pytest.fixture
def server(pair: Pair) -> Iterator[SparkConnect]:
    """A Spark Connect server of eu."""
    server = start_spark_connect(pair.stage.work, "eu", free_port())
    try:
        yield server
    finally:
        server.stop()


def workers(server: SparkConnect) -> list[psutil.Process]:
    """Return a server's Python workers: what its daemon has forked."""
    started = psutil.Process(server.process.pid).children(recursive=True)
    return [
        process
        for process in started
        if "python" in (process.parent() or process).name() and "python" in process.name()
    ]


def localize_until(context: RegionContext, proxy: Proxy, run: str, strike: Callable[[], None]) -> None:
    """Copy and localize on Spark; strike while its workers wait for the store."""

    def quiet(line: str) -> None:
        pass

    copied = stages.copy(context, run, 0, quiet)
    with spark_engine(context, quiet) as spark, ThreadPoolExecutor(1) as pool:

        def struck(function: Callable[[str], str], items: Sequence[str], label: str) -> Iterable[str]:
            proxy.strike(half_open)
            job = pool.submit(lambda: list(spark(function, items, label)))
            while not (proxy.struck or job.done()):
                time.sleep(0.05)
            strike()
            return job.result()

        stages.localize(context, run, copied, quiet, struck)


@pytest.mark.parametrize("who", often(["a worker", "the server"], ["the server"]))
def test_spark_that_dies_within_localize_is_told_and_a_later_run_goes_on(
    pair: Pair, server: SparkConnect, who: str
) -> None:
    new_data(pair)
    before, mark = pair.catalog.reference(BRANCH).hash, len(pair.stage.endpoints["eu"].requests())

    def strike() -> None:
        processes = [psutil.Process(server.process.pid)] if who == "the server" else workers(server)
        assert processes
        for process in processes:
            process.kill()

    with faulty(pair, "eu", spark=server.url) as (context, proxy):
        planned = stages.plan(context, SyncOptions(), lambda line: None)
        with pytest.raises(EngineError) as caught:
            localize_until(context, proxy, planned.run, strike)
        assert proxy.struck, caught.value
        nothing_sent_again = pair.nothing_sent_again(mark)
        assert caught.value.remedy is Remedy.RETRY
        assert pair.catalog.reference(BRANCH).hash == before
        proxy.heal()
        if who == "the server":
            server.stop()
            again = start_spark_connect(pair.stage.work, "eu", int(server.url.rpartition(":")[2]))
        try:
            assert pair.sync(context).held == ()
        finally:
            if who == "the server":
                again.stop()
    assert pair.copied(mark) and nothing_sent_again()
    pair.assert_equal()
    pair.assert_no_secret(str(caught.value))
