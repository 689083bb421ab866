"""Storage that takes no write: all that a region needs of the others', and an alarm where it is its own."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sterna.config.environment import temporary_environment
from sterna.errors import SternaError
from sterna.servers.process import LOOPBACK, free_port, start_process, wait_until_ready
from sterna.servers.s3 import find_rclone
from tests.support.faults.pair import BRANCH, Pair

_KEY, _SECRET = "STERNAREADER", "reads-and-nothing-else"


@contextmanager
def read_only(pair: Pair, region: str) -> Iterator[str]:
    """Serve a region's storage once more, at an endpoint with a key of its own that takes no write."""
    port = free_port()
    command = [
        str(find_rclone()),
        "serve",
        "s3",
        "--config",
        "",
        "--addr",
        f"{LOOPBACK}:{port}",
        "--read-only",
        "--dir-cache-time",
        "0s",
    ]
    environ = {**os.environ, "RCLONE_AUTH_KEY": f'"{_KEY},{_SECRET}"'}
    log = pair.stage.work / f"s3-read-only-{region}.log"
    process = start_process(
        "the read-only endpoint", [*command, str(pair.stage.endpoints[region].folder)], log=log, env=environ
    )
    try:
        wait_until_ready(process, lambda: _listens(port), timeout=60)
        connection = json.dumps({"conn_type": "aws", "login": _KEY, "password": _SECRET})
        with temporary_environment({f"AIRFLOW_CONN_STERNA_{region.upper()}": connection}):
            yield f"http://{LOOPBACK}:{port}"
    finally:
        process.stop()


def _listens(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port)).close()
    except OSError:
        return False
    return True


def test_a_credential_that_can_only_read_is_enough_for_foreign_storage(pair: Pair) -> None:
    table = pair.create()
    with read_only(pair, "us") as url, pair.context(us=url) as context:
        with pytest.raises(SternaError):
            context.objects.write_new("s3://us-lake/not-allowed", b"x")
        assert pair.sync(context).held == ()
        pair.append(table)
        report = pair.sync(context)
        assert report.held == () and report.copied.files == 1
    pair.assert_equal()
    folder = pair.stage.endpoints["us"].folder
    assert folder and not (folder / "us-lake" / "not-allowed").exists()


def test_ones_own_storage_that_takes_no_write_stops_a_sync_before_it_shows_anything(pair: Pair) -> None:
    pair.sync()
    before = pair.catalog.reference(BRANCH).hash
    pair.create()
    with read_only(pair, "eu") as url, pair.context(eu=url) as context, pytest.raises(SternaError) as caught:
        pair.sync(context)
    assert url.removeprefix("http://") in str(caught.value)
    assert _SECRET not in str(caught.value)
    assert pair.catalog.reference(BRANCH).hash == before
    assert pair.sync().held == ()
    pair.assert_equal()
