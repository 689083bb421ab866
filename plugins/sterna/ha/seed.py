"""Making a region's catalog a copy of the primary's: one way for the first time, for a lost slot, and after a failover.

What is missing is copied; nothing is emptied first, so reads go on. The references are replaced in one transaction by
those of one moment of the primary, and the subscription goes on from that very moment: what the region shows is at each
time a state that the primary had, and a state never older than the one before, as long as the primary was ahead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sterna.edges.postgres.connection import connected, conninfo
from sterna.edges.postgres.epoch import EPOCHS, LINK
from sterna.edges.secrets import Secrets
from sterna.errors import DatabaseRefused, DatabaseUnreachable
from sterna.ha.site import fence, prepare, run_sql
from sterna.registry.model import Region

if TYPE_CHECKING:
    from psycopg import Connection

_PAGE = 2000
_SLOT_SECONDS = 15.0
_OBJECT = ("repo", "obj_id", "obj_type", "obj_vers", "obj_value", "obj_ref")
_REFERENCE = ("repo", "ref_name", "pointer", "deleted", "created_at", "ext_info", "prev_ptr")
_EPOCH = ("epoch", "region", "since", "heads")


@dataclass(frozen=True)
class Seeded:
    """What a seed did.

    Args:
        region: the region that was seeded.
        source: the primary it follows now.
        objects: how many objects it had not.
        main: head of `main` that it shows from then on.
    """

    region: str
    source: str
    objects: int
    main: str


def seed(
    target: Region, source: Region, others: Sequence[Region], secrets: Secrets, say: Callable[[str], None]
) -> Seeded:
    """Make a region's catalog a copy of the primary's and let it follow; may be killed anywhere and repeated.

    Args:
        target: the region.
        source: the primary.
        others: regions that may still keep a slot for the target.
        secrets: finds credentials.
        say: told of the progress.

    Raises:
        DatabaseUnreachable: one of the two does not answer, or stopped to.
        DatabaseRefused: one of them refused a statement.
    """
    slot = slot_of(target)
    with connected(target, secrets) as to, connected(source, secrets) as of:
        prepare(of, source)
        prepare(to, target)
        fence(to, target)
        unsubscribe(to)
        for other in (source, *others):
            _forget_slots(other, slot, secrets)
        _forget_slots(target, "%", secrets)  # nobody follows a copy
        # Once without a slot, so that the primary keeps little of its log while most is copied.
        copied = copy_missing(of, to, say)
        with _exported(source, slot, secrets) as (snapshot, place), of.transaction():
            of.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            of.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'".encode())
            copied += copy_missing(of, to, say)
            with to.transaction():
                replace_rows(of, to, "refs2", _REFERENCE)
                replace_rows(of, to, EPOCHS, _EPOCH)
        subscribe(to, source, slot, place, secrets)
        main = to.execute("SELECT encode(pointer, 'hex') FROM refs2 WHERE ref_name = 'refs/heads/main'").fetchone()
    say(f"{target.name} follows {source.name}: {copied} objects copied")
    return Seeded(target.name, source.name, copied, str(main[0]) if main else "")


def copy_missing(source: Connection[Any], target: Connection[Any], say: Callable[[str], None]) -> int:
    """Copy the objects that another catalog has and this one has not, page by page; return how many.

    Objects are content-addressed: one that is there is the same, and one that nothing names yet does no harm.
    """
    columns = ", ".join(_OBJECT)
    insert = f"INSERT INTO objs2 ({columns}) VALUES ({', '.join(['%s'] * len(_OBJECT))}) ON CONFLICT DO NOTHING"  # noqa: S608 - our own names
    fetch = f"SELECT {columns} FROM objs2 WHERE repo = %s AND obj_id = ANY(%s)"  # noqa: S608
    page_after = "SELECT repo, obj_id FROM objs2 WHERE (repo, obj_id) > (%s, %s) ORDER BY repo, obj_id LIMIT %s"
    last, copied, seen = ("", b""), 0, 0
    while page := source.execute(page_after, (*last, _PAGE)).fetchall():
        last, seen = page[-1], seen + len(page)
        for repo in dict.fromkeys(row[0] for row in page):
            ids = [row[1] for row in page if row[0] == repo]
            known = {
                row[0]
                for row in target.execute("SELECT obj_id FROM objs2 WHERE repo = %s AND obj_id = ANY(%s)", (repo, ids))
            }
            missing = [id for id in ids if id not in known]
            if missing:
                with target.cursor() as cursor:
                    cursor.executemany(insert, source.execute(fetch, (repo, missing)).fetchall())
                copied += len(missing)
        if seen % (50 * _PAGE) == 0:
            say(f"{seen} objects looked at, {copied} copied")
    return copied


def unsubscribe(connection: Connection[Any]) -> None:
    """End a region's subscription without asking the primary, which may be gone."""
    ours = (
        "SELECT 1 FROM pg_subscription JOIN pg_database d ON d.oid = subdbid WHERE subname = 'sterna' "
        "AND datname = current_database()"
    )
    with connection.transaction():
        if connection.execute(ours).fetchone():
            connection.execute("ALTER SUBSCRIPTION sterna DISABLE")
            connection.execute("ALTER SUBSCRIPTION sterna SET (slot_name = NONE)")
            connection.execute("DROP SUBSCRIPTION sterna")


def slot_of(region: Region) -> str:
    """Return the name of the slot that a primary keeps for a region; slots' names know no hyphen."""
    return f"{LINK}_{region.name.replace('-', '_')}"


def replace_rows(source: Connection[Any], target: Connection[Any], table: str, columns: tuple[str, ...]) -> None:
    """Give a table of one catalog the rows that another one's has."""
    names = ", ".join(column if column != "heads" else "heads::text" for column in columns)
    rows = source.execute(f"SELECT {names} FROM {table}".encode()).fetchall()  # noqa: S608 - our own names
    target.execute(f"DELETE FROM {table}".encode())  # noqa: S608
    with target.cursor() as cursor:
        places = ", ".join(["%s"] * len(columns))
        cursor.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})".encode(), rows)  # noqa: S608


def subscribe(connection: Connection[Any], source: Region, slot: str, place: str, secrets: Secrets) -> None:
    """Let a copy follow a region's catalog by a slot, from a place in its log on."""
    database = source.catalog.database
    assert database is not None  # `connected` saw to it
    # The statement holds a password: it goes into no log of the server.
    for setting in ("log_statement = 'none'", "log_min_duration_statement = -1", "log_min_error_statement = 'panic'"):
        connection.execute(f"SET {setting}".encode())
    info = conninfo(database, secrets)
    from psycopg import sql

    run_sql(connection, "subscription", conninfo=info, slot=sql.Identifier(slot))
    connection.execute(sql.SQL("COMMENT ON SUBSCRIPTION sterna IS {}").format(source.name))
    # What was seeded counts as received: how far two regions are can be compared from the start.
    connection.execute(
        "SELECT pg_replication_origin_advance('pg_' || oid, %s) FROM pg_subscription WHERE subname = 'sterna'", (place,)
    )
    connection.execute("ALTER SUBSCRIPTION sterna ENABLE")


def _forget_slots(region: Region, name: str, secrets: Secrets) -> None:
    """Drop slots of ours that still stand in a region; one that does not answer keeps them, within its own bound."""
    find = """SELECT slot_name, active_pid FROM pg_replication_slots
              WHERE database = current_database() AND slot_name LIKE 'sterna\\_%%' AND slot_name LIKE %s"""
    try:
        with connected(region, secrets) as connection:
            deadline = time.monotonic() + _SLOT_SECONDS
            while row := connection.execute(find, (name,)).fetchone():
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
def _exported(source: Region, slot: str, secrets: Secrets) -> Iterator[tuple[str, str]]:
    """Make a slot; yield the snapshot of the very moment from which it keeps the log, and that place in the log.

    The slot is gone again when the block fails.
    """
    with connected(source, secrets, replication=True) as connection:
        with connection.cut_when_late():
            result = connection.pgconn.exec_(
                f"CREATE_REPLICATION_SLOT {slot} LOGICAL pgoutput (SNAPSHOT 'export')".encode()
            )
        place, snapshot = result.get_value(0, 1), result.get_value(0, 2)
        if place is None or snapshot is None:
            raise DatabaseRefused(f"region {source.name} made no replication slot: {result.get_error_message()}")
        try:
            yield snapshot.decode(), place.decode()
        except BaseException:
            with connection.cut_when_late():
                connection.pgconn.exec_(f"DROP_REPLICATION_SLOT {slot}".encode())
            raise
