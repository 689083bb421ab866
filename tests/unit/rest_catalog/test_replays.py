"""A client's key is known from the commits on `main`, for as long as the address says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sterna.catalog.model import Put
from sterna.errors import BadUpdate
from sterna.serving.rest_catalog.replays import KEY_LIFETIME, IdempotencyKeys
from sterna.serving.rest_catalog.swap import REST_KEY
from tests.support.doubles.catalog import InMemoryCatalog
from tests.support.small_world import table


def commit(catalog: InMemoryCatalog, key: str = "") -> str:
    head = catalog.reference("main").hash
    name = ("t" + head[:8],)
    return catalog.commit("main", head, [Put(name, table("s3://lake/t"))], "commit", {REST_KEY: key} if key else {})


def test_keys_are_known_in_any_process_and_read_once() -> None:
    catalog = InMemoryCatalog()
    commit(catalog, "a")
    head = commit(catalog)
    known, other = IdempotencyKeys(), IdempotencyKeys()
    assert known.has(catalog, head, "a")
    assert not known.has(catalog, head, "b")
    head = commit(catalog, "b")
    assert known.has(catalog, head, "b")
    assert known.has(catalog, head, "a")
    assert other.has(catalog, head, "a")


def test_keys_are_forgotten_after_their_time() -> None:
    now = [datetime.now(UTC) - KEY_LIFETIME - timedelta(minutes=1)]
    catalog = InMemoryCatalog(clock=lambda: now[0])
    commit(catalog, "old")
    now[0] = datetime.now(UTC)
    head = commit(catalog, "new")
    known = IdempotencyKeys()
    assert known.has(catalog, head, "new")
    assert not known.has(catalog, head, "old")


@pytest.mark.parametrize("key", ["x" * 129, "a\nb", "ä"])
def test_a_key_that_is_none_is_refused(key: str) -> None:
    catalog = InMemoryCatalog()
    with pytest.raises(BadUpdate, match="Idempotency-Key"):
        IdempotencyKeys().has(catalog, commit(catalog), key)
