"""Numbers for Prometheus, in its text format (version 0.0.4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sterna.events.tail import BranchTail
from sterna.gateway.features_room import FeaturesRoom
from sterna.gateway.rooms import Rooms
from sterna.ingest.room import IngestRoom
from sterna.outlets.room import OutletRoom
from sterna.query.answer import QueryService
from sterna.query.counts import BOUNDS


@dataclass
class Metrics:
    """What a gateway has done.

    Args:
        open: streams that are open, by transport.
        sent: events that were sent, by transport.
        requests: answers, by path and status.
        skipped: events that slow clients were not sent.
        refused: streams that found no place.
        resets: clients that were told to begin anew, by reason.
        closed: streams that the gateway closed, by reason.
    """

    open: Counter[str] = field(default_factory=Counter)
    sent: Counter[str] = field(default_factory=Counter)
    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    skipped: int = 0
    refused: int = 0
    resets: Counter[str] = field(default_factory=Counter)
    closed: Counter[str] = field(default_factory=Counter)


def metrics_text(metrics: Metrics, rooms: Rooms) -> str:
    """Return all numbers as Prometheus reads them."""
    parts = (
        _of_branch(rooms.tail) if rooms.tail else (),
        _of_queries(rooms.queries) if rooms.queries else (),
        _of_outlets(rooms.outlets) if rooms.outlets else (),
        _of_ingest(rooms.ingest) if rooms.ingest else (),
        _of_features(rooms.features) if rooms.features else (),
    )
    return "\n".join([*_of_clients(metrics), *(line for part in parts for line in part), ""])


def _of_clients(metrics: Metrics) -> Iterator[str]:
    yield from _labelled("sterna_streams_open", "gauge", "Streams that are open.", "transport", metrics.open)
    yield from _labelled("sterna_events_sent_total", "counter", "Events sent to clients.", "transport", metrics.sent)
    yield from _family("sterna_http_requests_total", "counter", "Answers of the gateway.")
    for (path, status), count in sorted(metrics.requests.items()):
        yield f'sterna_http_requests_total{{path="{path}",status="{status}"}} {count}'
    yield from _single("sterna_events_skipped_total", "counter", "Events left out for slow clients.", metrics.skipped)
    yield from _single("sterna_streams_refused_total", "counter", "Streams that found no place.", metrics.refused)
    yield from _labelled("sterna_resets_total", "counter", "Clients told to begin anew.", "reason", metrics.resets)
    yield from _labelled("sterna_streams_closed_total", "counter", "Streams closed here.", "reason", metrics.closed)


def _of_branch(tail: BranchTail) -> Iterator[str]:
    counts, ring = tail.counts, tail.ring
    yield from _single("sterna_catalog_up", "gauge", "Whether the catalog answered last time.", int(not tail.problem))
    yield from _single("sterna_catalog_looks_total", "counter", "Looks at the branch's head.", counts.looks)
    yield from _single("sterna_catalog_failures_total", "counter", "Looks that failed.", counts.failures)
    yield from _single("sterna_branch_commits_total", "counter", "Commits seen on the branch.", counts.commits)
    yield from _single("sterna_branch_events_total", "counter", "Events made of them.", counts.events)
    yield from _single("sterna_branch_rewinds_total", "counter", "Times the branch was rewound.", counts.rewinds)
    yield from _single("sterna_event_delay_seconds", "gauge", "From the newest commit to its events.", counts.delay)
    yield from _single("sterna_ring_events", "gauge", "Events in memory.", len(ring) if ring else 0)


def _of_queries(queries: QueryService) -> Iterator[str]:
    # Without the queries' names: whoever reads these numbers needs no token.
    counts, saved = queries.counts, "Answers that took no run of their own."
    yield from _single("sterna_queries_under_way", "gauge", "Questions worked on, or waiting.", queries.under_way)
    ways = Counter(kept=counts.kept, shared=counts.shared, unchanged=counts.unchanged)
    yield from _labelled("sterna_query_hits_total", "counter", saved, "way", ways)
    refused = Counter({str(status): count for status, count in counts.refused.items()})
    yield from _labelled("sterna_queries_refused_total", "counter", "Answers that were none.", "status", refused)
    name, ran = "sterna_query_seconds", 0
    yield from _family(name, "histogram", "Runs, by their seconds.")
    for bound, count in zip((*BOUNDS, "+Inf"), counts.executions, strict=True):
        ran += count
        yield f'{name}_bucket{{le="{bound}"}} {ran}'
    yield f"{name}_sum {counts.seconds}"
    yield f"{name}_count {ran}"


def _of_outlets(room: OutletRoom) -> Iterator[str]:
    told = {each.job.name: each.told for each in room.deliverers}
    total = "sterna_outlet_{}_total"
    for name, help, counts in (
        ("delivered", "Events that were acknowledged.", {name: each.delivered for name, each in told.items()}),
        ("dead", "Events that went to the dead letters.", {name: each.dead for name, each in told.items()}),
        ("failures", "Tries that failed.", {name: each.failures for name, each in told.items()}),
        ("resets", "Times that events were skipped.", {name: each.resets for name, each in told.items()}),
        ("stepped_back", "Times that another was at work.", {name: each.stepped_back for name, each in told.items()}),
    ):
        yield from _labelled(total.format(name), "counter", help, "outlet", counts)
    ages = {each.job.name: round(each.age, 3) for each in room.deliverers}
    yield from _labelled("sterna_outlet_age_seconds", "gauge", "Age of what waits longest.", "outlet", ages)
    yield from _family("sterna_outlet_state", "gauge", "What an outlet is doing.")
    for name, each in sorted(told.items()):
        yield f'sterna_outlet_state{{outlet="{name}",state="{each.state}"}} 1'
    yield from _single("sterna_outlet_unknown_tags", "gauge", "Positions without an outlet.", len(room.unknown))


def _of_ingest(room: IngestRoom) -> Iterator[str]:
    # Without tables and tenants: whoever reads these numbers needs no token.
    counts, waiting, name = room.counts, room.backlog, "sterna_ingest_{}"
    for what, help, by_format in (
        ("drops", "Drops that were taken.", counts.drops),
        ("bytes", "Bytes of these.", counts.bytes),
        ("rows", "Rows of these.", counts.rows),
    ):
        yield from _labelled(name.format(f"{what}_total"), "counter", help, "format", by_format)
    yield from _single(name.format("repeated_total"), "counter", "Drops that were sent again.", counts.repeated)
    refused = "Answers that were none."
    yield from _labelled(name.format("refused_total"), "counter", refused, "status", counts.refused)
    yield from _labelled(name.format("batches_total"), "counter", "Batches that were closed.", "rule", counts.closed)
    yield from _single(name.format("listed_total"), "counter", "Drops found in listed folders.", counts.listed)
    yield from _single(name.format("topics_total"), "counter", "Drops made of topics' messages.", counts.messages)
    stopped = "Partitions of topics that somebody has to look at."
    yield from _single(name.format("topic_partitions_stopped"), "gauge", stopped, room.stopped)
    yield from _single(name.format("failures_total"), "counter", "Times that nothing answered.", counts.failures)
    yield from _single(name.format("up"), "gauge", "Whether inbox and tracker answer.", int(not room.problem))
    yield from _single(name.format("under_way"), "gauge", "Uploads that are under way.", room.under_way)
    bytes = sum(each.bytes for each in waiting)
    yield from _single(name.format("backlog_bytes"), "gauge", "Bytes that wait for being published.", bytes)
    oldest = round(max((each.age for each in waiting), default=0.0), 3)
    yield from _single(name.format("oldest_seconds"), "gauge", "Age of the oldest drop that waits.", oldest)


def _of_features(room: FeaturesRoom) -> Iterator[str]:
    # Without tables and ids: whoever reads these numbers needs no token.
    counts, name = room.reader.counts, "sterna_features_{}_total"
    yield from _family(name.format("told"), "counter", "Rows asked for, by where they came from.")
    for (view, how), count in sorted(counts.told.items()):
        yield f'{name.format("told")}{{view="{view}",from="{how}"}} {count}'
    yield from _single(name.format("dark"), "counter", "Times that the store didn't answer.", counts.dark)
    yield from _single(name.format("source"), "counter", "Times that the replica was asked.", counts.source)
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
