"""Making a region's catalog a copy of the primary's: one way for the first time, for a lost slot, and after a failover.

What is missing is copied; nothing is emptied first, so reads continue. The references are replaced in one transaction
by those of one moment of the primary, and the subscription continues from that moment. So the region always shows a
state that the primary had, and never an older one than before, as long as the primary was ahead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sterna.config.registry.model import Region
from sterna.config.secrets import Secrets
from sterna.errors import DatabaseRefused, DatabaseUnreachable
from sterna.postgres.connection import conninfo, open_connection
from sterna.postgres.term import REPLICATION_NAME, TERM_TABLE
from sterna.replication.failover.site import ensure_schema, fence, run_sql

if TYPE_CHECKING:
    from psycopg import Connection

_PAGE_ROWS = 2000
_SLOT_TIMEOUT_SECONDS = 15.0
_OBJECT_COLUMNS = ("repo", "obj_id", "obj_type", "obj_vers", "obj_value", "obj_ref")
_REFERENCE_COLUMNS = ("repo", "ref_name", "pointer", "deleted", "created_at", "ext_info", "prev_ptr")
_TERM_COLUMNS = ("epoch", "region", "since", "heads")


@dataclass(frozen=True)
class Seeded:
    """What a seed did.

    Args:
        region: the region that was seeded.
        source: the primary it follows now.
        objects: how many objects were copied.
        main: head of `main` that it shows from then on.
    """

    region: str
    source: str
    objects: int
    main: str


def seed(
    target: Region, source: Region, others: Sequence[Region], secrets: Secrets, progress: Callable[[str], None]
) -> Seeded:
    """Make a region's catalog a copy of the primary's and let it follow; may be killed anywhere and repeated.

    Args:
        source: the primary.
        others: regions that may still keep a slot for the target.

    Raises:
        DatabaseUnreachable: one of the two does not answer, or stopped to.
        DatabaseRefused: one of them refused a statement.
    """
    slot = slot_name(target)
    with open_connection(target, secrets) as target_connection, open_connection(source, secrets) as source_connection:
        ensure_schema(source_connection, source)
        ensure_schema(target_connection, target)
        fence(target_connection, target)
        unsubscribe(target_connection)
        for other in (source, *others):
            drop_slots(other, secrets, slot)
        drop_slots(target, secrets)  # a copy has no followers
        # Once without a slot, so that the primary keeps little of its log while most is copied.
        copied = copy_missing_objects(source_connection, target_connection, progress)
        with _export_snapshot(source, slot, secrets) as (snapshot, lsn), source_connection.transaction():
            source_connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            source_connection.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'".encode())
            copied += copy_missing_objects(source_connection, target_connection, progress)
            with target_connection.transaction():
                replace_rows(source_connection, target_connection, "refs2", _REFERENCE_COLUMNS)
                replace_rows(source_connection, target_connection, TERM_TABLE, _TERM_COLUMNS)
        subscribe(target_connection, source, slot, lsn, secrets)
        main = target_connection.execute(
            "SELECT encode(pointer, 'hex') FROM refs2 WHERE ref_name = 'refs/heads/main'"
        ).fetchone()
    progress(f"{target.name} follows {source.name}: {copied} objects copied")
    return Seeded(target.name, source.name, copied, str(main[0]) if main else "")


def copy_missing_objects(source: Connection[Any], target: Connection[Any], progress: Callable[[str], None]) -> int:
    """Copy the objects that another catalog has and this one has not, page by page; return how many.

    Objects are content-addressed: one that is there is the same, and one that nothing names yet does no harm.
    """
    columns = ", ".join(_OBJECT_COLUMNS)
    insert = f"INSERT INTO objs2 ({columns}) VALUES ({', '.join(['%s'] * len(_OBJECT_COLUMNS))}) ON CONFLICT DO NOTHING"  # noqa: S608 - our own names
    fetch = f"SELECT {columns} FROM objs2 WHERE repo = %s AND obj_id = ANY(%s)"  # noqa: S608
    page_after = "SELECT repo, obj_id FROM objs2 WHERE (repo, obj_id) > (%s, %s) ORDER BY repo, obj_id LIMIT %s"
    last_key, copied, scanned = ("", b""), 0, 0
    while page := source.execute(page_after, (*last_key, _PAGE_ROWS)).fetchall():
        last_key, scanned = page[-1], scanned + len(page)
        for repo in dict.fromkeys(row[0] for row in page):
            ids = [row[1] for row in page if row[0] == repo]
            present = {
                row[0]
                for row in target.execute("SELECT obj_id FROM objs2 WHERE repo = %s AND obj_id = ANY(%s)", (repo, ids))
            }
            missing = [id for id in ids if id not in present]
            if missing:
                with target.cursor() as cursor:
                    cursor.executemany(insert, source.execute(fetch, (repo, missing)).fetchall())
                copied += len(missing)
        if scanned % (50 * _PAGE_ROWS) == 0:
            progress(f"{scanned} objects checked, {copied} copied")
    return copied


def unsubscribe(connection: Connection[Any]) -> None:
    """End a region's subscription without a request to the primary, which may not answer."""
    own_subscription = (
        "SELECT 1 FROM pg_subscription JOIN pg_database d ON d.oid = subdbid WHERE subname = 'sterna' "
        "AND datname = current_database()"
    )
    with connection.transaction():
        if connection.execute(own_subscription).fetchone():
            connection.execute("ALTER SUBSCRIPTION sterna DISABLE")
            connection.execute("ALTER SUBSCRIPTION sterna SET (slot_name = NONE)")
            connection.execute("DROP SUBSCRIPTION sterna")


def slot_name(region: Region) -> str:
    """Return the name of the slot that a primary keeps for a region; names of slots can't have hyphens."""
    return f"{REPLICATION_NAME}_{region.name.replace('-', '_')}"


def replace_rows(source: Connection[Any], target: Connection[Any], table: str, columns: tuple[str, ...]) -> None:
    """Replace the rows of a table of one catalog by those of another one."""
    names = ", ".join(column if column != "heads" else "heads::text" for column in columns)
    rows = source.execute(f"SELECT {names} FROM {table}".encode()).fetchall()  # noqa: S608 - our own names
    target.execute(f"DELETE FROM {table}".encode())  # noqa: S608
    with target.cursor() as cursor:
        placeholders = ", ".join(["%s"] * len(columns))
        cursor.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({placeholders})".encode(), rows)  # noqa: S608


def subscribe(connection: Connection[Any], source: Region, slot: str, lsn: str, secrets: Secrets) -> None:
    """Subscribe a copy to a region's catalog by a slot, from an LSN on."""
    database = source.catalog.database
    assert database is not None  # `open_connection` requires it
    # The statement has a password, which must not be in the server's logs.
    for setting in ("log_statement = 'none'", "log_min_duration_statement = -1", "log_min_error_statement = 'panic'"):
        connection.execute(f"SET {setting}".encode())
    connection_string = conninfo(database, secrets)
    from psycopg import sql

    run_sql(connection, "subscription", conninfo=connection_string, slot=sql.Identifier(slot))
    connection.execute(sql.SQL("COMMENT ON SUBSCRIPTION sterna IS {}").format(source.name))
    # What was seeded counts as received, so that regions can be compared from the start.
    connection.execute(
        "SELECT pg_replication_origin_advance('pg_' || oid, %s) FROM pg_subscription WHERE subname = 'sterna'", (lsn,)
    )
    connection.execute("ALTER SUBSCRIPTION sterna ENABLE")


def drop_slots(region: Region, secrets: Secrets, name: str = "") -> None:
    """Drop sterna's slots in a region; one that does not answer keeps them, within its own limit.

    Args:
        name: of a single one; "": all.

    Raises:
        DatabaseRefused: one stays in use.
    """
    query = """SELECT slot_name, active_pid FROM pg_replication_slots
              WHERE database = current_database() AND slot_name LIKE 'sterna\\_%%'
              AND %s::text IN ('', slot_name::text)"""
    try:
        with open_connection(region, secrets) as connection:
            deadline = time.monotonic() + _SLOT_TIMEOUT_SECONDS
            while row := connection.execute(query, (name,)).fetchone():
                if row[1] is None:
                    connection.execute("SELECT pg_drop_replication_slot(%s)", (row[0],))
                elif time.monotonic() > deadline:
                    raise DatabaseRefused(
                        f"slot {row[0]} in region {region.name} is still in use by process {row[1]} of its Postgres"
                    )
                else:
                    connection.execute("SELECT pg_terminate_backend(%s)", (row[1],))
                    time.sleep(0.1)
    except DatabaseUnreachable:
        return


@contextmanager
def _export_snapshot(source: Region, slot: str, secrets: Secrets) -> Iterator[tuple[str, str]]:
    """Create a slot; yield the snapshot at the LSN from which it keeps the log, and that LSN.

    The slot is dropped when the block fails.
    """
    with open_connection(source, secrets, replication=True) as connection:
        with connection.abort_on_timeout():
            answer = connection.pgconn.exec_(
                f"CREATE_REPLICATION_SLOT {slot} LOGICAL pgoutput (SNAPSHOT 'export')".encode()
            )
        lsn, snapshot = answer.get_value(0, 1), answer.get_value(0, 2)
        if lsn is None or snapshot is None:
            raise DatabaseRefused(f"region {source.name} made no replication slot: {answer.get_error_message()}")
        try:
            yield snapshot.decode(), lsn.decode()
        except BaseException:
            with connection.abort_on_timeout():
                connection.pgconn.exec_(f"DROP_REPLICATION_SLOT {slot}".encode())
            raise
