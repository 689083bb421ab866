"""Numbers for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from sterna.notifications.sinks.service import SinkService
from sterna.notifications.subscriptions.poller import BranchPoller
from sterna.operations.measures import MEASURES, Measure
from sterna.pipelines.ingest.intake import IngestService
from sterna.serving.http.features_service import FeaturesService
from sterna.serving.http.region_status import RegionStatusService
from sterna.serving.http.services import GatewayServices
from sterna.serving.queries.counters import DURATION_BOUNDS_SECONDS
from sterna.serving.queries.service import QueryService


@dataclass
class Metrics:
    """What a gateway has done.

    Args:
        open: streams that are open, by transport.
        sent: events that were sent, by transport.
        requests: answers, by path and status.
        skipped: events that slow clients were not sent.
        refused_streams: streams that found no place.
        client_resets: clients that had to start again, by reason.
        closed: streams that the gateway closed, by reason.
    """

    open: Counter[str] = field(default_factory=Counter)
    sent: Counter[str] = field(default_factory=Counter)
    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    skipped: int = 0
    refused_streams: int = 0
    client_resets: Counter[str] = field(default_factory=Counter)
    closed: Counter[str] = field(default_factory=Counter)


def metrics_text(metrics: Metrics, services: GatewayServices) -> bytes:
    """Return all numbers in Prometheus' text format, version 0.0.4."""
    return generate_latest(_GatewayCollector(metrics, services))


@dataclass(frozen=True)
class _GatewayCollector:
    metrics: Metrics
    services: GatewayServices

    def collect(self) -> Iterator[Metric]:
        yield from _client_metrics(self.metrics)
        yield from _reconciler_metrics(self.services)
        if self.services.status:
            yield from _status_metrics(self.services.status)
        if self.services.poller:
            yield from _branch_metrics(self.services.poller)
        if self.services.queries:
            yield from _query_metrics(self.services.queries)
        if self.services.sinks:
            yield from _sink_metrics(self.services.sinks)
        if self.services.ingest:
            yield from _ingest_metrics(self.services.ingest)
        if self.services.features:
            yield from _feature_metrics(self.services.features)


def _client_metrics(metrics: Metrics) -> Iterator[Metric]:
    yield _labelled("sterna_streams_open", "Streams that are open.", metrics.open, "transport")
    yield _labelled("sterna_events_sent_total", "Events sent to clients.", metrics.sent, "transport")
    yield _labelled("sterna_http_requests_total", "Answers of the gateway.", metrics.requests, "path", "status")
    yield _single("sterna_events_skipped_total", "Events left out for slow clients.", metrics.skipped)
    yield _single("sterna_streams_refused_total", "Streams that found no place.", metrics.refused_streams)
    resets_help = "Clients that have to read all tables again."
    yield _labelled("sterna_client_resets_total", resets_help, metrics.client_resets, "reason")
    yield _labelled("sterna_streams_closed_total", "Streams closed here.", metrics.closed, "reason")


def _status_metrics(service: RegionStatusService) -> Iterator[Metric]:
    # Absent where unknown, so that no rule takes it for well.
    up_help = "Whether the region's status could be read."
    yield _labelled("sterna_status_up", up_help, {service.region: int(bool(service.measures))}, "region")
    by_name: dict[str, list[Measure]] = {}
    for measure in service.measures:
        by_name.setdefault(measure.name, []).append(measure)
    for name, (help, labels) in MEASURES.items():
        family = GaugeMetricFamily(f"sterna_{name}", help, labels=("region", *labels))
        for measure in by_name.get(name, ()):
            family.add_metric([service.region, *(measure.labels[label] for label in labels)], measure.value)
        yield family


def _branch_metrics(poller: BranchPoller) -> Iterator[Metric]:
    counts, buffer = poller.counts, poller.buffer
    yield _single("sterna_catalog_up", "Whether the catalog answered last time.", not poller.problem)
    yield _single("sterna_catalog_polls_total", "Polls of the branch's head.", counts.polls)
    yield _single("sterna_catalog_failures_total", "Polls that failed.", counts.failures)
    yield _single("sterna_branch_commits_total", "Commits seen on the branch.", counts.commits)
    yield _single("sterna_branch_events_total", "Events made of them.", counts.events)
    yield _single("sterna_branch_rewinds_total", "Times the branch was rewound.", counts.rewinds)
    yield _single("sterna_event_delay_seconds", "From the newest commit to its events.", counts.delay)
    yield _single("sterna_buffered_events", "Events in memory.", len(buffer) if buffer else 0)


def _reconciler_metrics(services: GatewayServices) -> Iterator[Metric]:
    """Yield what all consumers have in common, by kind and name; of uploads without their tenants."""
    numbers: dict[tuple[str, str], tuple[float, float, bool]] = {}
    for deliverer in services.sinks.deliverers if services.sinks else ():
        status, age = deliverer.status, round(deliverer.age, 3)
        numbers["sink", deliverer.job.name] = status.failures, age, status.state == "disabled"
    if ingest := services.ingest:
        age = round(max((backlog.age for backlog in ingest.backlog), default=0.0), 3)
        numbers["ingest", "uploads"] = ingest.counts.failures, age, ingest.stopped_partitions > 0
    for index, (name, help) in enumerate(
        (
            ("failures_total", "Attempts that failed."),
            ("lag_seconds", "Age of what waits longest."),
            ("blocked", "Whether it needs an operator."),
        )
    ):
        counts = {consumer: values[index] for consumer, values in numbers.items()}
        if counts:
            yield _labelled(f"sterna_reconciler_{name}", help, counts, "kind", "name")


def _query_metrics(queries: QueryService) -> Iterator[Metric]:
    # Without the queries' names: reading these numbers needs no token.
    counts, hits_help = queries.counts, "Answers that took no run of their own."
    yield _single("sterna_queries_under_way", "Questions worked on, or waiting.", queries.active_count)
    hits = Counter(kept=counts.cached, shared=counts.shared, unchanged=counts.unchanged)
    yield _labelled("sterna_query_hits_total", hits_help, hits, "way")
    yield _labelled("sterna_queries_refused_total", "Answers that were none.", counts.errors, "status")
    bounds = (*map(str, DURATION_BOUNDS_SECONDS), "+Inf")
    buckets = list(zip(bounds, accumulate(counts.executions), strict=True))
    yield HistogramMetricFamily("sterna_query_seconds", "Runs, by their seconds.", buckets, counts.seconds)


def _sink_metrics(service: SinkService) -> Iterator[Metric]:
    statuses = {deliverer.job.name: deliverer.status for deliverer in service.deliverers}
    for name, attribute, help in (
        ("delivered", "delivered", "Events that were acknowledged."),
        ("dead_letters", "dead_letters", "Events that went to the dead letters."),
        ("resets", "resets", "Times that events were skipped."),
        ("standby", "standbys", "Times that another process delivered."),
    ):
        counts = {sink: getattr(status, attribute) for sink, status in statuses.items()}
        yield _labelled(f"sterna_sink_{name}_total", help, counts, "sink")
    states = {(sink, status.state): 1 for sink, status in statuses.items()}
    yield _labelled("sterna_sink_state", "What a sink is doing.", states, "sink", "state")
    yield _single("sterna_sink_unknown_tags", "Positions without a sink.", len(service.unknown))


def _ingest_metrics(service: IngestService) -> Iterator[Metric]:
    # Without tables and tenants: reading these numbers needs no token.
    counts, backlogs, name = service.counts, service.backlog, "sterna_ingest_{}"
    yield _labelled(name.format("drops_total"), "Uploads that were accepted.", counts.uploads, "format")
    yield _labelled(name.format("bytes_total"), "Bytes of these.", counts.bytes, "format")
    yield _labelled(name.format("rows_total"), "Rows of these.", counts.rows, "format")
    yield _single(name.format("repeated_total"), "Uploads that were sent again.", counts.repeated)
    yield _labelled(name.format("refused_total"), "Answers that were none.", counts.refused, "status")
    yield _labelled(name.format("batches_total"), "Batches that were closed.", counts.closed, "rule")
    yield _single(name.format("listed_total"), "Uploads in listed folders.", counts.listed)
    yield _single(name.format("topics_total"), "Uploads of topics' messages.", counts.messages)
    stopped_help = "Partitions of topics that need an operator."
    yield _single(name.format("topic_partitions_stopped"), stopped_help, service.stopped_partitions)
    yield _single(name.format("up"), "Whether inbox and tracker answer.", not service.problem)
    yield _single(name.format("under_way"), "Uploads that are under way.", service.in_flight)
    bytes = sum(backlog.bytes for backlog in backlogs)
    yield _single(name.format("backlog_bytes"), "Bytes that wait for being published.", bytes)


def _feature_metrics(service: FeaturesService) -> Iterator[Metric]:
    # Without tables and ids: reading these numbers needs no token.
    counts, name = service.reader.counts, "sterna_features_{}_total"
    reads_help = "Rows asked for, by where they came from."
    yield _labelled(name.format("reads"), reads_help, counts.answers, "view", "from")
    yield _single(name.format("unavailable"), "Times that the store didn't answer.", counts.unavailable)
    yield _single(name.format("source"), "Times that the replica was asked.", counts.source_reads)
    yield _single(name.format("refused_fills"), "Fills that came too late.", counts.refused_fills)
    yield _single(name.format("failed_fills"), "Fills that failed.", counts.failed_fills)


def _single(name: str, help: str, value: float) -> Metric:
    return _labelled(name, help, {(): value})


def _labelled(name: str, help: str, counts: Mapping[Any, float], *labels: str) -> Metric:
    """Return a counter, whose name ends in `_total`, or a gauge; with several labels, the counts' keys are tuples."""
    family = (CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily)(name, help, labels=labels)
    for key, count in sorted(counts.items()):
        family.add_metric([str(value) for value in (key if isinstance(key, tuple) else (key,))], count)
    return family
