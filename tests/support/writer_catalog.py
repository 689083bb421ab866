"""A catalog for PyIceberg's writers in this process: names and locations in memory, metadata in files.

PyIceberg's own SqlCatalog does the same over SQLite, for several times the processor time.
"""

from __future__ import annotations

import os
from copy import deepcopy
from functools import cache
from threading import Lock
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import update_table_metadata
from pyiceberg.utils.config import Config

_read_settings = Config._from_configuration_files


@cache
def _settings_in(home: str | None) -> Any:
    return _read_settings()


def _settings() -> Any:
    return deepcopy(_settings_in(os.environ.get("PYICEBERG_HOME")))


# PyIceberg parses its settings file anew for each write.
Config._from_configuration_files = staticmethod(_settings)  # type: ignore[method-assign]


def _metadata_of(transaction: Transaction) -> TableMetadata:
    base, updates = transaction._table.metadata, transaction._updates
    kept = vars(transaction).get("_metadata")
    if kept is None or kept[0] is not base or kept[1] is not updates:
        kept = vars(transaction)["_metadata"] = base, updates, update_table_metadata(base, updates)
    metadata: TableMetadata = kept[2]
    return metadata


# PyIceberg makes it anew, as a deep copy, whenever it is read: some 17 times in an append.
Transaction.table_metadata = property(_metadata_of)  # type: ignore[assignment, method-assign]


class WriterCatalog(SqlCatalog):
    """What tests ask of a writer's catalog. Anything else fails, since there is no engine."""

    def __init__(self, warehouse: str) -> None:
        super(SqlCatalog, self).__init__("writer", warehouse=warehouse)
        self._locations: dict[tuple[str, ...], str] = {}
        self._lock = Lock()

    def create_table(self, identifier: Any, *arguments: Any, **more: Any) -> Table:
        staged = self._create_staged_table(identifier, *arguments, **more)
        self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
        self._move(staged.name(), None, staged.metadata_location, TableAlreadyExistsError)
        return self.load_table(identifier)

    def load_table(self, identifier: Any) -> Table:
        name = Catalog.identifier_to_tuple(identifier)
        location = self._locations.get(name)
        if location is None:
            raise NoSuchTableError(f"Table does not exist: {name}")
        metadata = FromInputFile.table_metadata(self._load_file_io(location=location).new_input(location))
        return Table(name, metadata, location, self._load_file_io(metadata.properties, location), self)

    def table_exists(self, identifier: Any) -> bool:
        return Catalog.identifier_to_tuple(identifier) in self._locations

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        current = self.load_table(table.name())
        staged = self._update_and_stage_table(current, table.name(), requirements, updates)
        if staged.metadata == current.metadata:
            return CommitTableResponse(metadata=current.metadata, metadata_location=current.metadata_location)
        self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
        self._move(table.name(), current.metadata_location, staged.metadata_location, CommitFailedException)
        return CommitTableResponse(metadata=staged.metadata, metadata_location=staged.metadata_location)

    def drop_table(self, identifier: Any) -> None:
        with self._lock:
            if self._locations.pop(Catalog.identifier_to_tuple(identifier), None) is None:
                raise NoSuchTableError(f"Table does not exist: {identifier}")

    def metadata_location(self, identifier: Any) -> str:
        """Return where a table's current metadata.json is."""
        return self._locations[Catalog.identifier_to_tuple(identifier)]

    def point(self, identifier: Any, location: str) -> None:
        """Point a table to a metadata.json that another writer wrote."""
        self._locations[Catalog.identifier_to_tuple(identifier)] = location

    def _move(self, name: tuple[str, ...], old: str | None, new: str, refusal: type[Exception]) -> None:
        with self._lock:
            if self._locations.get(name) != old:
                raise refusal(f"Table {name} is at {self._locations.get(name)}")
            self._locations[name] = new
