"""Reads the state of regions' catalogs, and fences or unfences them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from sterna.config.registry.model import Region
from sterna.config.secrets import Secrets
from sterna.errors import CredentialError, DatabaseRefused, DatabaseUnreachable, SternaError, UsageError
from sterna.postgres.connection import is_rejection, is_unresponsive, probe_connection, probe_seconds
from sterna.postgres.term import REPLICATION_NAME, Term, read_term
from sterna.replication.failover.model import CatalogSite, CatalogSubscription, Primary, Slot

if TYPE_CHECKING:
    from psycopg import Connection

MAIN_REFERENCE = "refs/heads/main"
MAX_WAIT_SECONDS = 60.0  # for a lock, over all tries
LOCK_TIMEOUT_SECONDS = 1.0  # of one try: commits wait behind it meanwhile
_LOCK_RETRY_SECONDS = 0.5
_SUBSCRIPTION_QUERY = """
    SELECT coalesce(obj_description(s.oid, 'pg_subscription'), ''),
           st.last_msg_receipt_time IS NOT NULL AND s.subenabled,
           coalesce(o.remote_lsn - '0/0'::pg_lsn, 0), st.last_msg_receipt_time
    FROM pg_subscription s
    JOIN pg_database d ON d.oid = s.subdbid AND d.datname = current_database()
    LEFT JOIN pg_stat_subscription st ON st.subid = s.oid AND st.relid IS NULL
    LEFT JOIN pg_replication_origin_status o ON o.external_id = 'pg_' || s.oid
    WHERE s.subname = 'sterna'
"""
_SLOTS_QUERY = """
    SELECT slot_name, active, wal_status, coalesce(pg_current_wal_lsn() - confirmed_flush_lsn, 0),
           CASE WHEN wal_status IN ('unreserved', 'lost') THEN 1
                WHEN safe_wal_size IS NULL THEN NULL  -- no limit: max_slot_wal_keep_size is -1
                ELSE (pg_current_wal_lsn() - restart_lsn)
                     / nullif(pg_current_wal_lsn() - restart_lsn + greatest(safe_wal_size, 0), 0) END
    FROM pg_replication_slots WHERE database = current_database() AND slot_name LIKE 'sterna\\_%' ORDER BY slot_name
"""


def run_sql(connection: Connection[Any], name: str, **values: object) -> None:
    """Run one of the files below `sql/`.

    Args:
        name: the file, without its ending.
        values: for its placeholders in braces: psycopg's composables, or values.
    """
    from psycopg import sql

    parameters = {
        key: value if isinstance(value, sql.Composable) else sql.Literal(value) for key, value in values.items()
    }
    text = (files("sterna.replication.failover") / "sql" / f"{name}.sql").read_text()
    connection.execute(sql.SQL(text).format(**parameters))


def inspect_site(region: Region, secrets: Secrets) -> CatalogSite:
    """Return the current state of a region's catalog.

    One that does not answer, that refuses, or whose credential is missing here, is a site with a problem.
    """
    return _inspect(region, secrets, lambda connection: read_site(connection, region))


def inspect_term(region: Region, secrets: Secrets) -> CatalogSite:
    """Return a region's catalog with only its term; as `inspect_site`, but it needs only the right to read terms."""
    return _inspect(region, secrets, lambda connection: CatalogSite(region.name, term=read_term(connection)))


def read_slots(region: Region, secrets: Secrets) -> tuple[Slot, ...]:
    """Return the replication slots of a region's catalog; it needs only the right to log in.

    Raises:
        CredentialError: its credential is missing.
        DatabaseUnreachable: it does not answer.
        DatabaseRefused: it refused the login or the query.
    """
    with probe_connection(region, secrets) as connection:
        return _read_slots(connection)


def inspect_sites(
    regions: Sequence[Region], secrets: Secrets, inspect: Callable[[Region, Secrets], CatalogSite] = inspect_site
) -> dict[str, CatalogSite]:
    """Return all regions' catalogs, read concurrently; one that can't be seen is a site with a problem."""
    from sterna.postgres.timeouts import query_regions

    answers = query_regions(regions, lambda region: inspect(region, secrets), probe_seconds)
    return {
        region.name: answer if isinstance(answer, CatalogSite) else _unseen_site(region, answer)
        for region, answer in zip(regions, answers, strict=True)
    }


def _inspect(region: Region, secrets: Secrets, read: Callable[[Connection[Any]], CatalogSite]) -> CatalogSite:
    try:
        with probe_connection(region, secrets) as connection:
            return read(connection)
    except (DatabaseUnreachable, DatabaseRefused, CredentialError) as error:
        return _unseen_site(region, error)


def _unseen_site(region: Region, error: DatabaseUnreachable | DatabaseRefused | CredentialError) -> CatalogSite:
    if isinstance(error, CredentialError):
        return CatalogSite(region.name, problem=str(error), unasked=True)
    return CatalogSite(region.name, problem=str(error), refuses=is_rejection(error), slow=is_unresponsive(error))


def unseen_error(site: CatalogSite, prefix: str = "") -> SternaError:
    """Return the error to raise where a site has to be seen and was not.

    Args:
        site: one with a problem.
        prefix: what its text begins with.
    """
    error_class = CredentialError if site.unasked else DatabaseRefused if site.refuses else DatabaseUnreachable
    return error_class(f"{prefix}{site.problem}")


def newest_term(sites: Sequence[CatalogSite]) -> Term | None:
    """Return the newest term that any of some sites has."""
    return max((site.term for site in sites if site.term), default=None)


def require_readable(sites: Iterable[CatalogSite], alternative: str) -> None:
    """Refuse while a region that can't be read may be at work: it may be the primary by now.

    Args:
        sites: of all regions.
        alternative: what an operator can do besides fixing its login; `{region}` is replaced by the region.

    Raises:
        UsageError: there is such a region.
    """
    for site in sites:
        if site.problem and not site.is_silent:
            remedy = "see why it is slow" if site.slow else "mend its login here"
            raise UsageError(
                f"region {site.region} may be at work, and know a newer term: {site.problem}",
                hint=f"{remedy}{alternative.format(region=site.region)}",
            )


def resolve_primary(sites: Sequence[CatalogSite]) -> Primary:
    """Return which region is the primary, by the state of some sites.

    That is known only where every region was seen and nothing contradicts anything: one that was not seen may have a
    newer term than all others.
    """
    term = newest_term(sites)
    unseen = {site.region: site.problem for site in sites if site.problem}
    if term and term.region not in {site.region for site in sites}:
        unseen[term.region] = "it is not in this registry"
    contradictions = tuple(_contradictions(sites, term))
    is_certain = bool(sites) and not unseen and not contradictions
    return Primary(is_certain, term.region if is_certain and term else "", term, unseen, contradictions)


def _contradictions(sites: Sequence[CatalogSite], term: Term | None) -> Iterator[str]:
    """Yield what is impossible in regions that follow one primary."""
    readable = [site for site in sites if not site.problem]
    if term is None:
        for site in readable:
            if site.following or site.slots:
                activity = f"follows {site.following.region}" if site.following else "keeps slots for others"
                yield f"{site.region} {activity}, and no region that was seen knows a term"
        return
    claimants = {site.term.region for site in readable if site.term and site.term.number == term.number}
    for region in sorted(claimants - {term.region}):
        yield f"{region} and {term.region} both began a term {term.number}"
    for site in readable:
        if site.region == term.region:
            if site.term != term:
                yield f"{site.region} itself does not know its term {term}: its database was emptied or restored"
            if site.following:
                yield f"{site.region} began term {term} and follows {site.following.region}"
        elif site.writable and site.term == term:
            yield f"{site.region} knows term {term} and takes commits, too"


def fence(connection: Connection[Any], region: Region, *, max_wait: float = MAX_WAIT_SECONDS) -> None:
    """Revoke the right to write from a region's Nessie; returns when no commit is in progress any more.

    Args:
        connection: to its Postgres.
        max_wait: seconds until it gives up waiting for them.

    Raises:
        DatabaseUnreachable: a commit did not end in time; nothing was changed.
    """
    _change_under_lock(connection, region, lambda: run_sql(connection, "fence", role=_role(region)), max_wait)


def begin_term(connection: Connection[Any], region: Region, number: int) -> None:
    """Make a region the primary, in one transaction."""
    with connection.transaction():
        run_sql(connection, "epoch", epoch=number, region=region.name)
        run_sql(connection, "unfence", role=_role(region))


def unfence(connection: Connection[Any], region: Region) -> None:
    """Grant a region's Nessie the right to write again."""
    run_sql(connection, "unfence", role=_role(region))


def ensure_schema(connection: Connection[Any], region: Region) -> None:
    """Create what a region's catalog needs beside Nessie's own tables; safe to repeat.

    Raises:
        DatabaseUnreachable: there was something to change, and the tables were locked all the time.
    """

    def create() -> None:
        run_sql(connection, "schema", role=_role(region))
        if not connection.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", (REPLICATION_NAME,)).fetchone():
            run_sql(connection, "publication")

    _change_under_lock(connection, region, create, MAX_WAIT_SECONDS)


def references_digest(connection: Connection[Any]) -> str:
    """Return a digest over all references and where they point."""
    row = connection.execute(
        "SELECT md5(string_agg(concat_ws(' ', repo, ref_name, encode(pointer, 'hex'), deleted), ',' ORDER BY repo, "
        "ref_name)) FROM refs2"
    ).fetchone()
    return str(row and row[0])


def _change_under_lock(
    connection: Connection[Any], region: Region, change: Callable[[], None], max_wait: float
) -> None:
    """Change something under a lock, in one transaction; again, where the lock is not granted at once.

    While a request waits for a table's lock, all later ones wait behind it: so each try is short, with pauses between.
    """
    import psycopg

    deadline = time.monotonic() + max_wait
    while True:
        lock_timeout = max(min(LOCK_TIMEOUT_SECONDS, deadline - time.monotonic()), 0.001)
        try:
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = {max(int(lock_timeout * 1000), 1)}".encode())
                change()
            return
        except psycopg.errors.LockNotAvailable:
            if time.monotonic() >= deadline:
                raise DatabaseUnreachable(
                    f"the catalog's Postgres of region {region.name}: after {max_wait:.0f} s another "
                    "transaction still holds a lock on Nessie's tables",
                    hint="pg_locks and pg_stat_activity show which: end it, or wait; nothing was changed",
                ) from None
        time.sleep(min(_LOCK_RETRY_SECONDS, max(deadline - time.monotonic(), 0.0)))


def read_site(connection: Connection[Any], region: Region) -> CatalogSite:
    """Return the state of a region's catalog, by a connection to it."""
    seeded = connection.execute("SELECT to_regclass('refs2') IS NOT NULL").fetchone()
    writable, main, references = False, "", ""
    if seeded and seeded[0]:
        database = region.catalog.database
        assert database is not None  # `connected` saw to it
        row = connection.execute(
            "SELECT has_table_privilege(%s, 'refs2', 'UPDATE'), (SELECT encode(pointer, 'hex') FROM refs2 WHERE "
            "ref_name = %s LIMIT 1)",
            (database.role, MAIN_REFERENCE),
        ).fetchone()
        assert row is not None  # a SELECT without FROM
        writable, main, references = bool(row[0]), str(row[1] or ""), references_digest(connection)
    row = connection.execute(_SUBSCRIPTION_QUERY).fetchone()
    following = CatalogSubscription(str(row[0]), bool(row[1]), int(row[2]), row[3]) if row else None
    return CatalogSite(
        region=region.name,
        term=read_term(connection),
        writable=writable,
        main=main,
        references=references,
        following=following,
        slots=_read_slots(connection),
    )


def _read_slots(connection: Connection[Any]) -> tuple[Slot, ...]:
    return tuple(
        Slot(str(name), bool(active), str(status), int(behind), None if used is None else float(used))
        for name, active, status, behind, used in connection.execute(_SLOTS_QUERY)
    )


def _role(region: Region) -> object:
    from psycopg import sql

    assert region.catalog.database is not None  # `connected` saw to it
    return sql.Identifier(region.catalog.database.role)
