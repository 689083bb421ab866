"""Datasets that a task read and wrote, for Airflow's OpenLineage provider.

Tables have the names that OpenLineage's Spark integration gives them: their location, and beside it the catalog's name.
So a graph joins what engines do with what sterna does. Nothing of OpenLineage is imported where the provider isn't in
use.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from sterna.sql_identifiers import quote_backtick

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import Dataset

    from sterna.config.registry.model import Registry
    from sterna.config.sections.cdc import CdcSource
    from sterna.config.sections.features import Features
    from sterna.config.sections.transforms import Transform
    from sterna.pipelines.cdc.run import TableStep
    from sterna.pipelines.features.materialize import Materialization
    from sterna.pipelines.transforms.step import StepSummary
    from sterna.replication.replica.model import Report
    from sterna.replication.replica.region import RegionContext

MAX_DATASETS: Final = 100
"""Inputs of one task, and outputs, that are named; the first ones by name."""
_PLAIN_ELEMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OBJECT_STORES = ("s3", "gs", "wasbs")  # schemes as the integration spells them: `s3a` is `s3`


@dataclass(frozen=True)
class DatasetName:
    """A dataset, as OpenLineage names it.

    Args:
        namespace: where it is, such as `s3://lake-eu`.
        name: its name there.
        catalog: the address of the catalog that has it as a table; "": none.
        table: its name there.
        version: id of the table's snapshot; "" where it isn't known.
    """

    namespace: str
    name: str
    catalog: str = ""
    table: str = ""
    version: str = ""


@dataclass(frozen=True)
class Lineage:
    """What a task read, and what it wrote.

    Args:
        inputs: `MAX_DATASETS` at most.
        outputs: the same.
        count: how many tables, or other datasets, were written; where it is more than `MAX_DATASETS`, the rest isn't
            named.
    """

    inputs: tuple[DatasetName, ...] = ()
    outputs: tuple[DatasetName, ...] = ()
    count: int = 0


def is_enabled() -> bool:
    """Return whether this Airflow has the OpenLineage provider, and a transport for its events."""
    try:
        from airflow.providers.openlineage.conf import is_disabled
    except ImportError:
        return False
    return not is_disabled()


def to_operator_lineage(lineage: Lineage) -> OperatorLineage[Any, Any]:
    """Return lineage as the provider takes it."""
    from airflow.providers.openlineage.extractors import OperatorLineage

    return OperatorLineage(
        inputs=[_to_dataset(dataset) for dataset in lineage.inputs],
        outputs=[_to_dataset(dataset) for dataset in lineage.outputs],
    )


def _to_dataset(dataset: DatasetName) -> Dataset:
    from openlineage.client.event_v2 import Dataset
    from openlineage.client.facet_v2 import DatasetFacet, dataset_version_dataset, symlinks_dataset

    facets: dict[str, DatasetFacet] = {}
    if dataset.catalog:
        identifier = symlinks_dataset.Identifier(dataset.catalog, dataset.table, "TABLE")
        facets["symlinks"] = symlinks_dataset.SymlinksDatasetFacet([identifier])
    if dataset.version:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(dataset.version)
    return Dataset(dataset.namespace, dataset.name, facets=facets)


def location_name(uri: str) -> DatasetName:
    """Return the name of a table's location, or of another folder, by its URI."""
    scheme, _, rest = uri.partition(":")
    authority, path = "", rest
    if rest.startswith("//"):
        authority, _, path = rest[2:].partition("/")
    path = path.strip("/")
    if scheme == "file":
        return DatasetName("file", f"/{path}")
    if store := next((store for store in _OBJECT_STORES if scheme.startswith(store)), None):
        return DatasetName(f"{store}://{authority}", path or "/")
    return DatasetName(f"{scheme}://{authority}", f"/{path}")


def table_location(registry: Registry, metadata_uri: str) -> str:
    """Return the location of a table whose metadata.json stands where Iceberg puts it, `<location>/metadata`.

    A localized metadata.json stands in a folder of its metadata version, and its table's location doesn't.
    """
    from sterna.config.registry.fingerprint import split_metadata_version
    from sterna.config.registry.model import is_inside

    for region in registry.regions:
        root = region.replica_root
        if is_inside(metadata_uri, root):
            metadata_uri = f"{root}/{split_metadata_version(metadata_uri[len(root) + 1 :])[1]}"
    return metadata_uri.rpartition("/")[0].removesuffix("/metadata")


def identifier_text(key: Iterable[str]) -> str:
    """Return a content key as Spark writes an identifier: elements that aren't plain are in backticks."""
    return ".".join(element if _PLAIN_ELEMENT.fullmatch(element) else quote_backtick(element) for element in key)


def table_names(
    context: RegionContext, branch: str, tables: Collection[str], hash: str = ""
) -> tuple[DatasetName, ...]:
    """Return the names of tables on a branch; what isn't a table there is left out.

    Args:
        tables: key names; of more than `MAX_DATASETS` the first ones.
        hash: a commit of the branch; "": its head, and no versions.

    Raises:
        CatalogError: the catalog doesn't answer.
    """
    from sterna.catalog.model import parse_key
    from sterna.catalog.tables import content_metadata_uri
    from sterna.config.registry.model import SOURCE_BRANCH

    keys = [parse_key(table) for table in sorted(set(tables))[:MAX_DATASETS]]
    catalog = context.primary
    contents = catalog.contents(branch, hash, keys) if hash else catalog.read_current(branch, keys)[1]
    suffix = "" if branch == SOURCE_BRANCH else f"@{branch}"
    return tuple(
        replace(
            location_name(table_location(context.registry, uri)),
            catalog=context.region.catalog.read,
            table=identifier_text((*key[:-1], f"{key[-1]}{suffix}")),
            version=str(contents[key].snapshot_id or "") if hash else "",
        )
        for key in keys
        if (uri := content_metadata_uri(contents.get(key)))
    )


def sync_lineage(context: RegionContext, last: Report | None, published: Collection[str]) -> Lineage:
    """Return the tables that syncs put: those of `main`, and those of the replica branch, as the last one left both.

    Args:
        last: of the last sync that published.
        published: what all of them put; key names.

    Raises:
        CatalogError: the catalog doesn't answer.
    """
    from sterna.config.registry.model import SOURCE_BRANCH

    keys = set(published)
    if last is None or not keys:
        return Lineage()
    sources = table_names(context, SOURCE_BRANCH, keys, last.source_hash)
    replicas = table_names(context, context.region.replica_branch, keys, last.replica_hash)
    return Lineage(sources, replicas, len(keys))


def transform_lineage(context: RegionContext, transforms: Iterable[Transform], steps: Iterable[StepSummary]) -> Lineage:
    """Return the tables of transforms that published rows: sources on the replica branch, targets on `main`.

    Raises:
        CatalogError: the catalog doesn't answer.
    """
    from sterna.config.registry.model import SOURCE_BRANCH

    names = {step.transform for step in steps if step.snapshot is not None}
    ran = [transform for transform in transforms if transform.name in names]
    if not ran:
        return Lineage()
    sources = table_names(context, context.region.replica_branch, [transform.source for transform in ran])
    targets = table_names(context, SOURCE_BRANCH, [transform.into for transform in ran])
    return Lineage(sources, targets, len(ran))


def capture_lineage(context: RegionContext, sources: Iterable[CdcSource], steps: Iterable[TableStep]) -> Lineage:
    """Return the tables of databases whose changes were applied, and theirs on `main`.

    Raises:
        CatalogError: the catalog doesn't answer.
    """
    from sterna.config.registry.model import SOURCE_BRANCH

    by_name = {source.name: source for source in sources}
    tables = {step.table: (by_name[step.source], step.origin) for step in steps if step.snapshot is not None}
    if not tables:
        return Lineage()
    inputs = tuple(_database_name(*tables[table]) for table in sorted(tables)[:MAX_DATASETS])
    return Lineage(inputs, table_names(context, SOURCE_BRANCH, tables), len(tables))


def ingest_lineage(context: RegionContext, folders: Collection[str], tables: Collection[str]) -> Lineage:
    """Return the folders that rows or files were taken from, and the tables on `main` that have them.

    Args:
        folders: their URIs.
        tables: key names; none: nothing was taken.

    Raises:
        CatalogError: the catalog doesn't answer.
    """
    from sterna.config.registry.model import SOURCE_BRANCH

    if not tables:
        return Lineage()
    inputs = tuple(location_name(uri) for uri in sorted(set(folders))[:MAX_DATASETS])
    return Lineage(inputs, table_names(context, SOURCE_BRANCH, tables), max(len(folders), len(tables)))


def feature_lineage(context: RegionContext, features: Features, steps: Iterable[Materialization]) -> Lineage:
    """Return the tables on the replica branch whose rows were written to the region's store, and the views there.

    Raises:
        CatalogError: the catalog doesn't answer.
    """
    names = {step.view for step in steps if step.how in ("full", "changes")}
    views = [view for view in features.views if view.name in names]
    if not views:
        return Lineage()
    store = features.online[context.region.name].url
    outputs = tuple(DatasetName(store, view.name) for view in views[:MAX_DATASETS])
    return Lineage(
        table_names(context, context.region.replica_branch, [view.table for view in views]), outputs, len(views)
    )


def _database_name(source: CdcSource, table: str) -> DatasetName:
    name = f"{source.database}.{table}" if source.database else table
    return DatasetName(f"{source.kind}://{source.hosts[0]}", name)
