"""`sterna ingest add`: Parquet files of some region are added to a table in place, in one commit, once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sterna.config.mapping import Mapping
from sterna.config.registry.model import canonical_prefix, is_inside
from sterna.errors import BadDrop, NotResident, TableMoved, UnsafeUri, UsageError
from sterna.pipelines.ingest.file_proof import ProvenFile, TableShape, validate_file
from sterna.pipelines.ingest.import_files import (
    build_data_files,
    list_existing,
    needs_name_mapping,
    read_metadata,
    set_name_mapping,
)
from sterna.pipelines.ingest.layout import is_valid_table
from sterna.pipelines.ingest.region import RegionIngest
from sterna.pipelines.ingest.regional_writer import RegionalIcebergCatalog
from sterna.pipelines.publish.audit import audit
from sterna.pipelines.publish.model import Channel, Step
from sterna.pipelines.publish.protocol import LoadedTable, publish_step
from sterna.pipelines.publish.spark import JavaBase, SparkTable, change_table
from sterna.storage.objects import Objects

MAX_FILES = 10_000
"""Files of one commit."""
_CHANNEL_TENANT, _CHANNEL_NAME = "operator", "add.files"  # no channel of a producer has a dot in its name


@dataclass(frozen=True)
class FileAdditionOutcome:
    """What became of files, or would.

    Args:
        files: those that are proven and not the table's yet.
        bytes, rows: of these.
        known: how many of the named files the table has already; then it has all.
        snapshot: the one that added them; None: it wasn't done.
        commit: the commit of `main`; "": it wasn't done now.
        done: whether they are the table's.
    """

    table: str
    files: tuple[ProvenFile, ...]
    bytes: int
    rows: int
    known: int = 0
    snapshot: int | None = None
    commit: str = ""
    done: bool = False


@dataclass(frozen=True)
class FileAddition:
    """Files, and the table that is to have them.

    Args:
        mapping: the region's view of the registry.
        uris: the files.
        rules: conditions in SQL that the rows have to meet.
        inboxes: prefixes in which nothing stays for ever.
    """

    mapping: Mapping
    objects: Objects
    table: SparkTable
    uris: tuple[str, ...]
    rules: Sequence[str] = ()
    inboxes: Sequence[str] = ()

    def run(self, *, apply: bool) -> FileAdditionOutcome:
        """Prove the files, and add them where that is wished.

        All of them, in one commit, or none. A repeated call adds nothing and returns what is there.

        Args:
            apply: else nothing is changed.

        Raises:
            UsageError: no file, too many, or one named twice.
            BadDrop, Unsupported, ObjectMissing: a file may not become the table's, by name; some are there already.
            NotResident, UnregisteredUri, UnsafeUri: a file is in a location where it may not be.
            BatchRejected: the table's audit failed.
            TableGone, TableMoved, Rewound, EngineError, StoreUnreachable, StoreDenied: not now.
        """
        self._validate_locations()
        loaded = self.table.refresh()
        existing = self._list_existing(loaded)
        if existing:
            return FileAdditionOutcome(self.table.name, (), 0, 0, len(existing), done=True)
        shape = TableShape.parse(read_metadata(self.table, loaded))
        files = tuple(validate_file(self.objects, uri, shape) for uri in self.uris)
        lacks_field_ids = not all(file.has_ids for file in files)
        needs_mapping = lacks_field_ids and needs_name_mapping(self.table, loaded)
        total_bytes, rows = sum(file.bytes for file in files), sum(file.rows for file in files)
        planned = FileAdditionOutcome(self.table.name, files, total_bytes, rows)
        return self._publish(planned, shape, needs_mapping=needs_mapping) if apply else planned

    def _publish(self, planned: FileAdditionOutcome, shape: TableShape, *, needs_mapping: bool) -> FileAdditionOutcome:
        if needs_mapping:
            self._set_name_mapping()
        channel = Channel(self.mapping.region.name, _CHANNEL_TENANT, _CHANNEL_NAME)
        position = self.table.refresh().state.position(channel)
        id = _step_id(planned, position)
        # Staged on the very snapshot that it is published on: the files were searched in no other.
        step = Step(id, channel, id, position, is_numbered=False, is_snapshot_bound=True)

        def stage(loaded: LoadedTable[JavaBase]) -> None:
            if self._list_existing(loaded):
                raise TableMoved("another writer has added these files meanwhile", table=planned.table)
            if TableShape.parse(read_metadata(self.table, loaded)) != shape:
                raise TableMoved("the table's columns or partitions were changed meanwhile", table=planned.table)
            self.table.stage_files(loaded, step, build_data_files(self.table, loaded, planned.files))

        def audit_staged(loaded: LoadedTable[JavaBase], snapshot: int) -> None:
            if self.rules:
                audit(self.table.read_rows(loaded, snapshot), self.rules, planned.table)

        outcome = publish_step(self.table, step, stage, audit_staged)
        return replace(planned, snapshot=outcome.snapshot, commit=outcome.commit, done=True)

    def _set_name_mapping(self) -> None:
        def set_mapping(loaded: LoadedTable[JavaBase]) -> None:
            if needs_name_mapping(self.table, loaded):
                set_name_mapping(self.table, loaded)

        change_table(self.table, set_mapping)

    def _list_existing(self, loaded: LoadedTable[JavaBase]) -> list[str]:
        existing = list_existing(self.table, loaded, self.uris)
        if existing and len(existing) < len(self.uris):
            raise BadDrop(
                f"{len(existing)} of the {len(self.uris)} files are the table's already: leave them out",
                table=self.table.name,
                file=existing[0],
            )
        return existing

    def _validate_locations(self) -> None:
        if not 0 < len(self.uris) <= MAX_FILES:
            raise UsageError(f"{len(self.uris)} files: expected 1 to {MAX_FILES}")
        seen: set[str] = set()
        for uri in self.uris:
            if canonical_prefix(uri) in seen:
                raise UsageError(f"{uri} is named twice")
            seen.add(canonical_prefix(uri))
            self._validate_location(uri)

    def _validate_location(self, uri: str) -> None:
        resolved, registry = self.mapping.locate(uri), self.mapping.registry
        # The owner of that location cleans it up some day.
        for prefix in (*(region.replica_root for region in registry.regions), *self.inboxes):
            if is_inside(canonical_prefix(uri), canonical_prefix(prefix)):
                raise UnsafeUri(f"{prefix} is sterna's own: files there are deleted", file=uri)
        for rule in registry.residency:
            if refusal := rule.exclusion_reason(self.table.name, resolved.location.region):
                raise NotResident(f"it is in {resolved.location.region}: {refusal}", table=self.table.name, file=uri)


def _step_id(planned: FileAdditionOutcome, position: str) -> str:
    text = "\n".join(
        [planned.table, position, *sorted(f"{file.bytes} {canonical_prefix(file.uri)}" for file in planned.files)]
    )
    return "add-" + hashlib.sha256(text.encode()).hexdigest()[:32]


def build_addition(
    ingest: RegionIngest, mapping: Mapping, catalog: RegionalIcebergCatalog, table: str, uris: Sequence[str]
) -> FileAddition:
    """Return files and their table, with the table's settings in the region's services file.

    Raises:
        UsageError: that is no table's name.
    """
    if not is_valid_table(table):
        raise UsageError(f"{table!r} is no table's name")
    rule = ingest.table(table)
    inboxes = [region.inbox for region in ingest.settings.regions.values()]
    rules = rule.audit if rule is not None else ()
    return FileAddition(mapping, ingest.objects, catalog.table(table), tuple(uris), rules, inboxes)
