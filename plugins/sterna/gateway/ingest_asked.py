"""What a producer asks for: table, channel and keys, checked before a byte of the body is read."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from starlette.requests import Request

from sterna.gateway.replies import RefusedRequest
from sterna.ingest.model import DEFAULT_CHANNEL, TOPIC_CHANNEL, Format, Lane, State, channel_name
from sterna.ingest.places import is_table
from sterna.services.ingest import Ingest

MOST_BATCHES = 1000
ROWS: Mapping[str, Format] = {
    "application/jsonl": Format.JSON_LINES,
    "application/x-ndjson": Format.JSON_LINES,
    "application/x-jsonlines": Format.JSON_LINES,
    "application/vnd.apache.arrow.stream": Format.ARROW,
}
FILES: Mapping[str, Format] = {
    "application/vnd.apache.parquet": Format.PARQUET,
    "application/x-parquet": Format.PARQUET,
    "application/octet-stream": Format.PARQUET,
}
_TOKEN = re.compile(r"[!-~]{1,255}")
_CHANNEL = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LENGTH = re.compile(r"[0-9]{1,15}")
_PARTITION = re.compile(r"[!-~]{1,255}")


@dataclass(frozen=True)
class Post:
    """A checked wish to send something.

    Args:
        lane: where it goes.
        key: the idempotency key; "": none.
        offset: the offset token; "": none.
        format: what it says it is.
        length: of the body.
        gzip: whether the body is compressed.
    """

    lane: Lane
    key: str
    offset: str
    format: Format
    length: int
    gzip: bool = False


def asked_post(
    request: Request, table: str, region: str, settings: Ingest, tenants: Collection[str], kinds: Mapping[str, Format]
) -> Post:
    """Return what a producer wishes to send.

    Args:
        request: the request.
        table: the table of its path.
        region: this one.
        settings: the section of the services file.
        tenants: whose the token is.
        kinds: what the path takes, by content type.

    Raises:
        RefusedRequest: 400, 403, 404, 411 or 415.
    """
    _refuse_parameters(request, ())
    tenant = owner(settings, table, tenants)
    name = _header(request, "sterna-channel", _CHANNEL, "1 to 64 letters, digits, _ and -")
    if name.startswith(TOPIC_CHANNEL):
        raise RefusedRequest(400, f"a channel that begins with {TOPIC_CHANNEL} is a topic's")
    key = _header(request, "idempotency-key", _TOKEN, "1 to 255 printable letters of ASCII")
    offset = _header(request, "sterna-offset", _TOKEN, "1 to 255 printable letters of ASCII")
    partition = _header(request, "sterna-partition", _PARTITION, "1 to 255 printable letters of ASCII")
    if key and offset:
        raise RefusedRequest(400, "send either Idempotency-Key or Sterna-Offset, not both")
    if offset and not name:
        raise RefusedRequest(400, "Sterna-Offset needs a Sterna-Channel")
    lane = Lane(tenant, table, channel_name(region, tenant, name or DEFAULT_CHANNEL), partition)
    return Post(lane, key, offset, _format(request, kinds), _length(request), _is_gzip(request))


def owner(settings: Ingest, table: str, tenants: Collection[str]) -> str:
    """Return the tenant whose a table is, which has to be one of the caller's.

    Raises:
        RefusedRequest: 403 where it isn't; so nobody learns which tables others have. 404 where the name is none.
    """
    if not is_table(table):
        raise RefusedRequest(404, "a table's name has letters, digits and _, and a dot between its parts")
    tenant = settings.tenant_of(table)
    if tenant is None or tenant not in tenants:
        raise RefusedRequest(403, "the token's tenant has no such namespace")
    return tenant


@dataclass(frozen=True)
class BatchesAsked:
    """Which batches somebody asks for."""

    tenants: Collection[str]
    table: str | None
    state: State | None
    since: datetime | None
    most: int


def asked_batches(request: Request, tenants: Collection[str]) -> BatchesAsked:
    """Return which batches somebody asks for.

    Args:
        request: the request.
        tenants: those of which he may be told.

    Raises:
        RefusedRequest: 400 or 403.
    """
    _refuse_parameters(request, ("tenant", "table", "state", "since", "limit"))
    given = request.query_params
    tenant, table, limit = given.get("tenant"), given.get("table"), given.get("limit", "100")
    if tenant is not None and tenant not in tenants:
        raise RefusedRequest(403, "the token is not of that tenant")
    if table is not None and not is_table(table):
        raise RefusedRequest(400, "table: this is no table's name")
    if not _LENGTH.fullmatch(limit) or not 1 <= int(limit) <= MOST_BATCHES:
        raise RefusedRequest(400, f"limit: expected 1 to {MOST_BATCHES}")
    wished = tenants if tenant is None else [tenant]
    return BatchesAsked(wished, table, _state(given.get("state")), _since(given.get("since")), int(limit))


def _state(given: str | None) -> State | None:
    states = [state.value for state in State if state is not State.BUFFERED]
    if given is not None and given not in states:
        raise RefusedRequest(400, f"state: expected one of {', '.join(states)}")
    return None if given is None else State(given)


def _since(given: str | None) -> datetime | None:
    if given is None:
        return None
    try:
        found = datetime.fromisoformat(given.replace(" ", "+"))  # a plus that wasn't escaped arrives as a space
    except ValueError:
        raise RefusedRequest(400, "since: expected a time such as 2026-11-22T10:00:00Z") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _refuse_parameters(request: Request, known: Collection[str]) -> None:
    for name in request.query_params:
        if name not in known:
            raise RefusedRequest(400, f"unknown parameter; there are: {', '.join(known) or 'none'}")
        if len(request.query_params.getlist(name)) > 1:
            raise RefusedRequest(400, f"{name} stands twice")


def _header(request: Request, name: str, form: re.Pattern[str], expected: str) -> str:
    given = request.headers.getlist(name)
    if not given:
        return ""
    if len(given) > 1 or not form.fullmatch(given[0]):
        raise RefusedRequest(400, f"{name}: expected {expected}, once")
    return given[0]


def _format(request: Request, kinds: Mapping[str, Format]) -> Format:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in kinds:
        raise RefusedRequest(415, f"the Content-Type has to be one of {', '.join(kinds)}")
    return kinds[kind]


def _is_gzip(request: Request) -> bool:
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("identity", "gzip"):
        raise RefusedRequest(415, "the Content-Encoding has to be gzip, or none")
    return coding == "gzip"


def _length(request: Request) -> int:
    given = request.headers.get("content-length", "")
    if not _LENGTH.fullmatch(given):
        raise RefusedRequest(411, "a Content-Length is needed")
    return int(given)
