"""What engines are configured with to use a region's Iceberg REST address: text for a person to copy.

No text has a secret: where an engine wants its own, the place is marked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sterna.config.mapping import Mapping as RegionMapping
from sterna.config.registry.credential import fileio_properties
from sterna.config.sections.model import Services
from sterna.errors import CredentialError, UsageError
from sterna.serving.rest_catalog.settings import region_settings

_TOKEN = "<token>"  # noqa: S105 - where an engine is to have its own
_CATALOG = "lake"
_DELEGATION = "header.X-Iceberg-Access-Delegation"


@dataclass(frozen=True)
class EngineSettings:
    """What the settings of an engine follow from.

    Args:
        uri: of the address.
        store: properties of the region's store, as Iceberg's FileIO names them, without keys.
        token: the address takes tokens.
    """

    uri: str
    store: Mapping[str, str]
    token: bool = True

    @property
    def properties(self) -> dict[str, str]:
        """All properties, as Iceberg names them."""
        token = {"token": _TOKEN} if self.token else {}
        return {"type": "rest", "uri": self.uri, **self.store, **token}


def _spark(settings: EngineSettings) -> str:
    prefix = f"spark.sql.catalog.{_CATALOG}"
    lines = {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        **{f"{prefix}.{name}": value for name, value in _for_java(settings.properties).items()},
    }
    return "\n".join(f"{name} {value}" for name, value in lines.items())


def _flink(settings: EngineSettings) -> str:
    properties = {**_for_java(settings.properties), "type": "iceberg", "catalog-type": "rest"}
    options = ",\n".join(f"  {_sql_text(name)} = {_sql_text(value)}" for name, value in properties.items())
    return f"CREATE CATALOG {_CATALOG} WITH (\n{options}\n);"


def _trino(settings: EngineSettings) -> str:
    names = ("s3.endpoint", "s3.region", "s3.path-style-access")
    lines = {
        "connector.name": "iceberg",
        "iceberg.catalog.type": "rest",
        "iceberg.rest-catalog.uri": settings.uri,
        "iceberg.rest-catalog.nested-namespace-enabled": "true",
        "fs.native-s3.enabled": str(any(name.startswith("s3.") for name in settings.store)).lower(),
        **{name: value for name, value in settings.store.items() if name in names},
    }
    if settings.token:
        lines |= {
            "iceberg.rest-catalog.security": "OAUTH2",
            "iceberg.rest-catalog.oauth2.token": _TOKEN,
        }
    return "\n".join(f"{name}={value}" for name, value in lines.items())


def _pyiceberg(settings: EngineSettings) -> str:
    properties = {name: value for name, value in settings.properties.items() if name != "client.region"}
    if properties.pop("s3.path-style-access", "") == "true":
        properties["s3.force-virtual-addressing"] = "false"
    lines = "\n".join(f"    {name}: {json.dumps(value)}" for name, value in properties.items())
    return f"catalog:\n  {_CATALOG}:\n{lines}"


def _duckdb(settings: EngineSettings) -> str:
    store = dict(settings.store)
    endpoint = store.get("s3.endpoint", "")
    options = ["TYPE s3"]
    if "client.region" in store:
        options.append(f"REGION {_sql_text(store['client.region'])}")
    if endpoint:
        options.append(f"ENDPOINT {_sql_text(endpoint.partition('://')[2].rstrip('/'))}")
        options.append(f"USE_SSL {str(endpoint.startswith('https://')).lower()}")
    if store.get("s3.path-style-access") == "true":
        options.append("URL_STYLE 'path'")
    access = f"TOKEN {_sql_text(_TOKEN)}" if settings.token else "AUTHORIZATION_TYPE 'none'"
    return "\n".join(
        [
            "INSTALL iceberg;",
            "LOAD iceberg;",
            f"CREATE SECRET ({', '.join(options)}, KEY_ID '<key>', SECRET '<secret>');",
            f"ATTACH '' AS {_CATALOG} (TYPE iceberg, ENDPOINT {_sql_text(settings.uri)}, {access},",
            "    ACCESS_DELEGATION_MODE 'none');",
        ]
    )


def _for_java(properties: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name != "s3.region"}


def _sql_text(text: str) -> str:
    quoted = text.replace("'", "''")
    return f"'{quoted}'"


ENGINES: Mapping[str, Callable[[EngineSettings], str]] = {
    "spark": _spark,
    "flink": _flink,
    "trino": _trino,
    "pyiceberg": _pyiceberg,
    "duckdb": _duckdb,
}
"""Engines, and what makes the text of each."""


def engine_text(engine: str, settings: EngineSettings) -> str:
    """Return the settings of an engine as it reads them.

    Raises:
        UsageError: there is no text for this engine.
    """
    if engine not in ENGINES:
        raise UsageError(f"no settings for {engine!r}: there are {', '.join(ENGINES)}")
    return ENGINES[engine](settings)


def store_properties(mapping: RegionMapping, services: Services) -> dict[str, str]:
    """Return the properties of a region's own store as Iceberg's FileIO names them, without keys.

    Where the address signs requests, the header is among them by which an engine gets that.

    Raises:
        UsageError: as `region_settings`, and `validate_own_folders`.
    """
    settings = region_settings(mapping, services)
    location = mapping.locate(settings.location).location
    try:
        properties = fileio_properties(location, None)
    except CredentialError:  # a store that can't be named without its credential
        properties = {}
    signing = {_DELEGATION: "remote-signing"} if settings.remote_signing else {}
    return {**properties, **settings.defaults, **signing}
