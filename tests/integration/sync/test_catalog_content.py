"""What a catalog holds beside plain tables.

Namespaces, views, renames, odd key names, and contents that sterna can't replicate.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sterna.catalog.model import ICEBERG_VIEW, NAMESPACE, Content, Delete, Key, Put, key_name, namespace_content
from sterna.replication.plan.planner import make_plan
from sterna.replication.sync.explain import explain
from sterna.replication.verify.findings import Finding
from sterna.replication.verify.run import Depth, verify
from tests.support.own_region import OwnRegion, commit, drop_all, own_region, put_object, read_metadata
from tests.support.world import World

DELTA = {
    "type": "DELTA_LAKE_TABLE",
    "lastCheckpoint": None,
    "checkpointLocationHistory": [],
    "metadataLocationHistory": [],
}
NAMES = ["a.b", "tämä 日本\U0001f426", "e\u0301", "sp ace", "per%cent", "a\\b", "semi;colon", "../up", "*", "'q\""]
UDF = {"type": "UDF", "metadataLocation": "s3://us-lake/udf/1.json", "versionId": "1", "signatureId": "1"}


@pytest.fixture
def ns(world: World) -> Iterator[str]:
    with world.namespace("cat") as name:
        try:
            yield name
        finally:
            drop_all(world, "cat")


def make(world: World, name: str, *ids: int) -> str:
    world.sql(f"CREATE TABLE main_us.{name} (id BIGINT) USING iceberg")
    world.sql(f"INSERT INTO main_us.{name} VALUES {', '.join(f'({id})' for id in ids or (1, 2, 3))}")
    return name


def in_namespace(world: World, *statements: str) -> None:
    """Run statements where tables need no catalog's name: a view that names one is bound to it, on every replica."""
    world.sql("USE main_us.cat")
    try:
        for statement in statements:
            world.sql(statement)
    finally:
        world.sql("USE spark_catalog.default")


def ids(world: World, *relations: str) -> list[list[Any]]:
    """Return the ids that each of some relations of the replica has, with us dark."""
    with world.dark("us"):
        return [
            [row[0] for row in world.sql(f"SELECT id FROM replica_eu.{relation} ORDER BY id")] for relation in relations
        ]


def set_properties(world: World, key: Key, properties: dict[str, str]) -> None:
    commit(world, Put(key, namespace_content(key, properties, world.content(key).id)))


def test_namespaces_with_properties(world: World, ns: str):
    world.sql(
        "CREATE NAMESPACE main_us.cat.inner LOCATION 's3://us-lake/warehouse/cat/inner' "
        "WITH DBPROPERTIES ('home'='https://example.org/x', 'say'='é \"quoted\"')"
    )
    world.sql("CREATE NAMESPACE main_us.cat.inner.deep")
    set_properties(
        world,
        ("cat", "inner", "deep"),
        {"a": "1", "spelled": "s3a://us-lake/x/", "bucket": "s3://us-lake", "unsafe": "s3://us-lake/../x"},
    )
    make(world, "cat.inner.deep.t")
    world.sync()
    root = world.context().region.replica_root
    properties = world.replica()["cat.inner"].payload["properties"]
    assert properties["location"] == f"{root}/us-lake/warehouse/cat/inner"
    assert properties["home"] == "https://example.org/x"
    assert properties["say"] == 'é "quoted"'
    wanted = {"a": "1", "spelled": f"{root}/us-lake~s3a/x/", "bucket": f"{root}/us-lake", "unsafe": "s3://us-lake/../x"}
    assert world.replica()["cat.inner.deep"].payload["properties"] == wanted
    assert ids(world, "cat.inner.deep.t") == [[1, 2, 3]]
    with world.dark("us"):
        shown = {row[0]: row[1] for row in world.sql("DESCRIBE NAMESPACE EXTENDED replica_eu.cat.inner")}
    assert shown["Location"] == f"{root}/us-lake/warehouse/cat/inner"


def test_properties_of_a_namespace_change_and_go(world: World, ns: str):
    world.sql("CREATE NAMESPACE main_us.cat.inner WITH DBPROPERTIES ('a'='1', 'b'='2')")
    world.sync()
    before = world.replica()["cat.inner"]
    set_properties(world, ("cat", "inner"), {"a": "3"})
    assert world.sync().published == ("cat.inner",)
    after = world.replica()["cat.inner"]
    assert after.payload["properties"] == {"a": "3"}
    assert after.id == before.id
    set_properties(world, ("cat", "inner"), {})
    world.sync()
    assert not world.replica()["cat.inner"].payload.get("properties")


def test_namespaces_that_are_as_they_should_be_are_left_alone(world: World, ns: str):
    for name, properties in (("bare", None), ("full", {"a": "1"})):
        commit(world, Put(("cat", name), namespace_content(("cat", name), properties)))
    world.sync()
    assert world.sync(full=True).published == ()


def test_a_namespace_that_goes_and_comes_back(world: World, ns: str):
    world.sql("CREATE NAMESPACE main_us.cat.inner")
    world.sql("CREATE NAMESPACE main_us.cat.inner.deep")
    make(world, "cat.inner.deep.t", 1)
    make(world, "cat.inner.deep.gone", 1)
    world.sync()
    world.sql("DROP TABLE main_us.cat.inner.deep.gone")
    world.sql("ALTER TABLE main_us.cat.inner.deep.t RENAME TO main_us.cat.rescued")
    world.sql("DROP NAMESPACE main_us.cat.inner.deep")
    world.sql("DROP NAMESPACE main_us.cat.inner")
    world.sync()
    assert [name for name in world.replica() if name.startswith("cat.")] == ["cat.rescued"]
    world.sql("CREATE NAMESPACE main_us.cat.inner")
    make(world, "cat.inner.deep", 2)
    world.sync()
    assert ids(world, "cat.inner.deep", "cat.rescued") == [[2], [1]]


def test_views_with_all_their_versions(world: World, ns: str):
    make(world, "cat.base", 1, 2)
    make(world, "cat.other", 10)
    in_namespace(
        world,
        "CREATE VIEW v (id COMMENT 'the key') COMMENT 'first' TBLPROPERTIES ('k'='v') AS SELECT id FROM base",
        "CREATE OR REPLACE VIEW v AS SELECT b.id + o.id AS id FROM base b CROSS JOIN other o",
        "CREATE VIEW over AS SELECT id * 2 AS id FROM v",
        "CREATE VIEW literal AS SELECT 's3://us-lake/warehouse' AS id",
    )
    report = world.sync()
    assert report.held == ()
    # The SQL text stays as it is, also where it holds a URI.
    assert ids(world, "cat.v", "cat.over", "cat.literal") == [[11, 12], [22, 24], ["s3://us-lake/warehouse"]]
    assert_same_view(world, "v", versions=2)
    assert_same_view(world, "over", versions=1)
    world.sql("ALTER VIEW main_us.cat.v SET TBLPROPERTIES ('k'='w')")
    world.sql("INSERT INTO main_us.cat.base VALUES (3)")
    assert set(world.sync().published) == {"cat.v", "cat.base"}
    assert ids(world, "cat.v") == [[11, 12, 13]]
    assert_same_view(world, "v", versions=2)


def test_a_view_that_names_its_catalog_is_marked_until_the_registry_says_what_the_name_means(
    world: World, ns: str, tmp_path: Path
):
    """Else a reader of the replica reads `main`, and fails while its region is dark."""
    region = own_region(world, tmp_path, "views")
    make(world, "cat.base", 1, 2)
    world.sql("CREATE VIEW main_us.cat.v AS SELECT b.id FROM main_us.cat.base b WHERE 'from main_us.cat.x' <> ''")
    world.sql("CREATE NAMESPACE main_us.cat.inner")
    make(world, "cat.inner.t", 3)
    in_namespace(world, "CREATE VIEW plain AS SELECT id FROM cat.inner.t")
    with region.context() as context:
        explained = explain(context, *make_plan(context))
    marked = {action.key: action.catalogs for action in explained.actions if action.catalogs}
    assert marked == {"cat.v": ("main_us", "spark_catalog")}
    assert region.sync().held == ()
    findings = {finding.table: finding for finding in verify_all(region)}
    assert findings.keys() == {"cat.v"}
    assert findings["cat.v"].kind == "another catalog"
    assert "main_us, spark_catalog" in findings["cat.v"].message

    region.registry["views"] = {"own_catalogs": ["main_us"]}
    assert "cat.v" in region.sync().published
    assert region.rows("SELECT id FROM {0}.cat.v ORDER BY id") == [(1,), (2,)]
    assert region.rows("SELECT id FROM {0}.cat.plain") == [(3,)]
    assert verify_all(region, deep=True) == ()


def verify_all(region: OwnRegion, *, deep: bool = False) -> tuple[Finding, ...]:
    with region.context() as context:
        return verify(context, Depth(deep)).findings


def assert_same_view(world: World, name: str, versions: int) -> None:
    """All that a view's metadata.json says is the same, but for where it is."""
    content, replica = world.content(("cat", name)), world.replica()[f"cat.{name}"]
    main, here = read_metadata(world, content), read_metadata(world, replica)
    root = world.context().region.replica_root
    assert here["location"].startswith(f"{root}/us-lake/")
    assert here | {"location": ""} == main | {"location": ""}
    assert len(here["versions"]) == versions
    assert {version["default-namespace"][0] for version in here["versions"]} == {"cat"}


def test_renames_of_tables_and_views(world: World, ns: str):
    world.sql("CREATE NAMESPACE main_us.cat.inner")
    make(world, "cat.one", 1)
    make(world, "cat.two", 2)
    make(world, "cat.moved", 3)
    in_namespace(world, "CREATE VIEW seen AS SELECT id FROM two")
    world.sync()
    before = world.replica()
    world.sql("ALTER TABLE main_us.cat.one RENAME TO main_us.cat.aside")
    world.sql("ALTER TABLE main_us.cat.two RENAME TO main_us.cat.one")
    world.sql("ALTER TABLE main_us.cat.aside RENAME TO main_us.cat.two")
    world.sql("ALTER TABLE main_us.cat.moved RENAME TO main_us.cat.inner.moved")
    world.sql("INSERT INTO main_us.cat.inner.moved VALUES (4)")
    make(world, "cat.moved", 5)
    world.sql("ALTER VIEW main_us.cat.seen RENAME TO main_us.cat.known")
    report = world.sync()
    assert report.held == ()
    after = world.replica()
    assert {"cat.aside", "cat.seen"}.isdisjoint(after)
    assert after["cat.known"].id == before["cat.seen"].id
    assert ids(world, "cat.one", "cat.two", "cat.inner.moved", "cat.moved", "cat.known") == [[2], [1], [3, 4], [5], [1]]
    world.assert_equal("cat.one", "cat.two", "cat.moved", "cat.inner.moved")
    assert world.sync().outcome == "idle"


def test_a_name_that_stands_for_something_else_each_time(world: World, ns: str):
    make(world, "cat.base", 1, 2)
    make(world, "cat.x", 1)
    world.sync()
    first = world.replica()["cat.x"]
    world.sql("DROP TABLE main_us.cat.x")
    in_namespace(world, "CREATE VIEW x AS SELECT id + 10 AS id FROM base")
    make(world, "cat.y", 9)
    world.sync()
    assert world.replica()["cat.x"].kind == ICEBERG_VIEW
    world.sql("ALTER VIEW main_us.cat.x RENAME TO main_us.cat.aside")
    world.sql("ALTER TABLE main_us.cat.y RENAME TO main_us.cat.x")
    world.sql("ALTER VIEW main_us.cat.aside RENAME TO main_us.cat.y")
    world.sync()
    assert ids(world, "cat.x", "cat.y") == [[9], [11, 12]]
    world.sql("DROP TABLE main_us.cat.x")
    world.sql("CREATE NAMESPACE main_us.cat.x")
    make(world, "cat.x.x", 4)
    world.sync()
    assert world.replica()["cat.x"].kind == NAMESPACE
    assert ids(world, "cat.x.x") == [[4]]
    world.sql("DROP TABLE main_us.cat.x.x")
    world.sql("DROP NAMESPACE main_us.cat.x")
    make(world, "cat.x", 5)
    world.sync()
    assert ids(world, "cat.x") == [[5]]
    assert world.replica()["cat.x"].id != first.id
    world.assert_equal("cat.x")


def test_names_that_need_care(world: World, ns: str):
    make(world, "cat.plain", 1, 2)
    world.sync()
    plain = world.content(("cat", "plain"))
    first, *others = NAMES
    renamed = [Delete(("cat", "plain")), Put(("cat", first), plain)]
    spaces = [("cat", f"ns {name}") for name in NAMES]
    keys = [("cat", name) for name in others] + [(*space, name) for space, name in zip(spaces, NAMES, strict=True)]
    commit(world, *renamed, *(Put(space, namespace_content(space)) for space in spaces))
    commit(world, *(Put(key, plain.with_id(None)) for key in keys))
    report = world.sync()
    assert report.held == ()
    assert set(report.published) == {key_name(key) for key in [*spaces, *keys, ("cat", "plain"), ("cat", first)]}
    assert ids(world, *(quoted(key) for key in [("cat", first), *keys])) == [[1, 2]] * (len(keys) + 1)
    assert world.sync().outcome == "idle"
    commit(world, *(Delete(key) for key in keys))
    assert set(world.sync().published) == {key_name(key) for key in keys}


def quoted(key: Key) -> str:
    return ".".join(f"`{element}`" for element in key)


def test_contents_that_can_not_be_replicated_are_held_and_named(world: World, ns: str, tmp_path: Path):
    region = own_region(world, tmp_path, "contents")
    make(world, "cat.good")
    commit(world, Put(("cat", "delta"), Content.of(DELTA)))
    commit(world, Put(("cat", "function"), Content.of(UDF)))
    create_encrypted(world, "by_property", lambda metadata: metadata["properties"].update({"encryption.key-id": "k1"}))
    create_encrypted(
        world,
        "by_keys",
        lambda metadata: metadata.update({"encryption-keys": [{"key-id": "1", "encrypted-key-metadata": "eA=="}]}),
    )
    create_encrypted(world, "by_snapshot", lambda metadata: metadata["snapshots"][0].update({"key-id": "1"}))
    report = region.sync()
    assert "cat.good" in report.published
    held = region.held()
    assert held.keys() == {"cat.delta", "cat.function", "cat.by_property", "cat.by_keys", "cat.by_snapshot"}
    assert {item.kind for item in held.values()} == {"Unsupported"}
    assert "DELTA_LAKE_TABLE" in held["cat.delta"].reason
    assert "UDF" in held["cat.function"].reason
    for name in ("by_property", "by_keys", "by_snapshot"):
        assert "encrypt" in held[f"cat.{name}"].reason
        assert held[f"cat.{name}"].file == world.content(("cat", name)).metadata_location
    assert region.sync().outcome == "idle"
    commit(world, Delete(("cat", "delta")), Delete(("cat", "function")))
    commit(world, *(Delete(("cat", name)) for name in ("by_property", "by_keys", "by_snapshot")))
    make(world, "cat.delta")
    report = region.sync()
    assert report.held == ()
    assert region.held() == {}
    region.assert_equal("cat.good", "cat.delta")


def create_encrypted(world: World, name: str, change: Any) -> None:
    """Make a table and let its metadata say that it is encrypted."""
    make(world, f"cat.{name}")
    content = world.content(("cat", name))
    location = content.metadata_location or ""
    metadata = read_metadata(world, content)
    change(metadata)
    changed = location.replace(".metadata.json", "-encrypted.metadata.json")
    put_object(world, changed, json.dumps(metadata).encode())
    commit(world, Put(("cat", name), content.with_metadata_location(changed)))
