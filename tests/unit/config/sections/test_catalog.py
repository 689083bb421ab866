"""The section `catalog`: where a region's REST address writes, and what is refused with its line."""

from __future__ import annotations

import pytest

from sterna.config.sections.catalog import Catalog, CatalogRegion
from sterna.config.sections.load import parse_services
from sterna.errors import ServicesError


def faults(text: str) -> list[str]:
    with pytest.raises(ServicesError) as raised:
        parse_services(text, "s.yaml")
    return str(raised.value).splitlines()


def test_a_region_says_where_its_engines_write() -> None:
    services = parse_services(
        "catalog: {regions: {eu: {location: s3://lake-eu/, defaults: {s3.endpoint: 'http://s3'}}}}", "s.yaml"
    )
    eu = CatalogRegion(location="s3://lake-eu", defaults={"s3.endpoint": "http://s3"})
    assert services.catalog == Catalog(regions={"eu": eu})
    assert services.configured_sections == ["catalog"]


def test_an_empty_section_is_none() -> None:
    assert parse_services("catalog: {}", "s.yaml").catalog is None


@pytest.mark.parametrize(
    ("region", "expected"),
    [
        ("{}", "location: is missing"),
        ("{location: lake}", "expected a URI such as"),
        ("{location: 's3://lake/../x'}", "expected a URI such as"),
        ("{location: s3://lake, cache: 5}", "expected a size such as 256MiB"),
        ("{location: s3://lake, timeout: 0}", "expected more than 0"),
        ("{location: s3://lake, defaults: {s3.secret-access-key: x}}", "s3.secret-access-key may be a secret"),
        ("{location: s3://lake, defaults: {token: x}}", "token may be a secret"),
        ("{location: s3://lake, locations: 5}", "no such setting"),
    ],
)
def test_what_is_refused(region: str, expected: str) -> None:
    (fault,) = faults(f"catalog:\n  regions:\n    eu: {region}\n")
    assert expected in fault
