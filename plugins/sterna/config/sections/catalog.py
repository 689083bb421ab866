"""The section `catalog` of the services file: the Iceberg REST address of each region."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, StringConstraints, field_validator

from sterna.config.registry.types import HttpUri
from sterna.config.sections.types import Duration, EmptyAs, Prefix, Size
from sterna.config.yaml import StrictModel

_SECRET_NAMES = re.compile(
    r"key|secret|token|password|passwd|credential|signature|\bsas\b|authorization", re.IGNORECASE
)


class VendedKeys(StrictModel):
    """Keys of a role that the address vends to engines without keys of their own, with a policy for each table.

    Args:
        role_arn: of the role, whose rights are the limit of all keys.
        sts_endpoint: the security token service; default: AWS's own in the region of the location.
        duration: for which keys are valid, from 15m to 12h.
    """

    role_arn: Annotated[str, StringConstraints(pattern=r"^arn:[a-z-]{1,20}:[A-Za-z0-9:/+=,.@_-]{1,500}$")]
    sts_endpoint: HttpUri | None = None
    duration: Annotated[Duration, Field(ge=900, le=43200)] = 3600


class CatalogRegion(StrictModel):
    """The Iceberg REST address of one region.

    Args:
        location: a URI prefix in a location of the region's own; what engines write is below it.
        earlier_locations: what `location` was before, where engines may still write.
        catalog_credential_id: the connection of a writer of `main`, with which it commits; None: the
            region's own.
        defaults: properties that engines get as defaults, such as `s3.endpoint`; none is a secret.
        timeout: seconds that the region's store may stay silent.
        cache: bytes of metadata files that one process keeps in memory; default: `256MiB`.
        sweep: delete [garbage](#garbage): the folders with it are this catalog's alone.
        remote_signing: sign requests to the region's S3 stores for engines without keys.
        vended_keys: keys of a role for engines without keys of their own; None: there are none.
    """

    location: Prefix
    earlier_locations: list[Prefix] = Field(default_factory=list)
    catalog_credential_id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,250}$")] | None = None
    defaults: dict[str, Annotated[str, StringConstraints(max_length=1000)]] = Field(default_factory=dict)
    timeout: Annotated[float, Field(gt=0, le=600)] = 10.0
    cache: Size = 256 << 20
    sweep: bool = False
    remote_signing: bool = False
    vended_keys: VendedKeys | None = None

    @field_validator("defaults")
    @classmethod
    def _validate_defaults(cls, value: dict[str, str]) -> dict[str, str]:
        if secret := next((name for name in value if _SECRET_NAMES.search(name)), None):
            raise ValueError(f"{secret} may be a secret: engines get theirs elsewhere, and this file holds none")
        return value


class Catalog(StrictModel):
    """All of the section.

    Args:
        regions: those that have an address, by name.
    """

    regions: dict[str, CatalogRegion] = Field(min_length=1)


CatalogSection = Annotated[Catalog | None, EmptyAs(None)]
