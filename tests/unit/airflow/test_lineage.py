"""Datasets for OpenLineage: how they are named, and what an operator hands to Airflow's provider."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from openlineage.client.naming import dataset as naming

from sterna.airflow import lineage
from sterna.airflow.lineage import (
    MAX_DATASETS,
    DatasetName,
    capture_lineage,
    feature_lineage,
    identifier_text,
    ingest_lineage,
    location_name,
    sync_lineage,
    table_names,
    transform_lineage,
)
from sterna.airflow.operators import SternaOperator, SternaSyncOperator
from sterna.config.sections.cdc import CdcSource
from sterna.config.sections.features import Features
from sterna.config.sections.transforms import Transform
from sterna.errors import CatalogUnreachable
from sterna.pipelines.cdc.run import TableStep
from sterna.pipelines.features.materialize import Materialization
from sterna.pipelines.transforms.step import StepSummary
from tests.support.small_world import World, gone, make_world, run

CATALOG = "http://127.0.0.1:1/api/v2"


@pytest.fixture
def transport(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The provider has somewhere to send events to."""
    settings = {"type": "file", "log_file_path": str(tmp_path / "events"), "append": True}
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__TRANSPORT", json.dumps(settings))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = make_world(tmp_path)
    monkeypatch.setattr(SternaOperator, "open", lambda self: world.context())
    return world


@pytest.mark.parametrize(
    ("uri", "dataset"),
    [
        ("s3://us-lake/shop/orders_1", naming.S3("us-lake", "shop/orders_1")),
        ("s3a://us-lake/shop/orders/", naming.S3("us-lake", "shop/orders")),
        ("s3://us-lake/a=1/100%20#b?c", naming.S3("us-lake", "a=1/100%20#b?c")),
        ("s3://us-lake", naming.S3("us-lake", "/")),
        ("gs://lake/t", naming.GCS("lake", "t")),
        ("wasbs://c@a.dfs.core.windows.net/t", naming.WASBS("c", "a", "t")),
        ("abfss://c@a.dfs.core.windows.net/x/t", naming.ABFSS("c", "a", "/x/t")),
        ("file:///mnt/lake/t", naming.LocalFileSystem("/mnt/lake/t")),
        ("file:/mnt/lake/t", naming.LocalFileSystem("/mnt/lake/t")),
    ],
)
def test_a_location_is_named_as_openlineage_does(uri: str, dataset: Any) -> None:
    assert location_name(uri) == DatasetName(dataset.get_namespace(), dataset.get_name())


@pytest.mark.parametrize(
    ("key", "text"),
    [(("shop", "orders"), "shop.orders"), (("a.b", "1st"), "`a.b`.`1st`"), (("a", "o`c@b"), "a.`o``c@b`")],
)
def test_a_table_s_name_is_quoted_as_spark_does(key: tuple[str, ...], text: str) -> None:
    assert identifier_text(key) == text


def _location(metadata_uri: str) -> str:
    """The location that a metadata.json has in it."""
    return urlsplit(json.loads(Path(urlsplit(metadata_uri).path).read_text())["location"]).path


def _symlinks(dataset: Any) -> list[tuple[str, str, str]]:
    return [(link.namespace, link.name, link.type) for link in dataset.facets["symlinks"].identifiers]


def test_a_sync_names_what_it_put_and_nothing_that_it_holds(world: World, transport: None) -> None:
    on_main = world.write("orders")
    world.commit(orders=on_main, broken=gone(world, "broken"))
    task = SternaSyncOperator(task_id="sync")
    assert task.execute({})["held"] == 1
    facets = task.get_openlineage_facets_on_complete(None)
    (source,), (replica,) = facets.inputs, facets.outputs
    assert (source.namespace, source.name) == ("file", _location(on_main))
    shown = world.replica()["ns.orders"].metadata_location
    assert shown and (replica.namespace, replica.name) == ("file", _location(shown))
    assert replica.name.startswith(f"{world.folder}/eu/replica/us-lake/")
    assert _symlinks(source) == [(CATALOG, "ns.orders", "TABLE")]
    assert _symlinks(replica) == [(CATALOG, "ns.`orders@main_replica_eu`", "TABLE")]
    assert source.facets["version"].datasetVersion == replica.facets["version"].datasetVersion == "1"
    assert SternaSyncOperator(task_id="again").execute({})["outcome"] == "idle"


def test_a_run_with_nothing_to_do_names_nothing(world: World, transport: None) -> None:
    world.commit(orders=world.write("orders"))
    run(world)
    task = SternaSyncOperator(task_id="sync")
    task.execute({})
    facets = task.get_openlineage_facets_on_complete(None)
    assert (facets.inputs, facets.outputs) == ([], [])


@pytest.mark.parametrize("is_installed", [True, False], ids=["without a transport", "without the provider"])
def test_where_openlineage_is_not_in_use_nothing_is_looked_up(
    is_installed: bool, world: World, transport: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_installed:
        monkeypatch.delenv("AIRFLOW__OPENLINEAGE__TRANSPORT")
    else:
        for name in [name for name in sys.modules if name.startswith(("airflow.providers.openlineage", "openlineage"))]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "airflow.providers.openlineage", None)
    looked_up: list[Any] = []
    monkeypatch.setattr(lineage, "table_names", lambda *arguments: looked_up.append(arguments))
    world.commit(orders=world.write("orders"))
    assert SternaSyncOperator(task_id="sync").execute({})["outcome"] == "published"
    assert looked_up == []


def test_a_catalog_that_answers_no_more_fails_no_task(
    world: World, transport: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unreachable(*_: Any) -> Any:
        raise CatalogUnreachable("it is dark")

    monkeypatch.setattr(lineage, "table_names", unreachable)
    world.commit(orders=world.write("orders"))
    task = SternaSyncOperator(task_id="sync")
    assert task.execute({})["outcome"] == "published"
    assert "OpenLineage gets no datasets: it is dark" in capsys.readouterr().out
    assert task.get_openlineage_facets_on_complete(None).outputs == []


def test_a_transport_that_is_none_fails_no_task(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__TRANSPORT", "http://lineage.example")
    world.commit(orders=world.write("orders"))
    assert SternaSyncOperator(task_id="sync").execute({})["outcome"] == "published"
    assert "OpenLineage gets no datasets" in capsys.readouterr().out


def test_of_very_many_tables_the_first_are_named_and_the_log_says_so(
    world: World, transport: None, capsys: pytest.CaptureFixture[str]
) -> None:
    metadata = world.write("t")
    names = [f"t{number:03}" for number in range(MAX_DATASETS + 20)]
    world.commit(**dict.fromkeys(names, metadata))
    task = SternaSyncOperator(task_id="sync")
    report = run(world)
    task.record_lineage(lambda: sync_lineage(world.context(), report, report.published))
    said = f"OpenLineage gets the first {MAX_DATASETS} of {len(names) + 1} datasets"  # the namespace is one, too
    assert said in capsys.readouterr().out
    assert [name.table for name in task.lineage.inputs] == [f"ns.{name}" for name in names[: MAX_DATASETS - 1]]
    assert len(task.lineage.outputs) == MAX_DATASETS - 1


def test_what_is_no_table_has_no_name(world: World) -> None:
    world.commit(orders=world.write("orders"))
    context = world.context()
    assert [name.table for name in table_names(context, "main", ["ns", "ns.gone", "ns.orders"])] == ["ns.orders"]


def test_a_transform_reads_the_replica_and_writes_to_main(world: World) -> None:
    world.commit(ods=world.write("ods"), dwd=world.write("dwd"), dws=world.write("dws"))
    run(world)
    transforms = [
        Transform.model_validate(
            {"name": into, "from": f"ns.{source}", "into": f"ns.{into}", "mode": "append", "sql": "x"}
        )
        for source, into in (("ods", "dwd"), ("dwd", "dws"))
    ]
    steps = [StepSummary("dwd", 1, 2, 3, "c"), StepSummary("dws", 1, 2, None, "")]
    found = transform_lineage(world.context(), transforms, steps)
    assert [name.table for name in found.inputs] == ["ns.`ods@main_replica_eu`"]
    assert [(name.table, name.name) for name in found.outputs] == [("ns.dwd", f"{world.folder}/us/lake/dwd")]
    assert transform_lineage(world.context(), transforms, steps[1:]) == lineage.Lineage()


@pytest.mark.parametrize(
    ("source", "origin", "dataset"),
    [
        ({"database": "shop"}, "public.orders", naming.Postgres("h", "5432", "shop", "public", "orders")),
        ({"kind": "mysql"}, "shop.orders", naming.MySQL("h", "5432", "shop", "orders")),
    ],
)
def test_change_capture_reads_the_database(source: dict[str, str], origin: str, dataset: Any, world: World) -> None:
    world.commit(orders=world.write("orders"), items=world.write("items"))
    common = {"name": "s", "region": "eu", "hosts": ["h:5432"], "credential_id": "c", "tables": ["a.*"], "into": "ns"}
    steps = [TableStep("s", "ns.orders", "1/1", 7, origin), TableStep("s", "ns.items", "1/1", None, "a.items")]
    found = capture_lineage(world.context(), [CdcSource.model_validate({**common, **source})], steps)
    assert found.inputs == (DatasetName(dataset.get_namespace(), dataset.get_name()),)
    assert [name.table for name in found.outputs] == ["ns.orders"]


def test_ingestion_reads_folders(world: World) -> None:
    world.commit(orders=world.write("orders"))
    found = ingest_lineage(world.context(), {"s3://eu-lake/b", "s3://eu-lake/a"}, ["ns.orders"])
    assert found.inputs == (DatasetName("s3://eu-lake", "a"), DatasetName("s3://eu-lake", "b"))
    assert [name.table for name in found.outputs] == ["ns.orders"]
    assert ingest_lineage(world.context(), ["s3://eu-lake/a"], []) == lineage.Lineage()


def test_features_are_named_by_their_store(world: World) -> None:
    world.commit(users=world.write("users"))
    run(world)
    view = {"entity": "user", "table": "ns.users", "features": ["age"], "unique": True}
    features = Features.model_validate(
        {
            "online": {"eu": {"url": "valkey://store:6379/0"}},
            "entities": [{"name": "user", "key": {"id": "long"}}],
            "views": [{"name": "user", **view}, {"name": "other", **view}],
        }
    )
    steps = [Materialization("user", "changes"), Materialization("other", "same")]
    found = feature_lineage(world.context(), features, steps)
    assert [name.table for name in found.inputs] == ["ns.`users@main_replica_eu`"]
    assert found.outputs == (DatasetName("valkey://store:6379/0", "user"),)
