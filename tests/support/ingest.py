"""A tracker's database, and what a test sends, stores and asks of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sterna.edges.postgres.pool import PostgresPool, ServiceDatabase
from sterna.edges.secrets import Credential
from sterna.edges.stores.objects import Objects
from sterna.embedded.postgres import Database, Postgres
from sterna.ingest.closing import Rules, close_due
from sterna.ingest.inbox import Inbox, Sent
from sterna.ingest.model import Batch, Drop, Format, Lane, channel_name
from sterna.ingest.schema import prepare
from sterna.ingest.tracker import Tracker
from sterna.ingest.work_queue import PostgresQueue
from sterna.services.ingest import CloseRules

AT_ONCE = CloseRules(files=1)


def rules(**given: Any) -> Rules:
    """The same rules for each table; what isn't said never closes."""
    own = CloseRules.model_construct(**{"files": 100_000, "bytes": 1 << 40, "age": 10**9, "late_age": None, **given})
    return lambda table: own


def lane(table: str = "acme.events", partition: str = "", channel: str = "default", tenant: str = "acme") -> Lane:
    return Lane(tenant, table, channel_name("eu", tenant, channel), partition)


@dataclass
class Door:
    """An inbox with its tracker.

    Args:
        objects: the stores.
        inbox: its URI.
        database: the tracker's.
        folder: for what is sent.
    """

    objects: Objects
    inbox: str
    database: Database
    folder: Path
    timeout: float = 10.0

    def __post_init__(self) -> None:
        self.pool = pool_of(self.database, self.timeout)
        self.tracker = Tracker(self.pool)
        self.queue = PostgresQueue(self.pool)
        self.box = Inbox(self.objects, self.tracker, "eu", self.inbox)

    def prepare(self) -> None:
        prepare(self.pool, self.objects, self.inbox)

    def sent(self, content: bytes = b"{}\n", key: str = "", offset: str = "", to: Lane | None = None) -> Sent:
        digest = hashlib.sha256(content).hexdigest()
        path = self.folder / digest
        path.write_bytes(content)
        return Sent(to or lane(), key, offset, Format.JSON_LINES, path, len(content), content.count(b"\n"), digest)

    def drop(self, content: bytes = b"{}\n", key: str = "", offset: str = "", to: Lane | None = None) -> Drop:
        """Take something, and return the drop."""
        return self.box.take(self.sent(content, key, offset, to))[0]

    def close(self, asked: bool = False, **given: Any) -> list[Batch]:
        return list(close_due(self.pool, rules(**given), asked=asked))

    def ids(self, batch: Batch) -> list[str]:
        return [drop.id for drop in self.queue.drops_of(batch.id)]


def pool_of(database: Database, timeout: float = 10.0) -> PostgresPool:
    where = ServiceDatabase(
        "the ingest tracker of eu",
        (f"{database.host}:{database.port}",),
        database.name,
        "ingest",
        timeout=timeout,
    )
    return PostgresPool(where, lambda id: Credential(id, database.user, database.password))


@contextmanager
def door(objects: Objects, inbox: str, server: Postgres, name: str, folder: Path) -> Iterator[Door]:
    """An inbox with a new tracker."""
    made = Door(objects, inbox, server.create_database(name), folder)
    made.prepare()
    try:
        yield made
    finally:
        made.pool.close()
