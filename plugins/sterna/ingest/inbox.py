"""The inbox: where a drop becomes durable, before anybody is told that it was taken.

First its content, under a name that has the content's digest; then its mark, created only if absent, which makes a drop
of it; then the tracker's row. Whatever dies in between, the same drop sent again goes on from there.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sterna.edges.stores.objects import Objects
from sterna.edges.stores.writing import create, write_file
from sterna.errors import ObjectMissing, TrackerContradicts
from sterna.ingest.batch_file import batch_text, drop_text, parse_batch, parse_drop, rejected_text
from sterna.ingest.model import Batch, Drop, Format, Lane, drop_id
from sterna.ingest.places import batch_uri, data_uri, drop_uri, rejected_uri
from sterna.ingest.tracker import Tracker, refuse_other


@dataclass(frozen=True)
class Sent:
    """What somebody sent, checked.

    Args:
        lane: where it goes.
        key: the idempotency key; "": none, and what is sent again is another drop.
        offset: the offset token; "": none. It is the key, then.
        format: what it is.
        path: the content.
        bytes: its size.
        rows: its rows.
        digest: its SHA-256, in hex.
    """

    lane: Lane
    key: str
    offset: str
    format: Format
    path: Path
    bytes: int
    rows: int
    digest: str

    @property
    def repeatable(self) -> bool:
        """Whether it would be known again."""
        return bool(self.key or self.offset)


class Inbox:
    """A region's inbox.

    Args:
        objects: the stores.
        tracker: the index.
        region: its name.
        inbox: its URI.
    """

    def __init__(self, objects: Objects, tracker: Tracker, region: str, inbox: str) -> None:
        self._objects = objects
        self._tracker = tracker
        self._region = region
        self._inbox = inbox

    def take(self, sent: Sent) -> tuple[Drop, bool]:
        """Make a drop durable; return it, and whether it is new.

        Raises:
            KeyReused: another one was taken under its key.
            StoreUnreachable, StoreDenied, DatabaseUnreachable, DatabaseRefused: it isn't taken.
        """
        drop = self._drop(sent)
        if sent.repeatable and (known := self._tracker.drop(drop.id)) is not None:
            refuse_other(known, drop)
            return known, False
        write_file(self._objects, drop.uri, sent.path)
        mark = drop_uri(self._inbox, drop.lane, drop.id)
        if not create(self._objects, mark, drop_text(drop), looked=not sent.repeatable):
            there = parse_drop(self._objects.read(mark), mark)
            refuse_other(there, drop)
            drop = there  # what was written down first counts, whenever that was
        return self._tracker.accept(drop)

    def knows(self, lane: Lane, key: str) -> bool:
        """Tell whether something was taken under a key.

        Raises:
            DatabaseUnreachable, DatabaseRefused: it can't be told.
        """
        return self._tracker.drop(drop_id(self._region, lane.table, lane.channel, f"key:{key}")) is not None

    def marked(self, lane: Lane, key: str) -> Drop | None:
        """Return the drop that was taken under a key, by its mark in the inbox: the tracker may not know of it yet.

        Raises:
            BadDrop: the mark was changed.
            StoreUnreachable, StoreDenied: it can't be told.
        """
        mark = drop_uri(self._inbox, lane, drop_id(self._region, lane.table, lane.channel, f"key:{key}"))
        try:
            return parse_drop(self._objects.read(mark), mark)
        except ObjectMissing:
            return None

    def follow(self, drop: Drop) -> None:
        """Let the tracker know of a drop whose mark stands in the inbox.

        Raises:
            DatabaseUnreachable, DatabaseRefused: it doesn't.
        """
        self._tracker.accept(drop)

    def _drop(self, sent: Sent) -> Drop:
        # Three kinds of keys, none of which can be taken for another.
        key = f"key:{sent.key}" if sent.key else f"offset:{sent.offset}" if sent.offset else f"once:{_random()}"
        id = drop_id(self._region, sent.lane.table, sent.lane.channel, key)
        uri = data_uri(self._inbox, sent.lane, id, sent.digest, sent.format)
        now = datetime.now(UTC)
        return Drop(id, sent.lane, key, sent.offset, sent.format, sent.bytes, sent.rows, sent.digest, uri, now)


def write_batch_file(objects: Objects, inbox: str, batch: Batch, drops: Sequence[Drop], mark: int = 0) -> str:
    """Write a batch down beside its drops, before anything else is done with it; return where.

    First of all, even before it is asked whether the batch is published: a tracker of which an older state came back
    gives a number out a second time, and the table would say of that one that it is published.

    Args:
        objects: the stores.
        inbox: the region's inbox.
        batch: the batch.
        drops: its drops, in their order.
        mark: the number of the last batch of its channel that is on `main`.

    Raises:
        TrackerContradicts: the number stands for another batch already: the tracker isn't what it was.
        BadDrop: what stands there is no batch's file, or has what this version doesn't know.
        StoreUnreachable, StoreDenied: it isn't written down, and must not be staged.
    """
    uri, text = batch_uri(inbox, batch.lane, batch.number), batch_text(batch, drops)
    if batch.number <= mark:
        there = objects.read(uri) if objects.size(uri) is not None else None
    else:
        there = text if create(objects, uri, text) else objects.read(uri)
    if there != text:
        if there is not None:
            parse_batch(there, uri)
        raise TrackerContradicts(
            f"number {batch.number} of channel {batch.lane.channel} stands for another batch already",
            table=batch.lane.table,
            file=uri,
            hint="the tracker is older than the inbox: sterna ingest rebuild",
        )
    return uri


def write_rejected_file(objects: Objects, inbox: str, batch: Batch, reason: str, when: datetime) -> str:
    """Write down that a batch was rejected, before the next number is published; return where.

    One that was written before stays as it is.
    """
    uri = rejected_uri(inbox, batch.lane, batch.number)
    create(objects, uri, rejected_text(batch, reason, when))
    return uri


def _random() -> str:
    return secrets.token_hex(16)
