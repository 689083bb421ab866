"""What stands beside the replica, in commits and in stores of others, as `docs/formats.md` lists it."""

from __future__ import annotations

from datetime import UTC, datetime

from sterna.brokers.message import AMQP_PREFIX, KAFKA_PREFIX, WEBHOOK_ID, WEBHOOK_SIGNATURE, WEBHOOK_TIMESTAMP
from sterna.codec import Record
from sterna.config.near_places import address_root, near_folder
from sterna.config.registry import run_names
from sterna.config.registry.folders import STATE_FOLDERS
from sterna.config.registry.model import Region
from sterna.maintenance.deletion import file_lists as unreachable
from sterna.maintenance.tables.failed_groups import UNWRITTEN, UNWRITTEN_GROUP
from sterna.notifications.sinks.dead_letters import DEAD_LETTER
from sterna.pipelines.features.model import join_id, state_key, value_key
from sterna.pipelines.transforms.failure import FAILURE
from sterna.postgres.term import REPLICATION_NAME, TERM_TABLE
from sterna.replication.failover.catalog_seed import slot_name
from sterna.replication.failover.rejoin import lost_branch
from sterna.replication.replica import file_list
from sterna.replication.replica.change_record import CHANGES, HEADER
from sterna.replication.replica.delay_hours import HOUR
from sterna.replication.replica.feature_position import POSITION
from sterna.replication.replica.held_list import DIGEST_FORM
from sterna.replication.replica.tags import branch_before_restore, pin_tag, sink_tag

RECORDS: tuple[tuple[str, str, Record[object]], ...] = (
    (
        "A long list of held keys",
        "in `sterna.held`; the list is in the object that the digest names",
        DIGEST_FORM,
    ),
    ("The head of news", "in `sterna.news`; with `sha256` the parts are in `news.json.gz` in the run's folder", HEADER),
    ("The parts of news", "in `sterna.news`, or in that object; a part that says nothing is left out", CHANGES),
    ("How far a view of features is", "`<replica root>/_sterna/features/<view>.json`", POSITION),
    ("Why a transform failed the last time", "`<replica root>/_sterna/flows/<flow>.json`", FAILURE),
    (
        "Groups of files that maintenance could not write",
        "`<replica root>/_sterna/upkeep/unwritten.json`, of the region whose files they are",
        UNWRITTEN,
    ),
    ("A group of files that maintenance could not write", "in that file", UNWRITTEN_GROUP),
    (
        "An hour of the index of delays",
        "`<replica root>/_sterna/delays/<hour>.json`, with `version` 1; of more than 100 kB it is gzipped",
        HOUR,
    ),
    ("A dead letter", "`<replica root>/_sterna/dead/<outlet>/<time>-<event id>.json`", DEAD_LETTER),
)  # type: ignore[assignment] - each is a record of some class


_MOMENT = datetime(2026, 11, 1, tzinfo=UTC)


def groups() -> dict[str, list[str]]:
    """Return names that stay, by what they are of."""
    return {
        "Tags": [pin_tag("eu", _MOMENT, "a" * 64), sink_tag("eu", "shop")],
        "Branches": [branch_before_restore(_MOMENT, "a" * 64)],
        "Folders below `_sterna`": list(STATE_FOLDERS),
        "Folders of tables below a location": [
            *(f"{near_folder('<location>')}/{name}" for name in ("<table uuid>", "<table>-<first of its uuid>")),
            f"{address_root('<location>')}/<table uuid>",
        ],
        "Names in a run's folder": [
            *(run_names.PLAN, run_names.REPORT, run_names.REPAIR, run_names.CHANGE_RECORD, run_names.TO_LOCALIZE),
            *(run_names.copy_list_name(7), run_names.part_name(run_names.COPY_LIST_PREFIX, "<digest>")),
            *(run_names.part_name(run_names.PARTS_PREFIX, "<digest>"), run_names.children_name("<digest>")),
            *(run_names.fetched_name("<digest>"), run_names.COPY_STARTED_MARKER, run_names.batch_marker_name(7)),
            run_names.partial_marker_name(7, "<digest>"),
        ],
        "Columns of lists of files in a run's folder, Parquet": file_list.schema().names,
        "Roles in these lists": [file_list.CONTENT, *file_list.LOCALIZE_ORDER],
        "Numbers of batches in these lists, of what is localized and of what is proven": [
            str(file_list.TO_LOCALIZE),
            str(file_list.PROVEN),
        ],
        "Columns of a pass's unreachable files, Parquet": unreachable.schema().names,
        "Branches that keep what only an old primary had": [lost_branch(_MOMENT, "0123456789abcdef" * 4)],
        "Publication and subscription of a catalog's Postgres": [REPLICATION_NAME],
        "Slots of a catalog's Postgres": [slot_name(Region.model_construct(name="eu-west"))],
        "Tables of a catalog's Postgres beside Nessie's": [TERM_TABLE],
        "Headers of webhooks": [WEBHOOK_ID, WEBHOOK_TIMESTAMP, WEBHOOK_SIGNATURE],
        "Headers of CloudEvents in Kafka": [f"{KAFKA_PREFIX}<attribute>"],
        "Application properties of CloudEvents in AMQP": [f"{AMQP_PREFIX}<attribute>"],
        "Keys in Valkey": [state_key("user"), value_key("user", "123"), value_key("visit", join_id(["123", "a"]))],
    }
