"""What a plan would do, as facts: from where, at what price, and what is held and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal

from sterna.catalog.model import ICEBERG_VIEW
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import ObjectMissing, SternaError, TableError
from sterna.libraries import pa
from sterna.replication.execution.executor import Placement, plan_placements
from sterna.replication.plan.batch_sources import egress_cost
from sterna.replication.plan.inventory import copied_by_table
from sterna.replication.plan.metadata_reader import require_resident
from sterna.replication.replica import file_list as listing
from sterna.replication.replica.held import Held, split_in_transit
from sterna.replication.replica.model import Plan
from sterna.replication.replica.region import RegionContext


@dataclass(frozen=True)
class ExplainedAction:
    """One key that changes on the replica branch.

    Args:
        key: key name.
        kind: content type, as the catalog spells it.
        change: what happens to the key.
        files, bytes: what is copied for it.
        localize: how many of its files are localized. All three are None for a key without files.
        catalogs: of a view: catalogs that it names, and that the registry's `views` doesn't list.
    """

    key: str
    kind: str
    change: Literal["put", "drop"]
    files: int | None = None
    bytes: int | None = None
    localize: int | None = None
    catalogs: tuple[str, ...] = ()


@dataclass(frozen=True)
class OriginTotal:
    """What is copied from one location."""

    batches: int = 0
    files: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class CopiesTotal:
    """What is expected to come from the copies that one other region keeps, and not from the files' origins."""

    files: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class PlanExplanation:
    """A plan in facts that a page, a command or a task's log can show.

    Args:
        region, branch: what is synced.
        source_hash: the commit of `main` that it is synced to.
        watermark: the commit of `main` that it is at, None where there is none yet.
        idle: nothing is to be done.
        seeding: the branch is being seeded for the first time.
        more: another sync must follow: the seed has further groups.
        left: how many of the compared keys are as they should be.
        present: how many foreign files, not proven by the replica's head, are here already.
        localize: where the files of each role are localized, in the order of the passes.
        origins: what is copied, by the id of the location that it comes from.
        egress_cost: estimated price of the copies.
        held: keys that can't be published now.
        transit: keys that the large lane copies.
        copies: how much of it is expected to come from the copies that other regions keep, by region.
        egress_saved: by how much the origins would be dearer.
    """

    region: str
    branch: str
    source_hash: str
    watermark: str | None
    idle: bool
    seeding: bool
    more: bool
    actions: tuple[ExplainedAction, ...]
    left: int
    present: int
    localize: tuple[Placement, ...]
    origins: dict[str, OriginTotal]
    egress_cost: float
    held: tuple[Held, ...]
    transit: tuple[Held, ...] = ()
    copies: dict[str, CopiesTotal] = field(default_factory=dict)
    egress_saved: float = 0.0


def explain(context: RegionContext, plan: Plan, files: pa.Table | None) -> PlanExplanation:
    """Return what a plan would do: tables, files and bytes by table and by origin, price, and what is held.

    Args:
        files: its list of files, None when it has none.
    """
    held, transit = split_in_transit(plan.held)
    return PlanExplanation(
        region=plan.region,
        branch=context.region.replica_branch,
        source_hash=plan.source_hash,
        watermark=plan.watermark or None,
        idle=plan.idle,
        seeding=plan.seeding,
        more=plan.more,
        actions=_actions(plan, files, _catalogs_of_views(context, plan)),
        left=plan.unchanged,
        present=plan.present_files,
        localize=() if files is None else tuple(plan_placements(context.region, files)),
        origins=_origins(plan),
        egress_cost=round(plan.egress_cost, 6),
        held=held,
        transit=transit,
        copies=_copies(plan),
        egress_saved=round(egress_cost(context, plan.batches, from_origins=True) - plan.egress_cost, 6),
    )


def _origins(plan: Plan) -> dict[str, OriginTotal]:
    totals: dict[str, OriginTotal] = {}
    for batch in plan.batches:
        subtotal = totals.get(batch.origin, OriginTotal())
        totals[batch.origin] = OriginTotal(
            subtotal.batches + 1, subtotal.files + batch.files, subtotal.bytes + batch.bytes
        )
    return totals


def _copies(plan: Plan) -> dict[str, CopiesTotal]:
    totals: dict[str, CopiesTotal] = {}
    for batch in plan.batches:
        for region in batch.preferred[:1]:
            subtotal = totals.get(region, CopiesTotal())
            totals[region] = CopiesTotal(subtotal.files + batch.files, subtotal.bytes + batch.bytes)
    return totals


def _actions(
    plan: Plan, files: pa.Table | None, catalogs: Mapping[str, tuple[str, ...]]
) -> tuple[ExplainedAction, ...]:
    copied, localized = ({}, {}) if files is None else (copied_by_table(files, plan.batches), _localized(files))
    actions = []
    for action in plan.actions:
        explained = ExplainedAction(action.key, action.kind, action.change, catalogs=catalogs.get(action.key, ()))
        if action.key in copied or action.key in localized:
            count, size = copied.get(action.key, (0, 0))
            explained = replace(explained, files=count, bytes=size, localize=localized.get(action.key, 0))
        actions.append(explained)
    return tuple(actions)


def _localized(files: pa.Table) -> dict[str, int]:
    """Return, by table, how many files are localized."""
    rows = listing.files_to_localize(files).group_by("table").aggregate([("size", "count")]).to_pylist()
    return {row["table"]: row["size_count"] for row in rows}


def _catalogs_of_views(context: RegionContext, plan: Plan) -> dict[str, tuple[str, ...]]:
    """Return, by key name, the catalogs that a plan's views name and the registry's `views` doesn't list.

    A view is read in those catalogs on the replica, whatever branch its reader is on.
    """

    @cache
    def is_namespace(name: str) -> bool:
        return bool(context.primary.contents(SOURCE_BRANCH, plan.source_hash, [(name,)]))

    def read_catalogs(uri: str, data: bytes) -> tuple[str, ...]:
        from sterna.iceberg.metadata.view import named_catalogs

        views = context.registry.views
        return named_catalogs(
            data,
            uri,
            own_catalogs=views.own_catalogs,
            other_catalogs=views.other_catalogs,
            has_namespace=is_namespace,
            limits=context.region.limits,
        )

    sources = {action.key: action.source for action in plan.actions if action.kind == ICEBERG_VIEW and action.source}
    catalogs_by_uri: dict[str, tuple[str, ...]] = {}
    objects = context.objects.with_verbatim_copies()
    for uri, data in objects.read_bounded(dict.fromkeys(_readable(context, sources.values()), -1)):
        if isinstance(data, SternaError) and not isinstance(data, (ObjectMissing, TableError)):
            raise data
        if isinstance(data, bytes):
            with suppress(TableError):  # the sync holds this view, with the reason
                catalogs_by_uri[uri] = read_catalogs(uri, data)
    return {key: catalogs for key, uri in sources.items() if (catalogs := catalogs_by_uri.get(uri, ()))}


def _readable(context: RegionContext, uris: Iterable[str]) -> Iterator[str]:
    for uri in uris:
        try:
            require_resident(context, uri)
        except TableError:
            continue
        yield uri
