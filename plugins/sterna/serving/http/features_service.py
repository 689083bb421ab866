"""The features service of a gateway: the region's store, its replica, and the services file's section."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sterna.config.sections.features import Features, FeatureView
from sterna.pipelines.features.online import FeatureReader, OnlineStore
from sterna.replication.replica.region import RegionContext
from sterna.serving.http.features_source import ReplicaRows
from sterna.serving.queries.job import QueryJob


@dataclass(frozen=True)
class FeaturesService:
    """Features of one region.

    Args:
        features: the section of the services file.
        reader: reads rows from the store, or else from the replica.
        source: reads rows from the replica.
    """

    features: Features
    reader: FeatureReader
    source: ReplicaRows
    context: RegionContext

    def is_admitted(self, view: FeatureView) -> bool:
        """Return whether the region's rules admit a view's table."""
        return not self.context.registry.exclusion_reason(view.table, self.context.region.name)

    async def close(self) -> None:
        """Cancel pending reads, and close all connections."""
        self.source.close()
        await self.reader.close()


def open_features(
    context: RegionContext,
    features: Features,
    run: Callable[[QueryJob], dict[str, Any]] | None = None,
    retry_seconds: float = 2.0,
) -> FeaturesService:
    """Return the features service of a region; the store is connected to at the first read.

    Args:
        features: the section of the services file.
        run: runs queries; default: in worker processes.
        retry_seconds: the pause between two attempts at the replica.

    Raises:
        CredentialError: the store's credential is missing.
    """
    online = features.online.get(context.region.name)
    store = OnlineStore(online, context.secrets) if online is not None else None
    source = ReplicaRows(context, features, run)
    return FeaturesService(features, FeatureReader(features, store, source, retry_seconds), source, context)
