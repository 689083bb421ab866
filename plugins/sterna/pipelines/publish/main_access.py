"""Access to `main` for writers: the catalog that takes commits, a login, and the stores."""

from __future__ import annotations

from collections.abc import Sequence

from sterna.config.registry.credential import load_fileio_properties
from sterna.config.registry.model import Location
from sterna.replication.replica.region import RegionContext
from sterna.spark.main_catalog import MainCatalog


def main_catalog(
    context: RegionContext, credential_id: str | None, app: str, locations: Sequence[Location] | None = None
) -> MainCatalog:
    """Return Spark's access to `main`, with a writer's login, and to the stores of locations.

    Args:
        credential_id: the writer's login; None: the region's own.
        app: the commits' property `app-id`.
        locations: those whose files are read or written; None: all.

    Raises:
        CredentialError: a credential is missing.
    """
    address = context.ports.primary_region.catalog
    stores = {
        location.prefix: load_fileio_properties(location, context.secrets)
        for location in (context.registry.locations if locations is None else locations)
    }
    access = _auth_properties(context, credential_id or address.credential_id)
    return MainCatalog(address.write, access, context.region.replica_root, stores, app)


def _auth_properties(context: RegionContext, id: str | None) -> dict[str, str]:
    """Return the settings by which a Nessie catalog in Spark logs in; none without a credential.

    Raises:
        CredentialError: it is missing.
    """
    if id is None:
        return {}
    credential = context.secrets(id)
    if not credential.login:
        return {"authentication.type": "BEARER", "authentication.token": credential.password}
    return {
        "authentication.type": "BASIC",
        "authentication.username": credential.login,
        "authentication.password": credential.password,
    }
