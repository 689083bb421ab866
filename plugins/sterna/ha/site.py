"""Looking at regions' catalogs, and the two rights that matter: fenced, or not."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from sterna.edges.postgres.connection import connected
from sterna.edges.postgres.epoch import Epoch, read_epoch
from sterna.edges.secrets import Secrets
from sterna.errors import DatabaseUnreachable
from sterna.ha.model import CatalogSite, Following, Slot
from sterna.registry.model import Region

if TYPE_CHECKING:
    from psycopg import Connection

MAIN = "refs/heads/main"
_FOLLOWING = """
    SELECT coalesce(obj_description(s.oid, 'pg_subscription'), ''),
           st.last_msg_receipt_time IS NOT NULL AND s.subenabled,
           coalesce(o.remote_lsn - '0/0'::pg_lsn, 0), st.last_msg_receipt_time
    FROM pg_subscription s
    JOIN pg_database d ON d.oid = s.subdbid AND d.datname = current_database()
    LEFT JOIN pg_stat_subscription st ON st.subid = s.oid AND st.relid IS NULL
    LEFT JOIN pg_replication_origin_status o ON o.external_id = 'pg_' || s.oid
    WHERE s.subname = 'sterna'
"""
_SLOTS = """
    SELECT slot_name, active, wal_status, coalesce(pg_current_wal_lsn() - confirmed_flush_lsn, 0),
           CASE WHEN wal_status IN ('unreserved', 'lost') THEN 1
                ELSE (pg_current_wal_lsn() - restart_lsn)
                     / nullif(pg_current_wal_lsn() - restart_lsn + greatest(safe_wal_size, 0), 0) END
    FROM pg_replication_slots WHERE database = current_database() AND slot_name LIKE 'sterna\\_%' ORDER BY slot_name
"""


def run_sql(connection: Connection[Any], name: str, **values: object) -> None:
    """Run one of the files below `sql/`.

    Args:
        connection: where.
        name: the file, without its ending.
        values: what stands in braces in it: psycopg's composables, or values.
    """
    from psycopg import sql

    parts = {key: value if isinstance(value, sql.Composable) else sql.Literal(value) for key, value in values.items()}
    text = (files("sterna.ha") / "sql" / f"{name}.sql").read_text()
    connection.execute(sql.SQL(text).format(**parts))


def look_at(region: Region, secrets: Secrets) -> CatalogSite:
    """Return what a region's catalog looks like now; one that does not answer is a site with a problem.

    Raises:
        CredentialError: its credential is missing.
        DatabaseRefused: it refused the login or a question.
    """
    try:
        with connected(region, secrets) as connection:
            return _look(connection, region)
    except DatabaseUnreachable as error:
        return CatalogSite(region.name, problem=str(error))


def look_at_slots(region: Region, secrets: Secrets) -> tuple[Slot, ...]:
    """Return what a region's catalog keeps of its log for others; needs no right but to log in.

    Raises:
        CredentialError: its credential is missing.
        DatabaseUnreachable: it does not answer.
        DatabaseRefused: it refused the login or the question.
    """
    with connected(region, secrets) as connection:
        return _slots(connection)


def look_at_all(regions: Sequence[Region], secrets: Secrets) -> dict[str, CatalogSite]:
    """Return all regions' catalogs by region, looked at together."""
    with ThreadPoolExecutor(len(regions)) as pool:
        return {site.region: site for site in pool.map(lambda region: look_at(region, secrets), regions)}


def newest_epoch(sites: Sequence[CatalogSite]) -> Epoch | None:
    """Return the newest epoch that any of some sites knows."""
    return max((site.epoch for site in sites if site.epoch), default=None)


def fence(connection: Connection[Any], region: Region) -> None:
    """Take the right to write from a region's Nessie; returns when no commit is under way any more."""
    with connection.transaction():
        run_sql(connection, "fence", role=_role(region))


def raise_epoch(connection: Connection[Any], region: Region, number: int) -> None:
    """Make a region the primary, in one transaction."""
    with connection.transaction():
        run_sql(connection, "epoch", epoch=number, region=region.name)
        run_sql(connection, "unfence", role=_role(region))


def unfence(connection: Connection[Any], region: Region) -> None:
    """Give a region's Nessie the right to write back."""
    run_sql(connection, "unfence", role=_role(region))


def prepare(connection: Connection[Any], region: Region) -> None:
    """Make what a region's catalog needs beside Nessie's own tables; safe to repeat."""
    with connection.transaction():
        run_sql(connection, "schema", role=_role(region))
        if not connection.execute("SELECT 1 FROM pg_publication WHERE pubname = 'sterna'").fetchone():
            run_sql(connection, "publication")


def references_digest(connection: Connection[Any]) -> str:
    """Return a digest over all references and where they point."""
    row = connection.execute(
        "SELECT md5(string_agg(concat_ws(' ', repo, ref_name, encode(pointer, 'hex'), deleted), ',' ORDER BY repo, "
        "ref_name)) FROM refs2"
    ).fetchone()
    return str(row and row[0])


def _look(connection: Connection[Any], region: Region) -> CatalogSite:
    seeded = connection.execute("SELECT to_regclass('refs2') IS NOT NULL").fetchone()
    writable, main, references = False, "", ""
    if seeded and seeded[0]:
        database = region.catalog.database
        assert database is not None  # `connected` saw to it
        row = connection.execute(
            "SELECT has_table_privilege(%s, 'refs2', 'UPDATE'), (SELECT encode(pointer, 'hex') FROM refs2 WHERE "
            "ref_name = %s LIMIT 1)",
            (database.role, MAIN),
        ).fetchone()
        assert row is not None  # a SELECT without FROM
        writable, main, references = bool(row[0]), str(row[1] or ""), references_digest(connection)
    following = connection.execute(_FOLLOWING).fetchone()
    return CatalogSite(
        region=region.name,
        epoch=read_epoch(connection),
        writable=writable,
        main=main,
        references=references,
        following=Following(str(following[0]), bool(following[1]), int(following[2]), following[3])
        if following
        else None,
        slots=_slots(connection),
    )


def _slots(connection: Connection[Any]) -> tuple[Slot, ...]:
    return tuple(
        Slot(str(name), bool(active), str(status), int(behind), None if used is None else float(used))
        for name, active, status, behind, used in connection.execute(_SLOTS)
    )


def _role(region: Region) -> object:
    from psycopg import sql

    assert region.catalog.database is not None  # `connected` saw to it
    return sql.Identifier(region.catalog.database.role)
