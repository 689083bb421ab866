"""Which other tables' folders count for a client: those of the region's branch and of `main`, as they are now."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest

from sterna.catalog.model import ICEBERG_TABLE, Content, Delete, Key, Put
from sterna.config.mapping import Mapping
from sterna.config.registry.model import Registry
from sterna.config.sections.readers import ReaderRule
from sterna.errors import Forbidden
from sterna.replication.replica.authorization import TableAccess
from sterna.serving.rest_catalog.client_access import ClientAccess
from sterna.serving.rest_catalog.reader import Readable
from sterna.serving.rest_catalog.replica_index import ReplicaIndex
from tests.support.doubles.catalog import InMemoryCatalog
from tests.unit.config.samples import content
from tests.unit.rest_catalog.test_table_folders import ROOTS

MAIN, BRANCH = "main", "main_replica_eu"
KEY, HIDDEN, AWAY = ("t",), ("hidden",), ("away",)
RULE = ReaderRule(tables=["hidden*"], roles=["finance"])


@dataclass
class Tables:
    """What the access reads of a region's catalog: branches, and metadata by its name.

    Args:
        registry: without policies, where none are named.
    """

    registry: Registry = field(default_factory=lambda: Registry.model_validate(content()))
    reads: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.branches = InMemoryCatalog()
        self.branches.create_branch(BRANCH)
        self.mapping = Mapping(self.registry, self.registry.region("eu"))
        self.index, self.main_index = (ReplicaIndex(self.branches, name) for name in (BRANCH, MAIN))

    def put(self, branch: str, key: Key, uri: str) -> None:
        self.commit(branch, Put(key, entry(uri)))

    def commit(self, branch: str, operation: Put | Delete) -> None:
        self.branches.commit(branch, self.branches.reference(branch).hash, [operation], "test")

    def require_table(self, readable: Readable, key: Key) -> Content:
        return self.index.read().contents[key]

    def read_metadata(self, uri: str) -> dict[str, Any]:
        self.reads.append(uri)
        name = uri.rpartition("/")[0].rpartition("/")[0]
        return {"location": name, "table-uuid": str(UUID(int=len(name))), "properties": {}}


def entry(uri: str) -> Content:
    return Content.of({"type": ICEBERG_TABLE, "metadataLocation": uri})


def metadata_uri(folder: str) -> str:
    return f"{folder}/metadata/1.metadata.json"


@pytest.fixture
def tables() -> Tables:
    made = Tables()
    made.put(BRANCH, KEY, metadata_uri("s3://eu-bucket/lake/t"))
    return made


def client(tables: Tables, *roles: str, rules: tuple[ReaderRule, ...] = (RULE,)) -> Readable:
    return Readable(TableAccess(tables.registry, "eu", rules), roles)


def opened(tables: Tables) -> ClientAccess:
    catalog: Any = tables
    return ClientAccess(catalog, ROOTS)


def test_who_may_not_see_some_table_is_restricted_before_there_is_one(tables: Tables) -> None:
    access = opened(tables)
    assert access.of_table(client(tables, "reader"), KEY, may_write=False).is_restricted
    assert not access.of_table(client(tables, "finance"), KEY, may_write=False).is_restricted
    assert not access.of_table(client(tables, "reader", rules=()), KEY, may_write=False).is_restricted
    excluding = Tables(Registry.model_validate({**content(), "policies": [{"tables": ["x.*"], "replicate": False}]}))
    excluding.put(BRANCH, KEY, metadata_uri("s3://eu-bucket/lake/t"))
    assert opened(excluding).of_table(client(excluding, "finance"), KEY, may_write=False).is_restricted


def test_a_hidden_table_counts_as_soon_as_main_has_it(tables: Tables) -> None:
    access, reader, uri = opened(tables), client(tables, "reader"), "s3://eu-bucket/lake/t/inner/a.parquet"
    access.of_table(reader, KEY, may_write=False).require_readable(uri)
    tables.put(MAIN, HIDDEN, metadata_uri("s3://eu-bucket/lake/t/inner"))
    with pytest.raises(Forbidden, match="may not see"):
        access.of_table(reader, KEY, may_write=False).require_readable(uri)
    access.of_table(client(tables, "finance"), KEY, may_write=False).require_readable(uri)
    tables.commit(MAIN, Delete(HIDDEN))
    access.of_table(reader, KEY, may_write=False).require_readable(uri)


def test_what_this_process_has_changed_counts_at_once_and_is_selected_once(tables: Tables) -> None:
    access, reader, uri = opened(tables), client(tables, "reader"), "s3://eu-bucket/lake/t/inner/a.parquet"
    recent, change = tables.index.recent, {HIDDEN: (None, entry(metadata_uri("s3://eu-bucket/lake/t/inner")))}
    access.of_table(reader, KEY, may_write=False).require_readable(uri)
    recent.record(change)
    for _ in range(3):
        with pytest.raises(Forbidden, match="may not see"):
            access.of_table(reader, KEY, may_write=False).require_readable(uri)
    assert len(tables.reads) == 2
    recent.discard_until(recent.count)
    access.of_table(reader, KEY, may_write=False).require_readable(uri)


def test_other_tables_are_those_of_the_branch_and_of_main_here(tables: Tables) -> None:
    access = opened(tables)
    tables.put(MAIN, KEY, metadata_uri("s3://eu-bucket/lake/t"))
    tables.put(MAIN, HIDDEN, metadata_uri("s3://eu-bucket/lake/new"))
    tables.put(MAIN, AWAY, metadata_uri("s3://us-bucket/lake/away"))
    (other,) = access.other_tables(KEY)
    assert "s3://eu-bucket/lake/new" in other.origins
    assert len(access.other_tables(AWAY)) == 2
