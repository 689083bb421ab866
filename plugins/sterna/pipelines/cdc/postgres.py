"""A Postgres source: creates and checks what the engine needs there.

Each capture has a publication and a slot of its own. No table is removed from a publication: the server decodes older
changes by it, too. The engine creates the slot, with the snapshot that the initial rows are read from.
"""

from __future__ import annotations

import time
from collections import namedtuple
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, LiteralString

from sterna.config.secrets import Secrets
from sterna.config.sections.cdc import CdcSource
from sterna.errors import Busy, NeedsResync, SlotLost, UnfitSource
from sterna.pipelines.cdc.database import (
    COMMON_PROPERTIES,
    LogRetention,
    collect_unfit,
    exclude_duplicates,
    literal_pattern,
    require_fit,
)
from sterna.pipelines.cdc.journal import Segment
from sterna.pipelines.cdc.postgres_converter import settings
from sterna.pipelines.cdc.postgres_types import SETTINGS
from sterna.pipelines.cdc.table_resync import (
    SnapshotRows,
    is_later_xid,
    open_table_snapshot,
    publish_table,
)
from sterna.pipelines.cdc.types import validate_names
from sterna.postgres.pool import PostgresPool, ServiceDatabase
from sterna.sql_identifiers import quote_ansi

# The types of a table's columns, and those within them.
_WITHIN: LiteralString = """WITH RECURSIVE within (attname, type) AS (
      SELECT a.attname::text, a.atttypid FROM pg_attribute a
      WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    UNION
      SELECT w.attname, n.type FROM within w JOIN pg_type t ON t.oid = w.type CROSS JOIN LATERAL (
        SELECT CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.typelem END
        UNION ALL SELECT m.atttypid FROM pg_attribute m
          WHERE t.typtype = 'c' AND m.attrelid = t.typrelid AND m.attnum > 0 AND NOT m.attisdropped
        UNION ALL SELECT r.rngsubtype FROM pg_range r -- a server before 14 has no multiranges
          WHERE t.typtype IN ('r', 'm') AND t.oid IN (r.rngtypid, (to_jsonb(r) ->> 'rngmultitypid')::oid)) n (type)
      WHERE n.type <> 0)"""
_TABLES: LiteralString = """
SELECT n.nspname, c.relname, c.relkind::text, c.relreplident::text,
  coalesce((SELECT array_agg(a.attname::text ORDER BY k.place) FROM pg_index i
    CROSS JOIN LATERAL unnest(i.indkey::int[]) WITH ORDINALITY k (attnum, place)
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
    WHERE i.indrelid = c.oid AND i.indisprimary), '{}') AS key,
  coalesce((SELECT array_agg(a.attname::text) FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    AND (t.typcategory = 'A' OR (t.typcategory = 'V' AND a.atttypmod NOT BETWEEN 1 AND 100))), '{}') AS arrays,
  coalesce((SELECT array_agg(a.attname::text) FROM pg_attribute a
    WHERE a.attrelid = c.oid AND a.attgenerated <> '' AND NOT a.attisdropped), '{}') AS generated,
  EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND NOT i.indimmediate) AS deferrable,
  EXISTS (SELECT FROM pg_inherits h WHERE c.oid IN (h.inhparent, h.inhrelid)) AS inherited,
  coalesce((SELECT o.oid::bigint FROM pg_constraint o WHERE o.conrelid = c.oid AND o.contype = 'p'), 0) AS made,
  coalesce((SELECT jsonb_object_agg(i.indexrelid::text, i.xmin::text) FROM pg_index i
    WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND NOT i.indisprimary), '{}') AS indexes,
  c.xmin::text AS definition,
  coalesce((SELECT array_agg(format_type(a.atttypid, a.atttypmod) ORDER BY k.place) FROM pg_index i
    CROSS JOIN LATERAL unnest(i.indkey::int[]) WITH ORDINALITY k (attnum, place)
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
    WHERE i.indrelid = c.oid AND i.indisprimary), '{}') AS types,
  (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now,
  c.relpersistence = 'u' AS unlogged, pg_has_role(c.relowner, 'USAGE') AS owned,
  (WITH RECURSIVE bases (name, type) AS (
      SELECT a.attname::text, a.atttypid FROM pg_attribute a
      WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
      UNION SELECT b.name, t.typbasetype FROM bases b JOIN pg_type t ON t.oid = b.type WHERE t.typtype = 'd')
    SELECT coalesce(array_agg(b.name), '{}') FROM bases b JOIN pg_type t ON t.oid = b.type
    JOIN pg_type e ON e.oid = t.typelem WHERE t.typcategory = 'A' AND e.typdelim <> ',' AND t.oid <> 1020) AS delimited,
  coalesce((SELECT jsonb_object_agg(a.attname, jsonb_build_array(a.attnum, a.atttypid::bigint, a.atttypmod,
      a.xmin::text, coalesce(d.oid::bigint, 0), a.atthasmissing)) FROM pg_attribute a
      LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped), '{}') AS columns,
  pg_relation_filenode(c.oid)::bigint AS file,
  coalesce(({within}
    SELECT jsonb_object_agg(x.key, x.value) FROM (
      SELECT e.oid::text, e.enumlabel::text FROM within w JOIN pg_enum e ON e.enumtypid = w.type
      UNION SELECT m.attrelid || '.' || m.attnum, m.atttypid || ':' || m.atttypmod FROM within w
        JOIN pg_type t ON t.oid = w.type AND t.typtype = 'c' JOIN pg_attribute m ON m.attrelid = t.typrelid
        WHERE m.attnum > 0 AND NOT m.attisdropped) x (key, value)), '{}') AS words,
  coalesce((SELECT jsonb_object_agg(u.pubname, jsonb_build_array(u.xmin::text::bigint, r.xmin::text::bigint,
      (SELECT n.xmin::text::bigint FROM pg_publication_rel n WHERE n.prpubid = u.oid ORDER BY age(n.xmin) LIMIT 1),
      u.pubinsert AND u.pubupdate AND u.pubdelete AND u.pubtruncate -- a server before 15 has neither of these
        AND to_jsonb(r) ->> 'prqual' IS NULL AND to_jsonb(r) ->> 'prattrs' IS NULL))
    FROM pg_publication_rel r JOIN pg_publication u ON u.oid = r.prpubid
    WHERE r.prrelid = c.oid AND u.pubname ~ %(own)s), '{}') AS published,
  row_security_active(c.oid) AS filtered,
  has_schema_privilege(n.oid, 'USAGE') AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid
    AND a.attnum > 0 AND NOT a.attisdropped AND NOT has_column_privilege(c.oid, a.attnum, 'SELECT')) AS readable,
  coalesce(({within}
    SELECT array_agg(w.attname ORDER BY w.attname) FROM within w WHERE w.type = 'money'::regtype), '{}') AS amounts,
  scale('0'::money::numeric) AS places
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname !~ '^(pg_|information_schema$)'
  AND (%(names)s::text[] IS NULL OR n.nspname || '.' || c.relname = ANY(%(names)s))
ORDER BY 1, 2""".replace("{within}", _WITHIN)
_TableRow = namedtuple(
    "_TableRow",
    "schema name kind identity key arrays generated deferrable inherited constraint indexes definition types now "
    "unlogged owned delimited columns file words published filtered readable amounts places",
)
"""A row of `_TABLES`."""
_SERVER: LiteralString = """
SELECT current_setting('wal_level'), current_setting('max_wal_senders')::int > 0,
  current_setting('max_replication_slots')::int > (SELECT count(*) FROM pg_replication_slots WHERE slot_name !~ %s),
  (SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user)
    OR EXISTS (SELECT FROM pg_roles WHERE rolname = 'rds_replication' AND pg_has_role(oid, 'USAGE')),
  has_database_privilege(current_database(), 'CREATE')"""
_SLOT: LiteralString = """
SELECT active, coalesce(wal_status, 'lost') = 'lost', pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint
FROM pg_replication_slots WHERE slot_name = %s"""
_DROP_OTHERS: LiteralString = """
SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots
WHERE slot_name ~ %s AND slot_name <> %s AND database = current_database() AND NOT active"""
_SLOTS: LiteralString = """
SELECT slot_name FROM pg_replication_slots WHERE slot_name ~ %s AND database = current_database()"""
_FILES: LiteralString = """
SELECT n.nspname || '.' || c.relname, pg_relation_filenode(c.oid)::bigint, c.xmin::text::bigint,
  s.catalog_xmin::text::bigint
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_replication_slots s ON s.slot_name = %s
WHERE n.nspname || '.' || c.relname = ANY(%s) AND s.catalog_xmin IS NOT NULL"""
_PUBLISHED: LiteralString = "SELECT schemaname || '.' || tablename FROM pg_publication_tables WHERE pubname = %s"
_DEFAULTS: LiteralString = """
SELECT t.oid::bigint, a.attname::text FROM to_regclass(%s) AS t (oid) LEFT JOIN pg_attribute a ON a.attrelid = t.oid
AND a.attname = ANY(%s) AND NOT a.attisdropped
AND (a.atthasdef OR a.atthasmissing OR a.attidentity <> '' OR a.attgenerated <> '')"""
_LEAVE_OUT = "leave it out of `tables`"
_TABLE_GONE = "the table was dropped, or renamed, in the source"
_PUBLICATION_ALTERED = "its publication was altered: changes of it may be missing"
_SLOT_RELEASE_SECONDS = 20  # seconds
MONEY_DECIMALS = 2  # of an amount of money where lc_monetary is C


def slot_name(source: str, capture_id: int) -> str:
    """Return the name of the slot and the publication of a source's capture."""
    return f"sterna_{source}_{capture_id}"


def slot_name_pattern(source: str) -> str:
    """Return a pattern of the names of a source's slots and publications, for Postgres."""
    return f"^sterna_{source}_[0-9]+$"


@dataclass(frozen=True)
class Slot:
    """A slot.

    Args:
        active: whether a reader is connected.
        retained_bytes: bytes of log that the server keeps for it.
    """

    active: bool
    retained_bytes: int


class PostgresDatabase:
    """One source."""

    def __init__(self, source: CdcSource, secrets: Secrets) -> None:
        self._source, self._secrets = source, secrets
        description = f"the source {source.name}"
        database = ServiceDatabase(
            description, tuple(source.hosts), source.database, source.credential_id, source.sslmode, timeout=60.0
        )
        self._pool = PostgresPool(database, secrets)
        self._resync = f"sterna cdc resync {source.name}"

    def list_tables(
        self, unfit: dict[str, UnfitSource] | None = None, captured: Collection[str] = ()
    ) -> dict[str, tuple[str, ...]]:
        """Return the tables that the settings name, each with the columns of its key (`SourceDatabase`).

        Raises:
            UnfitSource: the server, or one of them, can't be followed.
            DatabaseUnreachable, DatabaseRefused, CredentialError: as the pool.
        """
        (server,) = self._pool.fetch(_SERVER, [slot_name_pattern(self._source.name)])
        _validate_server(str(self._pool.database), self._source.credential_id, server)
        tables = {}
        selected = {
            name: row
            for name, row in self._read_tables(None).items()
            if any(fnmatchcase(name, pattern) for pattern in self._source.tables)
        }
        if not selected:
            raise UnfitSource(f"{self._pool.database} has none of the tables {', '.join(self._source.tables)}")
        for name, row in selected.items():
            with collect_unfit(unfit, name):
                _validate_row(name, row)
                require_fit(name, _access_faults(name, row))
                validate_names(list(row.columns), name)
                tables[name] = tuple(row.key)
        exclude_duplicates(tables, unfit, captured, self._source.into)
        return tables

    def prepare(self, capture_id: int, tables: Sequence[str]) -> None:
        """Create a capture's publication, and drop what earlier captures, or an earlier try, left there.

        Raises:
            DatabaseUnreachable, DatabaseRefused: as the pool; the latter where a slot is in use, or a right is missing.
            Busy: a table was dropped meanwhile.
        """
        from psycopg.errors import UndefinedTable
        from psycopg.sql import SQL, Identifier

        self.drop_slots()
        identifiers = SQL(", ").join(Identifier(*table.split(".", 1)) for table in tables)
        with self._pool.connection() as connection:
            try:
                connection.execute(
                    SQL("CREATE PUBLICATION {} FOR TABLE {}").format(
                        Identifier(self.slot_name(capture_id)), identifiers
                    )
                )
            except UndefinedTable:
                raise Busy(f"a table of {self._source.name} was dropped while its reading began") from None

    def drop_slots(self) -> None:
        """Take away every slot and publication of the source.

        Raises:
            Busy: another reader is connected to a slot of it.
        """
        from psycopg.sql import SQL, Identifier

        pattern = slot_name_pattern(self._source.name)
        with self._pool.connection() as connection:
            # The server notices a little later that an engine was killed.
            for _ in range(_SLOT_RELEASE_SECONDS):
                connection.execute(_DROP_OTHERS, [pattern, ""])
                remaining = connection.execute(_SLOTS, [pattern]).fetchone()
                if remaining is None:
                    break
                time.sleep(1.0)
            else:
                raise Busy(f"another reader reads the source {self._source.name} through a slot of sterna's")
            publications = connection.execute(
                "SELECT pubname FROM pg_publication WHERE pubname ~ %s", [pattern]
            ).fetchall()
            for (name,) in publications:
                connection.execute(SQL("DROP PUBLICATION {}").format(Identifier(name)))

    def validate_position(self, last_segment: Segment, tables: Sequence[str]) -> None:
        """Validate that reading can resume behind a segment (`SourceDatabase`)."""
        self.read_slot(last_segment.capture_id)
        self.validate_not_recreated(last_segment.capture_id, tables)
        self.drop_other_slots(last_segment.capture_id)

    def validate_tables(self, tables: Sequence[str]) -> None:
        """Do nothing: row identities are checked before each segment, which covers that (`SourceDatabase`)."""

    def identities(
        self, tables: Mapping[str, Sequence[str]], previous: Mapping[str, Any], uncertain_deletes: Mapping[str, int]
    ) -> Mapping[str, Any]:
        """Return the row identities of tables now (`SourceDatabase`).

        Raises:
            NeedsResync: a table is gone, or its row identity has changed or may have.
        """
        rows, identities = self._read_tables(list(tables)), {}
        for name, key in tables.items():
            if name not in rows:
                raise NeedsResync(_TABLE_GONE, table=name, hint=self._resync)
            row, old_identity = rows[name], previous.get(name)
            _validate_row(name, row)
            identity = _identity(row, old_identity)
            if reason := _identity_change(identity, old_identity, key, row.key, uncertain_deletes.get(name)):
                raise NeedsResync(reason, table=name, hint=self._resync)
            identities[name] = identity
        return identities

    def list_rewritten(self, capture_id: int, identities: Mapping[str, Any]) -> Collection[str]:
        """Return the tables that may look empty to the engine's snapshot (`SourceDatabase`).

        The engine locks all tables before it reads one, but a moment after it created the slot and its snapshot. A
        table that was rewritten in between has none of its rows there
        (https://www.postgresql.org/docs/current/mvcc-caveats.html). One whose definition was changed last by a
        transaction that had ended before the slot was created is as the snapshot has it.
        """
        rows = self._pool.fetch(_FILES, [self.slot_name(capture_id), list(identities)])
        files = {name: (file, is_later_xid(slot_xid, xid)) for name, file, xid, slot_xid in rows}
        return [
            name
            for name, identity in identities.items()
            if name not in files or not (files[name][0] == identity["file"] or files[name][1])
        ]

    def publish_table(self, capture_id: int, table: str) -> bool:
        """Publish the changes of a table that was recreated (`SourceDatabase`).

        Raises:
            NeedsResync: its publication was altered, so that changes may be missing.
        """
        with self._pool.connection() as connection:
            is_published = publish_table(connection, self.slot_name(capture_id), table, _quote_table(table))
        rows = self._read_tables([table], f"^{self.slot_name(capture_id)}$")
        if any(_is_publication_altered(row.published, {}) for row in rows.values()):
            raise NeedsResync(_PUBLICATION_ALTERED, table=table, hint=self._resync)
        return is_published

    def _read_tables(self, names: Sequence[str] | None, own: str = "") -> dict[str, _TableRow]:
        """Return tables as the server has them now, by `schema.table`.

        Args:
            names: of which ones; None: all.
            own: the pattern of publications to report; "": those of all captures of the source.
        """
        parameters = {"names": names, "own": own or slot_name_pattern(self._source.name)}
        rows = map(_TableRow._make, self._pool.fetch(_TABLES, parameters))
        return {f"{row.schema}.{row.name}": row for row in rows}

    @contextmanager
    def read_table(self, capture_id: int, table: str) -> Iterator[SnapshotRows]:
        """Lend all rows of one table (`SourceDatabase`)."""
        with self._pool.connection() as connection, open_table_snapshot(connection, table, _quote_table(table)) as rows:
            yield rows

    def log_retention(self, last_segment: Segment) -> LogRetention:
        """Return what the server keeps for the reader (`SourceDatabase`)."""
        return LogRetention(self.read_slot(last_segment.capture_id).retained_bytes)

    def drop_other_slots(self, capture_id: int) -> None:
        """Drop the slots of other captures, which no reader uses any more."""
        self._pool.execute(_DROP_OTHERS, [slot_name_pattern(self._source.name), self.slot_name(capture_id)])

    def validate_not_recreated(self, capture_id: int, tables: Sequence[str]) -> None:
        """Validate that each table is still the one in the capture's publication.

        Raises:
            NeedsResync: one was dropped or recreated: its changes would be missing.
        """
        published = self._pool.fetch(_PUBLISHED, [self.slot_name(capture_id)])
        if missing := sorted(set(tables) - {row[0] for row in published}):
            raise NeedsResync(
                "the table was dropped, or recreated, in the source: its changes are no longer captured",
                table=missing[0],
                hint=self._resync,
            )

    def read_slot(self, capture_id: int) -> Slot:
        """Return a capture's slot.

        Raises:
            SlotLost: there is none any more, or the server has invalidated it.
        """
        rows = self._pool.fetch(_SLOT, [self.slot_name(capture_id)])
        if not rows or rows[0][1]:
            reason = "has invalidated the slot" if rows else "has no slot"
            raise SlotLost(
                f"{self._pool.database} {reason} {self.slot_name(capture_id)}: changes that were not read are gone",
                hint=self._resync,
            )
        active, _, retained_bytes = rows[0]
        return Slot(bool(active), int(retained_bytes or 0))

    def validate_added_columns(self, table: str, added: Sequence[str]) -> None:
        """See that columns which were added have no value in the rows that were there before.

        Raises:
            NeedsResync: they may have one, which no change reports.
        """
        defaults = self._pool.fetch(_DEFAULTS, [_quote_table(table), list(added)])
        if any(oid is None for oid, _ in defaults):
            raise NeedsResync(_TABLE_GONE, table=table, hint=self._resync)
        if with_default := [name for _, name in defaults if name is not None]:
            raise NeedsResync(
                f"column {with_default[0]} was added with a value for existing rows, which no change carries",
                table=table,
                hint=self._resync,
            )

    def jars(self) -> Sequence[Path]:
        """Return nothing: the engine's package has all (`SourceDatabase`)."""
        return ()

    def write_schema_history(self, folder: Path, schemas: Mapping[str, Any], offset: Mapping[str, Any]) -> None:
        """Do nothing: the log has the tables' schemas (`SourceDatabase`)."""

    def origin(self, offset: Mapping[str, Any], previous: Mapping[str, Any]) -> dict[str, Any]:
        """Return nothing: a slot belongs to its log (`SourceDatabase`)."""
        return {}

    def raise_for_engine_error(self, message: str) -> None:
        """Let everything be tried again (`SourceDatabase`)."""

    def properties(self, capture_id: int, tables: Sequence[str], placeholder: str, folder: Path) -> dict[str, str]:
        """Return the engine's settings; secret."""
        host, _, port = self._source.hosts[0].rpartition(":")
        credential = self._secrets(self._source.credential_id)
        return {
            "name": self._source.name,
            "topic.prefix": self._source.name,
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": host,
            "database.port": port,
            "database.user": credential.login,
            "database.password": credential.password,
            "database.dbname": self._source.database,
            "database.sslmode": self._source.sslmode,
            "plugin.name": "pgoutput",
            "slot.name": self.slot_name(capture_id),
            "publication.name": self.slot_name(capture_id),
            "publication.autocreate.mode": "disabled",
            "snapshot.mode": "initial",
            "table.include.list": ",".join(map(literal_pattern, tables)),
            # What is moved on for tables that aren't read, too: else the server would keep its log for them.
            "heartbeat.interval.ms": "5000",
            "heartbeat.action.query": "SELECT pg_logical_emit_message(false, 'sterna', '')",
            "unavailable.value.placeholder": placeholder,
            "driver.options": " ".join(f"-c {name}={value}" for name, value in SETTINGS.items()),
            **settings(placeholder),
            **_FIXED_PROPERTIES,
        }

    def slot_name(self, capture_id: int) -> str:
        """Return the name of a capture's slot and publication."""
        return slot_name(self._source.name, capture_id)

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()


_FIXED_PROPERTIES: Mapping[str, str] = {
    **COMMON_PROPERTIES,
    "time.precision.mode": "microseconds",
    "interval.handling.mode": "string",
    "hstore.handling.mode": "json",
    "include.unknown.datatypes": "true",
    # Until the snapshot's end: a table that is rewritten before its turn looks empty to it (`list_rewritten`).
    "snapshot.locking.mode": "shared",
}


def _validate_row(table: str, row: _TableRow) -> None:
    require_fit(table, _structure_faults(table, row))
    validate_money(table, row.amounts, row.places)


def _identity(row: _TableRow, previous: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the row identity of a table.

    Besides the replica identity these are the primary key's constraint and types, the transaction that changed each
    other unique index last (one that becomes, or stops being, the identity is changed), the one that changed the
    table's definition last, and when that was seen to be another: what was committed before may be from before it.

    Columns have a number that no other one of the table ever gets, a type, a transaction that altered them last, a
    default, and whether rows from before them have a value by that alone; those that are gone are remembered, and those
    that came with such a value. The table has a file, and another one after a rewrite. The labels of an enum,
    and the parts of a composite, make the text of rows that were there.

    Of each publication that has the table it is which transaction changed that last, which one added the table, which
    one added any table last, and whether all changes come.
    """
    changed, columns, old_columns = row.now, row.columns, (previous or {}).get("columns", {})
    with_default = {name for name, column in columns.items() if old_columns and name not in old_columns and column[5]}
    if previous is not None and (previous["constraint"], previous["definition"]) == (row.constraint, row.definition):
        changed = previous["changed"]
    return {
        "identity": row.identity,
        "arrays": bool(row.arrays),
        "constraint": row.constraint,
        "types": row.types,
        "indexes": row.indexes,
        "definition": row.definition,
        "changed": changed,
        "columns": {**old_columns, **columns},
        "gone": sorted(old_columns.keys() - columns.keys()),
        "filled": sorted(with_default | set((previous or {}).get("filled", ()))),
        "file": row.file,
        "words": row.words,
        "published": row.published,
    }


def _identity_change(
    current: Mapping[str, Any],
    previous: Mapping[str, Any] | None,
    key: Sequence[str],
    current_key: Sequence[str],
    first_delete: int | None,
) -> str:
    """Return why the capture's key can't identify changes since the last segment; "": it can.

    Args:
        current, previous: of `_identity`.
        key, current_key: the columns of the key, as the capture began with it, and now.
        first_delete: when the first deletion was committed whose key may be a filler.
    """
    if list(key) != list(current_key):
        return f"its primary key was {', '.join(key)}, and is {', '.join(current_key)}"
    if previous is None:
        return _uncertain_delete(current, first_delete)
    if (
        previous["constraint"] != current["constraint"] and previous["types"] == current["types"]
    ):  # a wider type recreates it
        return "its primary key was dropped and recreated: meanwhile its rows were identified by another, or by none"
    if current["arrays"] and previous["identity"] != "f":
        return "it has got an array or bits while its replica identity was the key: unchanged values are missing"
    if any(current["indexes"].get(index, old_xid) != old_xid for index, old_xid in previous["indexes"].items()):
        return "a unique index of it was changed: its replica identity may have been that index meanwhile"
    if "columns" in previous and (reason := _column_change(current, previous) or _type_change(current, previous)):
        return reason  # a version before didn't look at these
    if _is_publication_altered(current["published"], previous.get("published", {})):
        return _PUBLICATION_ALTERED
    is_full = previous["identity"] == current["identity"] == "f"  # the log has all columns then
    return "" if is_full else _uncertain_delete(current, first_delete)


def _column_change(current: Mapping[str, Any], previous: Mapping[str, Any]) -> str:
    """Return a change of columns, or of their values, that the log's rows don't have; "": none."""
    old_columns, new_columns = (
        previous["columns"],
        {name: column for name, column in current["columns"].items() if name not in current["gone"]},
    )
    numbers = {column[0]: name for name, column in old_columns.items()}
    for name, (number, *_) in new_columns.items():
        if name in old_columns and old_columns[name][0] != number:
            return f"column {name} was dropped and is there again, or it has another one's name"
        if name not in old_columns and number in numbers:
            return f"column {numbers[number]} is gone and {name} is new: it has another name"
    if previous["file"] == current["file"]:
        return ""
    if with_default := sorted(new_columns.keys() & set(previous.get("filled", ()))):
        # Its value was stored beside the rows, where `validate_added_columns` sees it, and is written into them now.
        return f"column {with_default[0]} was added, and the table was rewritten: no change carries its values"
    # A column's own type that changes is one reason for that, and others may have been added in the same rewrite.
    if added := sorted(new_columns.keys() - old_columns.keys()):
        return f"column {added[0]} was added, and the table was rewritten: no change carries its values"
    if altered := sorted(name for name in new_columns if _is_altered(old_columns[name], new_columns[name])):
        return f"column {altered[0]} was altered, and the table was rewritten: no change carries its values"
    return ""


def _is_altered(old: Sequence[Any], new: Sequence[Any]) -> bool:
    """Return whether a column of a rewritten table was altered, and has the type that it had."""
    if old[1:3] != new[1:3] or old[3] == new[3]:
        return False
    # Postgres itself clears the value for rows from before the column, as they have it now. The default stays; with
    # ALTER … TYPE it is recreated. Where there is none, this can't be determined.
    is_cleared = old[5] and not new[5] and old[4] == new[4] != 0
    return not is_cleared


def _type_change(current: Mapping[str, Any], previous: Mapping[str, Any]) -> str:
    """Return why the text of existing rows may have changed with an altered type; "": it hasn't."""
    new_labels = current["words"]
    old_labels = previous.get("words", new_labels)
    parts = [{key for key in labels if key.partition(".")[2]} for labels in (old_labels, new_labels)]
    common_types = set.intersection(*({key.partition(".")[0] for key in labels} for labels in parts))
    altered = {key for key in parts[0] ^ parts[1] if key.partition(".")[0] in common_types}
    altered |= {key for key in old_labels.keys() & new_labels.keys() if old_labels[key] != new_labels[key]}
    return (
        "an enum or composite of its columns was altered: no change carries the other text of rows" if altered else ""
    )


def _is_publication_altered(current: Mapping[str, Any], previous: Mapping[str, Any]) -> bool:
    """Return whether another client altered a publication; each capture has its own.

    After a recreated table is published, the publication is changed once more
    (`table_resync.publish_table`).
    """
    if (previous and not current) or not all(is_whole for *_, is_whole in current.values()):
        return True
    for name in previous.keys() & current.keys():
        (old_xid, old_added, *_), (changed, added, newest_xid, _) = previous[name], current[name]
        if added != old_added or (changed != old_xid and not is_later_xid(newest_xid, old_xid)):
            return True
    return False


def _uncertain_delete(identity: Mapping[str, Any], first_delete: int | None) -> str:
    if first_delete is not None and first_delete <= identity["changed"]:
        return "a row was deleted whose key may be incomplete: the table was altered meanwhile"
    return ""


def _structure_faults(table: str, row: _TableRow) -> Iterator[tuple[str, str]]:
    """Yield why a table's changes can't be followed, each with what mends that."""
    full = f"ALTER TABLE {table} REPLICA IDENTITY FULL"
    if row.kind == "p":
        yield "a partitioned table isn't read yet", _LEAVE_OUT
    if not row.key:
        yield "a table without a primary key can't be followed", "give it one"
    if row.identity not in ("d", "f"):
        reason = "its replica identity is neither the primary key nor the row"
        yield reason, f"ALTER TABLE {table} REPLICA IDENTITY DEFAULT; where it was followed, also sterna cdc resync"
    if row.arrays and row.identity != "f":
        # A long array that was not changed comes as another one, or not at all; and so do long bits.
        reason = f"it has an array or bits, {row.arrays[0]}, whose unchanged values are missing in changes"
        yield reason, f"{full}; where it was followed, also sterna cdc resync"
    if row.deferrable:
        # Of two rows that have one key within a transaction, the deletion of one would be that of both.
        hint = f"recreate it without DEFERRABLE, or {_LEAVE_OUT}; where the table was followed, also sterna cdc resync"
        yield "its primary key is deferrable: within a transaction it doesn't identify a row", hint
    if row.generated:
        yield f"it has a generated column, {row.generated[0]}, whose values no change carries", _LEAVE_OUT
    if row.inherited:  # rows of a child are read with the parent's, and change as the child's
        yield "it inherits from a table, or is inherited", _LEAVE_OUT


def _access_faults(table: str, row: _TableRow) -> Iterator[tuple[str, str]]:
    """Yield why the login can't read all of a table and of its changes, each with what mends that."""
    if row.unlogged:
        yield "an unlogged table has no changes in the log", f"ALTER TABLE {table} SET LOGGED, or {_LEAVE_OUT}"
    if not row.owned:
        reason = "the login isn't its owner, and only an owner publishes a table"
        yield reason, f"GRANT the owner's role to the login, or ALTER TABLE {table} OWNER TO it"
    if not row.readable:
        hint = f"GRANT SELECT ON {table} TO the login, and USAGE on its schema"
        yield "the login may not read all of its columns", hint
    if row.filtered:  # the initial rows would be a part of them, and the log has changes of all
        hint = f"ALTER ROLE the login BYPASSRLS, or ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY"
        yield "row level security hides rows of it from the login", hint
    if row.delimited:
        column = row.delimited[0]
        reason = f"the column {column} is an array whose text has another separator than a comma, as those of PostGIS"
        yield reason, "leave the table out of `tables`, or keep the column as text"


def validate_money(table: str, columns: Sequence[str], decimals: int) -> None:
    """See that amounts of money have the decimal places that are read.

    Raises:
        UnfitSource: they have others.
    """
    # The server keeps a whole number, whose point is where the locale has it; the engine's session has C.
    if columns and decimals != MONEY_DECIMALS:
        raise UnfitSource(
            f"the column {columns[0]} has amounts of money with {decimals} decimal places, as lc_monetary has it, and "
            f"only those with {MONEY_DECIMALS} are read",
            table=table,
            hint="make the column numeric, or leave the table out of `tables`",
        )


def _validate_server(database: str, login: str, settings: Sequence[Any]) -> None:
    """Validate that a server can decode changes, has a slot left, and permits the login to begin."""
    wal_level, has_senders, has_slot, can_replicate, can_create = settings
    if wal_level != "logical":
        raise UnfitSource(f"{database} has wal_level {wal_level}, and needs logical")
    if not (has_senders and has_slot):
        name = "max_replication_slots" if has_senders else "max_wal_senders"
        raise UnfitSource(
            f"{database} has no place for another reader of its log ({name})",
            hint=f"raise {name} and start it again, or drop an unused slot",
        )
    if not can_replicate:
        raise UnfitSource(
            f"the login of credential {login!r} may not read the log of {database}",
            hint="ALTER ROLE the login REPLICATION",
        )
    if not can_create:
        raise UnfitSource(
            f"the login of credential {login!r} may not make a publication in {database}",
            hint="GRANT CREATE ON DATABASE it TO the login",
        )


def _quote_table(table: str) -> str:
    return ".".join(map(quote_ansi, table.split(".", 1)))
