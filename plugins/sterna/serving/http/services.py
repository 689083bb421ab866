"""What one gateway serves."""

from __future__ import annotations

from dataclasses import dataclass

from sterna.notifications.sinks.service import SinkService
from sterna.notifications.subscriptions.poller import BranchPoller
from sterna.pipelines.ingest.intake import IngestService
from sterna.serving.http.features_service import FeaturesService
from sterna.serving.http.region_status import RegionStatusService
from sterna.serving.queries.service import QueryService
from sterna.serving.rest_catalog.reader import ReplicaCatalog
from sterna.serving.rest_catalog.signing import RequestSigner
from sterna.serving.rest_catalog.vended_keys import KeyVendor
from sterna.serving.rest_catalog.write_service import CatalogWriteService
from sterna.tracing.export import TraceExport


@dataclass(frozen=True)
class GatewayServices:
    """The services of a gateway; None: not served.

    Args:
        poller: follows the region's branch, for events.
        queries: answers queries that have a name.
        ingest: takes rows and files.
        catalog: the region's Iceberg REST address.
        catalog_writes: its writing side.
        catalog_signer: signs requests to the region's stores for its clients.
        catalog_vendor: vends keys for them.
        status: reads the region's status, for metrics.
        traces: exports spans of requests.
    """

    poller: BranchPoller | None = None
    queries: QueryService | None = None
    sinks: SinkService | None = None
    ingest: IngestService | None = None
    features: FeaturesService | None = None
    catalog: ReplicaCatalog | None = None
    catalog_writes: CatalogWriteService | None = None
    catalog_signer: RequestSigner | None = None
    catalog_vendor: KeyVendor | None = None
    status: RegionStatusService | None = None
    traces: TraceExport | None = None
