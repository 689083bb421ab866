"""metadata.json without the snapshots that a policy leaves out.

The rest of its bytes stay, and every reader takes it.
"""

import gzip
import json
from itertools import chain, combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.metadata import TableMetadataUtil

from sterna.errors import BrokenMetadata
from sterna.iceberg.json_text import Document
from sterna.iceberg.metadata.history import prune_snapshots, retained_snapshots
from sterna.iceberg.metadata.table import TableMetadata, localize_table_metadata, read_table_metadata
from tests.unit.iceberg.metadata_json import KEPT, LOG, VERSIONS, marked, plain, without_marked

URI = "s3://us/t/metadata/00001-a.metadata.json"
PATHS = {
    f"s3://us/t/{name}{number}.avro": f"s3://us/t/{name}{number}.avro"
    for name in ("m", "snap-")
    for number in range(1, 7)
}


def localize(text: str | bytes, keep: frozenset[int], uri: str = URI) -> bytes:
    """Prune alone: every path maps to itself."""
    return localize_table_metadata(
        text.encode() if isinstance(text, str) else text,
        uri,
        map_content=str,
        map_root=str,
        map_property=lambda _: None,
        manifest_lists=PATHS,
        manifests=PATHS,
        select_snapshots=lambda _: keep,
    )


def unescaped(text: str) -> str:
    # A location is always written anew.
    return text.replace(r"s3:\/\/us/t", "s3://us/t")


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_what_goes_takes_its_commas_and_nothing_else(version: int, inline: bool):
    text = marked(version, inline=inline)
    assert localize(plain(text), KEPT).decode() == unescaped(without_marked(text))


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_when_all_stay_no_byte_changes(version: int, inline: bool):
    text = plain(marked(version, inline=inline))
    assert localize(text, frozenset(range(1, 7))).decode() == unescaped(text)
    # A log with a gap is no reason to touch it either.
    text = text.replace('"timestamp-ms":4000,"snapshot-id":4}', '"timestamp-ms":4000,"snapshot-id":44}')
    assert localize(text, frozenset(range(1, 7))).decode() == unescaped(text)


def test_the_default_keeps_every_snapshot():
    text = plain(marked(2))
    done = localize_table_metadata(
        text.encode(), URI, map_content=str, map_root=str, map_property=lambda _: None, manifest_lists=PATHS
    )
    assert done.decode() == unescaped(text)


def test_keep_is_asked_with_what_the_file_says():
    text = plain(marked(3)).encode()
    received: list[TableMetadata] = []

    def keep(metadata: TableMetadata) -> frozenset[int]:
        received.append(metadata)
        return retained_snapshots(metadata, latest=2)

    done = localize_table_metadata(
        text,
        URI,
        map_content=str,
        map_root=str,
        map_property=lambda _: None,
        manifest_lists=PATHS,
        select_snapshots=keep,
    )
    assert received == [read_table_metadata(text, URI)]
    assert [snapshot["snapshot-id"] for snapshot in json.loads(done)["snapshots"]] == [2, 5, 6]


def test_only_what_stays_has_to_be_localized():
    for inline, needed in (
        (False, {f"s3://us/t/snap-{number}.avro" for number in KEPT}),
        (True, {f"s3://us/t/m{n}.avro" for n in range(1, 6)}),
    ):
        data = plain(marked(1, inline=inline)).encode()
        for paths in (needed, *({*needed} - {path} for path in needed)):
            all_paths = {path: path for path in paths}

            def call(paths: dict[str, str] = all_paths, data: bytes = data) -> bytes:
                return localize_table_metadata(
                    data,
                    URI,
                    map_content=str,
                    map_root=str,
                    map_property=lambda _: None,
                    manifest_lists=paths,
                    manifests=paths,
                    select_snapshots=lambda _: KEPT,
                )

            if paths == needed:
                assert call()
            else:
                with pytest.raises(BrokenMetadata, match="was not localized"):
                    call()


@pytest.mark.parametrize("ending", [".gz.metadata.json", ".metadata.json.gz"])
def test_gzip_stays_gzip(ending: str):
    text = marked(2)
    done = localize(gzip.compress(plain(text).encode()), KEPT, f"s3://us/t/metadata/00001-a{ending}")
    assert gzip.decompress(done).decode() == unescaped(without_marked(text))


SUBSETS = [frozenset(subset) for subset in chain.from_iterable(combinations(range(4), size) for size in range(5))]


@pytest.mark.parametrize("gone", SUBSETS, ids=str)
def test_any_elements_of_an_array_can_go(gone: frozenset[int]):
    text = '{"a" : [  {"n":0, "x":[1 , 2]}\n, {"n":1 } ,{"n":2},\t{"n":3} \r\n] }'
    document = Document(text, URI, False)
    elements = document.elements(document.members(document.root())["a"])
    done = document.write(document.removal_edits(elements, gone)).decode()
    kept = [index for index in range(4) if index not in gone]
    assert [item["n"] for item in json.loads(done)["a"]] == kept
    # What stays has its own spelling, and every space outside of the elements is still there.
    texts = ['{"n":0, "x":[1 , 2]}', '{"n":1 }', '{"n":2}', '{"n":3}']
    spaces = ["  ", "\n", " ", " ", "", "", "\t", " \r\n"]
    between = done.removeprefix('{"a" : [').removesuffix("] }")
    for index in kept:
        assert texts[index] in between
        between = between.replace(texts[index], "")
    assert between.replace(",", "") == "".join(spaces)


def test_commas_go_with_the_element_in_front_unless_it_stays():
    text = '{"a":[0 , 1  ,2   ,3]}'
    document = Document(text, URI, False)
    elements = document.elements(document.members(document.root())["a"])
    done = {
        gone: document.write(document.removal_edits(elements, gone)).decode()[5:-1]
        for gone in ((0,), (1, 2), (3,), (2, 3), (0, 1, 2, 3))
    }
    assert list(done.values()) == ["[  1  ,2   ,3]", "[0 ,      3]", "[0 , 1  ,2   ]", "[0 , 1     ]", "[       ]"]


def filtered(parsed: dict[str, Any], keep: frozenset[int]) -> dict[str, Any]:
    """Return parsed JSON as it must be when pruned, by plain filters."""
    gone = {snapshot["snapshot-id"] for snapshot in parsed["snapshots"]} - keep
    result = dict(parsed)
    for name in ("snapshots", "statistics", "partition-statistics"):
        result[name] = [entry for entry in parsed[name] if entry["snapshot-id"] in keep]
    log: list[Any] = []
    for entry in parsed["snapshot-log"] if gone else []:
        log = (
            [*log, entry]
            if entry["snapshot-id"] in {snapshot["snapshot-id"] for snapshot in result["snapshots"]}
            else []
        )
    return result | ({"snapshot-log": log} if gone else {})


@st.composite
def files(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a metadata.json that readers accept, with any snapshots, refs and logs."""
    parsed = json.loads(plain(marked(draw(st.sampled_from(VERSIONS)))))
    samples = parsed["snapshots"]
    ids = draw(st.lists(st.integers(1, 20), unique=True, max_size=7))
    current = draw(st.none() | st.sampled_from(ids)) if ids else None
    entries = st.lists(st.sampled_from([*ids, 21]), max_size=5)
    parsed["snapshots"] = [
        draw(st.sampled_from(samples))
        | {"snapshot-id": number, "parent-snapshot-id": draw(st.sampled_from([*ids, 21]))}
        for number in ids
    ]
    for name in ("statistics", "partition-statistics"):
        parsed[name] = [parsed[name][0] | {"snapshot-id": number} for number in draw(entries)]
    tags = draw(st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(ids))) if ids else {}
    parsed["refs"] = {name: {"snapshot-id": number, "type": "tag"} for name, number in tags.items()}
    parsed["current-snapshot-id"] = -1 if current is None else current
    log = [] if current is None else [*draw(entries), current]
    parsed["snapshot-log"] = [{"snapshot-id": number, "timestamp-ms": at} for at, number in enumerate(log)]
    if current is not None:
        parsed["refs"]["main"] = {"snapshot-id": current, "type": "branch"}
    return parsed


LIMITS = st.sampled_from([{}, {"latest": 1}, {"latest": 3}, {"since_ms": 0}, {"since_ms": 2000}])
FORMS = st.sampled_from(
    [{}, {"indent": 2}, {"separators": (" , ", ":")}, {"separators": (",", ":"), "ensure_ascii": False}]
)


@given(files(), LIMITS, FORMS)
def test_pruned_json_is_the_json_without_those_elements(
    parsed: dict[str, Any], limits: dict[str, int], form: dict[str, Any]
):
    data = json.dumps(parsed, **form).encode()
    metadata = read_table_metadata(data, URI)
    keep = retained_snapshots(metadata, **limits)
    done = localize(data, keep)
    assert json.loads(done) == filtered(parsed, keep)
    # Planning and writing must agree on what is left.
    assert read_table_metadata(done, URI) == prune_snapshots(metadata, keep)
    read = TableMetadataUtil.parse_raw(done.decode())
    assert (
        {snapshot.snapshot_id for snapshot in read.snapshots} == keep >= {ref.snapshot_id for ref in read.refs.values()}
    )
    if read.current_snapshot_id is not None:
        assert read.current_snapshot() is not None
        assert read.snapshot_log[-1].snapshot_id == read.current_snapshot_id


@pytest.mark.parametrize("version", VERSIONS)
def test_pyiceberg_reads_the_pruned_table(version: int):
    read = TableMetadataUtil.parse_raw(localize(plain(marked(version)), KEPT).decode())
    assert [snapshot.snapshot_id for snapshot in read.snapshots] == [2, 5, 6]
    assert [entry.snapshot_id for entry in read.snapshot_log] == [2, 6] == list(LOG[-2:])
    assert {name: ref.snapshot_id for name, ref in read.refs.items()} == {"main": 6, "old": 5}
    assert ([item.snapshot_id for item in read.statistics], read.partition_statistics) == ([2], [])
    current = read.current_snapshot()
    assert current is not None
    assert current.parent_snapshot_id == 2
    if version == 3:
        assert (read.next_row_id, current.first_row_id, current.added_rows) == (60, 60, 10)
