"""Requests of producers: table, channel and keys, validated before a byte of the body is read."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from starlette.requests import Request

from sterna.config.sections.ingest import Ingest
from sterna.pipelines.ingest.layout import is_valid_table
from sterna.pipelines.ingest.model import (
    DEFAULT_CHANNEL,
    TOPIC_CHANNEL_PREFIX,
    Destination,
    Format,
    State,
    channel_name,
)
from sterna.serving.http.errors import RequestError

MAX_BATCHES = 1000
ROW_FORMATS: Mapping[str, Format] = {
    "application/jsonl": Format.JSON_LINES,
    "application/x-ndjson": Format.JSON_LINES,
    "application/x-jsonlines": Format.JSON_LINES,
    "application/vnd.apache.arrow.stream": Format.ARROW,
}
FILE_FORMATS: Mapping[str, Format] = {
    "application/vnd.apache.parquet": Format.PARQUET,
    "application/x-parquet": Format.PARQUET,
    "application/octet-stream": Format.PARQUET,
}
_TOKEN = re.compile(r"[!-~]{1,255}")
_CHANNEL = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LENGTH = re.compile(r"[0-9]{1,15}")
_PARTITION = re.compile(r"[!-~]{1,255}")


@dataclass(frozen=True)
class UploadHeaders:
    """A checked wish to send something.

    Args:
        key: the idempotency key; "": none.
        offset: the offset token; "": none.
        format: the declared one.
        length: of the body.
        gzip: whether the body is compressed.
    """

    destination: Destination
    key: str
    offset: str
    format: Format
    length: int
    gzip: bool = False


def parse_upload_headers(
    request: Request, table: str, region: str, settings: Ingest, tenants: Collection[str], formats: Mapping[str, Format]
) -> UploadHeaders:
    """Return what a producer wishes to send.

    Args:
        table: the table of its path.
        settings: the section of the services file.
        tenants: those of the token.
        formats: what the path takes, by content type.

    Raises:
        RequestError: 400, 403, 404, 411 or 415.
    """
    _validate_parameters(request, ())
    tenant = require_owner(settings, table, tenants)
    name = _parse_header(request, "sterna-channel", _CHANNEL, "1 to 64 letters, digits, _ and -")
    if name.startswith(TOPIC_CHANNEL_PREFIX):
        raise RequestError(400, f"a channel that begins with {TOPIC_CHANNEL_PREFIX} is a topic's")
    key = _parse_header(request, "idempotency-key", _TOKEN, "1 to 255 printable letters of ASCII")
    offset = _parse_header(request, "sterna-offset", _TOKEN, "1 to 255 printable letters of ASCII")
    partition = _parse_header(request, "sterna-partition", _PARTITION, "1 to 255 printable letters of ASCII")
    if key and offset:
        raise RequestError(400, "send either Idempotency-Key or Sterna-Offset, not both")
    if offset and not name:
        raise RequestError(400, "Sterna-Offset needs a Sterna-Channel")
    destination = Destination(tenant, table, channel_name(region, tenant, name or DEFAULT_CHANNEL), partition)
    return UploadHeaders(
        destination, key, offset, _parse_format(request, formats), _parse_length(request), _is_gzip(request)
    )


def require_owner(settings: Ingest, table: str, tenants: Collection[str]) -> str:
    """Return the tenant that owns a table, which has to be one of the caller's.

    Raises:
        RequestError: 403 where it isn't, so that other tenants' tables aren't revealed. 404 where the name is none.
    """
    if not is_valid_table(table):
        raise RequestError(404, "a table's name has letters, digits and _, and a dot between its parts")
    tenant = settings.tenant_of(table)
    if tenant is None or tenant not in tenants:
        raise RequestError(403, "the token's tenant has no such namespace")
    return tenant


@dataclass(frozen=True)
class BatchesQuery:
    """Which batches a query selects."""

    tenants: Collection[str]
    table: str | None
    state: State | None
    since: datetime | None
    limit: int


def parse_batches_query(request: Request, tenants: Collection[str]) -> BatchesQuery:
    """Return the query of a request for batches.

    Args:
        request: the request.
        tenants: those that the caller may read.

    Raises:
        RequestError: 400 or 403.
    """
    _validate_parameters(request, ("tenant", "table", "state", "since", "limit"))
    params = request.query_params
    tenant, table, limit = params.get("tenant"), params.get("table"), params.get("limit", "100")
    if tenant is not None and tenant not in tenants:
        raise RequestError(403, "the token is not of that tenant")
    if table is not None and not is_valid_table(table):
        raise RequestError(400, "table: this is no table's name")
    if not _LENGTH.fullmatch(limit) or not 1 <= int(limit) <= MAX_BATCHES:
        raise RequestError(400, f"limit: expected 1 to {MAX_BATCHES}")
    selected = tenants if tenant is None else [tenant]
    return BatchesQuery(
        selected, table, _parse_state(params.get("state")), _parse_since(params.get("since")), int(limit)
    )


def _parse_state(text: str | None) -> State | None:
    states = [state.value for state in State if state is not State.BUFFERED]
    if text is not None and text not in states:
        raise RequestError(400, f"state: expected one of {', '.join(states)}")
    return None if text is None else State(text)


def _parse_since(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text.replace(" ", "+"))  # a plus that wasn't escaped arrives as a space
    except ValueError:
        raise RequestError(400, "since: expected a time such as 2026-11-22T10:00:00Z") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _validate_parameters(request: Request, allowed: Collection[str]) -> None:
    for name in request.query_params:
        if name not in allowed:
            raise RequestError(400, f"unknown parameter; there are: {', '.join(allowed) or 'none'}")
        if len(request.query_params.getlist(name)) > 1:
            raise RequestError(400, f"{name} stands twice")


def _parse_header(request: Request, name: str, form: re.Pattern[str], expected: str) -> str:
    headers = request.headers.getlist(name)
    if not headers:
        return ""
    if len(headers) > 1 or not form.fullmatch(headers[0]):
        raise RequestError(400, f"{name}: expected {expected}, once")
    return headers[0]


def _parse_format(request: Request, formats: Mapping[str, Format]) -> Format:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in formats:
        raise RequestError(415, f"the Content-Type has to be one of {', '.join(formats)}")
    return formats[kind]


def _is_gzip(request: Request) -> bool:
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("identity", "gzip"):
        raise RequestError(415, "the Content-Encoding has to be gzip, or none")
    return coding == "gzip"


def _parse_length(request: Request) -> int:
    header = request.headers.get("content-length", "")
    if not _LENGTH.fullmatch(header):
        raise RequestError(411, "a Content-Length is needed")
    return int(header)
