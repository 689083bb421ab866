"""Numbers for Prometheus, in its text format (version 0.0.4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sterna.notifications.sinks.service import SinkService
from sterna.notifications.subscriptions.poller import BranchPoller
from sterna.pipelines.ingest.intake import IngestService
from sterna.serving.http.features_service import FeaturesService
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
        client_resets: clients that were told to begin anew, by reason.
        closed: streams that the gateway closed, by reason.
    """

    open: Counter[str] = field(default_factory=Counter)
    sent: Counter[str] = field(default_factory=Counter)
    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    skipped: int = 0
    refused_streams: int = 0
    client_resets: Counter[str] = field(default_factory=Counter)
    closed: Counter[str] = field(default_factory=Counter)


def metrics_text(metrics: Metrics, services: GatewayServices) -> str:
    """Return all numbers as Prometheus reads them."""
    parts = (
        _branch_lines(services.poller) if services.poller else (),
        _query_lines(services.queries) if services.queries else (),
        _sink_lines(services.sinks) if services.sinks else (),
        _ingest_lines(services.ingest) if services.ingest else (),
        _feature_lines(services.features) if services.features else (),
    )
    return "\n".join([*_client_lines(metrics), *(line for part in parts for line in part), ""])


def _client_lines(metrics: Metrics) -> Iterator[str]:
    yield from _labelled("sterna_streams_open", "gauge", "Streams that are open.", "transport", metrics.open)
    yield from _labelled("sterna_events_sent_total", "counter", "Events sent to clients.", "transport", metrics.sent)
    yield from _family("sterna_http_requests_total", "counter", "Answers of the gateway.")
    for (path, status), count in sorted(metrics.requests.items()):
        yield f'sterna_http_requests_total{{path="{path}",status="{status}"}} {count}'
    yield from _single("sterna_events_skipped_total", "counter", "Events left out for slow clients.", metrics.skipped)
    yield from _single(
        "sterna_streams_refused_total", "counter", "Streams that found no place.", metrics.refused_streams
    )
    yield from _labelled(
        "sterna_client_resets_total",
        "counter",
        "Clients that have to read all tables again.",
        "reason",
        metrics.client_resets,
    )
    yield from _labelled("sterna_streams_closed_total", "counter", "Streams closed here.", "reason", metrics.closed)


def _branch_lines(poller: BranchPoller) -> Iterator[str]:
    counts, buffer = poller.counts, poller.buffer
    yield from _single("sterna_catalog_up", "gauge", "Whether the catalog answered last time.", int(not poller.problem))
    yield from _single("sterna_catalog_polls_total", "counter", "Polls of the branch's head.", counts.polls)
    yield from _single("sterna_catalog_failures_total", "counter", "Polls that failed.", counts.failures)
    yield from _single("sterna_branch_commits_total", "counter", "Commits seen on the branch.", counts.commits)
    yield from _single("sterna_branch_events_total", "counter", "Events made of them.", counts.events)
    yield from _single("sterna_branch_rewinds_total", "counter", "Times the branch was rewound.", counts.rewinds)
    yield from _single("sterna_event_delay_seconds", "gauge", "From the newest commit to its events.", counts.delay)
    yield from _single("sterna_buffered_events", "gauge", "Events in memory.", len(buffer) if buffer else 0)


def _query_lines(queries: QueryService) -> Iterator[str]:
    # Without the queries' names: whoever reads these numbers needs no token.
    counts, hits_help = queries.counts, "Answers that took no run of their own."
    yield from _single("sterna_queries_under_way", "gauge", "Questions worked on, or waiting.", queries.active_count)
    hits = Counter(kept=counts.cached, shared=counts.shared, unchanged=counts.unchanged)
    yield from _labelled("sterna_query_hits_total", "counter", hits_help, "way", hits)
    errors = Counter({str(status): count for status, count in counts.errors.items()})
    yield from _labelled("sterna_queries_refused_total", "counter", "Answers that were none.", "status", errors)
    name, run_count = "sterna_query_seconds", 0
    yield from _family(name, "histogram", "Runs, by their seconds.")
    for bound, count in zip((*DURATION_BOUNDS_SECONDS, "+Inf"), counts.executions, strict=True):
        run_count += count
        yield f'{name}_bucket{{le="{bound}"}} {run_count}'
    yield f"{name}_sum {counts.seconds}"
    yield f"{name}_count {run_count}"


def _sink_lines(service: SinkService) -> Iterator[str]:
    statuses = {deliverer.job.name: deliverer.status for deliverer in service.deliverers}
    template = "sterna_sink_{}_total"
    for name, help, counts in (
        ("delivered", "Events that were acknowledged.", {name: status.delivered for name, status in statuses.items()}),
        (
            "dead_letters",
            "Events that went to the dead letters.",
            {name: status.dead_letters for name, status in statuses.items()},
        ),
        ("failures", "Tries that failed.", {name: status.failures for name, status in statuses.items()}),
        ("resets", "Times that events were skipped.", {name: status.resets for name, status in statuses.items()}),
        (
            "standby",
            "Times that another process delivered.",
            {name: status.standbys for name, status in statuses.items()},
        ),
    ):
        yield from _labelled(template.format(name), "counter", help, "sink", counts)
    ages = {deliverer.job.name: round(deliverer.age, 3) for deliverer in service.deliverers}
    yield from _labelled("sterna_sink_age_seconds", "gauge", "Age of what waits longest.", "sink", ages)
    yield from _family("sterna_sink_state", "gauge", "What a sink is doing.")
    for name, status in sorted(statuses.items()):
        yield f'sterna_sink_state{{sink="{name}",state="{status.state}"}} 1'
    yield from _single("sterna_sink_unknown_tags", "gauge", "Positions without a sink.", len(service.unknown))


def _ingest_lines(service: IngestService) -> Iterator[str]:
    # Without tables and tenants: whoever reads these numbers needs no token.
    counts, backlogs, name = service.counts, service.backlog, "sterna_ingest_{}"
    for unit, help, by_format in (
        ("drops", "Uploads that were taken.", counts.uploads),
        ("bytes", "Bytes of these.", counts.bytes),
        ("rows", "Rows of these.", counts.rows),
    ):
        yield from _labelled(name.format(f"{unit}_total"), "counter", help, "format", by_format)
    yield from _single(name.format("repeated_total"), "counter", "Uploads that were sent again.", counts.repeated)
    refused_help = "Answers that were none."
    yield from _labelled(name.format("refused_total"), "counter", refused_help, "status", counts.refused)
    yield from _labelled(name.format("batches_total"), "counter", "Batches that were closed.", "rule", counts.closed)
    yield from _single(name.format("listed_total"), "counter", "Uploads found in listed folders.", counts.listed)
    yield from _single(name.format("topics_total"), "counter", "Uploads made of topics' messages.", counts.messages)
    stopped_help = "Partitions of topics that somebody has to look at."
    yield from _single(name.format("topic_partitions_stopped"), "gauge", stopped_help, service.stopped_partitions)
    yield from _single(name.format("failures_total"), "counter", "Times that nothing answered.", counts.failures)
    yield from _single(name.format("up"), "gauge", "Whether inbox and tracker answer.", int(not service.problem))
    yield from _single(name.format("under_way"), "gauge", "Uploads that are under way.", service.in_flight)
    bytes = sum(backlog.bytes for backlog in backlogs)
    yield from _single(name.format("backlog_bytes"), "gauge", "Bytes that wait for being published.", bytes)
    oldest = round(max((backlog.age for backlog in backlogs), default=0.0), 3)
    yield from _single(name.format("oldest_seconds"), "gauge", "Age of the oldest upload that waits.", oldest)


def _feature_lines(service: FeaturesService) -> Iterator[str]:
    # Without tables and ids: whoever reads these numbers needs no token.
    counts, name = service.reader.counts, "sterna_features_{}_total"
    yield from _family(name.format("reads"), "counter", "Rows asked for, by where they came from.")
    for (view, cache_status), count in sorted(counts.answers.items()):
        yield f'{name.format("reads")}{{view="{view}",from="{cache_status}"}} {count}'
    yield from _single(name.format("unavailable"), "counter", "Times that the store didn't answer.", counts.unavailable)
    yield from _single(name.format("source"), "counter", "Times that the replica was asked.", counts.source_reads)
    yield from _single(name.format("refused_fills"), "counter", "Fills that came too late.", counts.refused_fills)
    yield from _single(name.format("failed_fills"), "counter", "Fills that failed.", counts.failed_fills)


def _labelled(name: str, kind: str, help: str, label: str, counts: Mapping[str, float]) -> Iterator[str]:
    yield from _family(name, kind, help)
    for value, count in sorted(counts.items()):
        yield f'{name}{{{label}="{value}"}} {count}'


def _single(name: str, kind: str, help: str, value: float) -> Iterator[str]:
    yield from _family(name, kind, help)
    yield f"{name} {value}"


def _family(name: str, kind: str, help: str) -> Iterator[str]:
    yield f"# HELP {name} {help}"
    yield f"# TYPE {name} {kind}"
