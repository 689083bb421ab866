"""A Postgres 18 is followed as the Postgres 16 of all other tests: types, identities, amounts, edges.

The tests are theirs, with a server of that version. What else falls under another version: types that its catalogue has
and the older one lacks, which `values_of` refuses to pass over; and generated columns, virtual ones by default.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from sterna.config.secrets import environment_secrets
from sterna.errors import UnfitSource
from sterna.pipelines.cdc.sources import open_database
from sterna.servers import postgres
from tests.integration.cdc.test_exact_edges import test_each_type_and_random_values_by_key_and_by_row
from tests.integration.cdc.test_exact_postgres import (
    Source,
    source,
    test_each_type_of_the_catalogue,
)

__all__ = ["source", "test_each_type_and_random_values_by_key_and_by_row", "test_each_type_of_the_catalogue"]

pytestmark = pytest.mark.rare


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The package has both versions."""
    binaries = postgres.find_binaries().parents[1] / "pginstall18" / "bin"
    if not (binaries / "postgres").exists():
        pytest.skip("the package of Postgres has no version 18")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postgres, "find_binaries", lambda: binaries)
        settings = {"wal_level": "logical", "max_replication_slots": "20", "max_wal_senders": "20"}
        started = postgres.start_postgres(tmp_path_factory.mktemp("source"), settings)
    yield started
    started.stop()


def test_the_server_is_of_that_version_and_its_virtual_columns_are_refused(server: Any, source: Source) -> None:
    with psycopg.connect(server.admin.url()) as admin:
        assert admin.info.server_version // 10_000 == 18
    source.sql("CREATE TABLE t (id int PRIMARY KEY, n int)")
    source.sql("CREATE TABLE g (id int PRIMARY KEY, n int, v int GENERATED ALWAYS AS (n + 1))")
    database, unfit = open_database(source.reading.source, environment_secrets()), dict[str, UnfitSource]()
    assert list(database.list_tables(unfit)) == ["public.t"]
    assert "generated column, v" in unfit["public.g"].message
    database.close()
