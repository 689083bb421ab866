"""Expiry's commits: by the region's Spark, with what it needs to reach the catalog and one table's store."""

from __future__ import annotations

from collections.abc import Collection

from sterna.catalog.model import parse_key
from sterna.edges.spark.snapshots import SparkSnapshots
from sterna.registry.credential import fileio_properties
from sterna.registry.model import SOURCE_BRANCH
from sterna.replica.region import RegionContext
from sterna.services.upkeep import Upkeep
from sterna.wap.main_catalog import login


class BySpark:
    """Takes snapshots out of tables' metadata; see `sterna.upkeep.expire.RemoveSnapshots`.

    Args:
        context: the region.
        settings: of upkeep: who may commit to `main`, and which Spark; None: as the region has it.
    """

    def __init__(self, context: RegionContext, settings: Upkeep | None = None) -> None:
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
            **login(self._context, self._credential_id or address.credential_id),
            **fileio_properties(location, credential),
        }
