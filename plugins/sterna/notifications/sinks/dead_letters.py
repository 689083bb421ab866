"""Dead letters: events that couldn't be delivered, kept in the replica's store until an operator replays them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from sterna.brokers.message import Message
from sterna.codec import RAW_JSON, TEXT, Field, MalformedRecord, Record, UnknownFields, dump_json, mapping_of
from sterna.config.registry.folders import DEAD_LETTERS, state_folder
from sterna.errors import BrokenMetadata, SternaError
from sterna.replication.replica.region import RegionContext


@dataclass(frozen=True)
class DeadLetter:
    """One event that a sink gave up.

    Args:
        sink: its name.
        id: the event's id.
        table: the event's table.
        reason: why it wasn't delivered.
        at: when delivery was abandoned (ISO 8601, UTC).
        event: the event itself.
        file: the URI of the letter.
    """

    sink: str = field(metadata={"json": "outlet"})
    id: str
    table: str
    reason: str
    at: str
    event: Mapping[str, Any] = field(repr=False)
    file: str = ""

    def message(self) -> Message:
        """Return the event as it was to be sent, byte for byte."""
        return Message(self.id, self.table, dump_json(self.event))


DEAD_LETTER: Final = Record(
    DeadLetter,
    (
        Field("outlet", TEXT, attribute="sink"),
        Field("id", TEXT),
        Field("table", TEXT),
        Field("reason", TEXT),
        Field("at", TEXT),
        Field("event", mapping_of(RAW_JSON)),
    ),
    UnknownFields.IGNORE,
)


def write_dead_letter(context: RegionContext, sink: str, message: Message, reason: str) -> str:
    """Write a dead letter, unless it exists already.

    Returns:
        Its URI.

    Raises:
        StoreError: the region's own store refuses it.
    """
    event = json.loads(message.payload)
    moment = "".join(letter for letter in str(event["time"]) if letter not in "-:")
    uri = f"{dead_letter_folder(context, sink)}/{moment}-{message.id}.json"
    at = datetime.now(UTC).isoformat(timespec="seconds")
    letter = DeadLetter(sink, message.id, message.table, reason, at, event)
    context.objects.write_new(uri, json.dumps(DEAD_LETTER.encode(letter)).encode())
    return uri


def dead_letter_folder(context: RegionContext, sink: str) -> str:
    """Return the folder of a sink's dead letters."""
    return f"{state_folder(context.region.replica_root, DEAD_LETTERS)}/{sink}"


def list_dead_letters(context: RegionContext, sink: str) -> list[str]:
    """Return the URIs of a sink's dead letters, oldest event first."""
    return sorted(uri for uri, _, _ in context.objects.list(dead_letter_folder(context, sink)) if uri.endswith(".json"))


def read_dead_letters(context: RegionContext, sink: str) -> Iterator[DeadLetter]:
    """Yield a sink's dead letters, oldest event first.

    Raises:
        StoreError: they can't be read.
        BrokenMetadata: one is damaged.
    """
    for uri, body in context.objects.read_many(list_dead_letters(context, sink)):
        if isinstance(body, SternaError):
            raise body
        try:
            letter = DEAD_LETTER.loads(body)
        except MalformedRecord as error:
            raise BrokenMetadata(f"this is no dead letter: {error}", file=uri) from None
        yield replace(letter, sink=sink, file=uri)
