"""Which catalogs a changed view names: whoever reads it on the replica reads there, whatever branch he reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache

from sterna.catalog.model import ICEBERG_VIEW
from sterna.errors import ObjectMissing, SternaError, TableError
from sterna.registry.model import SOURCE_BRANCH
from sterna.replica.records import Plan
from sterna.replica.region import RegionContext
from sterna.sync.plan.reading import refuse_crossing


def catalogs_of_views(context: RegionContext, plan: Plan) -> dict[str, tuple[str, ...]]:
    """Return, by key name, which catalogs the views that a plan puts name and the registry doesn't speak of.

    Args:
        context: the region.
        plan: the plan.
    """

    @cache
    def namespace(name: str) -> bool:
        return bool(context.primary.contents(SOURCE_BRANCH, plan.source_hash, [(name,)]))

    def named(uri: str, data: bytes) -> tuple[str, ...]:
        from sterna.iceberg.metadata.view import catalogs_named

        views = context.registry.views
        return catalogs_named(
            data,
            uri,
            own=views.own_catalogs,
            other=views.other_catalogs,
            namespace=namespace,
            limits=context.region.limits,
        )

    sources = {action.key: action.source for action in plan.actions if action.kind == ICEBERG_VIEW and action.source}
    found: dict[str, tuple[str, ...]] = {}
    for uri, data in context.objects.read_within(dict.fromkeys(_readable(context, sources.values()), -1)):
        if isinstance(data, SternaError) and not isinstance(data, (ObjectMissing, TableError)):
            raise data
        if isinstance(data, bytes):
            with suppress(TableError):  # the run holds it, and says why
                found[uri] = named(uri, data)
    return {key: catalogs for key, uri in sources.items() if (catalogs := found.get(uri, ()))}


def _readable(context: RegionContext, uris: Iterable[str]) -> Iterator[str]:
    for uri in uris:
        try:
            refuse_crossing(context, uri)
        except TableError:
            continue
        yield uri
