"""Manifests for tests: one mapping, generated entries, and what localizing must make of them."""

import copy
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from sterna.iceberg.avro.binary import encode_bytes, encode_long
from sterna.iceberg.avro.container import open_container
from sterna.iceberg.files import LocalizedFile
from sterna.iceberg.manifests.entry import UriMapping
from sterna.iceberg.manifests.manifest import localize_manifest
from sterna.iceberg.manifests.records import localize as localize_general
from tests.unit.iceberg.avro_files import PATH_COLUMN, Raw, avro_file, decode, entry, manifest_schema, vector

URI = "s3://us/t/metadata/m0.avro"


def content(uri: str) -> str:
    return uri.replace("s3://us/", "s3://eu/r/us/", 1)


def mapped(uri: str) -> str:
    return content(uri) if uri.startswith("s3://us/") else uri.replace("s3://eu/", "s3://eu/r/eu/", 1)


def localized_both(data: bytes, mapping: UriMapping) -> bytes | None:
    """Localize by the public function, and see that the general path says the same record for record."""
    walked = localize_manifest(
        data,
        URI,
        map_content=mapping.map_content,
        deletes=mapping.deletes,
        map_deleted_deletes=mapping.map_deleted_deletes,
    )
    general = localize_general(open_container(data, URI), mapping)
    assert (walked is None) == (general is None)
    if walked is not None and general is not None:
        assert decode(walked) == decode(general)
    return walked


# Long and short ones, so that lengths of lengths change; one that stays, and one that stays with another size.
PATHS = ["s3://us/a", "s3://us/" + "x" * 56, "s3://eu/é" * 30, "s3://eu/b", "s3://apac/" + "x" * 200]
URIS = st.sampled_from(PATHS)
LONGS = st.integers(-(2**63), 2**63 - 1)
INTS = st.integers(-(2**31), 2**31 - 1)
COUNTS = st.none() | st.lists(st.fixed_dictionaries({"key": INTS, "value": LONGS}), max_size=4)
OTHER_BOUNDS = st.lists(st.fixed_dictionaries({"key": st.integers(1, 9), "value": st.binary(max_size=200)}), max_size=4)
MAPPING = UriMapping(
    content, {uri: LocalizedFile(uri.replace("us", "eu/r"), len(uri)) for uri in PATHS}, mapped, content
)


@st.composite
def bounds(draw: Callable[..., Any]) -> dict[str, Any]:
    path = draw(URIS)
    by_column: dict[str, Any] = {}
    for name in ("lower_bounds", "upper_bounds"):
        items = draw(st.none() | OTHER_BOUNDS)
        if items is not None and draw(st.booleans()):
            value = draw(st.sampled_from([path, path, path[:16], "s3://us/z"])).encode()
            items.insert(draw(st.integers(0, len(items))), {"key": PATH_COLUMN, "value": value})
        by_column[name] = items
    return by_column


@st.composite
def partitions(draw: Callable[..., Any]) -> dict[str, Any]:
    return {
        "day": draw(st.none() | INTS),
        "price": draw(st.none() | st.binary(min_size=4, max_size=4)),
        "at": draw(st.none() | LONGS),
        "name": draw(st.none() | st.text(max_size=5)),
        "place": draw(st.none() | st.fixed_dictionaries({"x": st.none() | LONGS, "y": st.none() | URIS})),
    }


@st.composite
def entries(draw: Callable[..., Any], version: int) -> dict[str, Any]:
    common: dict[str, Any] = {
        "status": draw(st.integers(0, 2)),
        "size": draw(st.integers(0, 2**63 - 1)),
        "partition": draw(partitions()),
        "column_sizes": draw(COUNTS),
        "value_counts": draw(COUNTS),
        "split_offsets": draw(st.none() | st.lists(LONGS, max_size=3)),
        "a_later_field": draw(
            st.none() | st.dictionaries(st.text(max_size=3), st.none() | st.floats(allow_nan=False) | st.text())
        ),
        "a_later_struct": draw(
            st.none() | st.just({"digest": b"\xff\x00a", "rows": [[2**40], []], "flag": False, "ratio": 1.5})
        ),
        **draw(bounds()),
    }
    if version == 3:
        common["first_row_id"] = draw(st.none() | LONGS)
        if draw(st.booleans()):
            return vector(draw(URIS), draw(URIS), draw(LONGS), **common)
    if version > 1:
        common["referenced_data_file"] = draw(st.none() | URIS)
    kind = draw(st.integers(0, 2))
    name = draw(st.sampled_from(["PARQUET", "orc", "Avro"]))
    return entry(draw(URIS), content=kind, version=version, file_format=name, **common)


@st.composite
def manifests(draw: Callable[..., Any], version: int, codec: str) -> tuple[bytes, bytes]:
    """A manifest, and the one that localizing it with `MAPPING` must give."""
    records = draw(st.lists(entries(version), max_size=5))
    block, seed = draw(st.integers(1, 5)), draw(st.integers(0, 99))

    def file(records: list[dict[str, Any]]) -> bytes:
        return avro_file(manifest_schema(version), records, codec, block, seed, format_version=str(version))

    return file(records), file([localized_record(record) for record in records])


@st.composite
def data_manifests(draw: Callable[..., Any], version: int, codec: str) -> bytes:
    """A manifest whose entries name nothing but their own files."""
    records = draw(st.lists(entries(version), max_size=5))
    for record in records:
        file = record["data_file"]
        if file["file_format"] == "PUFFIN":
            file |= {"file_format": "PARQUET", "content_offset": None, "content_size_in_bytes": None}
        file |= {"content": 0, "referenced_data_file": None} if version > 1 else {}
    schema = manifest_schema(version)
    return avro_file(schema, records, codec, draw(st.integers(1, 5)), format_version=str(version))


def localized_record(record: dict[str, Any]) -> dict[str, Any]:
    """What localizing makes of an entry, said once more and apart from the code that does it."""
    record = copy.deepcopy(record)
    file = record["data_file"]
    source = file["file_path"]
    if file.get("referenced_data_file") is not None:
        file["referenced_data_file"] = content(file["referenced_data_file"])
    if file.get("content", 0) != 1:
        file["file_path"] = content(source)
        return record
    file["file_path"] = mapped(source) if record["status"] == 2 else MAPPING.deletes[source].uri
    if record["status"] != 2:
        file["file_size_in_bytes"] = MAPPING.deletes[source].length
        if file["file_path"] != source and file["file_format"] != "PUFFIN":
            file["column_sizes"] = file["split_offsets"] = None
    lower, upper = (_path_bound(file[name]) for name in ("lower_bounds", "upper_bounds"))
    moved = file["file_path"] != source
    for name, old in (("lower_bounds", lower), ("upper_bounds", upper)):
        if old is None:
            continue
        new = content(old.decode()).encode() if lower == upper else None
        if new != old and (moved or new is not None):
            file[name] = _one_block(
                [item if item["key"] != PATH_COLUMN else {**item, "value": new} for item in file[name]]
            )
    return record


def _path_bound(items: list[dict[str, Any]] | None) -> bytes | None:
    return next((item["value"] for item in items or () if item["key"] == PATH_COLUMN), None)


def _one_block(items: list[dict[str, Any]]) -> Raw:
    kept = [encode_long(item["key"]) + encode_bytes(item["value"]) for item in items if item["value"] is not None]
    return Raw(encode_long(1) + (encode_long(len(kept)) if kept else b"") + b"".join(kept) + b"\x00")


def one(record: dict[str, Any], mapping: UriMapping, version: int = 2) -> dict[str, Any] | None:
    """The data file of a manifest's only entry, localized by the walk and by the general path.

    None when nothing changes.
    """
    data = avro_file(manifest_schema(version), [record], content="deletes", format_version=str(version))
    done = localized_both(data, mapping)
    return None if done is None else decode(done)[1][0]["data_file"]
