"""The registries that people start from: README's, the example at the top, and what docs/registry.md says."""

import json
import re
from pathlib import Path
from textwrap import dedent

import pytest
from pydantic import BaseModel

from sterna.config.limits import Limits
from sterna.config.registry.credential import fileio_properties, parse_credential, rclone_environment, store_options
from sterna.config.registry.load import parse_registry
from sterna.config.registry.model import CatalogAddress, CatalogDatabase, Location, Region, Registry, Remote
from sterna.config.registry.policy import Policy, Residency, ViewCatalogs
from sterna.config.registry.remote_types import STORE_TYPES

ROOT = Path(__file__).parents[3]
DOC = (ROOT / "docs" / "registry.md").read_text()
(DOC_EXAMPLE,) = re.findall(r"^```yaml\n(.*?)^```", DOC, re.DOTALL | re.MULTILINE)
CREDENTIALS = re.findall(r"^AIRFLOW_CONN_(\w+)='(.*)'$", DOC, re.MULTILINE)
HEADINGS: dict[str, type[BaseModel]] = {
    "Top level": Registry,
    "`regions[]`": Region,
    "`regions[].limits`": Limits,
    "`regions[].catalog`": CatalogAddress,
    "`regions[].catalog.database`": CatalogDatabase,
    "`locations[]`": Location,
    "`locations[].remote`": Remote,
    "`policies[]`": Policy,
    "`residency[]`": Residency,
    "`views`": ViewCatalogs,
}


def section(heading: str) -> str:
    return DOC.split(f"\n### {heading}\n")[1].split("\n#")[0]


def settings(table: str) -> list[str]:
    return re.findall(r"^\| `(\w+)` \|", table.split("\n\nEvery option")[0], re.MULTILINE)


def test_the_example_at_the_top_is_a_registry_of_two_regions_on_s3() -> None:
    registry = parse_registry((ROOT / "storage_registry.yaml").read_text(), "storage_registry.yaml")
    assert registry.region_names == ["us", "eu"]
    assert {(item.region, item.remote.type) for item in registry.locations} == {("us", "s3"), ("eu", "s3")}
    assert [registry.policy(name).replicate for name in ("scratch.a.b", "sales.orders")] == [False, True]


def test_the_registry_in_readme_is_one_of_two_regions_on_s3() -> None:
    (example,) = re.findall(r"^ +```yaml\n(.*?)^ +```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    registry = parse_registry(dedent(example), "README.md")
    assert registry.region_names == ["us", "eu"]
    assert {(item.region, item.remote.type) for item in registry.locations} == {("us", "s3"), ("eu", "s3")}


@pytest.mark.parametrize("heading", HEADINGS)
def test_every_setting_is_documented_once(heading: str) -> None:
    assert settings(section(heading)) == list(HEADINGS[heading].model_fields)


@pytest.mark.parametrize("heading", HEADINGS)
def test_documented_defaults_are_those_of_the_model(heading: str) -> None:
    rows = dict(
        re.findall(r"^\| `(\w+)` \|.*\| (.*?) \|$", section(heading).split("\n\nEvery option")[0], re.MULTILINE)
    )
    for name, field in HEADINGS[heading].model_fields.items():
        assert (rows[name] == "required") == field.is_required(), name
        if isinstance(field.default, str | int) and field.default:
            assert rows[name].strip("`") == str(field.default).replace("True", "true"), name


def test_the_full_example_uses_every_setting_and_every_kind_of_store_but_local() -> None:
    registry = parse_registry(DOC_EXAMPLE, "docs/registry.md")
    models = [registry, registry.views, *registry.regions, *registry.locations, *registry.policies, *registry.residency]
    models += [region.catalog for region in registry.regions] + [location.remote for location in registry.locations]
    models += [region.limits for region in registry.regions if "limits" in region.model_fields_set]
    models += [region.catalog.database for region in registry.regions if region.catalog.database]
    for kind in HEADINGS.values():
        used = {name for model in models if type(model) is kind for name in model.model_fields_set}
        assert used == set(kind.model_fields), kind
    assert {item.remote.type for item in registry.locations} == STORE_TYPES.keys() - {"local"}


@pytest.mark.parametrize(("id", "text"), CREDENTIALS)
def test_documented_credentials_open_the_locations_of_the_full_example(id: str, text: str) -> None:
    registry = parse_registry(DOC_EXAMPLE, "docs/registry.md")
    credential = parse_credential(id.lower(), text)
    assert json.loads(text)["conn_type"].startswith("sterna_")
    locations = [item for item in registry.locations if item.credential_id == credential.id]
    assert locations or credential.id in {region.catalog.credential_id for region in registry.regions}
    for location in locations:
        # Whoever gave a key copies with it, and not with the machine's own.
        assert "RCLONE_CONFIG_R_ENV_AUTH" in rclone_environment("R", location, None)
        assert "RCLONE_CONFIG_R_ENV_AUTH" not in rclone_environment("R", location, credential)
        assert store_options(location, credential) != store_options(location, None)
        fileio_properties(location, credential)
