"""The view Tables: what each region serves of each table, paged on the server."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

from sterna.airflow.pages.source import Source
from sterna.catalog.model import ICEBERG_TABLE, Content, key_name
from sterna.errors import ReferenceNotFound, SternaError, printable
from sterna.registry.model import SOURCE_BRANCH
from sterna.render.plain import plain
from sterna.replica.news import snapshot_of

if TYPE_CHECKING:
    from sterna.catalog.reader import CatalogReader
    from sterna.replica.held import Held
    from sterna.replica.region import RegionContext

SORTS = ("name", "lag", "state")
MOST = 200
_KEPT = 8
_LONGEST = 20_000_000  # bytes of a metadata.json: a longer one is not read for a figure
_AT_ONCE = 8
_GZIP = b"\x1f\x8b"
_STORE_SECONDS = 5.0
State = Literal["served", "behind", "held", "transit", "missing", "gone"]
# In this order where they are sorted by it: what needs somebody first.
STATES: tuple[State, ...] = ("held", "transit", "behind", "missing", "gone", "served")
_listings: OrderedDict[tuple[str, str], dict[str, Content]] = OrderedDict()
_lock = Lock()


@dataclass(frozen=True)
class Row:
    """A table in one region.

    Args:
        key: key name.
        state: `served` as `main` has it, `behind`, `held`, in `transit`, `missing` here, or `gone` from `main`.
        lag: seconds; None when nobody knows.
        held: why it stays behind.
        here: what the replica branch has under its key.
    """

    key: str
    state: State
    lag: float | None
    held: Held | None = None
    here: Content | None = None

    @property
    def shown(self) -> dict[str, Any]:
        """What a page shows of it; the snapshot is text, since JavaScript's numbers can't hold it."""
        snapshot = snapshot_of(self.here)
        facts = {"key": self.key, "state": self.state, "lag": self.lag, "held": plain(self.held)}
        return {**facts, "snapshot": "" if snapshot is None else str(snapshot)}

    @property
    def metadata(self) -> str:
        """The URI of its metadata.json in the region, "" where it has none."""
        return (self.here and self.here.metadata_location) or ""


def table_page(source: Source, region: str, search: str, sort: str, page: int, size: int) -> dict[str, Any]:
    """Return one page of a region's tables, with files and bytes of those on it.

    Args:
        source: where the facts are from.
        region: which region.
        search: text that the names have in them, in whatever case.
        sort: `name`, `lag` or `state`; with `-` in front the other way round.
        page: from 0 on.
        size: rows on a page.

    Raises:
        CatalogError, CredentialError: the region's catalog can't be asked.
    """
    with source.other(region) as context:
        rows = [row for row in table_rows(context) if search.casefold() in row.key.casefold()]
        rows = sorted_rows(rows, sort)
        shown = rows[page * size : (page + 1) * size]
        figures = _figures(context, shown)
        listed = [{**row.shown, **figures.get(row.key, {})} for row in shown]
        counts = {state: sum(row.state == state for row in rows) for state in STATES}
        return {"region": region, "total": len(rows), "page": page, "size": size, "counts": counts, "rows": listed}


def table_rows(context: RegionContext, now: datetime | None = None) -> list[Row]:
    """Return all tables of a region, by what `main` and its replica branch have under each name."""
    from sterna.replica.lag import lag_of
    from sterna.status.read import read_status

    now, status = now or datetime.now(UTC), read_status(context)
    if status.cut_off:
        context = context.without_primary()
    main = _tables(context.primary, SOURCE_BRANCH, context.primary.reference(SOURCE_BRANCH).hash)
    then = _tables(context.primary, SOURCE_BRANCH, status.watermark)
    here = _tables(context.catalog, context.region.replica_branch, status.replica_hash)
    behind = {each.held.key: each.held for each in status.held} | {each.held.key: each.held for each in status.transit}
    refused = {item.key for item in status.refused}
    rows = []
    for key in sorted(main.keys() | here.keys() | (behind.keys() - refused)):
        if key in refused and key not in here:
            continue
        held, same = behind.get(key), not status.watermark or then.get(key) == main.get(key)
        state = _state(key in main, key in here, held, same)
        lag = lag_of(held, now) if held else 0.0 if state == "served" else status.watermark_lag_seconds
        rows.append(Row(key, state, lag, held, here.get(key)))
    return rows


def sorted_rows(rows: Iterable[Row], sort: str) -> list[Row]:
    """Return rows in an order; one of which nobody knows the lag counts as the oldest."""
    name, down = sort.removeprefix("-"), sort.startswith("-")
    orders: dict[str, Any] = {
        "name": lambda row: row.key,
        "lag": lambda row: float("inf") if row.lag is None else row.lag,
        "state": lambda row: STATES.index(row.state),
    }
    return sorted(sorted(rows, key=orders["name"]), key=orders.get(name, orders["name"]), reverse=down)


def next_sync(source: Source) -> dict[str, Any]:
    """Return what the next sync of this Airflow's own region would do, as `sterna plan` says it.

    Raises:
        SternaError: there can be no plan now.
    """
    from sterna.render.plan import plan_json
    from sterna.sync.explain import explain
    from sterna.sync.options import SyncOptions
    from sterna.sync.plan.make import make_plan

    with source.own() as context:
        told: dict[str, Any] = plan_json(explain(context, *make_plan(context, SyncOptions(), lambda _: None)))
        return told


def _state(on_main: bool, is_here: bool, held: Held | None, same: bool) -> State:
    if held is not None:
        return "transit" if held.in_transit else "held"
    if not on_main:
        return "gone"
    if not is_here:
        return "missing"
    return "served" if same else "behind"


def _tables(catalog: CatalogReader, branch: str, hash: str) -> dict[str, Content]:
    """Return a commit's tables; what a commit holds never changes, so the newest few are kept."""
    if not hash or hash == catalog.no_ancestor():
        return {}
    with _lock:
        if (branch, hash) in _listings:
            _listings.move_to_end((branch, hash))
            return _listings[branch, hash]
    try:
        entries = catalog.entries(branch, hash)
        found = {key_name(key): content for key, content in entries if content.kind == ICEBERG_TABLE}
    except ReferenceNotFound:
        return {}
    with _lock:
        _listings[branch, hash] = found
        while len(_listings) > _KEPT:
            _listings.popitem(last=False)
    return found


def _figures(context: RegionContext, rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Return files and bytes of some tables, by their metadata; a store that is dark leaves them unknown."""
    from sterna.edges.stores.objects import Objects

    objects = Objects(context.mapping, context.secrets, timeout=_STORE_SECONDS)

    def figure(row: Row) -> dict[str, Any]:
        try:
            return _summary(objects.read(row.metadata, limit=_LONGEST)) if row.metadata else {}
        except SternaError as error:
            return {"unread": printable(str(error))}
        except ValueError:
            return {}

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(zip((row.key for row in rows), pool.map(figure, rows), strict=True))


def _summary(data: bytes) -> dict[str, Any]:
    if data.startswith(_GZIP):
        return {}
    document = json.loads(data)
    current = document.get("current-snapshot-id")
    for snapshot in document.get("snapshots") or ():
        if snapshot.get("snapshot-id") == current:
            summary = snapshot.get("summary") or {}
            return {"files": _number(summary, "total-data-files"), "bytes": _number(summary, "total-files-size")}
    return {"files": 0, "bytes": 0}


def _number(summary: dict[str, Any], name: str) -> int | None:
    value = str(summary.get(name, ""))
    return int(value) if value.isascii() and value.isdigit() and len(value) < 19 else None
