"""Choice: what policies and residency rules keep off a region is absent there, with the reason in status.

Nothing of it ever crosses.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sterna.catalog.model import Put
from tests.support.own_region import OwnRegion, commit, drop_all, own_region
from tests.support.world import World


@pytest.fixture
def spaces(world: World) -> Iterator[None]:
    """Namespaces `res`, `hr` and `hr.inner`, empty."""
    with world.namespace("res"), world.namespace("hr"):
        world.sql("CREATE NAMESPACE main_us.hr.inner")
        try:
            yield
        finally:
            for name in ("res", "hr"):
                drop_all(world, name)


def make(world: World, *names: str) -> None:
    for name in names:
        world.sql(f"CREATE TABLE main_us.{name} (id BIGINT) USING iceberg")
        world.sql(f"INSERT INTO main_us.{name} VALUES (1), (2)")


def insert(world: World, *names: str) -> None:
    for name in names:
        world.sql(f"INSERT INTO main_us.{name} VALUES (3)")


def keys(region: OwnRegion) -> set[str]:
    return set(region.replica())


def assert_nothing_crossed(region: OwnRegion, mark: int, *names: str) -> None:
    """No request reached us for a table's files, and what stands in the region's store doesn't even name them."""
    world = region.world
    folders = [f"warehouse/{name.replace('.', '/')}_" for name in names]
    requests = [
        request for request in world.stage.endpoints["us"].requests(mark) if request.key.startswith(tuple(folders))
    ]
    assert requests == []
    store = world.stage.endpoints["eu"].folder
    assert store is not None
    written = [path for path in (store / "eu-lake" / region.name).rglob("*") if path.is_file()]
    assert written
    for path in written:
        assert not any(folder in str(path) for folder in folders)
        data = path.read_bytes()
        assert not any(folder.encode() in data for folder in folders), path


def mark(world: World) -> int:
    return len(world.stage.endpoints["us"].requests())


def test_include_and_exclude_patterns(world: World, spaces: None, tmp_path: Path):
    region = own_region(world, tmp_path, "patterns")
    region.registry["policies"] = [
        {"tables": ["res.keep_tmp"], "replicate": True},
        {"tables": ["**.*_tmp", "hr.inner.*"], "replicate": False},
    ]
    make(world, "res.plain", "res.keep_tmp", "res.drop_tmp", "hr.inner.t")
    since = mark(world)
    report = region.sync()
    assert report.held == ()
    assert keys(region) == {"res", "res.plain", "res.keep_tmp", "hr", "hr.inner"}
    assert region.refused() == {
        "res.drop_tmp": "policy '**.*_tmp': replicate is false",
        "hr.inner.t": "policy 'hr.inner.*': replicate is false",
    }
    assert_nothing_crossed(region, since, "res.drop_tmp", "hr.inner.t")
    region.assert_equal("res.plain", "res.keep_tmp")


def test_what_must_not_leave_and_what_must_not_enter(world: World, spaces: None, tmp_path: Path):
    region = own_region(world, tmp_path, "resident")
    region.registry["residency"] = [
        {"tables": ["hr"], "only": ["us"]},
        {"tables": ["*.secret_*"], "never": [region.name]},
        {"tables": ["res.both"], "only": [region.name, "us"]},
        {"tables": ["res.elsewhere"], "never": ["eu"]},
    ]
    make(world, "hr.people", "hr.inner.pay", "res.secret_one", "res.both", "res.elsewhere")
    world.sql("CREATE VIEW main_us.hr.seen AS SELECT id FROM main_us.hr.people")
    since = mark(world)
    for _ in range(2):
        assert region.sync().held == ()
        assert keys(region) == {"res", "res.both", "res.elsewhere"}
        refused = region.refused()
        assert refused.keys() == {"hr", "hr.people", "hr.inner", "hr.inner.pay", "hr.seen", "res.secret_one"}
        assert refused["hr.inner.pay"] == "residency 'hr': only in us"
        assert refused["res.secret_one"] == f"residency '*.secret_*': never in {region.name}"
        assert_nothing_crossed(region, since, "hr.people", "hr.inner.pay", "hr.seen", "res.secret_one")
        insert(world, "hr.people", "res.secret_one", "res.both")
        since = mark(world)
    assert region.sync().published == ("res.both",)
    since = mark(world)
    assert region.sync(tables=("hr.people", "res.secret_one")).published == ()
    assert_nothing_crossed(region, since, "hr.people", "res.secret_one")
    region.assert_equal("res.elsewhere", "res.both")
    world.sql("ALTER TABLE main_us.res.both RENAME TO main_us.hr.both")
    region.sync()
    assert keys(region) == {"res", "res.elsewhere"}
    assert "hr.both" in region.refused()
    world.sql("ALTER TABLE main_us.hr.both RENAME TO main_us.res.back")
    region.sync()
    region.assert_equal("res.back")


def test_a_stricter_rule_takes_the_table_away_and_a_looser_one_brings_it_back(
    world: World, spaces: None, tmp_path: Path
):
    region = own_region(world, tmp_path, "stricter")
    make(world, "res.one", "res.two", "hr.people", "hr.inner.pay")
    region.sync()
    everything = keys(region)
    assert {"hr", "hr.inner", "hr.inner.pay", "res.two"} <= everything
    head = world.catalog.reference("main").hash
    region.registry["residency"] = [{"tables": ["hr.**", "res.two"], "only": []}]
    report = region.sync()
    assert report.watermark == head
    assert keys(region) == {"hr", "res", "res.one"}, "`hr.**` is what is in the namespace, not the namespace"
    assert set(report.published) == everything - keys(region)
    assert region.refused()["res.two"] == "residency 'res.two': only in no region"
    assert region.sync().outcome == "idle"
    region.registry["residency"] = [{"tables": ["hr"], "never": [region.name]}]
    report = region.sync()
    assert keys(region) == {"res", "res.one", "res.two"}
    assert report.copied.files == 0, "what was copied before is still there"
    insert(world, "hr.people", "res.two")
    region.sync()
    region.registry["residency"] = []
    report = region.sync()
    assert keys(region) == everything
    assert report.copied.files == 1, "the row that was written meanwhile"
    assert region.refused() == {}
    region.assert_equal("res.one", "res.two", "hr.people", "hr.inner.pay")


def test_a_commit_with_a_refused_table_does_not_wait_for_it(world: World, spaces: None, tmp_path: Path):
    region = own_region(world, tmp_path, "together")
    region.registry["residency"] = [{"tables": ["res.secret"], "never": [region.name]}]
    make(world, "res.open", "res.secret", "res.spare")
    region.sync()
    old = {name: world.content(("res", name)) for name in ("open", "secret", "spare")}
    # One commit changes both; the refused table's metadata is gone besides, which nobody here may even notice.
    gone = old["secret"].with_metadata_location("s3://us-lake/warehouse/res/secret_gone/metadata/1.metadata.json")
    open_now = old["open"].with_metadata_location(old["spare"].metadata_location or "")
    since = mark(world)
    commit(world, Put(("res", "open"), open_now), Put(("res", "secret"), gone))
    report = region.sync()
    assert report.held == ()
    assert report.published == ("res.open",)
    assert_nothing_crossed(region, since, "res.secret")


def test_a_held_table_that_is_refused_is_held_no_more(world: World, spaces: None, tmp_path: Path):
    region = own_region(world, tmp_path, "heldrefused")
    make(world, "res.open", "res.broken")
    content = world.content(("res", "broken"))
    commit(
        world,
        Put(
            ("res", "broken"),
            content.with_metadata_location("s3://us-lake/warehouse/res/broken_x/metadata/1.metadata.json"),
        ),
    )
    assert [item.key for item in region.sync().held] == ["res.broken"]
    region.registry["policies"] = [{"tables": ["res.broken"], "replicate": False}]
    assert region.sync().held == ()
    assert region.held() == {}
    assert region.refused().keys() == {"res.broken"}
    commit(world, Put(("res", "broken"), content))
    region.registry["policies"] = []
    region.sync()
    region.assert_equal("res.open", "res.broken")
