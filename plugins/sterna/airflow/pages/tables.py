"""The view Tables: what each region serves of each table, paged on the server, and the details of one table."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

from sterna.airflow.pages.events import event_fields
from sterna.airflow.pages.restores import RecentRestore, recent_restores, stopped_channels
from sterna.airflow.pages.source import Source
from sterna.catalog.model import ICEBERG_TABLE, Content, key_name, parse_key
from sterna.catalog.tables import content_snapshot_id
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import BrokenMetadata, ReferenceNotFound, SternaError, printable
from sterna.notifications.change_log.log import EventLog
from sterna.operations.run_book import card_link
from sterna.replication.replica.tags import pinned_until
from sterna.text.plain import to_plain

if TYPE_CHECKING:
    from sterna.catalog.reader import CatalogReader
    from sterna.replication.replica.held import Held
    from sterna.replication.replica.region import RegionContext

SORTS = ("name", "lag", "state")
MAX_PAGE_SIZE = 200
_MAX_LISTINGS = 8
_MAX_METADATA_BYTES = 20_000_000  # bytes of a metadata.json: a longer one is not read for a figure
_MAX_CONCURRENCY = 8
_GZIP_MAGIC = b"\x1f\x8b"
_STORE_TIMEOUT_SECONDS = 5.0
_EVENT_RETENTION = timedelta(days=7)
_MAX_EVENT_COMMITS = 200
_MAX_SHOWN_EVENTS = 10
State = Literal["served", "behind", "held", "transit", "missing", "gone"]
# In this order where they are sorted by it: what needs attention first.
STATES: tuple[State, ...] = ("held", "transit", "behind", "missing", "gone", "served")
_listings: OrderedDict[tuple[str, str], dict[str, Content]] = OrderedDict()
_lock = Lock()


@dataclass(frozen=True)
class TableRow:
    """A table in one region.

    Args:
        key: key name.
        state: `served` as `main` has it, `behind`, `held`, in `transit`, `missing` here, or `gone` from `main`.
        lag: seconds; None when unknown.
        held: why it stays behind.
        replica: what the replica branch has under its key.
        restored: the restore that put it on `main` lately; None where there is none.
    """

    key: str
    state: State
    lag: float | None
    held: Held | None = None
    replica: Content | None = None
    restored: RecentRestore | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """What a page shows of it; the snapshot is text, since JavaScript's numbers can't hold it."""
        from sterna.operations.status.read import advice

        snapshot = content_snapshot_id(self.replica)
        row = {"key": self.key, "state": self.state, "lag": self.lag, "held": to_plain(self.held)}
        kind = self.held.kind if self.held else ""
        row |= {"card": card_link(kind), "do": advice(kind) if kind else ""}
        row |= {"restored": to_plain(self.restored), "rewound": []}
        return {**row, "snapshot": "" if snapshot is None else str(snapshot)}

    @property
    def metadata(self) -> str:
        """The URI of its metadata.json in the region, "" where it has none."""
        return (self.replica and self.replica.metadata_location) or ""


def table_page(source: Source, region: str, search: str, sort: str, page: int, size: int) -> dict[str, Any]:
    """Return one page of a region's tables, with files, bytes and stopped channels of those on it.

    Args:
        source: where the facts are from.
        search: text that the names have in them, in whatever case.
        sort: `name`, `lag` or `state`; with `-` in front the other way round.
        page: from 0 on.
        size: rows on a page.

    Raises:
        CatalogError, CredentialError: the region's catalog can't be read.
    """
    with source.open_region(region) as context:
        rows = [row for row in table_rows(context) if search.casefold() in row.key.casefold()]
        rows = sorted_rows(rows, sort)
        page_rows = rows[page * size : (page + 1) * size]
        facts, paused = _table_facts(context, page_rows), _pauses(context, page_rows)
        row_fields = [{**row.fields, "paused": paused.get(row.key, ""), **facts.get(row.key, {})} for row in page_rows]
        counts = {state: sum(row.state == state for row in rows) for state in STATES}
        return {"region": region, "total": len(rows), "page": page, "size": size, "counts": counts, "rows": row_fields}


def table_rows(context: RegionContext, now: datetime | None = None) -> list[TableRow]:
    """Return all tables of a region, by what `main` and its replica branch have under each name."""
    from sterna.operations.status.read import read_status
    from sterna.replication.replica.lag import held_key_lag

    now, status = now or datetime.now(UTC), read_status(context)
    if status.cut_off:
        context = context.without_primary()
    head = context.primary.reference(SOURCE_BRANCH).hash
    main = _list_tables(context.primary, SOURCE_BRANCH, head)
    at_watermark = _list_tables(context.primary, SOURCE_BRANCH, status.watermark)
    replica = _list_tables(context.catalog, context.region.replica_branch, status.replica_hash)
    held_by_key = {table.held.key: table.held for table in status.held} | {
        table.held.key: table.held for table in status.transit
    }
    excluded = {excluded_table.key for excluded_table in status.refused}
    restores = recent_restores(context.primary, head, now)
    rows = []
    for key in sorted(main.keys() | replica.keys() | (held_by_key.keys() - excluded)):
        if key in excluded and key not in replica:
            continue
        held, unchanged = held_by_key.get(key), not status.watermark or at_watermark.get(key) == main.get(key)
        state = _table_state(key in main, key in replica, held, unchanged)
        lag = held_key_lag(held, now) if held else 0.0 if state == "served" else status.watermark_lag_seconds
        rows.append(TableRow(key, state, lag, held, replica.get(key), restores.get(key)))
    return rows


def sorted_rows(rows: Iterable[TableRow], sort: str) -> list[TableRow]:
    """Return rows in an order; one of unknown lag counts as the oldest."""
    name, descending = sort.removeprefix("-"), sort.startswith("-")
    orders: dict[str, Any] = {
        "name": lambda row: row.key,
        "lag": lambda row: float("inf") if row.lag is None else row.lag,
        "state": lambda row: STATES.index(row.state),
    }
    return sorted(sorted(rows, key=orders["name"]), key=orders.get(name, orders["name"]), reverse=descending)


def next_sync(source: Source) -> dict[str, Any]:
    """Return what the next sync of this Airflow's own region would do, as `sterna plan` shows it.

    Raises:
        SternaError: there can be no plan now.
    """
    from sterna.replication.plan.options import SyncOptions
    from sterna.replication.plan.planner import make_plan
    from sterna.replication.sync.explain import explain
    from sterna.text.plan import plan_json

    with source.open_own() as context:
        plan: dict[str, Any] = plan_json(explain(context, *make_plan(context, SyncOptions(), lambda _: None)))
        return plan


def _table_state(on_main: bool, on_replica: bool, held: Held | None, unchanged: bool) -> State:
    if held is not None:
        return "transit" if held.in_transit else "held"
    if not on_main:
        return "gone"
    if not on_replica:
        return "missing"
    return "served" if unchanged else "behind"


def _list_tables(catalog: CatalogReader, branch: str, hash: str) -> dict[str, Content]:
    """Return a commit's tables; what a commit holds never changes, so the newest few are kept."""
    if not hash or hash == catalog.no_ancestor():
        return {}
    with _lock:
        if (branch, hash) in _listings:
            _listings.move_to_end((branch, hash))
            return _listings[branch, hash]
    try:
        entries = catalog.entries(branch, hash)
        tables = {key_name(key): content for key, content in entries if content.kind == ICEBERG_TABLE}
    except ReferenceNotFound:
        return {}
    with _lock:
        _listings[branch, hash] = tables
        while len(_listings) > _MAX_LISTINGS:
            _listings.popitem(last=False)
    return tables


def _pauses(context: RegionContext, rows: Sequence[TableRow]) -> dict[str, str]:
    """Return by key name who paused it when and why; none where the region's store is dark."""
    from sterna.operations.status.read import with_probe_store
    from sterna.replication.replica.pauses import read_pauses

    try:
        return {paused.key: paused.line for paused in read_pauses(with_probe_store(context), [row.key for row in rows])}
    except SternaError:
        return {}


def _table_facts(context: RegionContext, rows: Sequence[TableRow]) -> dict[str, dict[str, Any]]:
    """Return what some tables' metadata has of them; a store that is dark leaves it unknown."""
    from sterna.storage.objects import Objects

    objects = Objects(context.mapping, context.secrets, timeout=_STORE_TIMEOUT_SECONDS)

    def facts(row: TableRow) -> dict[str, Any]:
        try:
            body = objects.read(row.metadata, limit=_MAX_METADATA_BYTES) if row.metadata else b""
            return _metadata_facts(context, row, body) if body else {}
        except SternaError as error:
            return {"unread": printable(str(error))}

    with ThreadPoolExecutor(_MAX_CONCURRENCY) as pool:
        return dict(zip((row.key for row in rows), pool.map(facts, rows), strict=True))


def _metadata_facts(context: RegionContext, row: TableRow, body: bytes) -> dict[str, Any]:
    """Return what a page shows of a table's metadata.json; of one that is compressed nothing.

    Raises:
        OverLimit, BrokenMetadata: as `read_json`; or a field is missing, or of another type.
    """
    from sterna.replication.verify.json_file import read_json

    if body.startswith(_GZIP_MAGIC):
        return {}
    metadata = read_json(body, row.metadata, context.region.limits)
    try:
        return {**_snapshot_size(metadata), "rewound": to_plain(stopped_channels(row.key, metadata))}
    except (AttributeError, KeyError, TypeError, ValueError) as error:  # as others' writers may leave it
        message = f"not a table's metadata: {type(error).__name__}"
        raise BrokenMetadata(message, table=row.key, file=row.metadata) from error


def _snapshot_size(metadata: dict[str, Any]) -> dict[str, Any]:
    current = metadata.get("current-snapshot-id")
    for snapshot in metadata.get("snapshots") or ():
        if snapshot.get("snapshot-id") == current:
            summary = snapshot.get("summary") or {}
            return {
                "files": _parse_count(summary, "total-data-files"),
                "bytes": _parse_count(summary, "total-files-size"),
            }
    return {"files": 0, "bytes": 0}


def _parse_count(summary: dict[str, Any], name: str) -> int | None:
    value = str(summary.get(name, ""))
    return int(value) if value.isascii() and value.isdigit() and len(value) < 19 else None


def table_details(source: Source, region: str, key: str) -> dict[str, Any]:
    """Return what happened to a table last in a region, and which holds keep which snapshot of it readable there.

    Args:
        source: where the facts are from.
        key: the table's key name.

    Raises:
        CatalogError, CredentialError: the region's catalog can't be read.
    """
    with source.open_region(region) as context:
        log = EventLog(context, _EVENT_RETENTION, _MAX_EVENT_COMMITS)
        changes = log.read_since(None, log.head()).commits
        events = [event_fields(event) for change in changes for event in change.events if event.table == key]
        return {"events": events[: -_MAX_SHOWN_EVENTS - 1 : -1], "holds": list(_pins(context, key))}


def _pins(context: RegionContext, key: str) -> Iterator[dict[str, str]]:
    branch, content_key = context.region.replica_branch, parse_key(key)
    for reference in context.catalog.references():
        until = pinned_until(context.region.name, reference.name)
        if until is None:
            continue
        content = context.catalog.contents(branch, reference.hash, [content_key]).get(content_key)
        if content is not None:
            snapshot = content_snapshot_id(content)
            yield {"until": until.isoformat(), "snapshot": "" if snapshot is None else str(snapshot)}
