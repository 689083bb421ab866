"""What the features' part of a gateway runs on: the region's store, its replica, and the services file's section."""

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
        reader: tells them.
        source: the replica.
        context: the region.
    """

    features: Features
    reader: FeatureReader
    source: ReplicaRows
    context: RegionContext

    def is_admitted(self, view: FeatureView) -> bool:
        """Say whether no rule keeps a view's table off this region."""
        return not self.context.registry.exclusion_reason(view.table, self.context.region.name)

    async def close(self) -> None:
        """End what runs."""
        self.source.close()
        await self.reader.close()


def open_features(
    context: RegionContext,
    features: Features,
    run: Callable[[QueryJob], dict[str, Any]] | None = None,
    retry_seconds: float = 2.0,
) -> FeaturesService:
    """Return the features of a region; the store is connected to when it is asked.

    Args:
        context: the region.
        features: the section of the services file.
        run: runs queries; default: in processes of their own.
        retry_seconds: seconds between two tries of the replica.

    Raises:
        CredentialError: the store's credential is missing.
    """
    online = features.online.get(context.region.name)
    store = OnlineStore(online, context.secrets) if online is not None else None
    source = ReplicaRows(context, features, run)
    return FeaturesService(features, FeatureReader(features, store, source, retry_seconds), source, context)
