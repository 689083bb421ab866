"""What `docs/formats.md` lists, as the code has it: `python -m tests.support.formats` prints the lists anew."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from sterna.airflow.provider import get_provider_info
from sterna.codec import Record, UnknownFields
from sterna.maintenance.deletion.model import AMOUNT, NOT_DELETED
from sterna.maintenance.gc.evidence import GC_REPORT
from sterna.maintenance.tables.model import APP_ID, PRICE_PROPERTY, REGION_PROPERTY, RUN_PROPERTY
from sterna.maintenance.tables.records import FOLDER, SWEEP_REPORT
from sterna.notifications.change_log.event import TYPES
from sterna.pipelines.cdc.journal import COLUMN, PART, SEGMENT, STOPPED_TABLE, TABLE_RESYNC
from sterna.pipelines.features.model import FIELDS
from sterna.pipelines.publish.model import Channel, transform_channel
from sterna.replication.failover.approval import APPROVAL
from sterna.replication.plan.batches import SHARE
from sterna.replication.repair.run import FILE_REPAIR, REMAINING_FAULT, REPAIR_REPORT
from sterna.replication.replica import head
from sterna.replication.replica.bulk_state import BULK_RUN, BULK_TABLE
from sterna.replication.replica.change_record import CHANGE_RECORD_PROPERTY
from sterna.replication.replica.codecs import ACTION, COPY_BATCH, HELD, PLAN, REPORT, STAGE_REPORT
from sterna.replication.replica.pauses import PAUSE
from sterna.serving.rest_catalog import swap
from sterna.storage.bandwidth import LEASE
from tests.support import formats_airflow, formats_beside, formats_ingest, formats_values

_UNKNOWN = {
    UnknownFields.REJECT: "refused by name",
    UnknownFields.IGNORE: "left where they are, in a record that has all of these",
    UnknownFields.PRESERVE: "repeated",
}
RECORDS: tuple[tuple[str, str, Record[object]], ...] = (
    ("A held key", "in `sterna.held`, in `<replica root>/_sterna/held/`, in plans, reports and bulk runs", HELD),
    ("A plan", "`plan.json` in a run's folder", PLAN),
    ("An action of a plan", "in a plan", ACTION),
    ("A copy batch of a plan", "in a plan", COPY_BATCH),
    ("A report", "`report.json` in a run's folder", REPORT),
    ("A stage's report", "in a report, and in XComs of the copy and localize tasks", STAGE_REPORT),
    ("A copy task's batches", "in the XCom that copy tasks are mapped over", SHARE),
    ("A bulk run", "`<replica root>/_sterna/transit/round.json`", BULK_RUN),
    ("A table of a bulk run", "in a bulk run", BULK_TABLE),
    ("A paused table", "`<replica root>/_sterna/paused/<digest of the key name>.json`", PAUSE),
    ("A lease on bandwidth", "`<replica root>/_sterna/bandwidth/<location>/<lease>.json`", LEASE),
    ("A clean-up's record", "`<replica root>/_sterna/collect/<pass>.json`", GC_REPORT),
    ("A sweep's record", "`<replica root>/_sterna/sweep/<pass>.json`", SWEEP_REPORT),
    ("A folder in it", "in a sweep's record", FOLDER),
    ("An amount of files", "in these two", AMOUNT),
    ("A file that can't be deleted", "in these two", NOT_DELETED),
    ("A repair's report", "`repair.json` in a run's folder", REPAIR_REPORT),
    ("A repaired file", "in a repair's report", FILE_REPAIR),
    ("A fault that stays", "in a repair's report", REMAINING_FAULT),
    ("A segment of change capture", "`_cdc/drops/<source>/<epoch>/<down>.json`, with `version` 1", SEGMENT),
    ("A part of a segment", "in a segment", PART),
    ("A stopped table of a segment", "in a segment", STOPPED_TABLE),
    ("A table of a segment that was read again", "in a segment", TABLE_RESYNC),
    ("A column of a segment", "in a segment", COLUMN),
    ("What a person approves of a promotion", "in XComs of the DAG `sterna_promote`", APPROVAL),
    *formats_beside.RECORDS,
)  # type: ignore[assignment] - each is a record of some class


def lists() -> str:
    """Return the lists of the page."""
    return "\n".join([*_records(), *_names()])


def _records() -> Iterable[str]:
    yield "## Records"
    for title, where, record in (*RECORDS, *formats_ingest.RECORDS):
        yield from ("", f"### {title}", "")
        yield from _item(f"Where: {where}.")
        yield from _item(f"Fields: {', '.join(f'`{name}`' for name in record.names) or 'none'}.")
        if omitted := ", ".join(f"`{name}`" for name in sorted(record.omitted_names)):
            yield from _item(f"Left out at its default: {omitted}.")
        yield from _item(f"Unknown fields: {_UNKNOWN[record.unknown]}.")


def groups() -> dict[str, Sequence[str]]:
    """Return names that stay, by what they are of."""
    properties = [head.SOURCE_REF, head.SOURCE_HASH, head.PLANNED_HASH, head.RUN_ID, head.REGION, head.DIGEST]
    properties += [
        head.REGISTRY,
        head.BINDINGS,
        head.HELD,
        head.COUNTS,
        head.VERSION,
        head.RESTORED_OVER,
        head.WATERMARK_RESET_FROM,
    ]
    channel, flow = Channel("eu", "acme", "clicks"), transform_channel("orders")
    connections = [connection_type["connection-type"] for connection_type in get_provider_info()["connection-types"]]
    return {
        "Properties of commits on a replica branch": [
            *properties,
            head.GC_MARKER,
            head.OVERWRITTEN_BY,
            CHANGE_RECORD_PROPERTY,
        ],
        "Properties of commits on `main`": [
            head.MOVED_TABLES,
            head.MOVE_ID,
            swap.REST_COMMIT,
            swap.REST_KEY,
            head.RESTORED_FROM,
            head.RESTORE_ID,
        ],
        "`app-id` of commits on `main`": [APP_ID],
        "Properties of snapshots on `main`": [RUN_PROPERTY, REGION_PROPERTY, PRICE_PROPERTY],
        "Properties of tables on `main`": [
            channel.position_property,
            channel.snapshot_property,
            flow.position_property,
            flow.snapshot_property,
            Channel("eu", "acme", "kafka-clicks-all").offsets_property,
        ],
        "Types of events": TYPES,
        "Fields of a view's hash in Valkey": FIELDS,
        "Connection types": connections,
        **formats_beside.groups(),
        **formats_values.groups(),
        **formats_airflow.GROUPS,
    }


def _names() -> Iterable[str]:
    yield from ("", "## Names")
    for title, names in {**groups(), **formats_ingest.GROUPS}.items():
        yield from ("", f"### {title}", "")
        yield from _item(f"{', '.join(f'`{name}`' for name in names)}.")


def _item(text: str) -> list[str]:
    return textwrap.wrap(
        text, 100, initial_indent="* ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


if __name__ == "__main__":
    print(lists())
