"""The inbox's records of uploads and batches: files beside the content, and their JSON.

A batch's file is written before the batch is staged, created only if absent, and never changed. So a tracker that was
lost between staging and publishing can't group the same uploads differently. A rejection has a file of its own beside
it, which is written before the next number is published.

A batch's file is compared byte for byte, so no field is added to it without another version, and one that is unknown to
this version is refused. A marker and a rejection are written once, and their unknown fields are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, TypeVar

from sterna.codec import INTEGER, TEXT, TIME, Codec, Document, Field, MalformedRecord, Record, UnknownFields, tuple_of
from sterna.errors import BadDrop
from sterna.pipelines.ingest.model import Batch, Destination, Format, State, Upload, batch_id

T = TypeVar("T")


@dataclass(frozen=True)
class BatchFile:
    """The content of a batch's file.

    Args:
        id: of the batch.
        destination: where its uploads go.
        number: of the batch.
        closed: when it was closed.
        closed_by: by which rule.
        uploads: of the batch, in the order in which they were taken.
    """

    id: str
    destination: Destination
    number: int
    closed: datetime
    closed_by: str
    uploads: tuple[Upload, ...]


@dataclass(frozen=True)
class Rejection:
    """The content of a rejection's file.

    Args:
        id: of the batch.
        destination: where its uploads go.
        number: of the batch.
        reason: why it was rejected.
    """

    id: str
    destination: Destination
    number: int
    reason: str
    rejected: datetime


def _decode_format(value: Any, path: str) -> Format:
    text = TEXT.decode(value, path)
    if text not in list(Format):
        raise MalformedRecord(f"{path} is none of {', '.join(Format)}")
    return Format(text)


def _build_upload(**fields: Any) -> Upload:
    """Return an upload of a batch's file, which has the destination once for all of them."""
    return Upload(destination=Destination("", "", ""), **fields)


DESTINATION_RECORD: Final = Record(
    Destination, (Field("tenant", TEXT), Field("table", TEXT), Field("channel", TEXT), Field("partition", TEXT))
)
_UPLOAD_FIELDS = (
    Field("id", TEXT),
    Field("key", TEXT),
    Field("offset", TEXT),
    Field("format", Codec(_decode_format, str)),
    Field("bytes", INTEGER),
    Field("rows", INTEGER),
    Field("digest", TEXT),
    Field("uri", TEXT),
    Field("accepted", TIME),
)
UPLOAD_MARKER: Final = Record(Upload, _UPLOAD_FIELDS, UnknownFields.IGNORE, inlined={"destination": DESTINATION_RECORD})
BATCH_UPLOAD: Final = Record(_build_upload, _UPLOAD_FIELDS)
BATCH_FILE: Final = Record(
    BatchFile,
    (
        Field("id", TEXT),
        Field("number", INTEGER),
        Field("closed", TIME),
        Field("closed_by", TEXT),
        Field("drops", tuple_of(BATCH_UPLOAD.codec), attribute="uploads"),
    ),
    inlined={"destination": DESTINATION_RECORD},
)
REJECTION: Final = Record(
    Rejection,
    (Field("id", TEXT), Field("number", INTEGER), Field("reason", TEXT), Field("rejected", TIME)),
    UnknownFields.IGNORE,
    inlined={"destination": DESTINATION_RECORD},
)


def format_batch(batch: Batch, uploads: Sequence[Upload]) -> bytes:
    """Return the file of a batch: the same bytes from every writer."""
    file = BatchFile(batch.id, batch.destination, batch.number, batch.closed, batch.closed_by, tuple(uploads))
    return Document(BATCH_FILE).dumps(file)


def parse_batch(text: bytes, uri: str) -> BatchFile:
    """Read a batch's file.

    Raises:
        BadDrop: it is none.
    """
    file = parse_file(Document(BATCH_FILE), "batch's file", text, uri)
    if file.id != batch_id(file.destination.table, file.destination.channel, file.number):
        raise BadDrop("this is no batch's file: its id is another batch's", file=uri)
    uploads = (
        replace(upload, destination=file.destination, state=State.CLOSED, batch=file.id) for upload in file.uploads
    )
    return replace(file, uploads=tuple(uploads))


def format_rejection(batch: Batch, reason: str, rejected_at: datetime) -> bytes:
    """Return the file of a rejection."""
    return Document(REJECTION).dumps(Rejection(batch.id, batch.destination, batch.number, reason, rejected_at))


def parse_rejection(text: bytes, uri: str) -> Rejection:
    """Read the file of a rejection.

    Raises:
        BadDrop: it is none.
    """
    return parse_file(Document(REJECTION), "rejected batch's file", text, uri)


def format_upload(upload: Upload) -> bytes:
    """Return an upload's completion marker, stored beside its content: content without a marker is no upload."""
    return Document(UPLOAD_MARKER).dumps(upload)


def parse_upload(text: bytes, uri: str) -> Upload:
    """Read an upload's marker.

    Raises:
        BadDrop: it is none.
    """
    return parse_file(Document(UPLOAD_MARKER), "upload's marker", text, uri)


def parse_file(document: Document[T], label: str, text: bytes, uri: str) -> T:
    """Read a file of the inbox.

    Args:
        label: what it should be, for the error.

    Raises:
        BadDrop: it isn't.
    """
    try:
        return document.loads(text)
    except MalformedRecord as error:
        raise BadDrop(f"this is no {label}: {error}", file=uri) from None
