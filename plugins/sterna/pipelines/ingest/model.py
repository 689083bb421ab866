"""Uploads, and batches of them that are published together."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

DEFAULT_CHANNEL = "default"
TOPIC_CHANNEL_PREFIX = "kafka-"
"""What the names of channels begin with that read a topic's partition."""
_CHANNEL = re.compile(r"([a-z0-9][a-z0-9_-]{0,62})\.([a-z0-9][a-z0-9_-]{0,62})\.([A-Za-z0-9_-]{1,64})")


TableChannel = tuple[str, str]
"""A table and a channel."""


class Format(StrEnum):
    """What an upload's object is."""

    JSON_LINES = "json"
    ARROW = "arrow"
    PARQUET = "parquet"


class State(StrEnum):
    """How far something is. An upload is `buffered` until it belongs to a batch, and then as far as that."""

    BUFFERED = "buffered"
    CLOSED = "closed"
    STAGED = "staged"
    PUBLISHED = "published"
    REJECTED = "rejected"

    @property
    def settled(self) -> bool:
        """Whether nothing more happens to it."""
        return self in (State.PUBLISHED, State.REJECTED)


@dataclass(frozen=True)
class Destination:
    """Where uploads go: one partition of one table, in one channel. A batch has the uploads of one destination.

    Args:
        table: the dotted key of the table.
        channel: `<region>.<tenant>.<name>`; the batches of a table in one channel are numbered, and published so.
        partition: as the uploads declare it; "": none.
    """

    tenant: str
    table: str
    channel: str
    partition: str = ""


@dataclass(frozen=True)
class Upload:
    """One object in the inbox, durable once it is acknowledged.

    Args:
        id: made of region, table, channel and key: the same upload sent again has the same.
        destination: where it goes.
        key: the idempotency key; for an upload with an offset that is made of it.
        offset: the producer's offset token; "": none.
        format: what the object is.
        digest: SHA-256 of the object, in hex.
        uri: the object.
        accepted: when it was taken.
        state: how far it is.
        batch: id of its batch; "": none yet.
    """

    id: str
    destination: Destination = field(metadata={"json": "lane"})
    key: str
    offset: str
    format: Format
    bytes: int
    rows: int
    digest: str
    uri: str
    accepted: datetime
    state: State = State.BUFFERED
    batch: str = ""


@dataclass(frozen=True)
class Batch:
    """Uploads that are published together, in one commit.

    Args:
        id: made of region, table, channel and number; the WAP id.
        destination: where its uploads go.
        number: counts up from 1 in each channel of a table, without holes.
        state: how far it is: `closed`, `staged`, `published`, `rejected`.
        files: its uploads.
        bytes: of all of them.
        rows: of all of them, as the uploads declared.
        closed: when it was closed.
        closed_by: the rule that closed it: `files`, `bytes`, `age`, or `asked`.
        oldest: when its oldest upload was taken.
        snapshot: the staged snapshot, or the published one; None: not yet.
        commit: the commit on `main` that published it; "": not yet.
        reason: why it was rejected, or why it was given back last.
        attempts: how often a worker claimed it.
        settled: when it was published or rejected.
        worker: the worker that holds it; "": none does.
        leased_until: when that lease ends.
    """

    id: str
    destination: Destination = field(metadata={"json": "lane"})
    number: int
    state: State
    files: int
    bytes: int
    rows: int
    closed: datetime
    closed_by: str
    oldest: datetime
    snapshot: int | None = None
    commit: str = ""
    reason: str = ""
    attempts: int = 0
    settled: datetime | None = None
    worker: str = ""
    leased_until: datetime | None = None


def channel_name(region: str, tenant: str, name: str = DEFAULT_CHANNEL) -> str:
    """Return a channel's whole name: it belongs to one region and one tenant."""
    return f"{region}.{tenant}.{name}"


def split_channel(channel: str) -> tuple[str, str, str] | None:
    """Return region, tenant and name of a channel, None where it is none."""
    match = _CHANNEL.fullmatch(channel)
    return (match[1], match[2], match[3]) if match else None


def upload_id(region: str, table: str, channel: str, key: str) -> str:
    """Return the id of an upload: the same when it is sent again."""
    return _hash(region, table, channel, key)


def batch_id(table: str, channel: str, number: int) -> str:
    """Return the id of a batch, which its channel and number decide: it outlives a tracker."""
    return _hash(table, channel, str(number))


def _hash(*parts: str) -> str:
    # Each part with its length: no two lists of parts run together to one text.
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
