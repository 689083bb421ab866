"""What `--stay` prints: addresses, keys of this machine's stores, and lines to copy."""

from __future__ import annotations

import os
import shlex
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from sterna.demo import nyc
from sterna.demo.uploads import TABLE, Uploads
from sterna.replication.replica.region import Progress
from sterna.servers.airflow import Airflow
from sterna.servers.registry_file import bucket_name
from sterna.servers.spark import spark_environment
from sterna.servers.stack import Deployment

_TRINO_PROPERTIES = """\
connector.name=iceberg
iceberg.catalog.type=nessie
iceberg.nessie-catalog.uri={nessie}
iceberg.nessie-catalog.ref={branch}
iceberg.nessie-catalog.default-warehouse-dir=s3://{bucket}/warehouse
iceberg.security=read_only
fs.native-s3.enabled=true
s3.endpoint={s3}
s3.region=us-east-1
s3.path-style-access=true
s3.aws-access-key={key}
s3.aws-secret-key={secret}"""
_SPARK_COMMAND = """\
{pyspark} \\
  --conf spark.sql.catalog.lake=org.apache.iceberg.spark.SparkCatalog \\
  --conf spark.sql.catalog.lake.catalog-impl=org.apache.iceberg.nessie.NessieCatalog \\
  --conf spark.sql.catalog.lake.uri={nessie} \\
  --conf spark.sql.catalog.lake.ref={branch} \\
  --conf spark.sql.catalog.lake.warehouse=s3://{bucket}/warehouse \\
  --conf spark.sql.catalog.lake.io-impl=org.apache.iceberg.aws.s3.S3FileIO \\
  --conf spark.sql.catalog.lake.s3.endpoint={s3} \\
  --conf spark.sql.catalog.lake.s3.path-style-access=true"""
_PYICEBERG_SCRIPT = """\
from pyiceberg.catalog import load_catalog
catalog = load_catalog("eu", type="rest", uri="{iceberg}/{branch}", warehouse="eu", **{{
    "s3.endpoint": "{s3}", "s3.access-key-id": "{key}", "s3.secret-access-key": "{secret}", "s3.region": "us-east-1"}})
print(catalog.load_table("{table}").scan().to_arrow())"""


def print_addresses(
    stage: Deployment, airflows: Mapping[str, Airflow], uploads: Uploads, begin: str, progress: Progress
) -> None:
    """Print where everything is, and what to type.

    Args:
        stage: the catalog and the stores.
        airflows: by region.
        begin: the cursor before the first event.
        progress: called with each line.
    """
    variables = _write_environment(stage, uploads)
    progress(f"Nessie       {stage.nessie.uri}")
    for region, airflow in airflows.items():
        endpoint = stage.endpoints[region]
        progress(f"Airflow {region}   {airflow.url}, its page {airflow.url}/plugin/sterna")
        progress(f"gateway {region}   {uploads.urls[region]}")
        progress(f"S3 {region}        {endpoint.url}, key {endpoint.access_key}, secret {endpoint.secret_key}")
    progress(
        f"S3, all      {stage.combined_endpoint.url}, key {stage.combined_endpoint.access_key}, secret "
        f"{stage.combined_endpoint.secret_key}"
    )
    progress(f"registry     {stage.registry}")
    progress(f"services     {uploads.services}")
    for title, text in _example_commands(stage, uploads, begin, variables).items():
        progress(f"{title}:\n{text}\n")


def _example_commands(stage: Deployment, uploads: Uploads, begin: str, variables: Path) -> dict[str, str]:
    endpoint, gateway = stage.endpoints["eu"], uploads.urls["eu"]
    values = {
        "nessie": stage.nessie.uri,
        "pyspark": shlex.quote(str(Path(sysconfig.get_path("scripts")) / "pyspark")),
        "iceberg": stage.nessie.iceberg_uri,
        "branch": "main_replica_eu",
        "bucket": bucket_name("eu"),
        "s3": endpoint.url,
        "key": endpoint.access_key,
        "secret": endpoint.secret_key,
        "table": f"{nyc.NAMESPACE}.flights",
    }
    python = shlex.quote(sys.executable)
    status = f"(. {shlex.quote(str(variables))}; {python} -m sterna.cli.main status --region eu)"
    curl = (
        f"curl -N '{gateway}/v1/events?tables={TABLE}&after={begin}'\n"
        f"curl '{gateway}/v1/tables'\ncurl '{gateway}/features/user/123'"
    )
    return {
        "status of eu": status,
        "events, tables and a user of eu": curl,
        "eu in Trino (etc/catalog/lake.properties)": _TRINO_PROPERTIES.format(**values),
        "eu in Spark": f"(. {shlex.quote(str(variables))}; {_SPARK_COMMAND.format(**values)})",
        "eu in PyIceberg": _PYICEBERG_SCRIPT.format(**values),
    }


def write_variables(folder: Path, values: Mapping[str, str]) -> Path:
    """Write variables for a shell to source into a file that only its owner can read; return its path.

    Args:
        folder: receives the file.
    """
    file = folder / "variables.sh"
    with os.fdopen(os.open(file, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as stream:
        stream.writelines(f"export {name}={shlex.quote(value)}\n" for name, value in values.items())
    return file


def engine_variables(stage: Deployment, services: Path) -> dict[str, str]:
    """Return what engines and commands of region eu need: its store's keys, and the services file.

    Args:
        stage: the catalog and the stores.
        services: the services file.
    """
    store = stage.endpoints["eu"]
    return {
        "AWS_ACCESS_KEY_ID": store.access_key,
        "AWS_SECRET_ACCESS_KEY": store.secret_key,
        "AWS_REGION": store.region,
        "STERNA_SERVICES": str(services),
    }


def _write_environment(stage: Deployment, uploads: Uploads) -> Path:
    engines = {**spark_environment(stage.work), **engine_variables(stage, uploads.services)}
    return write_variables(stage.work, {**stage.environment, **uploads.logins, **engines})
