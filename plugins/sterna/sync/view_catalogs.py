"""Which catalogs a changed view names: whoever reads it on the replica reads there, whatever branch he reads."""

from __future__ import annotations

from functools import cache

from sterna.catalog.model import ICEBERG_VIEW
from sterna.errors import TableError
from sterna.registry.model import SOURCE_BRANCH
from sterna.replica.records import Action, Plan
from sterna.replica.region import RegionContext
from sterna.sync.plan.reading import read_files


def catalogs_of_views(context: RegionContext, plan: Plan) -> dict[str, tuple[str, ...]]:
    """Return, by key name, which catalogs the views that a plan puts name and the registry doesn't speak of.

    Args:
        context: the region.
        plan: the plan.
    """

    @cache
    def namespace(name: str) -> bool:
        return bool(context.primary.contents(SOURCE_BRANCH, plan.source_hash, [(name,)]))

    def one(action: Action) -> tuple[str, ...]:
        from sterna.iceberg.metadata.view import catalogs_named

        views = context.registry.views
        try:
            ((_, data),) = read_files(context, {action.source: -1})
            return catalogs_named(
                data,
                action.source,
                own=views.own_catalogs,
                other=views.other_catalogs,
                namespace=namespace,
                limits=context.region.limits,
            )
        except TableError:
            return ()  # the run holds it, and says why

    views = (action for action in plan.actions if action.kind == ICEBERG_VIEW and action.source)
    return {action.key: found for action in views if (found := one(action))}
