"""A machine that has things already: its variables and home folder belong to other programs, and fit nothing here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from sterna.jvm.jars import cache_folder

_UNREACHABLE_URL = "http://127.0.0.1:9"
_FILES: Mapping[str, str] = {
    ".aws/credentials": "[default]\naws_access_key_id = OTHER\naws_secret_access_key = other\n",
    ".aws/config": (
        f"[default]\nregion = elsewhere-1\nendpoint_url = {_UNREACHABLE_URL}\ns3 =\n  addressing_style = virtual\n"
    ),
    ".pyiceberg.yaml": (
        f"catalog:\n  default:\n    uri: {_UNREACHABLE_URL}\n  eu:\n    s3.endpoint: {_UNREACHABLE_URL}\n"
    ),
    ".config/rclone/rclone.conf": f"[lake_us]\ntype = s3\nprovider = AWS\nendpoint = {_UNREACHABLE_URL}\n",
    ".pgpass": "*:*:*:*:other\n",
    ".pg_service.conf": "[other]\nhost=127.0.0.1\nport=9\n",
    "airflow/airflow.cfg": "[core]\ndags_folder = /nowhere\nexecutor = Other\n",
    "spark/conf/spark-defaults.conf": "spark.master spark://127.0.0.1:9\nspark.sql.session.timeZone Asia/Kathmandu\n",
    "java/release": 'JAVA_VERSION="1.8.0_392"\n',
    "java/bin/java": "#!/bin/sh\nexit 1\n",
}
_VARIABLES: Mapping[str, str] = {
    "AIRFLOW__CORE__EXECUTOR": "Other",
    "AIRFLOW_CONN_CATALOG_US": "{}",
    "AWS_ACCESS_KEY_ID": "OTHER",
    "AWS_SECRET_ACCESS_KEY": "other",
    "AWS_SESSION_TOKEN": "other",
    "AWS_REGION": "elsewhere-1",
    "AWS_ENDPOINT_URL": _UNREACHABLE_URL,
    "AWS_REQUEST_CHECKSUM_CALCULATION": "when_supported",
    "AZURE_STORAGE_ACCOUNT": "other",
    "GOOGLE_APPLICATION_CREDENTIALS": "/nowhere.json",
    "HTTP_PROXY": _UNREACHABLE_URL,
    "HTTPS_PROXY": _UNREACHABLE_URL,
    "http_proxy": _UNREACHABLE_URL,
    "https_proxy": _UNREACHABLE_URL,
    "all_proxy": _UNREACHABLE_URL,
    "NO_PROXY": "example.com",
    "LC_ALL": "tr_TR.UTF-8",
    "TZ": "Asia/Kathmandu",
    "NESSIE_VERSION_STORE_TYPE": "OTHER",
    "QUARKUS_HTTP_PORT": "9",
    "PGHOST": "127.0.0.1",
    "PGPORT": "9",
    "PGUSER": "other",
    "PGPASSWORD": "other",
    "PGSERVICE": "other",
    "PGSSLMODE": "require",
    "PGOPTIONS": "-c search_path=nowhere",
    "PYICEBERG_CATALOG__DEFAULT__URI": _UNREACHABLE_URL,
    "PYSPARK_PYTHON": "/nowhere/python",
    "PYSPARK_SUBMIT_ARGS": "--master spark://127.0.0.1:9 pyspark-shell",
    "RCLONE_DRY_RUN": "true",
    "RCLONE_MAX_SIZE": "1",
    "SPARK_LOCAL_IP": "10.255.255.1",
    "STERNA_REGION": "elsewhere",
    "STERNA_REGISTRY": "/nowhere.yaml",
}


def hostile_machine(home: Path) -> dict[str, str]:
    """Fill a home folder with other programs' settings; return the environment of whoever has it.

    Args:
        home: a folder that isn't there.
    """
    for name, text in _FILES.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (home / ".pgpass").chmod(0o600)
    (home / "java/bin/java").chmod(0o755)
    places = {
        "HOME": home,
        "AIRFLOW_HOME": home / "airflow",
        "HADOOP_CONF_DIR": home / "hadoop",
        "JAVA_HOME": home / "java",
        "RCLONE_CONFIG": home / ".config/rclone/rclone.conf",
        "SPARK_HOME": home / "spark",
        "SPARK_CONF_DIR": home / "spark/conf",
        "STERNA_CACHE": cache_folder(),
    }
    without = {name: value for name, value in os.environ.items() if name != "no_proxy"}
    return {**without, **_VARIABLES, **{name: str(path) for name, path in places.items()}}
