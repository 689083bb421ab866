"""Refusals of a URI say which file names it.

The kinds: who names (the catalog's entry, metadata.json, a manifest list, a manifest, a position delete file), and what
is wrong with what is named (in no location, a path that must not be followed, kept out by a residency rule, below a
replica root, gone, of another size). Each pair that a table can have is tried. A file that is itself broken is named
alone: whoever names it is not to blame. So is a table's own metadata.json that is gone. What a manifest names is tried
for tables whose files one process lists, and for those that are listed in parts.
"""

from __future__ import annotations

import json

import pytest

from sterna.replication.plan import sharded_listing
from sterna.replication.plan.sharded_listing import ShardingLimits
from tests.support.small_world import World, ruled, run
from tests.unit.iceberg.delete_files import write_rows
from tests.unit.sync.poison import Sick, with_deletes
from tests.unit.sync.test_strangers import Record, edit_avro, edit_metadata, path_of

ELSEWHERE = "s3://elsewhere/x.bin"
NAMES = {
    "catalog": "; the catalog's entry names it",
    "metadata": "; the metadata.json {metadata} names it",
    "list": "; the manifest list {list} names it",
    "manifest": "; the manifest {manifest} names it",
}


class Table:
    """A table of one snapshot, one manifest and one data file, each of which can be made to name another one."""

    def __init__(self, world: World) -> None:
        self.metadata = world.write("t")
        [snapshot] = json.loads(path_of(self.metadata).read_text())["snapshots"]
        self.list: str = snapshot["manifest-list"]
        self.manifest = self.read(self.list)[0]["manifest_path"]
        self.data: str = self.read(self.manifest)[0]["data_file"]["file_path"]

    @staticmethod
    def read(uri: str) -> list[Record]:
        records: list[Record] = []
        edit_avro(uri, records.append)
        return records

    def named_by(self, kind: str) -> str:
        return {"catalog": self.metadata, "metadata": self.list, "list": self.manifest, "manifest": self.data}[kind]

    def name(self, kind: str, uri: str) -> None:
        """Let a kind of file name another one in the place of its own."""
        if kind == "catalog":
            self.metadata = uri
        elif kind == "metadata":
            self.metadata = edit_metadata(
                self.metadata, lambda document: document["snapshots"][0].update({"manifest-list": uri})
            )
        elif kind == "list":
            edit_avro(self.list, lambda record: record.update(manifest_path=uri))
        else:
            size = edit_avro(self.manifest, lambda record: record["data_file"].update(file_path=uri))
            edit_avro(self.list, lambda record: record.update(manifest_length=size))

    def expected(self, kind: str) -> str:
        return NAMES[kind].format(metadata=self.metadata, list=self.list, manifest=self.manifest)


@pytest.fixture
def table(world: World) -> Table:
    written = Table(world)
    edit_avro(written.manifest, lambda record: None)  # as it is written again, so that only its content differs below
    size = path_of(written.manifest).stat().st_size
    edit_avro(written.list, lambda record: record.update(manifest_length=size))
    return written


def held(world: World, table: Table) -> tuple[str, str, str]:
    """Sync; return how the table is held: kind, reason and file."""
    world.commit(t=table.metadata)
    [item] = run(world).held
    return item.kind, item.reason, item.file


@pytest.mark.parametrize("kind", NAMES)
def test_a_file_in_no_location(world: World, table: Table, kind: str):
    table.name(kind, ELSEWHERE)
    assert held(world, table) == (
        "UnregisteredUri",
        f"the URI lies in no location of the registry{table.expected(kind)}",
        ELSEWHERE,
    )


@pytest.mark.parametrize("kind", NAMES)
def test_a_path_that_must_not_be_followed(world: World, table: Table, kind: str):
    table.name(kind, f"file://{world.folder}/us/lake/t/../x.bin")
    assert held(world, table)[1].endswith(table.expected(kind))


@pytest.mark.parametrize("kind", NAMES)
def test_a_file_that_a_residency_rule_keeps_out(world: World, table: Table, kind: str):
    secret = world.folder / "us" / "lake" / "secret" / "x.bin"
    secret.parent.mkdir()
    secret.write_bytes(b"x")
    table.name(kind, f"file://{secret}")
    rules = [{"prefixes": [f"file://{secret.parent}"], "never": ["eu"]}]
    held_kind, reason, _ = held(ruled(world, residency=rules), table)
    assert held_kind == "NotResident"
    assert reason.endswith(table.expected(kind))


def test_a_metadata_json_that_is_gone(world: World, table: Table):
    path_of(table.metadata).unlink()
    assert held(world, table) == ("SourceGone", "a metadata file is gone", table.metadata)


@pytest.mark.parametrize("kind", ["metadata", "list"])
def test_a_metadata_file_that_is_gone(world: World, table: Table, kind: str):
    gone = table.named_by(kind)
    path_of(gone).unlink()
    assert held(world, table) == ("SourceGone", f"a metadata file is gone{table.expected(kind)}", gone)


def test_a_manifest_of_another_length(world: World, table: Table):
    edit_avro(table.list, lambda record: record.update(manifest_length=4711))
    held_kind, reason, file = held(world, table)
    assert (held_kind, file) == ("SizeDiffers", table.manifest)
    assert reason.endswith(f"its list says 4711{table.expected('list')}")


@pytest.mark.parametrize("kind", ["metadata", "list"])
def test_a_broken_file_is_named_alone(world: World, table: Table, kind: str):
    broken = table.named_by(kind)
    path_of(broken).write_bytes(b"x" * path_of(broken).stat().st_size)
    held_kind, reason, file = held(world, table)
    assert (held_kind, file) == ("BrokenMetadata", broken)
    assert "names it" not in reason


@pytest.fixture(params=["at once", "in parts"])
def listed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How the files of a table are listed."""
    if request.param == "in parts":
        monkeypatch.setattr(sharded_listing, "LIMITS", ShardingLimits(min_manifests=1))


@pytest.mark.usefixtures("listed")
@pytest.mark.parametrize(
    ("file", "size", "kind"),
    [
        ("eu/lake/x.bin", None, "SourceGone"),
        ("eu/lake/x.bin", 3, "SizeDiffers"),
        ("us/replica/x.bin", 3, "UnregisteredUri"),
        ("eu/replica/x.bin", 3, "Damaged"),
        ("eu/replica/us-lake/x.bin", 3, "Unsupported"),
        ("us/lake/../x.bin", None, "UnsafeUri"),
        ("nowhere/x.bin", None, "UnregisteredUri"),
    ],
)
def test_a_content_file_that_can_not_be_what_its_manifest_says(
    world: World, table: Table, file: str, size: int | None, kind: str
):
    """Of this region's own files it is seen that they are there; a table may name none below a replica root."""
    path = world.folder / file
    if size is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
    table.name("manifest", f"file://{path}")
    held_kind, reason, of = held(world, table)
    assert (held_kind, of) == (kind, f"file://{path}")
    assert reason.endswith(table.expected("manifest"))


def test_a_position_delete_file_that_names_a_data_file_elsewhere(sick: Sick):
    report, *_ = sick.sync(with_deletes(sick, write_rows("parquet", [(ELSEWHERE, 0, None)]), "parquet"))
    [item] = report.held
    assert item.kind == "UnregisteredUri"
    assert "; the position delete file file://" in item.reason
    assert item.reason.endswith(" names it")
