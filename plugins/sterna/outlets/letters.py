"""Dead letters: events that couldn't be delivered, kept beside the replica until somebody sends them again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from sterna.edges.brokers.message import Message
from sterna.errors import BrokenMetadata, SternaError
from sterna.json_record import FOREIGN, TEXT, Field, MalformedRecord, Record, Unknown, by_name
from sterna.registry.folders import DEAD, own_folder
from sterna.replica.region import RegionContext


@dataclass(frozen=True)
class DeadLetter:
    """One event that an outlet gave up.

    Args:
        outlet: whose it is.
        id: the event's id.
        table: what the event is about.
        reason: why it wasn't delivered.
        at: when it was given up (ISO 8601, UTC).
        event: the event itself.
        file: where it lies.
    """

    outlet: str
    id: str
    table: str
    reason: str
    at: str
    event: Mapping[str, Any] = field(repr=False)
    file: str = ""

    def message(self) -> Message:
        """Return the event as it was to be sent, byte for byte."""
        text = json.dumps(self.event, separators=(",", ":"), ensure_ascii=False)
        try:
            return Message(self.id, self.table, text.encode())
        except UnicodeEncodeError:
            return Message(self.id, self.table, json.dumps(self.event, separators=(",", ":")).encode())


LETTER: Final = Record(
    DeadLetter,
    (
        Field("outlet", TEXT),
        Field("id", TEXT),
        Field("table", TEXT),
        Field("reason", TEXT),
        Field("at", TEXT),
        Field("event", by_name(FOREIGN)),
    ),
    Unknown.IGNORE,
)


def bury(context: RegionContext, outlet: str, message: Message, reason: str) -> str:
    """Write a dead letter; one that is there already stays.

    Returns:
        Its URI.

    Raises:
        StoreError: the region's own store doesn't take it.
    """
    event = json.loads(message.text)
    moment = "".join(letter for letter in str(event["time"]) if letter not in "-:")
    uri = f"{dead_folder(context, outlet)}/{moment}-{message.id}.json"
    at = datetime.now(UTC).isoformat(timespec="seconds")
    letter = DeadLetter(outlet, message.id, message.table, reason, at, event)
    context.objects.write_new(uri, json.dumps(LETTER.encode(letter)).encode())
    return uri


def dead_folder(context: RegionContext, outlet: str) -> str:
    """Return the folder of an outlet's dead letters."""
    return f"{own_folder(context.region.replica_root, DEAD)}/{outlet}"


def dead_files(context: RegionContext, outlet: str) -> list[str]:
    """Return the URIs of an outlet's dead letters, oldest event first."""
    return sorted(uri for uri, _, _ in context.objects.list(dead_folder(context, outlet)) if uri.endswith(".json"))


def dead_letters(context: RegionContext, outlet: str) -> Iterator[DeadLetter]:
    """Yield an outlet's dead letters, oldest event first.

    Raises:
        StoreError: they can't be read.
        BrokenMetadata: one is damaged.
    """
    for uri, found in context.objects.read_many(dead_files(context, outlet)):
        if isinstance(found, SternaError):
            raise found
        try:
            letter = LETTER.loads(found)
        except MalformedRecord as error:
            raise BrokenMetadata(f"this is no dead letter: {error}", file=uri) from None
        yield replace(letter, outlet=outlet, file=uri)
