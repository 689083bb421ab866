"""What an operator puts right on real servers.

A changed replica branch, a main that left the watermark, wrong files, relaxed tables.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from sterna.catalog.model import Delete, Operation, Put
from sterna.replication.replica.head import RESTORED_OVER, WATERMARK_RESET_FROM, read_head
from sterna.replication.replica.metadata_version import current_metadata_version
from tests.support.command import STERNA
from tests.support.own_region import OwnRegion, own_region, put_object, read_object, remove_object
from tests.support.world import MERGE_ON_READ, World


@pytest.fixture(scope="module")
def ns(world: World) -> Iterator[str]:
    with world.namespace("op") as name:
        yield name


@pytest.fixture
def own(world: World, ns: str, tmp_path: Path) -> OwnRegion:
    return own_region(world, tmp_path, "op")


def make(world: World, name: str, rows: int = 10) -> str:
    world.sql(f"CREATE TABLE main_us.op.{name} (id BIGINT) USING iceberg {MERGE_ON_READ}")
    world.sql(f"INSERT INTO main_us.op.{name} SELECT id FROM range({rows})")
    world.sql(f"DELETE FROM main_us.op.{name} WHERE id = 3")
    return f"op.{name}"


def sterna(own: OwnRegion, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*STERNA, *arguments, "--region", own.name, "--registry", str(own.path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def commit_as_operator(own: OwnRegion, *operations: Operation) -> str:
    catalog = own.world.catalog
    return catalog.commit(own.branch, catalog.reference(own.branch).hash, operations, "a helping hand")


def assign(world: World, branch: str, hash: str) -> None:
    """Point a branch at a commit, as an administrator can."""
    now = world.catalog.reference(branch).hash
    url = f"{world.stage.nessie.uri}/trees/{branch}@{now}"
    httpx.put(url, json={"type": "BRANCH", "name": "main", "hash": hash}).raise_for_status()


def test_a_replica_branch_that_somebody_changed_is_put_right(world: World, own: OwnRegion):
    dropped, changed, kept = (make(world, f"re_{name}") for name in ("dropped", "changed", "kept"))
    own.sync()
    before = own.replica()
    # An engine that writes through the replica branch, a drop, and a table and namespace that main hasn't.
    world.sql(f"INSERT INTO {own.spark_catalog}.{changed} VALUES (500)")
    world.sql(f"CREATE NAMESPACE {own.spark_catalog}.stray")
    world.sql(f"CREATE TABLE {own.spark_catalog}.stray.t (id BIGINT) USING iceberg")
    foreign = commit_as_operator(own, Delete(("op", "re_dropped")))
    answer = sterna(own, "sync", "--json")
    assert answer.returncode == 6
    assert foreign in answer.stderr and "a helping hand" in answer.stderr and "--restore-branch" in answer.stderr
    assert foreign in sterna(own, "status").stdout
    mended = sterna(own, "sync", "--restore-branch", "--json")
    assert mended.returncode == 0, mended.stderr
    own.assert_equal(dropped, changed, kept)
    after = own.replica()
    assert after.keys() == before.keys()
    assert (after[changed], after[kept]) == (before[changed], before[kept]), "the replica's own ids"
    commits = list(world.catalog.history(own.branch, operations=False))
    (over,) = (commit for commit in commits if commit.parent == foreign)
    assert over.properties[RESTORED_OVER] == foreign
    assert json.loads(sterna(own, "sync", "--json").stdout)["outcome"] == "idle"


def test_a_branch_assigned_to_main_itself_is_seeded_anew(world: World, own: OwnRegion):
    table = make(world, "assigned")
    own.sync()
    assign(world, own.branch, world.catalog.reference("main").hash)
    assert sterna(own, "sync").returncode == 6
    assert own.sync(restore_branch=True).held == ()
    own.assert_equal(table)
    assert own.sync().outcome == "idle"


def test_main_reset_and_main_rewritten_are_followed_on_the_operators_word(world: World, own: OwnRegion):
    one, two = make(world, "line_one"), make(world, "line_two")
    base = world.catalog.reference("main").hash
    own.sync()
    world.sql(f"DELETE FROM main_us.{one} WHERE id < 5")
    lost = make(world, "line_lost")
    old = world.catalog.reference("main").hash
    own.sync()
    # Reset: commits are gone from main.
    assign(world, "main", base)
    answer = sterna(own, "sync")
    assert answer.returncode == 6
    assert base in answer.stderr and old in answer.stderr and f"reset-watermark --to {base}" in answer.stderr
    wrong = sterna(own, "reset-watermark", "--to", old)
    assert wrong.returncode == 2
    assert base in wrong.stderr and old in wrong.stderr
    tried = sterna(own, "reset-watermark", "--to", base, "--dry-run")
    assert tried.returncode == 0 and lost in tried.stdout
    assert read_head(world.catalog, own.branch).watermark == old
    done = sterna(own, "reset-watermark", "--to", base, "--json")
    assert done.returncode == 0, done.stderr
    own.assert_equal(one, two)
    assert lost not in own.replica()
    assert own.sync().outcome == "idle"
    # Rewritten: another commit on an old base.
    world.sql(f"INSERT INTO main_us.{two} VALUES (700)")
    own.sync()
    behind = world.catalog.reference("main").hash
    assign(world, "main", base)
    world.sql(f"INSERT INTO main_us.{two} VALUES (800)")
    head = world.catalog.reference("main").hash
    assert sterna(own, "sync").returncode == 6
    assert sterna(own, "reset-watermark", "--to", base).returncode == 2, (
        "both lines have it: it tells nothing of where main stands"
    )
    assert sterna(own, "reset-watermark", "--to", head).returncode == 0
    own.assert_equal(one, two)
    newest = next(iter(world.catalog.history(own.branch, operations=False)))
    assert newest.properties[WATERMARK_RESET_FROM] == behind
    assert own.sync().outcome == "idle"


def changed(data: bytes, kind: str) -> bytes:
    """Data with a byte flipped in the middle, or without its last one."""
    at = len(data) // 2
    return data[:-1] if kind == "cut" else data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_wrong_and_missing_files_of_a_replica_are_repaired(world: World, own: OwnRegion):
    table, other = make(world, "mend"), make(world, "mend_other")
    own.sync()
    with own.context() as context:
        mapping = context.mapping
    localized = partial(mapping.localized_uri, version=current_metadata_version(mapping))
    copied = [
        mapping.content_uri(str(row[0]))
        for row in world.sql(f"SELECT file_path FROM main_us.{table}.data_files ORDER BY 1")
    ]
    deletes = [
        localized(str(row[0])) for row in world.sql(f"SELECT file_path FROM main_us.{table}.delete_files ORDER BY 1")
    ]
    manifests = [
        localized(str(row[0])) for row in world.sql(f"SELECT path FROM main_us.{table}.manifests ORDER BY path")
    ]
    lists = [localized(str(row[0])) for row in world.sql(f"SELECT manifest_list FROM main_us.{table}.snapshots")]
    metadata = own.replica()[table].metadata_location or ""
    before = {uri: read_object(world, uri) for uri in (*copied, *deletes, *manifests, *lists, metadata)}
    data = copied[0]
    # A flipped byte of a copy: only a comparison with main shows it.
    put_object(world, data, changed(before[data], "flipped"))
    assert sterna(own, "repair", "--table", table).returncode == 0
    shown = sterna(own, "repair", "--table", "op.mend*", "--deep", "--json")
    assert shown.returncode == 7, shown.stderr
    (mend,) = json.loads(shown.stdout.splitlines()[-1])["mends"]
    assert (mend["table"], mend["file"], mend["how"]) == (table, data, "copy")
    assert read_object(world, data) != before[data], "without --yes nothing is touched"
    done = sterna(own, "repair", "--table", "op.mend*", "--deep", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert read_object(world, data) == before[data]
    # All of its files at once, gone or cut.
    for number, uri in enumerate(before):
        remove_object(world, uri) if number % 2 else put_object(world, uri, changed(before[uri], "cut"))
    mark = len(world.stage.endpoints["us"].requests())
    done = sterna(own, "repair", "--yes", "--table", table, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    # A list that was cut behind the broken metadata.json is written anew with its manifests, before verify sees it.
    assert (
        set(before) - set(lists)
        <= {item["file"] for item in json.loads(done.stdout.splitlines()[-1])["mends"]}
        <= set(before)
    )
    assert {uri: read_object(world, uri) for uri in before} == before
    writes = [
        request for request in world.stage.endpoints["us"].requests(mark) if request.method in ("PUT", "DELETE", "COPY")
    ]
    assert not writes, "the source is read-only"
    own.assert_equal(table, other)
    assert own.sync().outcome == "idle"


def test_a_relaxed_table_goes_on_while_its_partner_is_held(world: World, own: OwnRegion):
    strict, relaxed = make(world, "pair_strict"), make(world, "pair_relaxed")
    own.registry["policies"] = [{"tables": ["op.pair_relaxed"], "atomic": "relaxed"}]
    own.sync()
    before = own.replica()
    catalog = world.catalog
    keys = [("op", "pair_strict"), ("op", "pair_relaxed")]
    base = catalog.reference("main").hash
    catalog.create_branch("pairs", base)
    for name in ("pair_strict", "pair_relaxed"):
        world.sql(f"INSERT INTO main_us.op.`{name}@pairs` VALUES (900)")
    contents = catalog.contents("pairs", catalog.reference("pairs").hash, keys)
    catalog.commit("main", base, [Put(key, contents[key]) for key in keys], "both at once")
    lost = contents["op", "pair_strict"].metadata_location or ""
    data = read_object(world, lost)
    remove_object(world, lost)
    try:
        report = own.sync()
        assert [(item.key, item.kind) for item in report.held if item.key.startswith("op.pair")] == [
            (strict, "SourceGone")
        ]
        assert own.replica()[strict] == before[strict]
        own.assert_equal(relaxed)
    finally:
        put_object(world, lost, data)
    assert strict in own.sync().published
    own.assert_equal(strict, relaxed)
