"""A region needs no more than to read the other regions' storage."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator

import pytest

from sterna.edges.environment import environment
from sterna.errors import SternaError
from sterna.local.process import LOOPBACK, free_port, start_process, wait_until_ready
from sterna.local.s3 import find_rclone
from tests.faults.pair import Pair

_KEY, _SECRET = "STERNAREADER", "reads-and-nothing-else"


@pytest.fixture(scope="module")
def read_only(pair: Pair) -> Iterator[str]:
    """An endpoint over us's storage with a key of its own, which takes no write."""
    port = free_port()
    command = [str(find_rclone()), "serve", "s3", "--config", "", "--addr", f"{LOOPBACK}:{port}", "--read-only", "--dir-cache-time", "0s"]
    environ = {**os.environ, "RCLONE_AUTH_KEY": f'"{_KEY},{_SECRET}"'}
    log = pair.stage.work / "s3-read-only.log"
    process = start_process("the read-only endpoint", [*command, str(pair.stage.endpoints["us"].folder)], log=log, env=environ)
    try:
        wait_until_ready(process, lambda: _listens(port), timeout=60)
        connection = json.dumps({"conn_type": "aws", "login": _KEY, "password": _SECRET})
        with environment({"AIRFLOW_CONN_STERNA_US": connection}):
            yield f"http://{LOOPBACK}:{port}"
    finally:
        process.stop()


def _listens(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port)).close()
    except OSError:
        return False
    return True


def test_a_credential_that_can_only_read_is_enough(pair: Pair, read_only: str) -> None:
    table = pair.create()
    with pair.context(us=read_only) as context:
        with pytest.raises(SternaError):
            context.objects.write_new("s3://us-lake/not-allowed", b"x")
        assert pair.sync(context).held == ()
        pair.append(table)
        report = pair.sync(context)
        assert report.held == () and report.copied.files == 1
    pair.assert_equal()
    folder = pair.stage.endpoints["us"].folder
    assert folder and not (folder / "us-lake" / "not-allowed").exists()
