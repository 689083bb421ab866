"""A region's Iceberg REST address without HTTP: PyIceberg's own client on top of the functions behind the routes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadataUtil

from sterna.catalog.model import Content, Key
from sterna.errors import RequirementFailed, StaleBase
from sterna.replication.sync.follow import FollowerLimits
from sterna.serving.rest_catalog.address import Address
from sterna.serving.rest_catalog.background_sync import BackgroundSync
from sterna.serving.rest_catalog.commit import commit_tables
from sterna.serving.rest_catalog.metadata_log import with_served_log
from sterna.serving.rest_catalog.overlay import served_metadata
from sterna.serving.rest_catalog.recent_changes import RecentChanges
from sterna.serving.rest_catalog.rules import Rights
from sterna.serving.rest_catalog.table_commit import TableCommit
from tests.support.small_world import World
from tests.support.writer_catalog import WriterCatalog


def read_json(uri: str) -> dict[str, Any]:
    """Return a metadata.json that is a file."""
    document: dict[str, Any] = json.loads(Path(uri.removeprefix("file://")).read_text())
    return document


def address_of(world: World, region: str = "eu", limits: FollowerLimits = FollowerLimits()) -> Address:  # noqa: B008
    """A region's address over a small world."""
    context = world.context(region)
    recent = RecentChanges()
    sync = BackgroundSync(lambda: context, recent, limits)
    return Address(lambda: context, f"file://{world.folder}/{region}/lake", recent, sync)


class AddressClient(WriterCatalog):
    """PyIceberg as a client of an address.

    Args:
        address: which one.
        rights: the client's.
    """

    def __init__(self, address: Address, rights: Rights = Rights()) -> None:  # noqa: B008
        super().__init__(address.near_root)
        self.address = address
        self.rights = rights
        self.sent: list[TableCommit] = []
        """What it has committed, to be sent again."""

    def load_table(self, identifier: Any) -> Table:
        key = Catalog.identifier_to_tuple(identifier)
        content = self.address.shown([key])[key]
        if content is None:
            raise NoSuchTableError(f"Table does not exist: {key}")
        return self.table_of(key, content)

    def table_of(self, key: Key, content: Content) -> Table:
        """Return the table that an entry of this region stands for, as clients get it."""
        location = content.metadata_location or ""
        mapping = self.address.region().mapping
        metadata = served_metadata(read_json(location), mapping, self.address.near_root)
        metadata = with_served_log(metadata, mapping, location, read_json)
        parsed = TableMetadataUtil.parse_raw(json.dumps(metadata))
        return Table(key, parsed, location, self._load_file_io(parsed.properties, location), self)

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        documents = [
            [json.loads(part.model_dump_json(by_alias=True, exclude_none=part_kind == "update")) for part in parts]
            for part_kind, parts in (("requirement", requirements), ("update", updates))
        ]
        commit = TableCommit(tuple(table.name()), *documents)
        self.sent.append(commit)
        try:
            entry = commit_tables(self.address, [commit], self.rights)[commit.key]
        except (RequirementFailed, StaleBase) as error:
            raise CommitFailedException(str(error)) from error
        loaded = self.table_of(commit.key, entry)
        return CommitTableResponse(metadata=loaded.metadata, metadata_location=loaded.metadata_location)
