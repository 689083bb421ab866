"""Which region's catalog is the primary: the one of the newest term in any region's Postgres."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sterna.config.registry.model import Region
from sterna.config.secrets import Secrets
from sterna.errors import CatalogUnreachable, DatabaseRefused, DatabaseUnreachable, NotPrimary, printable
from sterna.postgres.connection import probe_connection, probe_seconds

if TYPE_CHECKING:
    from psycopg import Connection

TERM_TABLE = "sterna_epoch"
"""The table of terms in a catalog's Postgres; `sterna.replication.failover`'s SQL makes it."""
REPLICATION_NAME = "sterna"
"""The publication of a catalog, the subscription to it, and what slots for it begin with."""
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, order=True)
class Term:
    """The reign of one primary.

    Args:
        number: counts up with each promotion.
        region: the primary; so two promotions that knew nothing of each other have two terms, and one order.
    """

    number: int
    region: str

    def __str__(self) -> str:
        return f"{self.number}-{self.region}"


def read_term(connection: Connection[Any]) -> Term | None:
    """Return the newest term in a region's catalog; None where there is none yet.

    Needs nothing but SELECT on `sterna_epoch`.
    """
    table = connection.execute("SELECT to_regclass(%s)", (TERM_TABLE,)).fetchone()
    if table is None or table[0] is None:
        return None
    row = connection.execute(
        "SELECT epoch, region FROM sterna_epoch ORDER BY epoch DESC, region DESC LIMIT 1"
    ).fetchone()
    return Term(int(row[0]), str(row[1])) if row else None


def last_message_time(region: Region, secrets: Secrets) -> datetime | None:
    """Return when a region's copy last heard from the primary; None where it doesn't follow one, or its connection was
    lost since.

    Raises:
        DatabaseUnreachable: the region's Postgres does not answer.
        CredentialError: its credential is missing.
        DatabaseRefused: it refused the login.
    """
    query = "SELECT max(last_msg_receipt_time) FROM pg_stat_subscription WHERE subname = %s AND relid IS NULL"
    with probe_connection(region, secrets) as connection:
        row = connection.execute(query, (REPLICATION_NAME,)).fetchone()
    return row[0] if row else None


def find_primary(regions: Sequence[Region], secrets: Secrets) -> Region:
    """Return the region whose catalog accepts commits; errors as `find_term` has them."""
    newest = find_term(regions, secrets)
    return next(region for region in regions if region.name == newest.region)


def find_term(regions: Sequence[Region], secrets: Secrets) -> Term:
    """Return the newest term in any region's catalog; all regions are read at once.

    The others decide where one does not answer within its `look_timeout`, or refuses the login. A refusal is logged.

    Raises:
        CatalogUnreachable: no region's Postgres answers.
        NotPrimary: no region was ever promoted.
        CredentialError: a credential is missing.
        DatabaseRefused: every region's Postgres refused the login.
    """

    from sterna.postgres.timeouts import query_regions

    def read(region: Region) -> Term | None:
        with probe_connection(region, secrets) as connection:
            return read_term(connection)

    answers = query_regions(regions, read, probe_seconds)
    terms = [answer for answer in answers if isinstance(answer, Term)]
    problems = [answer for answer in answers if isinstance(answer, (DatabaseUnreachable, DatabaseRefused))]
    if terms:
        for refusal in (answer for answer in problems if isinstance(answer, DatabaseRefused)):
            _LOG.warning("the primary is determined by the other regions: %s", printable(str(refusal)))
        return max(terms)
    if problems:
        message = f"can't determine which region's catalog is the primary: {'; '.join(map(str, problems))}"
        all_refuse = len(answers) == sum(isinstance(problem, DatabaseRefused) for problem in problems)
        raise DatabaseRefused(message) if all_refuse else CatalogUnreachable(message)
    raise NotPrimary("no region's catalog is the primary yet", hint="sterna catalog promote --region <the first one>")
