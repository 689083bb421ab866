"""Every number of a gateway, under its name, kind and labels, as Prometheus' own parser reads it."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

from prometheus_client.parser import text_string_to_metric_families

from sterna.notifications.sinks.delivery import DeliveryStatus
from sterna.notifications.subscriptions.poller import PollerCounts
from sterna.pipelines.features.online import FeatureCounts
from sterna.pipelines.ingest.intake import IngestCounts
from sterna.serving.http.metrics import Metrics, metrics_text
from sterna.serving.http.services import GatewayServices
from sterna.serving.queries.counters import QueryCounts

Sample = tuple[str, tuple[tuple[str, str], ...], float]


def read(metrics: Metrics, **services: object) -> dict[str, set[Sample]]:
    """Return the samples of each family, by its kind and name."""
    text = metrics_text(metrics, GatewayServices(**cast("dict[str, Any]", services))).decode()
    families: dict[str, set[Sample]] = {}
    for family in text_string_to_metric_families(text):
        key = f"{family.type} {family.name}"
        assert key not in families and family.documentation
        families[key] = {(one.name, tuple(sorted(one.labels.items())), one.value) for one in family.samples}
    return families


def one(name: str, value: float, /, **labels: str) -> set[Sample]:
    return {(name, tuple(sorted(labels.items())), value)}


def test_what_clients_did() -> None:
    families = read(
        Metrics(
            open=Counter(sse=2),
            sent=Counter(sse=2**40, socket=1),
            requests=Counter({("/v1/tables", 200): 3, ("/v1/tables", 404): 1}),
            skipped=4,
            refused_streams=5,
            client_resets=Counter(unknown=6),
        )
    )
    sent, requests = "sterna_events_sent_total", "sterna_http_requests_total"
    assert families == {
        "gauge sterna_streams_open": one("sterna_streams_open", 2, transport="sse"),
        "counter sterna_events_sent": one(sent, 2**40, transport="sse") | one(sent, 1, transport="socket"),
        "counter sterna_http_requests": one(requests, 3, path="/v1/tables", status="200")
        | one(requests, 1, path="/v1/tables", status="404"),
        "counter sterna_events_skipped": one("sterna_events_skipped_total", 4),
        "counter sterna_streams_refused": one("sterna_streams_refused_total", 5),
        "counter sterna_client_resets": one("sterna_client_resets_total", 6, reason="unknown"),
        "counter sterna_streams_closed": set(),
    }


def test_any_label_can_be_read_again() -> None:
    odd = 'a"b\\c\nd'
    closed = read(Metrics(closed=Counter({odd: 1})))["counter sterna_streams_closed"]
    assert closed == one("sterna_streams_closed_total", 1, reason=odd)


def test_the_branch_and_what_is_sent_on() -> None:
    poller = SimpleNamespace(counts=PollerCounts(1, 2, 3, 4, 5, 0.25), buffer=range(7), problem="")
    status = DeliveryStatus("retrying", delivered=1, dead_letters=2, failures=3, resets=4, standbys=5)
    job = SimpleNamespace(name="pager")
    sinks = SimpleNamespace(deliverers=[SimpleNamespace(job=job, status=status, age=1.23456)], unknown={"a", "b"})
    families = read(Metrics(), poller=poller, sinks=sinks)
    assert {name: samples for name, samples in families.items() if "sink" in name} == {
        **{
            f"counter sterna_sink_{name}": one(f"sterna_sink_{name}_total", value, sink="pager")
            for name, value in {"delivered": 1, "dead_letters": 2, "resets": 4, "standby": 5}.items()
        },
        "gauge sterna_sink_state": one("sterna_sink_state", 1, sink="pager", state="retrying"),
        "gauge sterna_sink_unknown_tags": one("sterna_sink_unknown_tags", 2),
    }
    consumer = {"kind": "sink", "name": "pager"}
    assert families["counter sterna_reconciler_failures"] == one("sterna_reconciler_failures_total", 3, **consumer)
    assert families["gauge sterna_reconciler_lag_seconds"] == one("sterna_reconciler_lag_seconds", 1.235, **consumer)
    assert families["gauge sterna_reconciler_blocked"] == one("sterna_reconciler_blocked", 0, **consumer)
    status.state = "disabled"
    assert read(Metrics(), sinks=sinks)["gauge sterna_reconciler_blocked"] == one(
        "sterna_reconciler_blocked", 1, **consumer
    )
    numbers = [value for samples in families.values() for name, _, value in samples if "catalog" in name]
    assert sorted(numbers) == [1, 1, 2]
    assert families["counter sterna_branch_commits"] == one("sterna_branch_commits_total", 3)
    assert families["counter sterna_branch_events"] == one("sterna_branch_events_total", 4)
    assert families["counter sterna_branch_rewinds"] == one("sterna_branch_rewinds_total", 5)
    assert families["gauge sterna_event_delay_seconds"] == one("sterna_event_delay_seconds", 0.25)
    assert families["gauge sterna_buffered_events"] == one("sterna_buffered_events", 7)


def test_queries_and_how_long_they_took() -> None:
    counts = QueryCounts(cached=1, shared=2, unchanged=3, errors=Counter({404: 4}))
    for seconds in (0.01, 0.02, 0.02, 500):
        counts.record_run(seconds)
    families = read(Metrics(), queries=SimpleNamespace(counts=counts, active_count=6))
    assert families["gauge sterna_queries_under_way"] == one("sterna_queries_under_way", 6)
    hits = "sterna_query_hits_total"
    assert families["counter sterna_query_hits"] == one(hits, 1, way="kept") | one(hits, 2, way="shared") | one(
        hits, 3, way="unchanged"
    )
    assert families["counter sterna_queries_refused"] == one("sterna_queries_refused_total", 4, status="404")
    bounds = {"0.01": 1, "+Inf": 4} | dict.fromkeys(("0.03", "0.1", "0.3", "1.0", "3.0", "10.0", "30.0", "100.0"), 3)
    buckets = {
        sample for bound, count in bounds.items() for sample in one("sterna_query_seconds_bucket", count, le=bound)
    }
    assert families["histogram sterna_query_seconds"] == buckets | one("sterna_query_seconds_sum", 500.05) | one(
        "sterna_query_seconds_count", 4
    )


def test_ingestion_and_features() -> None:
    counts = IngestCounts(
        Counter(json=1), Counter(json=2), Counter(json=3), 4, Counter({"422": 5}), Counter(age=6), 7, 8, 9
    )
    backlog = [SimpleNamespace(bytes=10, age=1.5), SimpleNamespace(bytes=20, age=0.5)]
    ingest = SimpleNamespace(counts=counts, backlog=backlog, stopped_partitions=11, problem="x", in_flight=12)
    answers = {("user", "hit"): 1, ("user", "miss"): 2}
    reader = SimpleNamespace(
        counts=FeatureCounts(answers, unavailable=3, refused_fills=4, failed_fills=5, source_reads=6)
    )
    families = read(Metrics(), ingest=ingest, features=SimpleNamespace(reader=reader))
    ingested = {
        "drops": one("sterna_ingest_drops_total", 1, format="json"),
        "bytes": one("sterna_ingest_bytes_total", 2, format="json"),
        "rows": one("sterna_ingest_rows_total", 3, format="json"),
        "repeated": one("sterna_ingest_repeated_total", 4),
        "refused": one("sterna_ingest_refused_total", 5, status="422"),
        "batches": one("sterna_ingest_batches_total", 6, rule="age"),
        "listed": one("sterna_ingest_listed_total", 7),
        "topics": one("sterna_ingest_topics_total", 8),
    }
    gauges = {
        "topic_partitions_stopped": 11.0,
        "up": 0.0,
        "under_way": 12.0,
        "backlog_bytes": 30.0,
    }
    expected = {f"counter sterna_ingest_{name}": samples for name, samples in ingested.items()}
    expected |= {f"gauge sterna_ingest_{name}": one(f"sterna_ingest_{name}", gauges[name]) for name in gauges}
    assert {name: samples for name, samples in families.items() if "ingest" in name} == expected
    consumer = {"kind": "ingest", "name": "uploads"}
    assert families["counter sterna_reconciler_failures"] == one("sterna_reconciler_failures_total", 9, **consumer)
    assert families["gauge sterna_reconciler_lag_seconds"] == one("sterna_reconciler_lag_seconds", 1.5, **consumer)
    assert families["gauge sterna_reconciler_blocked"] == one("sterna_reconciler_blocked", 1, **consumer)
    reads = "sterna_features_reads_total"
    assert families["counter sterna_features_reads"] == one(reads, 1, view="user", **{"from": "hit"}) | one(
        reads, 2, view="user", **{"from": "miss"}
    )
    for name, value in {"unavailable": 3, "source": 6, "refused_fills": 4, "failed_fills": 5}.items():
        assert families[f"counter sterna_features_{name}"] == one(f"sterna_features_{name}_total", value)
