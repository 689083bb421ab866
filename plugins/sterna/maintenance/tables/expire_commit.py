"""Expiry's commits: by the region's Spark, with what it needs to reach the catalog and one table's store."""

from __future__ import annotations

from collections.abc import Collection

from sterna.catalog.model import parse_key
from sterna.config.registry.credential import fileio_properties
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.config.sections.maintenance import Maintenance
from sterna.pipelines.publish.main_access import auth_properties
from sterna.replication.replica.region import RegionContext
from sterna.spark.expire_snapshots import SparkSnapshots


class SparkSnapshotRemover:
    """Takes snapshots out of tables' metadata; see `sterna.maintenance.tables.expire.RemoveSnapshots`.

    Args:
        context: the region.
        settings: of upkeep: who may commit to `main`, and which Spark; None: as the region has it.
    """

    def __init__(self, context: RegionContext, settings: Maintenance | None = None) -> None:
        self._context = context
        self._credential_id = settings.credential_id if settings else None
        self._spark = SparkSnapshots((settings.spark if settings else "") or context.region.spark)

    def __call__(self, key: str, metadata: str, snapshots: Collection[int]) -> bool:
        """See `RemoveSnapshots`."""
        return self._spark.remove(parse_key(key), metadata, snapshots, self._properties(metadata))

    def _properties(self, metadata: str) -> dict[str, str]:
        """Return the settings of a Nessie catalog at the primary, whose FileIO reaches where the metadata lies."""
        address = self._context.ports.primary_region.catalog
        location = self._context.mapping.locate(metadata).location
        credential = self._context.secrets(location.credential_id) if location.credential_id else None
        return {
            "uri": address.write,
            "ref": SOURCE_BRANCH,
            "warehouse": location.prefix,
            "io-impl": "org.apache.iceberg.io.ResolvingFileIO",
            **auth_properties(self._context, self._credential_id or address.credential_id),
            **fileio_properties(location, credential),
        }
