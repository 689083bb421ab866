"""Commits as engines send them, and random ones: update actions that a table's metadata can be given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

Update = dict[str, Any]
UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
LOCATION = "s3://us-lake/warehouse/shop/orders"
START_MS = 1_700_000_000_000


def column(column_id: int, name: str, column_type: Any, required: bool = False, **more: Any) -> dict[str, Any]:
    """Return a column of a schema."""
    return {"id": column_id, "name": name, "required": required, "type": column_type, **more}


def schema(*columns: dict[str, Any], schema_id: int = 0, **more: Any) -> dict[str, Any]:
    """Return a schema."""
    return {"type": "struct", "schema-id": schema_id, **more, "fields": list(columns)}


ID = column(1, "id", "long", True)
TS = column(2, "ts", "timestamptz")
NAME = column(3, "name", "string")
PLACE = column(4, "place", {"type": "struct", "fields": [column(5, "city", "string"), column(6, "zip", "int")]})
TAGS = column(7, "tags", {"type": "list", "element-id": 8, "element": "string", "element-required": False})
NOTES = column(
    9,
    "notes",
    {
        "type": "map",
        "key-id": 10,
        "key": "string",
        "value-id": 11,
        "value": {"type": "struct", "fields": [column(12, "at", "date")]},
        "value-required": True,
    },
)
PRICE = column(13, "price", "decimal(10, 2)", doc="net")
TS_DAY = column(14, "ts_day", "date")
NANOS = column(15, "nanos", "timestamp_ns")
COUNT = column(16, "count", "int", True, **{"initial-default": 3, "write-default": 4})
SHAPE = column(17, "shape", "variant")
BASE_SCHEMA = schema(ID, TS, NAME)

SCHEMAS = (
    BASE_SCHEMA,
    schema(ID, TS, NAME, schema_id=7, **{"identifier-field-ids": [1]}),
    schema(ID, TS, NAME, PLACE, TAGS, NOTES, schema_id=1),
    schema(ID, TS, NAME, PRICE),
    schema(ID, TS, PRICE),
    schema(ID, TS, NAME, TS_DAY),
    schema(ID, TS, NANOS),
    schema(ID, TS, COUNT),
    schema(ID, TS, NAME, SHAPE),
    schema(column(1, "id", "long"), TS, NAME, **{"identifier-field-ids": [1]}),
    schema(ID, TS, column(3, "name", "strin")),
    schema(ID, ID),
    schema(ID, column(3, "id", "string")),
    schema(),
)


def spec(*fields: tuple[str, str, int, int | None], spec_id: int = 0) -> dict[str, Any]:
    """Return a partition spec of (name, transform, source, field id)."""
    return {
        "spec-id": spec_id,
        "fields": [
            {"name": name, "transform": transform, "source-id": source}
            | ({"field-id": field_id} if field_id is not None else {})
            for name, transform, source, field_id in fields
        ],
    }


SPECS = (
    spec(),
    spec(("ts_day", "day", 2, 1000)),
    spec(("ts_day", "day", 2, 1000), ("id_bucket", "bucket[16]", 1, 1001), spec_id=3),
    spec(("id_bucket", "bucket[16]", 1, 1001)),
    spec(("name", "identity", 3, 1002)),
    spec(("name_trunc", "truncate[3]", 3, 1000)),
    spec(("city", "identity", 5, 1003)),
    spec(("element", "identity", 8, 1004)),
    spec(("ts_day", "void", 2, 1000), ("id", "identity", 1, 1001)),
    spec(("id", "bucket[4]", 3, 1005)),
    spec(("hour", "hour", 1, 1006)),
    spec(("zero", "bucket[0]", 1, 1007)),
    spec(("place", "identity", 4, 1008)),
    spec(("twice", "day", 2, 1000), ("twice", "identity", 1, 1001)),
    spec(("custom", "zorder[x]", 1, 1009)),
)


def order(*fields: tuple[int, str, str, str], order_id: int = 1) -> dict[str, Any]:
    """Return a sort order of (source, transform, direction, null order)."""
    names = ("source-id", "transform", "direction", "null-order")
    return {"order-id": order_id, "fields": [dict(zip(names, element, strict=True)) for element in fields]}


ORDERS = (
    order(order_id=0),
    order((1, "identity", "asc", "nulls-first")),
    order((1, "identity", "desc", "nulls-last"), (3, "truncate[2]", "asc", "nulls-first"), order_id=5),
    order((2, "day", "asc", "nulls-first")),
    order((4, "identity", "asc", "nulls-first")),
    order((99, "identity", "asc", "nulls-first")),
    order((1, "identity", "up", "nulls-first")),
    order((1, "identity", "asc", "nulls-first"), order_id=0),
    order(order_id=2),
)


def snapshot(snapshot_id: int, sequence_number: int, parent: int | None = None, **more: Any) -> dict[str, Any]:
    """Return a snapshot."""
    document: dict[str, Any] = {
        "snapshot-id": snapshot_id,
        "sequence-number": sequence_number,
        "timestamp-ms": START_MS + snapshot_id,
        "summary": {"operation": "append", "added-files-size": "3"},
        "manifest-list": f"{LOCATION}/metadata/snap-{snapshot_id}.avro",
        "schema-id": 0,
        **more,
    }
    return document if parent is None else {**document, "parent-snapshot-id": parent}


def create_updates(
    format_version: int,
    table_schema: Mapping[str, Any] = BASE_SCHEMA,
    table_spec: Mapping[str, Any] = SPECS[1],
    table_order: Mapping[str, Any] = ORDERS[0],
) -> list[Update]:
    """Return what Spark, Trino, Flink and PyIceberg send to make a table that was staged."""
    return [
        {"action": "assign-uuid", "uuid": UUID},
        {"action": "upgrade-format-version", "format-version": format_version},
        {"action": "add-schema", "schema": table_schema, "last-column-id": 3},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": table_spec},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": table_order},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": LOCATION},
        {"action": "set-properties", "updates": {"owner": "shop", "write.format.default": "parquet"}},
    ]


def append_updates(metadata: Mapping[str, Any], snapshot_id: int, branch: str = "main", rows: int = 5) -> list[Update]:
    """Return what an append to a table sends."""
    parent = metadata.get("refs", {}).get(branch, {}).get("snapshot-id")
    more = {}
    if metadata["format-version"] >= 3:
        more = {"first-row-id": metadata["next-row-id"], "added-rows": rows}
    number = metadata.get("last-sequence-number", 0) + 1 if metadata["format-version"] > 1 else 0
    return [
        {"action": "add-snapshot", "snapshot": snapshot(snapshot_id, number, parent, **more)},
        {"action": "set-snapshot-ref", "ref-name": branch, "snapshot-id": snapshot_id, "type": "branch"},
    ]


_SNAPSHOT_IDS = st.integers(1, 6)
_REF_NAMES = st.sampled_from(("main", "audit", "v1"))
_AGES = st.none() | st.sampled_from((0, 1, 86_400_000))


def _action(name: str, **fields: Any) -> st.SearchStrategy[Update]:
    strategies = {
        field: content if isinstance(content, st.SearchStrategy) else st.just(content)
        for field, content in fields.items()
    }
    return st.fixed_dictionaries({"action": st.just(name), **{k.replace("_", "-"): v for k, v in strategies.items()}})


_STATISTICS = st.builds(
    lambda snapshot_id, size: {
        "snapshot-id": snapshot_id,
        "statistics-path": f"{LOCATION}/metadata/{snapshot_id}-{size}.stats",
        "file-size-in-bytes": size,
        "file-footer-size-in-bytes": 2,
        "blob-metadata": [
            {"type": "ndv", "snapshot-id": snapshot_id, "sequence-number": 1, "fields": [1], "properties": {"ndv": "3"}}
        ],
    },
    _SNAPSHOT_IDS,
    st.integers(3, 5),
)
_PARTITION_STATISTICS = st.builds(
    lambda snapshot_id, size: {
        "snapshot-id": snapshot_id,
        "statistics-path": f"{LOCATION}/metadata/{snapshot_id}-{size}.parquet",
        "file-size-in-bytes": size,
    },
    _SNAPSHOT_IDS,
    st.integers(3, 5),
)
_KEYS = st.sampled_from(("k1", "k2")).map(
    lambda key: {"key-id": key, "encrypted-key-metadata": "c2VjcmV0", "encrypted-by-id": "kms"}
)
_REF_UPDATES = st.builds(
    lambda name, snapshot_id, kind, keep, age: {
        "action": "set-snapshot-ref",
        "ref-name": name,
        "snapshot-id": snapshot_id,
        "type": kind,
        **({"min-snapshots-to-keep": keep} if keep is not None else {}),
        **({"max-ref-age-ms": age} if age is not None else {}),
    },
    _REF_NAMES,
    _SNAPSHOT_IDS,
    st.sampled_from(("branch", "branch", "branch", "tag")),
    _AGES,
    _AGES,
)
APPEND = "append"
"""The action of a placeholder: an append that fits the metadata at hand, see `resolved`."""
UPDATES: st.SearchStrategy[Update] = st.one_of(
    _action(APPEND, snapshot_id=_SNAPSHOT_IDS, ref_name=_REF_NAMES, offset=st.sampled_from((0, 0, 0, 0, 1, -1))),
    _action(APPEND, snapshot_id=_SNAPSHOT_IDS, ref_name="main", offset=0),
    _REF_UPDATES,
    _action("add-schema", schema=st.sampled_from(SCHEMAS)),
    _action("set-current-schema", schema_id=st.sampled_from((-1, -1, 0, 1, 2, 9))),
    _action("add-spec", spec=st.sampled_from(SPECS)),
    _action("set-default-spec", spec_id=st.sampled_from((-1, -1, 0, 1, 2, 9))),
    _action("add-sort-order", sort_order=st.sampled_from(ORDERS)),
    _action("set-default-sort-order", sort_order_id=st.sampled_from((-1, -1, 0, 1, 2, 9))),
    _action("remove-snapshots", snapshot_ids=st.lists(_SNAPSHOT_IDS, max_size=3)),
    _action("remove-snapshot-ref", ref_name=_REF_NAMES),
    _action("set-properties", updates=st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy"), max_size=2)),
    _action("remove-properties", removals=st.lists(st.sampled_from("abc"), max_size=2)),
    _action("set-location", location=st.sampled_from((LOCATION, f"{LOCATION}-2/", "s3://b"))),
    _action("set-statistics", statistics=_STATISTICS),
    _action("remove-statistics", snapshot_id=_SNAPSHOT_IDS),
    _action("set-partition-statistics", partition_statistics=_PARTITION_STATISTICS),
    _action("remove-partition-statistics", snapshot_id=_SNAPSHOT_IDS),
    _action("remove-schemas", schema_ids=st.lists(st.sampled_from((0, 1, 2)), max_size=2)),
    _action("remove-partition-specs", spec_ids=st.lists(st.sampled_from((0, 1, 2)), max_size=2)),
    _action("add-encryption-key", encryption_key=_KEYS),
    _action("remove-encryption-key", key_id=st.sampled_from(("k1", "k2"))),
    _action("upgrade-format-version", format_version=st.sampled_from((1, 2, 2, 3))),
    _action("assign-uuid", uuid=UUID),
)
_STEPS: st.SearchStrategy[list[Update]] = st.one_of(
    UPDATES.map(lambda update: [update]),
    *(
        st.sampled_from(choices).map(
            lambda content, add=add, name=name, use=use, id_name=id_name: [
                {"action": add, name: content},
                {"action": use, id_name: -1},
            ]
        )
        for choices, add, name, use, id_name in (
            (SCHEMAS[:9], "add-schema", "schema", "set-current-schema", "schema-id"),
            (SPECS[:9], "add-spec", "spec", "set-default-spec", "spec-id"),
            (ORDERS[:5], "add-sort-order", "sort-order", "set-default-sort-order", "sort-order-id"),
        )
    ),
    *[
        st.builds(
            lambda snapshot_id, name: [
                {"action": APPEND, "snapshot-id": snapshot_id, "ref-name": name, "offset": 0},
            ],
            st.integers(1, 40),
            _REF_NAMES,
        )
    ]
    * 3,
)
COMMITS = st.lists(
    st.lists(_STEPS, min_size=1, max_size=3).map(lambda steps: [update for step in steps for update in step]),
    min_size=1,
    max_size=8,
)
"""Histories of commits: what one adds it mostly makes the current one, too."""


def resolved(metadata: Mapping[str, Any], commit: Sequence[Update]) -> list[Update]:
    """Return a commit with its appends made for a table: the next sequence number, the next row id, the ref's parent.

    A snapshot that an offset takes one back is stale, one that it takes forward leaves a gap of sequence numbers.
    """
    updates: list[Update] = []
    state: dict[str, Any] = {
        "format-version": metadata["format-version"],
        "last-sequence-number": metadata.get("last-sequence-number", 0),
        "next-row-id": metadata.get("next-row-id", 0),
        "refs": metadata.get("refs", {}),
    }
    for update in commit:
        if update["action"] == "upgrade-format-version" and update["format-version"] > state["format-version"]:
            state["format-version"] = update["format-version"]
        if update["action"] != APPEND:
            updates.append(update)
            continue
        added = append_updates(state, update["snapshot-id"], update["ref-name"])
        new = added[0]["snapshot"]
        if state["format-version"] > 1:
            new["sequence-number"] = max(1, new["sequence-number"] + update["offset"])
            if update["offset"] < 0:
                new.setdefault("parent-snapshot-id", 99)
            state["last-sequence-number"] = max(new["sequence-number"], state["last-sequence-number"])
        state["next-row-id"] += new.get("added-rows", 0)
        updates += added
    return updates


def table(format_version: int, *, name: str = "orders") -> dict[str, Any]:
    """Return the metadata of a table with two snapshots, a tag, statistics, and a field of tomorrow's."""
    lineage = format_version >= 3
    numbered = format_version > 1
    snapshots = [
        snapshot(
            at,
            at if numbered else 0,
            at - 1 or None,
            **({"first-row-id": 5 * at - 5, "added-rows": 5} if lineage else {}),
        )
        for at in (1, 2)
    ]
    if not numbered:
        for document in snapshots:
            del document["sequence-number"]
    return {
        "format-version": format_version,
        "table-uuid": UUID,
        "location": LOCATION.replace("orders", name),
        **({"last-sequence-number": 2} if numbered else {}),
        "last-updated-ms": START_MS + 10,
        "last-column-id": 3,
        **({} if numbered else {"schema": BASE_SCHEMA, "partition-spec": SPECS[1]["fields"]}),
        "current-schema-id": 0,
        "schemas": [BASE_SCHEMA],
        "default-spec-id": 0,
        "partition-specs": [SPECS[1]],
        "last-partition-id": 1000,
        "default-sort-order-id": 0,
        "sort-orders": [ORDERS[0]],
        "properties": {"owner": "shop"},
        "current-snapshot-id": 2,
        **({"next-row-id": 10} if lineage else {}),
        "refs": {"main": {"snapshot-id": 2, "type": "branch"}, "v1": {"snapshot-id": 1, "type": "tag"}},
        "snapshots": snapshots,
        "statistics": [],
        "partition-statistics": [],
        "snapshot-log": [{"timestamp-ms": START_MS + at, "snapshot-id": at} for at in (1, 2)],
        "metadata-log": [],
    }


VIEW_UUID = "fa6506c3-7681-40c8-86dc-e36561f83385"


def view_version(version_id: int, schema_id: int = 0, *queries: tuple[str, str], **more: Any) -> dict[str, Any]:
    """Return a version of a view, with its queries as (dialect, sql)."""
    return {
        "version-id": version_id,
        "timestamp-ms": START_MS + version_id,
        "schema-id": schema_id,
        "summary": {"engine-name": "Spark"},
        "default-namespace": ["shop"],
        "representations": [
            {"type": "sql", "sql": sql, "dialect": dialect} for dialect, sql in queries or (("spark", "SELECT 1"),)
        ],
        **more,
    }


def view() -> dict[str, Any]:
    """Return the metadata of a view."""
    return {
        "view-uuid": VIEW_UUID,
        "format-version": 1,
        "location": "s3://us-lake/warehouse/shop/recent",
        "properties": {"comment": "of this week"},
        "schemas": [BASE_SCHEMA],
        "current-version-id": 1,
        "versions": [view_version(1)],
        "version-log": [{"timestamp-ms": START_MS + 1, "version-id": 1}],
    }


VIEW_UPDATES: st.SearchStrategy[Update] = st.one_of(
    _action("add-schema", schema=st.sampled_from((BASE_SCHEMA, SCHEMAS[2], SCHEMAS[3]))),
    _action(
        "add-view-version",
        view_version=st.builds(
            lambda version_id, schema_id, queries: view_version(version_id, schema_id, *queries),
            st.integers(1, 3),
            st.sampled_from((-1, 0, 0, 1)),
            st.sampled_from(
                (
                    (("spark", "SELECT 1"),),
                    (("spark", "SELECT 2"),),
                    (("Spark", "SELECT 3"), ("trino", "SELECT 3")),
                    (("trino", "SELECT 4"),),
                    (("spark", "SELECT 5"), ("SPARK", "SELECT 5")),
                )
            ),
        ),
    ),
    _action("set-current-view-version", view_version_id=st.sampled_from((-1, -1, -1, 1, 2, 9))),
    _action(
        "set-properties",
        updates=st.sampled_from(
            (
                {"a": "b"},
                {"version.history.num-entries": "2"},
                {"version.history.num-entries": "0"},
                {"replace.drop-dialect.allowed": "true"},
            )
        ),
    ),
    _action("remove-properties", removals=st.sampled_from((["comment"], ["version.history.num-entries"]))),
    _action("set-location", location=st.sampled_from(("s3://us-lake/v", "s3://us-lake/warehouse/shop/recent"))),
    _action("assign-uuid", uuid=st.sampled_from((VIEW_UUID, UUID))),
    _action("upgrade-format-version", format_version=1),
)
VIEW_COMMITS = st.lists(st.lists(VIEW_UPDATES, min_size=1, max_size=4), min_size=1, max_size=6)
