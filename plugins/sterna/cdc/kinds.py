"""Which database a source is."""

from __future__ import annotations

from sterna.cdc.binlog import Binlog
from sterna.cdc.database import Database
from sterna.cdc.postgres import Postgres
from sterna.edges.secrets import Secrets
from sterna.services.cdc import CdcSource


def open_database(source: CdcSource, secrets: Secrets) -> Database:
    """Return a source's database.

    Args:
        source: its settings.
        secrets: finds its credential.
    """
    return Postgres(source, secrets) if source.kind == "postgres" else Binlog(source, secrets)
