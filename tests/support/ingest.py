"""A tracker's database, and what a test sends, stores and asks of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sterna.config.secrets import Credential
from sterna.config.sections.ingest import CloseRules
from sterna.pipelines.ingest.batch_rules import RulesLookup, close_due
from sterna.pipelines.ingest.inbox import Inbox, UploadRequest
from sterna.pipelines.ingest.model import Batch, Destination, Format, Upload, channel_name
from sterna.pipelines.ingest.tracker import Tracker
from sterna.pipelines.ingest.tracker_schema import prepare
from sterna.pipelines.ingest.work_queue import PostgresQueue
from sterna.postgres.pool import PostgresPool, ServiceDatabase
from sterna.servers.postgres import Database, Postgres
from sterna.storage.objects import Objects

AT_ONCE = CloseRules(files=1)


def rules(**settings: Any) -> RulesLookup:
    """The same rules for each table; what isn't said never closes."""
    own = CloseRules.model_construct(**{"files": 100_000, "bytes": 1 << 40, "age": 10**9, "late_age": None, **settings})
    return lambda table: own


def destination(
    table: str = "acme.events", partition: str = "", channel: str = "default", tenant: str = "acme"
) -> Destination:
    return Destination(tenant, table, channel_name("eu", tenant, channel), partition)


@dataclass
class TrackedInbox:
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

    def sent(
        self, content: bytes = b"{}\n", key: str = "", offset: str = "", to: Destination | None = None
    ) -> UploadRequest:
        digest = hashlib.sha256(content).hexdigest()
        path = self.folder / digest
        path.write_bytes(content)
        return UploadRequest(
            to or destination(), key, offset, Format.JSON_LINES, path, len(content), content.count(b"\n"), digest
        )

    def drop(self, content: bytes = b"{}\n", key: str = "", offset: str = "", to: Destination | None = None) -> Upload:
        """Take something, and return the drop."""
        return self.box.accept(self.sent(content, key, offset, to))[0]

    def close(self, asked: bool = False, **settings: Any) -> list[Batch]:
        return list(close_due(self.pool, rules(**settings), force=asked))

    def ids(self, batch: Batch) -> list[str]:
        return [drop.id for drop in self.queue.list_uploads(batch.id)]


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
def door(objects: Objects, inbox: str, server: Postgres, name: str, folder: Path) -> Iterator[TrackedInbox]:
    """An inbox with a new tracker."""
    tracked = TrackedInbox(objects, inbox, server.create_database(name), folder)
    tracked.prepare()
    try:
        yield tracked
    finally:
        tracked.pool.close()
