"""Looking at regions' catalogs, and the two rights that matter: fenced, or not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from sterna.edges.postgres.connection import look_seconds, looking, said_no, was_slow
from sterna.edges.postgres.epoch import LINK, Epoch, read_epoch
from sterna.edges.secrets import Secrets
from sterna.errors import CredentialError, DatabaseRefused, DatabaseUnreachable, SternaError, UsageError
from sterna.ha.model import CatalogSite, Following, Primary, Slot
from sterna.registry.model import Region

if TYPE_CHECKING:
    from psycopg import Connection

MAIN = "refs/heads/main"
PATIENCE_SECONDS = 60.0  # seconds until whoever needs a lock gives up
LOCK_SECONDS = 1.0  # of these a try: commits wait behind it meanwhile
_LOCK_PAUSE = 0.5
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
    """Return what a region's catalog looks like now.

    One that does not answer, that refuses, or whose credential is missing here, is a site with a problem.
    """
    return _seen(region, secrets, lambda connection: read_site(connection, region))


def look_at_epoch(region: Region, secrets: Secrets) -> CatalogSite:
    """Return a region's catalog with its epoch alone: as `look_at`, and needs no right but to read that."""
    return _seen(region, secrets, lambda connection: CatalogSite(region.name, epoch=read_epoch(connection)))


def look_at_slots(region: Region, secrets: Secrets) -> tuple[Slot, ...]:
    """Return what a region's catalog keeps of its log for others; needs no right but to log in.

    Raises:
        CredentialError: its credential is missing.
        DatabaseUnreachable: it does not answer.
        DatabaseRefused: it refused the login or the question.
    """
    with looking(region, secrets) as connection:
        return _slots(connection)


def look_at_all(
    regions: Sequence[Region], secrets: Secrets, look: Callable[[Region, Secrets], CatalogSite] = look_at
) -> dict[str, CatalogSite]:
    """Return all regions' catalogs by region, looked at together; one that can't be seen is a site with a problem."""
    from sterna.edges.postgres.limits import ask_all

    answers = ask_all(regions, lambda region: look(region, secrets), look_seconds)
    return {
        region.name: answer if isinstance(answer, CatalogSite) else _unseen(region, answer)
        for region, answer in zip(regions, answers, strict=True)
    }


def _seen(region: Region, secrets: Secrets, read: Callable[[Connection[Any]], CatalogSite]) -> CatalogSite:
    try:
        with looking(region, secrets) as connection:
            return read(connection)
    except (DatabaseUnreachable, DatabaseRefused, CredentialError) as error:
        return _unseen(region, error)


def _unseen(region: Region, error: DatabaseUnreachable | DatabaseRefused | CredentialError) -> CatalogSite:
    if isinstance(error, CredentialError):
        return CatalogSite(region.name, problem=str(error), unasked=True)
    return CatalogSite(region.name, problem=str(error), refuses=said_no(error), slow=was_slow(error))


def unseen_error(site: CatalogSite, before: str = "") -> SternaError:
    """Return the error to raise where a site has to be seen and was not.

    Args:
        site: one with a problem.
        before: what its text begins with.
    """
    kind = CredentialError if site.unasked else DatabaseRefused if site.refuses else DatabaseUnreachable
    return kind(f"{before}{site.problem}")


def newest_epoch(sites: Sequence[CatalogSite]) -> Epoch | None:
    """Return the newest epoch that any of some sites knows."""
    return max((site.epoch for site in sites if site.epoch), default=None)


def refuse_unread(sites: Iterable[CatalogSite], way: str) -> None:
    """Refuse while a region is at work and can't be read: it may be the primary by now.

    Args:
        sites: of all regions.
        way: what else than mending its login an operator can do; `{region}` stands for the region.

    Raises:
        UsageError: one is.
    """
    for site in sites:
        if site.problem and not site.silent:
            raise UsageError(
                f"region {site.region} may be at work, and know a newer epoch: {site.problem}",
                hint=f"{'see why it is slow' if site.slow else 'mend its login here'}{way.format(region=site.region)}",
            )


def tell_primary(sites: Sequence[CatalogSite]) -> Primary:
    """Return who the primary is, as far as some sites tell.

    That is known only where every region was seen and nothing contradicts anything: one that was not seen may know a
    newer epoch than all others.
    """
    newest = newest_epoch(sites)
    unseen = {site.region: site.problem for site in sites if site.problem}
    if newest and newest.region not in {site.region for site in sites}:
        unseen[newest.region] = "it is not in this registry"
    doubts = tuple(_doubts(sites, newest))
    known = bool(sites) and not unseen and not doubts
    return Primary(known, newest.region if known and newest else "", newest, unseen, doubts)


def _doubts(sites: Sequence[CatalogSite], newest: Epoch | None) -> Iterator[str]:
    """Yield what can't be in regions that follow one primary."""
    seen = [site for site in sites if not site.problem]
    if newest is None:
        for site in seen:
            if site.following or site.slots:
                does = f"follows {site.following.region}" if site.following else "keeps slots for others"
                yield f"{site.region} {does}, and no region that was seen knows an epoch"
        return
    same = {site.epoch.region for site in seen if site.epoch and site.epoch.number == newest.number}
    for region in sorted(same - {newest.region}):
        yield f"{region} and {newest.region} both began an epoch {newest.number}"
    for site in seen:
        if site.region == newest.region:
            if site.epoch != newest:
                yield f"{site.region} itself does not know its epoch {newest}: its database was emptied or restored"
            if site.following:
                yield f"{site.region} began epoch {newest} and follows {site.following.region}"
        elif site.writable and site.epoch == newest:
            yield f"{site.region} knows epoch {newest} and takes commits, too"


def fence(connection: Connection[Any], region: Region, *, patience: float = PATIENCE_SECONDS) -> None:
    """Take the right to write from a region's Nessie; returns when no commit is under way any more.

    Args:
        connection: to its Postgres.
        region: whose.
        patience: seconds until it gives up waiting for them.

    Raises:
        DatabaseUnreachable: somebody's commit did not end in time; nothing was changed.
    """
    _locking(connection, region, lambda: run_sql(connection, "fence", role=_role(region)), patience)


def raise_epoch(connection: Connection[Any], region: Region, number: int) -> None:
    """Make a region the primary, in one transaction."""
    with connection.transaction():
        run_sql(connection, "epoch", epoch=number, region=region.name)
        run_sql(connection, "unfence", role=_role(region))


def unfence(connection: Connection[Any], region: Region) -> None:
    """Give a region's Nessie the right to write back."""
    run_sql(connection, "unfence", role=_role(region))


def prepare(connection: Connection[Any], region: Region) -> None:
    """Make what a region's catalog needs beside Nessie's own tables; safe to repeat.

    Raises:
        DatabaseUnreachable: there was something to change, and somebody was at the tables all the time.
    """

    def make() -> None:
        run_sql(connection, "schema", role=_role(region))
        if not connection.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", (LINK,)).fetchone():
            run_sql(connection, "publication")

    _locking(connection, region, make, PATIENCE_SECONDS)


def references_digest(connection: Connection[Any]) -> str:
    """Return a digest over all references and where they point."""
    row = connection.execute(
        "SELECT md5(string_agg(concat_ws(' ', repo, ref_name, encode(pointer, 'hex'), deleted), ',' ORDER BY repo, "
        "ref_name)) FROM refs2"
    ).fetchone()
    return str(row and row[0])


def _locking(connection: Connection[Any], region: Region, change: Callable[[], None], patience: float) -> None:
    """Change something under a lock, in one transaction; again, where the lock is not granted at once.

    Whoever waits for a table's lock lets all others wait behind: so it waits for moments only, and lets them pass.
    """
    import psycopg

    end = time.monotonic() + patience
    while True:
        seconds = max(min(LOCK_SECONDS, end - time.monotonic()), 0.001)
        try:
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = {max(int(seconds * 1000), 1)}".encode())
                change()
            return
        except psycopg.errors.LockNotAvailable:
            if time.monotonic() >= end:
                raise DatabaseUnreachable(
                    f"the catalog's Postgres of region {region.name}: after {patience:.0f} s somebody still holds a "
                    "lock on Nessie's tables",
                    hint="pg_locks and pg_stat_activity say who: end it, or wait; nothing was changed",
                ) from None
        time.sleep(min(_LOCK_PAUSE, max(end - time.monotonic(), 0.0)))


def read_site(connection: Connection[Any], region: Region) -> CatalogSite:
    """Return what a region's catalog says of itself, by a connection to it."""
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
