"""What `docs/formats.md` lists of values whose places or form count, as the code writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping as Mapped
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sterna.catalog.model import Commit, Content, Put
from sterna.config.mapping import Mapping
from sterna.config.registry.fingerprint import MetadataVersion
from sterna.config.registry.model import Registry
from sterna.config.registry.policy import DEFAULT_POLICY
from sterna.notifications.change_log.event import CommitDetails, build_events
from sterna.pipelines.cdc.journal import Part, Segment
from sterna.pipelines.cdc.plan import channel, next_work
from sterna.pipelines.features.codec import row_bytes
from sterna.pipelines.features.model import value_head
from sterna.replication.replica.bulk_state import fetched_text
from sterna.replication.replica.change_record import (
    CHANGE_RECORD_PROPERTY,
    ChangeRecord,
    ChangeRecordHeader,
    TableHeld,
    TableUpdate,
    change_record_text,
    property_text,
)
from sterna.replication.replica.head import RUN_ID

_MOMENT = datetime(2026, 11, 1, 2, 3, 4, tzinfo=UTC)
_VALUE_ORIGIN = (1795759661844, 1, 5316, 1795759639892)  # epoch, run, snapshot and time of a value in Valkey
_REGISTRY = Registry.model_validate(
    {
        "regions": [{"name": "eu", "replica_root": "s3://eu/replica", "catalog": {"read": "http://nessie/api/v2"}}],
        "locations": [
            {"id": id, "prefix": f"s3://{id}", "region": "eu", "remote": {"type": "s3"}} for id in ("eu", "lake")
        ],
    }
)


def groups() -> Mapped[str, Sequence[str]]:
    """Return examples, by what they are of."""
    first, second = _captured()
    envelope, held = _events()
    mapping = Mapping(_REGISTRY, _REGISTRY.regions[0])
    metadata = [
        mapping.metadata_uri(
            f"s3://lake/t/metadata/00001-a{ending}", DEFAULT_POLICY, MetadataVersion(version, generation)
        )
        for ending, version, generation in ((".metadata.json", 2, 0), (".gz.metadata.json", 3, 1))
    ]
    metadata += [
        mapping.metadata_uri(
            f"s3://lake/t/metadata/{stem}.metadata.json", DEFAULT_POLICY, MetadataVersion(2), extra_snapshot_id=shown
        )
        for stem, shown in (("00001-a", 4711), ("v1", None))
    ]
    return {
        "Values in the parts of news, whose places count": _news(),
        "What a batch of the large lane has brought: bytes by key": [fetched_text({"ns.a": 1})],
        "Localized metadata.json": metadata,
        "Marks of change capture": [first.step.position, second.step.position],
        "WAP ids of change capture": [first.step.id, second.step.id],
        "Attributes of events, in their order": list(envelope),
        "Data of events, in their order": list(envelope["data"]),
        "Data of an event that holds a table, in their order": list(held["data"]),
        "First lines of values in Valkey: format, epoch, run, snapshot and time": [
            value_head(*_VALUE_ORIGIN, gone=gone).decode().rstrip("\n") for gone in (False, True)
        ],
        "Second lines of values in Valkey, by the places of columns": [row_bytes([10, "é", None]).decode()],
    }


def _news() -> list[str]:
    parts = ChangeRecord(
        3, {"ns.a": TableUpdate(1, 2, ("append",))}, {"ns.b": 3}, {"ns.c": TableHeld("SourceGone", 4)}, {"ns.d": None}
    )
    empty: dict[str, Any] = {name: {} for name in ("updated", "dropped", "held", "released")}
    return [change_record_text(replace(parts, **{name: {} for name in empty if name != kept})) for kept in empty]


def _captured() -> tuple[Any, Any]:
    """The first step of a table of a followed source, and a later one."""
    part = Part("s3://eu/x.parquet", 1, 2, ())
    drops = [Segment(1, number, {}, None, {"public.t": (part,)}, complete=number == 1) for number in (1, 2)]
    way = channel("eu", "crm")
    return next_work(way, "public.t", "", 1, drops[:1], is_empty=True), next_work(way, "public.t", "1/1", 1, drops)


def _events() -> tuple[dict[str, Any], dict[str, Any]]:
    """An event of a table that changed, and one of a table that is held."""
    news = ChangeRecord(3, {"ns.a": TableUpdate(1, 2, ("append",))}, {}, {"ns.c": TableHeld("SourceGone", 4)}, {})
    content = Content.of({"type": "ICEBERG_TABLE", "id": "1", "metadataLocation": "s3://eu/m.json", "snapshotId": 2})
    properties = {RUN_ID: "run-1", CHANGE_RECORD_PROPERTY: property_text(ChangeRecordHeader(3, "run-1"), news)}
    commit = Commit("ab" * 32, "cd" * 32, _MOMENT, "sterna", "m", properties, (Put(("ns", "a"), content),))
    changed, held = (
        json.loads(event.text) for event in build_events(commit, CommitDetails(news), "eu", "main_replica_eu")
    )
    return changed, held
