"""`sterna ingest add`: Parquet files that lie in some region become a table's where they are, in one commit, once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from sterna.edges.stores.objects import Objects
from sterna.errors import BadDrop, NotResident, TableMoved, UnsafeUri, UsageError
from sterna.ingest.file_proof import ProvenFile, TableShape, prove_file
from sterna.ingest.in_place import data_files, known_of, metadata_of, refuse_mapping, set_mapping
from sterna.ingest.near import NearCatalog
from sterna.ingest.places import is_table
from sterna.ingest.region import RegionIngest
from sterna.registry.mapping import Mapping
from sterna.registry.model import canonical, inside
from sterna.wap.audit import audit
from sterna.wap.model import Channel, Step
from sterna.wap.protocol import Look, put
from sterna.wap.spark import JavaBase, SparkTable

MOST = 10_000
"""Files of one commit."""
_TENANT, _NAME = "operator", "add.files"  # no channel of a producer has a dot in its name
_TRIES = 5


@dataclass(frozen=True)
class Added:
    """What became of files, or would.

    Args:
        table: the table.
        files: those that are proven and not the table's yet.
        bytes, rows: of these.
        known: how many of those that were named are the table's already; then all are.
        snapshot: in which they came; None: it wasn't done.
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
class Adding:
    """Files, and the table that is to have them.

    Args:
        mapping: the region's view of the registry.
        objects: the stores.
        table: the table.
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

    def do(self, *, act: bool) -> Added:
        """Prove the files, and add them where that is wished.

        All of them, in one commit, or none. Said again it adds nothing: what is there is told.

        Args:
            act: else nothing is changed.

        Raises:
            UsageError: no file, too many, or one named twice.
            BadDrop, Unsupported, ObjectMissing: a file may not become the table's, by name; some are there already.
            NotResident, UnregisteredUri, UnsafeUri: a file lies where it may not.
            BatchRejected: the table's audit says no.
            TableGone, TableMoved, Rewound, EngineError, StoreUnreachable, StoreDenied: not now.
        """
        self._refuse_places()
        look = self.table.look()
        known = self._known(look)
        if known:
            return Added(self.table.name, (), 0, 0, len(known), done=True)
        shape = TableShape.of(metadata_of(self.table, look))
        files = tuple(prove_file(self.objects, uri, shape) for uri in self.uris)
        nameless = not all(file.has_ids for file in files)
        untold = nameless and refuse_mapping(self.table, look)
        told = Added(self.table.name, files, sum(each.bytes for each in files), sum(each.rows for each in files))
        return self._add(told, shape, untold=untold) if act else told

    def _add(self, told: Added, shape: TableShape, *, untold: bool) -> Added:
        if untold:
            self._tell_names()
        channel = Channel(self.mapping.region.name, _TENANT, _NAME)
        after = self.table.look().state.properties.get(channel.mark, "")
        id = _id(told, after)
        # Staged on the very snapshot that it is published on: in no other were the files looked for.
        step = Step(id, channel, id, after, numbered=False, rereads=True)

        def stage(look: Look[JavaBase]) -> None:
            if self._known(look):
                raise TableMoved("somebody else has added these files meanwhile", table=told.table)
            if TableShape.of(metadata_of(self.table, look)) != shape:
                raise TableMoved("the table's columns or partitions were changed meanwhile", table=told.table)
            self.table.stage_files(look, step, data_files(self.table, look, told.files))

        def look_over(look: Look[JavaBase], snapshot: int) -> None:
            if self.rules:
                audit(self.table.rows(look, snapshot), self.rules, told.table)

        outcome = put(self.table, step, stage, look_over)
        return Added(told.table, told.files, told.bytes, told.rows, 0, outcome.snapshot, outcome.commit, done=True)

    def _tell_names(self) -> None:
        for attempt in range(1, _TRIES + 1):
            look = self.table.look()
            if not refuse_mapping(self.table, look):
                return
            try:
                set_mapping(self.table, look)
                return
            except TableMoved:
                if attempt == _TRIES:
                    raise

    def _known(self, look: Look[JavaBase]) -> list[str]:
        known = known_of(self.table, look, self.uris)
        if known and len(known) < len(self.uris):
            raise BadDrop(
                f"{len(known)} of the {len(self.uris)} files are the table's already: leave them out",
                table=self.table.name,
                file=known[0],
            )
        return known

    def _refuse_places(self) -> None:
        if not 0 < len(self.uris) <= MOST:
            raise UsageError(f"{len(self.uris)} files: expected 1 to {MOST}")
        spelled: set[str] = set()
        for uri in self.uris:
            if canonical(uri) in spelled:
                raise UsageError(f"{uri} is named twice")
            spelled.add(canonical(uri))
            self._refuse_place(uri)

    def _refuse_place(self, uri: str) -> None:
        place, registry = self.mapping.locate(uri), self.mapping.registry
        # What lies there is cleaned up one day, by those whose it is.
        for prefix in (*(region.replica_root for region in registry.regions), *self.inboxes):
            if inside(canonical(uri), canonical(prefix)):
                raise UnsafeUri(f"{prefix} is sterna's own: what lies there doesn't stay", file=uri)
        for rule in registry.residency:
            if refused := rule.refusal(self.table.name, place.location.region):
                raise NotResident(f"it lies in {place.location.region}: {refused}", table=self.table.name, file=uri)


def _id(told: Added, after: str) -> str:
    text = "\n".join([told.table, after, *sorted(f"{file.bytes} {canonical(file.uri)}" for file in told.files)])
    return "add-" + hashlib.sha256(text.encode()).hexdigest()[:32]


def adding(ingest: RegionIngest, mapping: Mapping, catalog: NearCatalog, table: str, uris: Sequence[str]) -> Adding:
    """Return files and their table, with what the region's services file says of it.

    Raises:
        UsageError: that is no table's name.
    """
    if not is_table(table):
        raise UsageError(f"{table!r} is no table's name")
    rule = ingest.table(table)
    inboxes = [region.inbox for region in ingest.settings.regions.values()]
    rules = rule.audit if rule is not None else ()
    return Adding(mapping, ingest.objects, catalog.table(table), tuple(uris), rules, inboxes)
