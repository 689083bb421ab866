"""Delete files that a client wrote against the region's view: on `main` they name `main`'s files."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pytest

from sterna.config.limits import DEFAULT_LIMITS
from sterna.errors import BadUpdate, ForeignFile
from sterna.iceberg.deletes.puffin import read_deletion_vectors
from tests.support.small_world import World, make_world, run
from tests.unit.iceberg.avro_files import decode, entry, path_bounds, vector
from tests.unit.iceberg.delete_files import FORMATS, read_rows, write_rows
from tests.unit.iceberg.test_puffin import BLOBS, MAGIC, file_of, footer
from tests.unit.rest_catalog.near_client import NearCatalog, own_folder
from tests.unit.rest_catalog.tampering import Records, add_delete_manifest, path_of, read_avro

T = ("ns", "t")


class Client:
    """A client that appends a file, and deletes rows of the table's first one."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.near = NearCatalog(world)
        self.snapshot = self.near.capture(T, lambda table: table.append(pa.table({"id": pa.array([7], pa.int64())})))
        self.folder = self.near.places(T).location  # type: ignore[union-attr]

    def served(self, name: str = "t") -> list[str]:
        files = self.near.load_table(("ns", name)).scan().plan_files()
        return sorted(task.file.file_path for task in files)

    def on_main(self) -> list[str]:
        return sorted(task.file.file_path for task in self.world.writer.load_table(T).scan().plan_files())

    def write(self, name: str, data: bytes) -> tuple[str, int]:
        """Write a file of the client's; return its URI and size."""
        uri = f"{self.folder}/data/{name}"
        path_of(uri).parent.mkdir(parents=True, exist_ok=True)
        return uri, path_of(uri).write_bytes(data)

    def delete_by(self, *entries: dict[str, Any]) -> None:
        add_delete_manifest(self.snapshot, f"{self.folder}/metadata", list(entries))

    def taken_entries(self) -> Records:
        """Take the snapshot back; return the entries of its delete manifest."""
        taken = self.near.take_back(T, self.snapshot)
        for uri in taken.replaced:
            data = path_of(uri).read_bytes()
            assert "/eu/replica/" not in str(decode(data)[1] if uri.endswith(".avro") else data)
        rows = read_avro(taken.snapshot["manifest-list"])[2]
        return decode(path_of(next(row["manifest_path"] for row in rows if row["content"] == 1)).read_bytes())[1]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = make_world(tmp_path_factory.mktemp("deletes"))
    world.write("other")
    world.write("t")
    world.commit(t=world.write("t"), other=world.write("other"))
    run(world)
    return world


@pytest.fixture
def client(world: World) -> Client:
    return Client(world)


def deletes(client: Client, kind: str, *paths: str, **data_file: Any) -> dict[str, Any]:
    """A position delete file with a row for each path, and its entry."""
    uri, size = client.write(f"{uuid.uuid4()}.{kind}", write_rows(kind, [(path, 0, None) for path in sorted(paths)]))
    return entry(uri, content=1, size=size, file_format=kind.upper(), **data_file)


@pytest.mark.parametrize("kind", FORMATS)
def test_position_deletes_name_the_files_of_main(client: Client, kind: str) -> None:
    served = client.served()[0]
    client.delete_by(deletes(client, kind, served, **path_bounds(served, extra=False)))
    file = client.taken_entries()[0]["data_file"]
    assert file["file_path"].startswith(f"{own_folder(client.world)}/")
    data = path_of(file["file_path"]).read_bytes()
    assert [row[0] for row in read_rows(kind, data)] == [client.on_main()[0]]
    assert file["file_size_in_bytes"] == len(data)
    assert file["lower_bounds"] == file["upper_bounds"] == [{"key": 2147483546, "value": client.on_main()[0].encode()}]
    assert (file["split_offsets"], file["column_sizes"]) == (None, None)


def test_deletes_of_the_commits_own_files_stay_where_they_are(client: Client) -> None:
    rows = read_avro(client.snapshot["manifest-list"])[2]
    added = read_avro(rows[0]["manifest_path"])[2][0]["data_file"]["file_path"]
    one = deletes(client, "parquet", added)
    client.delete_by(one)
    file = client.taken_entries()[0]["data_file"]
    assert file["file_path"] == one["data_file"]["file_path"]
    assert file["split_offsets"] == [4]


def test_a_puffin_that_entries_share_is_written_once(client: Client) -> None:
    served = client.served()
    uri, size = client.write(f"{uuid.uuid4()}.puffin", file_of(footer(*served)))
    first, second = len(MAGIC), len(MAGIC) + len(BLOBS[0])
    client.delete_by(
        vector(uri, served[0], first, size=size, content_size_in_bytes=len(BLOBS[0])),
        vector(uri, served[1], second, size=size, content_size_in_bytes=len(BLOBS[1])),
    )
    files = [one["data_file"] for one in client.taken_entries()]
    assert [file["referenced_data_file"] for file in files] == client.on_main()
    assert [file["content_offset"] for file in files] == [first, second]
    (puffin,) = {file["file_path"] for file in files}
    data = path_of(puffin).read_bytes()
    assert {file["file_size_in_bytes"] for file in files} == {len(data)}
    assert [path for _, path in read_deletion_vectors(data, puffin, DEFAULT_LIMITS).values()] == client.on_main()


@pytest.mark.parametrize("lie", ["offset", "length", "data file", "format"])
def test_a_vector_that_the_puffin_has_not_is_refused(client: Client, lie: str) -> None:
    served = client.served()
    uri, size = client.write(f"{uuid.uuid4()}.puffin", file_of(footer(*served)))
    one = vector(uri, served[0], len(MAGIC), size=size, content_size_in_bytes=len(BLOBS[0]))
    changes: dict[str, Any] = {
        "offset": {"content_offset": 5},
        "length": {"content_size_in_bytes": 3},
        "data file": {"referenced_data_file": served[1]},
        "format": {"file_format": "PARQUET", "content_offset": None},
    }
    one["data_file"] |= changes[lie]
    client.delete_by(one)
    with pytest.raises(BadUpdate, match=r"Puffin|format") as refused:
        client.near.take_back(T, client.snapshot)
    assert refused.value.file == uri


@pytest.mark.parametrize("kind", [*FORMATS, "puffin"])
@pytest.mark.parametrize("where", ["another table", "main", "nowhere"])
def test_deletes_of_other_files_are_refused(client: Client, kind: str, where: str) -> None:
    path = {
        "another table": client.served("other")[0],
        "main": client.on_main()[0],
        "nowhere": "s3://elsewhere/x.parquet",
    }[where]
    if kind == "puffin":
        uri, size = client.write(f"{uuid.uuid4()}.puffin", file_of(footer(path)))
        client.delete_by(vector(uri, path, len(MAGIC), size=size, content_size_in_bytes=len(BLOBS[0])))
    else:
        client.delete_by(deletes(client, kind, client.served()[0], path))
    with pytest.raises(ForeignFile) as refused:
        client.near.take_back(T, client.snapshot)
    assert refused.value.file == path
