"""Through Spark Connect nothing is put on main: it is refused by name, before anything is started or written."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sterna.errors import NeedsClassicSpark, NotStaged
from sterna.pipelines.ingest.step_context import open_step_context
from sterna.pipelines.publish.spark import SparkTable


def test_a_session_that_reaches_no_jvm_is_refused() -> None:
    remote: Any = SimpleNamespace()
    with pytest.raises(NotStaged, match="Spark Connect"):
        SparkTable.of_catalog(remote, "main.ns.t")


def test_a_worker_is_refused_before_it_starts() -> None:
    region = SimpleNamespace(name="eu", spark="sc://127.0.0.1:15002")
    context: Any = SimpleNamespace(region=region)
    ingest: Any = SimpleNamespace(region_settings=SimpleNamespace(spark=""), prepare=lambda: None)
    with pytest.raises(NeedsClassicSpark, match="classic Spark"), open_step_context(context, ingest):
        raise AssertionError("it is open")
