"""A deployment's registry, and the environment variables for processes that use it."""

from __future__ import annotations

import json
import os
import secrets
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import yaml

from sterna.servers.access import TokenIssuer
from sterna.servers.process import LOOPBACK
from sterna.servers.s3 import CLIENT_ENVIRONMENT, Endpoint

_EGRESS_PER_GB = 0.02  # the large clouds' price between two of their regions, so that a plan has a price to show


def bucket_name(region: str) -> str:
    """Return the name of a region's bucket."""
    return f"{region}-lake"


def write_registry(
    work: Path,
    catalogs: Mapping[str, Mapping[str, object]],
    endpoints: Mapping[str, Endpoint],
    spark_ports: Mapping[str, int],
    *,
    verbatim_copies: bool = False,
) -> Path:
    """Write a deployment's registry and return its path.

    Args:
        work: the folder it is written to.
        catalogs: region → the mapping under its `catalog`.
        endpoints: region → its S3 endpoint.
        spark_ports: region → the port of its Spark Connect server, where it is to have one.
        verbatim_copies: whether each region keeps verbatim copies.
    """
    more = {"verbatim_copies": True} if verbatim_copies else {}
    regions = [_region_entry(region, catalogs[region], spark_ports.get(region)) | more for region in endpoints]
    locations = [_location_entry(region, endpoint) for region, endpoint in endpoints.items()]
    path = work / "storage_registry.yaml"
    path.write_text(yaml.safe_dump({"version": 1, "regions": regions, "locations": locations}, sort_keys=False))
    return path


def _region_entry(region: str, catalog: Mapping[str, object], spark_port: int | None) -> dict[str, object]:
    return {
        "name": region,
        "replica_root": f"s3://{bucket_name(region)}/replica",
        "catalog": dict(catalog),
        "spark": "local[2]" if spark_port is None else f"sc://{LOOPBACK}:{spark_port}",
        # A deployment with a Spark Connect server is to use it: nothing here is large enough to need it.
        "localize": "auto" if spark_port is None else "spark",
    }


def _location_entry(region: str, endpoint: Endpoint) -> dict[str, object]:
    store = {"provider": "Rclone", "endpoint": endpoint.url, "region": endpoint.region, "force_path_style": "true"}
    return {
        "id": bucket_name(region),
        "prefix": f"s3://{bucket_name(region)}",
        "region": region,
        "remote": {"type": "s3", "options": store},
        "credential_id": _credential_id(region),
        "egress_per_gb": {"*": _EGRESS_PER_GB},
    }


def deployment_environment(
    registry: Path, endpoints: Mapping[str, Endpoint], token_issuer: TokenIssuer | None = None
) -> dict[str, str]:
    """Return the variables with which anything works with a deployment: the registry's path, the stores' credentials.

    Secret.
    """
    credentials = {
        f"AIRFLOW_CONN_{_credential_id(region).upper()}": json.dumps(
            {"conn_type": "aws", "login": endpoint.access_key, "password": endpoint.secret_key}
        )
        for region, endpoint in endpoints.items()
    }
    if token_issuer is not None:
        tokens = {region: token_issuer.token(f"sterna-{region}", f"replicator-{region}") for region in endpoints}
        credentials |= {
            f"AIRFLOW_CONN_{catalog_credential_id(region).upper()}": json.dumps(
                {"conn_type": "sterna_nessie", "password": token}
            )
            for region, token in tokens.items()
        }
    # Tasks and commands find rclone beside their Python, however they were started.
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
    return {"STERNA_REGISTRY": str(registry), "PATH": path, **credentials, **CLIENT_ENVIRONMENT}


def _credential_id(region: str) -> str:
    return f"sterna_{region.replace('-', '_')}"


def catalog_credential_id(region: str) -> str:
    return f"nessie_{region.replace('-', '_')}"


def create_key_pair() -> tuple[str, str]:
    """Return a new access key and secret key."""
    return f"STERNA{secrets.token_hex(7).upper()}", secrets.token_urlsafe(30)
