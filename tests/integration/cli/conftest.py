"""What all tests of the command line share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sterna.config.environment import temporary_environment


@pytest.fixture(autouse=True, scope="module")
def small_sparks(spark_environ: dict[str, str]) -> Iterator[None]:
    """Let what a command starts of Spark be as small as the tests' own."""
    with temporary_environment(spark_environ):
        yield
