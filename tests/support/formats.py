"""What `docs/formats.md` lists, as the code has it: `python -m tests.support.formats` prints the lists anew."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from sterna.airflow.provider import get_provider_info
from sterna.cdc.journal import AGAIN, COLUMN, DROP, PART, STOP
from sterna.cleaning.codecs import AMOUNT, NOT_DELETED
from sterna.edges.stores.leases import LEASE
from sterna.features.model import FIELDS
from sterna.feed.event import TYPES
from sterna.gc.evidence import COLLECTED
from sterna.ha.approval import APPROVAL
from sterna.json_record import Record, Unknown
from sterna.repair.run import LEFT, MEND, REPAIRED
from sterna.replica import head
from sterna.replica.codecs import ACTION, BATCH, HELD, PLAN, REPORT, STAGE_REPORT
from sterna.replica.news import NEWS
from sterna.replica.transit import MOVING, ROUND
from sterna.sync.plan.batches import SHARE
from sterna.upkeep.model import APP, MARK, PRICE_MARK, REGION_MARK
from sterna.upkeep.records import FOLDER, SWEPT
from sterna.wap.model import Channel, flow_channel
from tests.support import formats_airflow, formats_beside, formats_ingest, formats_values

_UNKNOWN = {
    Unknown.REFUSE: "refused by name",
    Unknown.IGNORE: "left where they are, in a record that has all of these",
    Unknown.CARRY: "repeated",
}
RECORDS: tuple[tuple[str, str, Record[object]], ...] = (
    ("A held key", "in `sterna.held`, in `<replica root>/_sterna/held/`, in plans, reports and rounds", HELD),
    ("A plan", "`plan.json` in a run's folder", PLAN),
    ("An action of a plan", "in a plan", ACTION),
    ("A copy batch of a plan", "in a plan", BATCH),
    ("A report", "`report.json` in a run's folder", REPORT),
    ("A stage's report", "in a report, and in XComs of the copy and localize tasks", STAGE_REPORT),
    ("A copy task's batches", "in the XCom that copy tasks are mapped over", SHARE),
    ("A round of the large lane", "`<replica root>/_sterna/transit/round.json`", ROUND),
    ("A table of a round", "in a round", MOVING),
    ("A lease on bandwidth", "`<replica root>/_sterna/bandwidth/<location>/<lease>.json`", LEASE),
    ("A clean-up's record", "`<replica root>/_sterna/collect/<pass>.json`", COLLECTED),
    ("A sweep's record", "`<replica root>/_sterna/sweep/<pass>.json`", SWEPT),
    ("A folder in it", "in a sweep's record", FOLDER),
    ("An amount of files", "in these two", AMOUNT),
    ("A file that can't be deleted", "in these two", NOT_DELETED),
    ("A repair's report", "`repair.json` in a run's folder", REPAIRED),
    ("A file brought anew", "in a repair's report", MEND),
    ("A fault that stays", "in a repair's report", LEFT),
    ("A drop of change capture", "`_cdc/drops/<source>/<epoch>/<down>.json`, with `version` 1", DROP),
    ("A part of a drop", "in a drop", PART),
    ("A stopped table of a drop", "in a drop", STOP),
    ("A table of a drop that was read again", "in a drop", AGAIN),
    ("A column of a drop", "in a drop", COLUMN),
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
        yield from _item(f"Unknown fields: {_UNKNOWN[record.unknown]}.")


def groups() -> dict[str, Sequence[str]]:
    """Return names that stay, by what they are of."""
    properties = [head.SOURCE_REF, head.SOURCE_HASH, head.PLANNED_HASH, head.RUN_ID, head.REGION, head.DIGEST]
    properties += [head.REGISTRY, head.BINDINGS, head.HELD, head.COUNTS, head.VERSION, head.REASSERTED, head.RESEEDED]
    channel, flow = Channel("eu", "acme", "clicks"), flow_channel("orders")
    connections = [each["connection-type"] for each in get_provider_info()["connection-types"]]
    return {
        "Properties of commits on a replica branch": [*properties, head.COLLECTING, head.WROTE_ANEW, NEWS],
        "Properties of commits on `main`": [head.MOVED, head.MOVE_ID],
        "`app-id` of commits on `main`": [APP],
        "Properties of snapshots on `main`": [MARK, REGION_MARK, PRICE_MARK],
        "Properties of tables on `main`": [channel.mark, channel.place, flow.mark, flow.place],
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
        yield from _item(f"{', '.join(f'`{each}`' for each in names)}.")


def _item(text: str) -> list[str]:
    return textwrap.wrap(
        text, 100, initial_indent="* ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


if __name__ == "__main__":
    print(lists())
