"""Where a region's address may write, and what engines are configured with."""

from __future__ import annotations

import configparser
from pathlib import Path

import duckdb
import pytest
import yaml

from sterna.config.sections.model import Services
from sterna.errors import UsageError
from sterna.replication.replica.region import RegionContext
from sterna.serving.rest_catalog.client_access import open_client_access
from sterna.serving.rest_catalog.engines import ENGINES, EngineSettings, engine_text, store_properties
from sterna.serving.rest_catalog.reader import open_replica_catalog
from sterna.serving.rest_catalog.settings import region_settings
from sterna.serving.rest_catalog.signing import open_signer
from sterna.serving.rest_catalog.write_service import open_write_service
from tests.support.small_world import make_world, no_secrets
from tests.unit.config.samples import location, mapping

STORE = {
    "s3.endpoint": "http://s3.eu.example:9000",
    "s3.path-style-access": "true",
    "client.region": "eu-central-1",
    "s3.region": "eu-central-1",
}
SETTINGS = EngineSettings("https://lake.eu.example", STORE)


def services(place: str, **more: object) -> Services:
    return Services.model_validate({"catalog": {"regions": {"eu": {"location": place}}}, **more})


def test_a_location_may_be_around_the_replica_root() -> None:
    assert region_settings(mapping(), services("s3://eu-bucket")).location == "s3://eu-bucket"


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("s3://us-bucket/lake", "is in us: it has to be in its own region"),
        ("s3://nowhere", "in no location of the registry"),
        ("s3://eu-bucket/replica/lake", "overlap"),
        ("s3a://eu-bucket/replica", "overlap"),
        ("s3a://eu-bucket/lake", "another scheme"),
    ],
)
def test_what_engines_write_is_the_regions_own(place: str, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        region_settings(mapping(), services(place))


def test_a_location_of_before_is_the_regions_own_too() -> None:
    settings = {"location": "s3://eu-bucket/lake", "earlier_locations": ["s3://us-bucket/lake"]}
    with pytest.raises(UsageError, match="is in us: it has to be in its own region"):
        region_settings(mapping(), Services.model_validate({"catalog": {"regions": {"eu": settings}}}))


def test_uploads_are_somewhere_else() -> None:
    ingest = {
        "regions": {"eu": {"inbox": "s3://eu-bucket/lake/near/inbox", "database": {"credential_id": "x"}}},
        "tenants": {"a": {"namespaces": ["a"]}},
        "tables": [{"match": "a.*"}],
    }
    with pytest.raises(UsageError, match="the inbox s3://eu-bucket/lake/near/inbox overlap"):
        region_settings(mapping(), services("s3://eu-bucket/lake", ingest=ingest))


def test_a_region_without_settings_has_no_address() -> None:
    with pytest.raises(UsageError, match=r"no catalog\.regions\.us"):
        region_settings(mapping(name="us"), services("s3://eu-bucket"))
    with pytest.raises(UsageError, match=r"no catalog\.regions\.eu"):
        region_settings(mapping(), Services())


def test_spark() -> None:
    assert engine_text("spark", SETTINGS).splitlines() == [
        "spark.sql.extensions org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type rest",
        "spark.sql.catalog.lake.uri https://lake.eu.example",
        "spark.sql.catalog.lake.s3.endpoint http://s3.eu.example:9000",
        "spark.sql.catalog.lake.s3.path-style-access true",
        "spark.sql.catalog.lake.client.region eu-central-1",
        "spark.sql.catalog.lake.token <token>",
    ]


def test_flink() -> None:
    assert "'type' = 'iceberg',\n  'uri' = 'https://lake.eu.example'" in engine_text("flink", SETTINGS)
    assert "'catalog-type' = 'rest'" in engine_text("flink", SETTINGS)


def test_trino() -> None:
    parser = configparser.ConfigParser()
    parser.read_string(f"[it]\n{engine_text('trino', SETTINGS)}")
    assert parser["it"]["iceberg.rest-catalog.uri"] == "https://lake.eu.example"
    assert parser["it"]["s3.region"] == "eu-central-1"
    assert parser["it"]["iceberg.rest-catalog.security"] == "OAUTH2"


def test_pyiceberg() -> None:
    assert yaml.safe_load(engine_text("pyiceberg", SETTINGS)) == {
        "catalog": {
            "lake": {
                "type": "rest",
                "uri": "https://lake.eu.example",
                "s3.endpoint": "http://s3.eu.example:9000",
                "s3.region": "eu-central-1",
                "s3.force-virtual-addressing": "false",
                "token": "<token>",
            }
        }
    }


def test_duckdb_understands_its_text() -> None:
    text = engine_text("duckdb", SETTINGS)
    assert len(duckdb.extract_statements(text)) == 4
    assert "ENDPOINT 's3.eu.example:9000', USE_SSL false" in text


@pytest.mark.parametrize("engine", ENGINES)
def test_without_tokens_no_engine_is_asked_for_one(engine: str) -> None:
    assert "<token>" in engine_text(engine, SETTINGS)
    assert "token" not in engine_text(engine, EngineSettings(SETTINGS.uri, STORE, token=False)).lower()


@pytest.mark.parametrize(("engine", "signs"), [("spark", True), ("flink", True), ("pyiceberg", True), ("trino", False)])
def test_engines_that_can_have_requests_signed(engine: str, signs: bool) -> None:
    catalog = {"regions": {"eu": {"location": "s3://eu-bucket/lake", "remote_signing": True}}}
    store = store_properties(mapping(), Services.model_validate({"catalog": catalog}))
    text = engine_text(engine, EngineSettings(SETTINGS.uri, store))
    assert ("X-Iceberg-Access-Delegation" in text) is signs


def test_what_signs_has_a_key() -> None:
    replica = open_replica_catalog(
        RegionContext.of(mapping().registry, mapping().region, no_secrets),
        services := Services.model_validate(
            {"catalog": {"regions": {"eu": {"location": "s3://eu-bucket/lake", "remote_signing": True}}}}
        ),
    )
    with pytest.raises(UsageError, match="'eu' has no credential_id"):
        open_signer(open_client_access(replica, services))


def test_what_signs_has_an_s3_store(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    place = {"location": f"file://{tmp_path}/eu/lake", "remote_signing": True}
    services = Services.model_validate({"catalog": {"regions": {"eu": place}}})
    with pytest.raises(UsageError, match="no S3 store"):
        open_signer(open_client_access(open_replica_catalog(world.context(), services), services))


def test_a_request_waits_for_a_store_as_long_as_the_settings_say(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    place = {"location": f"file://{tmp_path}/eu/lake", "timeout": 7}
    services = Services.model_validate({"catalog": {"regions": {"eu": place}}})
    service = open_write_service(world.context(), open_replica_catalog(world.context(), services), services)
    address = vars(service)["_address"]
    assert address.region().objects.timeout == 7
    address.renew()
    assert address.region().objects.timeout == 7


def test_an_engine_without_a_text_is_named() -> None:
    with pytest.raises(UsageError, match="no settings for 'hive': there are spark, flink"):
        engine_text("hive", SETTINGS)


def test_the_regions_own_store_is_told_without_keys() -> None:
    own = location("lake", "s3://lake", "eu", credential_id="secret")
    own["remote"]["options"] = {"endpoint": "http://s3", "region": "eu-west-1"}
    settings = {"location": "s3://lake", "defaults": {"s3.endpoint": "https://s3.eu.example"}}
    read = Services.model_validate({"catalog": {"regions": {"eu": settings}}})
    assert store_properties(mapping(own), read) == {
        "s3.endpoint": "https://s3.eu.example",
        "s3.path-style-access": "true",
        "client.region": "eu-west-1",
        "s3.region": "eu-west-1",
    }
