"""Which database a source is."""

from __future__ import annotations

from sterna.config.secrets import Secrets
from sterna.config.sections.cdc import CdcSource
from sterna.pipelines.cdc.database import SourceDatabase
from sterna.pipelines.cdc.mysql import MysqlDatabase
from sterna.pipelines.cdc.postgres import PostgresDatabase


def open_database(source: CdcSource, secrets: Secrets) -> SourceDatabase:
    """Return a source's database.

    Args:
        source: its settings.
        secrets: finds its credential.
    """
    return PostgresDatabase(source, secrets) if source.kind == "postgres" else MysqlDatabase(source, secrets)
