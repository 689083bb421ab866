"""A replica that is broken in one way: verify names the table, the kind and the file, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from sterna.replication.verify import findings
from sterna.replication.verify.findings import Finding, VerificationReport
from sterna.replication.verify.run import Depth, parse_sample, verify
from sterna.text.verify import verified_text
from tests.support.replica_paths import localized_path
from tests.support.small_world import World, make_world
from tests.unit.verify import corruption
from tests.unit.verify.corruption import DATA, DELETES, METADATA
from tests.unit.verify.tables import Side, bound, delete_rows, publish, puffin, sides

DEEP = Depth(deep=True)
BOTH, ALONE, ORC, AVRO = (f"data/deletes-{name}" for name in ("both.parquet", "a.parquet", "b.orc", "ab.avro"))
PUFFIN, SNAP, A, B = "data/deletes.puffin", "metadata/snap-2.avro", "data/a.parquet", "data/b.parquet"
STATISTICS = "metadata/stats.puffin"
FOREIGN = "/us/lake/a/data/a.parquet"

Break = Callable[[Side, str], object]
"""What breaks a side, given the folder of the world."""


def broken(world: World, change: Break, version: int = 2, depth: Depth = DEEP) -> VerificationReport:
    publish(world, "a", "b", version=version)
    change(sides(world, "a")[1], f"file://{world.folder}")
    return verify(world.context(), depth)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize(
    "depth", [Depth(), DEEP, Depth(True, parse_sample("1/3", date(2026, 1, 1)))], ids=["structure", "deep", "sample"]
)
def test_a_healthy_replica_has_no_faults(world: World, version: int, depth: Depth):
    publish(world, "a", "b", version=version)
    report = verify(world.context(), depth)
    assert report.findings == ()
    assert (report.tables, report.faults, report.foreign, report.not_comparable) == (2, 0, 0, 0)
    assert (report.compared == report.files) == (depth == DEEP)


def snapshot(**changes: Any) -> Break:
    return lambda side, _: corruption.metadata(side, lambda document: document["snapshots"][1].update(changes))


def top(**changes: Any) -> Break:
    return lambda side, _: corruption.metadata(
        side, lambda document: document.update({k.replace("_", "-"): v for k, v in changes.items()})
    )


def properties(**changes: Any) -> Break:
    return lambda side, _: corruption.metadata(side, lambda document: document["properties"].update(changes))


def property_of_us(name: str) -> Break:
    return lambda side, world: properties(**{name: f"{world}/us/lake/x"})(side, world)


def row(manifest: str, **changes: Any) -> Break:
    return lambda side, _: corruption.rows(side, manifest, lambda record: record.update(changes))


def file(manifest: str, number: int, **changes: Any) -> Break:
    def change(side: Side, world: str) -> None:
        named = {name: world + value if value == FOREIGN else value for name, value in changes.items()}
        corruption.entries(side, manifest, lambda entries: entries[number]["data_file"].update(named))

    return change


def entry(manifest: str, **changes: Any) -> Break:
    return lambda side, _: corruption.entries(side, manifest, lambda entries: entries[0].update(changes))


def deleted_foreign(side: Side, world: str) -> None:
    corruption.entries(
        side,
        DATA,
        lambda entries: entries[1].update(status=2) or entries[1]["data_file"].update(file_path=world + FOREIGN),
    )
    corruption.rows(
        side,
        DATA,
        lambda record: record.update(
            added_files_count=1, added_rows_count=10, deleted_files_count=1, deleted_rows_count=10
        ),
    )


def rows_of(name: str, *rows: tuple[str, int], **fields: Any) -> Break:
    """Put other rows into a delete file.

    Paths as names of the table's own files, or as what stands below the world's folder.
    """

    def change(side: Side, world: str) -> None:
        named = [(world + path if path.startswith("/") else side.uri(path), pos) for path, pos in rows]
        data = delete_rows(named, name.rpartition(".")[2])
        corruption.replace_delete(side, name, data, record_count=len(rows), **fields)
        corruption.rows(
            side,
            DELETES,
            lambda record: record.update(added_rows_count=record["added_rows_count"] + len(rows) - ROWS_OF[name]),
        )

    return change


ROWS_OF = {BOTH: 3, ALONE: 1, ORC: 2, AVRO: 2}
STRAY = f"/eu/replica/{localized_path('us-lake/a/data/b.parquet')}"


def vectors(*paths: str) -> Break:
    def change(side: Side, world: str) -> None:
        data = puffin([world + path if path.startswith("/") else side.uri(path) for path in paths])
        size = side.put(PUFFIN, data)

        def sized(entries: list[dict[str, Any]]) -> None:
            for manifest_entry in entries:
                manifest_entry["data_file"]["file_size_in_bytes"] = size

        corruption.entries(side, DELETES, sized)

    return change


def flipped(name: str, position: int) -> Break:
    """Turn one bit of a file: it has the right size and wrong bytes."""
    return lambda side, _: corruption.flip(side.path(name), position)


def more_rows(side: Side, world: str) -> None:
    file(DELETES, 2, record_count=7)(side, world)
    corruption.rows(side, DELETES, lambda record: record.update(added_rows_count=record["added_rows_count"] + 5))


def foreign_bound(side: Side, world: str) -> None:
    deletes = {
        "content": 1,
        "file_format": "PARQUET",
        "lower_bounds": bound(world + FOREIGN),
        "upper_bounds": bound(world + FOREIGN),
    }
    corruption.entries(
        side, DELETES, lambda entries: entries[0].update(status=2) or entries[0]["data_file"].update(deletes)
    )
    corruption.rows(
        side,
        DELETES,
        lambda record: record.update(
            added_files_count=3, added_rows_count=5, deleted_files_count=1, deleted_rows_count=3
        ),
    )


STRUCTURE: dict[str, tuple[Break, str, str]] = {
    "a data file is gone": (lambda side, _: side.path(A).unlink(), "missing", A),
    "a data file is cut": (lambda side, _: corruption.cut(side.path(A)), "size", A),
    "a delete file is gone": (lambda side, _: side.path(ORC).unlink(), "missing", ORC),
    "a manifest is gone": (lambda side, _: side.path(DATA).unlink(), "missing", DATA),
    "a list is gone": (lambda side, _: side.path(SNAP).unlink(), "missing", SNAP),
    "statistics are cut": (lambda side, _: corruption.cut(side.path(STATISTICS)), "size", STATISTICS),
    "a manifest's length is off": (row(DATA, manifest_length=7), "size", DATA),
    "a manifest's file count is off": (row(DATA, added_files_count=3), "disagrees", DATA),
    "a manifest's row count is off": (row(DATA, existing_rows_count=3), "disagrees", DATA),
    "a manifest's content is off": (row(DATA, content=1), "disagrees", DATA),
    "a manifest's spec is off": (row(DATA, partition_spec_id=4), "disagrees", DATA),
    "a manifest's snapshot is off": (row(DATA, added_snapshot_id=77), "disagrees", DATA),
    "a manifest's oldest number is off": (entry(DATA, sequence_number=0), "disagrees", DATA),
    "a manifest from the future": (row(DELETES, sequence_number=3), "disagrees", SNAP),
    "a manifest lacks an entry": (
        lambda side, _: corruption.entries(side, DATA, lambda entries: entries.pop()),
        "disagrees",
        DATA,
    ),
    "a manifest of other deletes": (
        lambda side, _: corruption.entries(side, DATA, len, content="deletes"),
        "disagrees",
        DATA,
    ),
    "a manifest that doesn't parse": (lambda side, _: corruption.flip(side.path(DATA)), "unreadable", DATA),
    "an entry's path is foreign": (file(DATA, 0, file_path=FOREIGN), "foreign", DATA),
    "a deleted entry's path is foreign": (deleted_foreign, "foreign", DATA),
    "a reference is foreign": (file(DATA, 1, referenced_data_file=FOREIGN), "foreign", DATA),
    "a bound is foreign": (foreign_bound, "foreign", DELETES),
    "an entry's size is off": (file(DATA, 0, file_size_in_bytes=5), "size", A),
    "a position delete's row is foreign": (
        rows_of(BOTH, ("data/a.parquet", 1), (FOREIGN, 1), lower_bounds=None, upper_bounds=None),
        "foreign",
        BOTH,
    ),
    "a row in ORC is foreign": (rows_of(ORC, (FOREIGN, 1)), "foreign", ORC),
    "a row in Avro is foreign": (rows_of(AVRO, (FOREIGN, 1)), "foreign", AVRO),
    "rows of position deletes are unsorted": (rows_of(BOTH, (A, 3), (A, 1), (B, 0)), "unsorted", BOTH),
    "a delete names a place where nothing is read": (rows_of(ORC, (STRAY, 1)), "stray", ORC),
    "a delete file has other rows than its manifest says": (more_rows, "disagrees", ORC),
    "a delete file is of others than its reference": (
        rows_of(ALONE, (B, 5), lower_bounds=None, upper_bounds=None),
        "disagrees",
        ALONE,
    ),
    "a delete's bounds exclude its rows": (file(DELETES, 0, upper_bounds=bound("file:///a")), "disagrees", BOTH),
    "a delete file does not parse": (lambda side, _: corruption.flip(side.path(AVRO)), "unreadable", AVRO),
    "a delete file is no Parquet": (lambda side, _: corruption.flip(side.path(BOTH), -1), "unreadable", BOTH),
    "a delete file is no ORC": (lambda side, _: corruption.flip(side.path(ORC), -1), "unreadable", ORC),
    "a property is foreign": (property_of_us("backup"), "foreign", METADATA),
    "a write path is foreign": (property_of_us("write.metadata.path"), "foreign", METADATA),
    "a summary is foreign": (
        lambda side, world: snapshot(summary={"backup": f"{world}/us/lake/x"})(side, world),
        "foreign",
        METADATA,
    ),
    "the location is foreign": (
        lambda side, world: top(location=f"{world}/us/lake/a")(side, world),
        "foreign",
        METADATA,
    ),
    "the location is main's own": (
        lambda side, world: top(location=f"{world}/eu/lake/a")(side, world),
        "unprotected",
        METADATA,
    ),
    "the log is foreign": (
        lambda side, world: top(
            metadata_log=[{"timestamp-ms": 1, "metadata-file": f"{world}/us/lake/v0.metadata.json"}]
        )(side, world),
        "foreign",
        METADATA,
    ),
    "gc is enabled": (properties(**{"gc.enabled": "true"}), "unprotected", METADATA),
    "the current snapshot is none": (top(current_snapshot_id=9, refs={}, snapshot_log=[]), "disagrees", METADATA),
    "a ref's snapshot is none": (top(refs={"tag": {"snapshot-id": 9, "type": "tag"}}), "disagrees", METADATA),
    "main is not the current snapshot": (
        top(refs={"main": {"snapshot-id": 1, "type": "branch"}}),
        "disagrees",
        METADATA,
    ),
    "the log ends elsewhere": (top(snapshot_log=[{"timestamp-ms": 1000, "snapshot-id": 1}]), "disagrees", METADATA),
    "a snapshot from the future": (top(last_sequence_number=1), "disagrees", METADATA),
    "a snapshot without manifests": (snapshot(**{"manifest-list": None}), "unreadable", METADATA),
    "a snapshot of another's list": (
        lambda side, world: snapshot(**{"manifest-list": side.uri("metadata/snap-1.avro")})(side, world),
        "disagrees",
        "metadata/snap-1.avro",
    ),
    "metadata is no JSON": (lambda side, _: corruption.cut(side.path(METADATA)), "unreadable", METADATA),
    "metadata is another JSON": (top(snapshots=5), "unreadable", METADATA),
}


@pytest.mark.parametrize("name", STRUCTURE)
def test_structure_names_what_is_broken(world: World, name: str):
    change, kind, where = STRUCTURE[name]
    report = broken(world, change, depth=Depth())
    check(world, report, kind, where)


@pytest.mark.parametrize("name", STRUCTURE)
def test_deep_names_it_too(world: World, name: str):
    change, kind, where = STRUCTURE[name]
    report = broken(world, change)
    assert Finding("ns.a", kind, sides(world, "a")[1].uri(where), "") in [strip(finding) for finding in report.findings]
    assert {finding.table for finding in report.findings} == {"ns.a"}


VECTORS: dict[str, tuple[Break, str, str]] = {
    "the footer names another file": (vectors(B, A), "disagrees", PUFFIN),
    "the footer names a foreign file": (vectors(A, FOREIGN), "foreign", PUFFIN),
    "the footer names a place where nothing is read": (vectors(A, STRAY), "stray", PUFFIN),
    "the blob is elsewhere": (file(DELETES, 0, content_offset=5), "disagrees", PUFFIN),
    "the blob has another length": (file(DELETES, 0, content_size_in_bytes=21), "disagrees", PUFFIN),
    "the manifest names another file": (file(DELETES, 0, referenced_data_file=None), "disagrees", PUFFIN),
    "the file is cut": (lambda side, _: corruption.cut(side.path(PUFFIN)), "unreadable", PUFFIN),
    **{
        f"a vector's {part} is another": (flipped(PUFFIN, position), kind, PUFFIN)
        for part, position, kind in [
            ("length", 7, "unreadable"),
            ("magic", 8, "unreadable"),
            ("byte", 12, "checksum"),
            ("checksum", 23, "checksum"),
        ]
    },
}


@pytest.mark.parametrize("name", VECTORS)
def test_structure_names_what_is_broken_in_deletion_vectors(world: World, name: str):
    change, kind, where = VECTORS[name]
    check(world, broken(world, change, 3, Depth()), kind, where)


CONTRADICTIONS = [(name, 2) for name, case in STRUCTURE.items() if case[1] == "disagrees"] + [
    (name, 3) for name, case in VECTORS.items() if case[1] in ("disagrees", "checksum")
]


@pytest.mark.parametrize("depth", [Depth(), DEEP], ids=["structure", "deep"])
@pytest.mark.parametrize(("name", "version"), CONTRADICTIONS)
def test_what_main_contradicts_in_the_same_words_is_its_writers_mistake(
    world: World, name: str, version: int, depth: Depth
):
    """Kinds: counts of lists, headers and delete files, ids, sequence numbers, bounds, logs, refs, vectors."""
    change, _, where = (STRUCTURE | VECTORS)[name]
    publish(world, "a", "b", version=version)
    for side in sides(world, "a"):
        change(side, f"file://{world.folder}")
    report = verify(world.context(), depth)
    assert (report.findings, report.faults) == ((), 0)
    assert {item.file for item in report.on_main} == {sides(world, "a")[1].uri(where)}


def test_a_vector_that_changed_later_is_not_its_writers_mistake(world: World):
    publish(world, "a", version=3)
    for side in sides(world, "a"):
        flipped(PUFFIN, 23)(side, "")
    assert verify(world.context(), Depth()).findings == ()
    flipped(PUFFIN, 12)(sides(world, "a")[1], "")
    (finding,) = verify(world.context(), Depth()).findings
    assert (finding.kind, finding.file) == ("checksum", sides(world, "a")[1].uri(PUFFIN))


@pytest.mark.parametrize("kept", [1, 2])
def test_what_main_contradicts_too_is_no_fault_however_much_it_is(
    world: World, kept: int, monkeypatch: pytest.MonkeyPatch
):
    """A writer that counts wrongly does so in each file: there are more contradictions than are named."""
    monkeypatch.setattr(findings, "MAX_KEPT_FINDINGS", kept)
    publish(world, "a", "b")
    for side in sides(world, "a"):
        row(DATA, added_files_count=3)(side, "")
        row(DELETES, added_files_count=7)(side, "")
        snapshot(**{"sequence-number": 77})(side, "")
    report = verify(world.context(), Depth())
    assert (report.findings, report.faults) == ((), 0)
    assert (len(report.on_main), len(report.on_main) + report.on_main_more) == (kept, 3)
    assert "3 contradictions that main has in the same words" in verified_text(report, deep=False)
    row(DELETES, added_files_count=8)(sides(world, "a")[1], "")
    sides(world, "b")[1].path(A).unlink()
    report = verify(world.context(), Depth())
    assert (report.faults, len(report.on_main) + report.on_main_more) == (2, 2), "one of them is another one now"
    assert "missing" in {finding.kind for finding in report.findings}


WRONG_COUNTS: dict[str, Callable[[int], Break]] = {
    METADATA: lambda number: snapshot(**{"sequence-number": 77 + number}),
    DATA: lambda number: row(DATA, added_files_count=3 + number),
    DELETES: lambda number: row(DELETES, added_files_count=7 + number),
}
"""By where it is named: contradictions, the same one for the same number."""


@pytest.mark.parametrize("kept", [0, 1, 2])
@pytest.mark.parametrize("own", WRONG_COUNTS)
def test_what_main_does_not_contradict_is_named_whatever_else_main_does(
    world: World, own: str, kept: int, monkeypatch: pytest.MonkeyPatch
):
    """Of all contradictions one is the replica's own, wherever it comes among more of them than are named."""
    publish(world, "a", "b")
    for place, change in WRONG_COUNTS.items():
        for number, side in enumerate(sides(world, "a")):
            change(number if place == own else 0)(side, "")
    every = verify(world.context(), Depth())
    assert ([finding.kind for finding in every.findings], len(every.on_main)) == (["disagrees"], 2)
    monkeypatch.setattr(findings, "MAX_KEPT_FINDINGS", kept)
    report = verify(world.context(), Depth())
    assert report.findings == (every.findings if kept else ()), "named"
    assert (report.faults, report.files, report.bytes) == (every.faults, every.files, every.bytes)
    assert len(report.on_main) <= kept
    assert len(report.on_main) + report.on_main_more == len(every.on_main)


def test_contradictions_leave_room_for_the_names_of_other_faults(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(findings, "MAX_KEPT_FINDINGS", 1)
    publish(world, "a", "b")
    row(DATA, added_files_count=3)(sides(world, "a")[1], "")
    sides(world, "a")[1].path(A).unlink()
    report = verify(world.context(), Depth())
    assert {finding.kind for finding in report.findings} >= {"disagrees", "missing"}


def test_another_contradiction_than_mains_stays_a_fault(world: World):
    publish(world, "a", "b")
    for side, count in zip(sides(world, "a"), (3, 4), strict=True):
        row(DATA, added_files_count=count)(side, "")
    report = verify(world.context(), Depth())
    check(world, report, "disagrees", DATA)
    assert report.on_main == ()


def test_a_contradiction_is_the_replicas_where_main_cannot_be_read(world: World):
    publish(world, "a", "b")
    for side in sides(world, "a"):
        row(DATA, added_files_count=3)(side, "")
    sides(world, "a")[0].path(SNAP).unlink()
    sides(world, "a")[0].path("metadata/snap-1.avro").unlink()
    check(world, verify(world.context(), Depth()), "disagrees", DATA)


def list_without_deletes(side: Side, world: str) -> None:
    corruption.records(side, SNAP, lambda manifests: manifests.pop())


CONTENT: dict[str, tuple[Break, str]] = {
    "a data file's byte is flipped": (lambda side, _: corruption.flip(side.path(A)), A),
    "a byte of statistics is flipped": (lambda side, _: corruption.flip(side.path(STATISTICS)), STATISTICS),
    "a schema is edited": (
        lambda side, _: corruption.metadata(side, lambda it: it["schemas"][0]["fields"][0].update(required=True)),
        METADATA,
    ),
    "the table is another one": (top(table_uuid="another"), METADATA),
    "a property is gone": (
        lambda side, _: corruption.metadata(side, lambda it: it["properties"].pop("owner")),
        METADATA,
    ),
    "a snapshot is gone": (
        lambda side, _: corruption.metadata(
            side, lambda it: it.update(snapshots=it["snapshots"][1:], refs={}) or it["snapshot-log"].pop(0)
        ),
        METADATA,
    ),
    "a ref is gone": (lambda side, _: corruption.metadata(side, lambda it: it["refs"].pop("tag")), METADATA),
    "a list lacks a manifest": (list_without_deletes, SNAP),
    "a list says otherwise": (row(DATA, existing_files_count=0, min_sequence_number=0), "metadata/snap-1.avro"),
    "an entry says otherwise": (file(DATA, 0, split_offsets=[5]), DATA),
    "an entry names another file": (
        lambda side, _: corruption.entries(side, DATA, lambda entries: entries.__setitem__(1, entries[0])),
        DATA,
    ),
    "the header says otherwise": (lambda side, _: corruption.entries(side, DATA, len, a_text="x"), DATA),
    "a position delete deletes another row": (rows_of(BOTH, (A, 2), (A, 3), (B, 0)), BOTH),
    "a position delete deletes less": (rows_of(AVRO, (A, 7)), AVRO),
    "a position delete deletes other rows in ORC": (rows_of(ORC, (B, 2), (B, 5)), ORC),
    "a position delete names another file": (rows_of(AVRO, (A, 7), ("data/c.parquet", 7)), AVRO),
}


@pytest.mark.parametrize("name", CONTENT)
def test_deep_names_what_is_not_the_sources(world: World, name: str):
    change, where = CONTENT[name]
    report = broken(world, change)
    assert Finding("ns.a", "differs", sides(world, "a")[1].uri(where), "") in [
        strip(finding) for finding in report.findings
    ]
    assert {finding.table for finding in report.findings} == {"ns.a"}


def test_deep_names_a_vector_that_deletes_other_rows(world: World):
    check(world, broken(world, flipped(PUFFIN, 12), 3), "differs", PUFFIN)


def test_structure_alone_does_not_look_at_content(world: World):
    assert broken(world, CONTENT["a data file's byte is flipped"][0], depth=Depth()).findings == ()


def strip(finding: Finding) -> Finding:
    return Finding(finding.table, finding.kind, finding.file, "")


def check(world: World, report: VerificationReport, kind: str, where: str) -> None:
    """The fault is named, of the right table and file, with a message; and no other file is accused."""
    uri = sides(world, "a")[1].uri(where)
    assert Finding("ns.a", kind, uri, "") in [strip(finding) for finding in report.findings]
    assert {finding.file for finding in report.findings} == {uri}
    assert {finding.table for finding in report.findings} == {"ns.a"}
    assert all(finding.message for finding in report.findings)
    assert report.faults == len(report.findings)
