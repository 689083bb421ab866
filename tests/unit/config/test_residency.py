"""Residency by place: which URIs a region may not have, whatever names them."""

from __future__ import annotations

from functools import partial

import pytest

from sterna.config.mapping import Mapping
from sterna.config.registry.fingerprint import MetadataVersion
from sterna.config.registry.model import Registry
from sterna.config.registry.policy import DEFAULT_POLICY
from sterna.errors import NotResident
from tests.unit.config import samples


def mapping(region: str = "eu", **rule: object) -> Mapping:
    inner = samples.location("us-inner", "s3://us-bucket/lake/inner", "us")
    registry = Registry.model_validate({**samples.content([inner]), "residency": [rule] if rule else []})
    return Mapping(registry, registry.region(region))


PREFIX = {"prefixes": ["s3://us-bucket/lake/secret"], "only": ["us"]}
LOCATION = {"locations": ["us"], "never": ["eu"]}


@pytest.mark.parametrize("name", ["s3://us-bucket/lake/secret/x", "s3a://us-bucket/lake/secret/d/x"])
def test_a_file_in_a_place_that_is_kept_out_has_no_place_here(name: str) -> None:
    for rule in (PREFIX, LOCATION):
        kept_out = mapping(**rule)
        localized, unopened = (
            partial(ask, version=MetadataVersion(3)) for ask in (kept_out.localized_uri, kept_out.deleted_file_uri)
        )
        for ask in (
            kept_out.content_uri,
            localized,
            kept_out.replica_uri,
            kept_out.map_property_value,
            unopened,
            kept_out.require_resident,
        ):
            with pytest.raises(NotResident, match="may not be in eu") as error:
                ask(name)
            assert error.value.file == name
        assert mapping("us", **rule).content_uri(name) == name


def test_a_prefix_is_matched_by_whole_segments() -> None:
    prefixed = mapping(**PREFIX)
    assert prefixed.content_uri("s3://us-bucket/lake/secrets/x")
    assert prefixed.content_uri("s3://us-bucket/lake/other"), "its folder is known now"
    with pytest.raises(NotResident):
        prefixed.content_uri("s3://us-bucket/lake/secret")


def test_a_location_inside_is_a_place_of_its_own_but_not_to_a_prefix() -> None:
    assert mapping(**LOCATION).content_uri("s3://us-bucket/lake/inner/x")
    with pytest.raises(NotResident):
        mapping(prefixes=["s3://us-bucket/lake"], only=["us"]).content_uri("s3://us-bucket/lake/inner/x")


def test_a_copy_below_another_root_is_what_it_was_copied_from() -> None:
    asia = mapping("eu", **PREFIX)
    with pytest.raises(NotResident):
        asia.content_uri("s3://us-bucket/replica/us/lake/secret/x")


def test_a_rule_that_is_for_this_region_changes_the_metadata_and_no_other() -> None:
    plain = mapping().digest(DEFAULT_POLICY, 1)
    assert mapping(**PREFIX).digest(DEFAULT_POLICY, 1) != plain
    assert mapping("us", **PREFIX).digest(DEFAULT_POLICY, 1) == mapping("us").digest(DEFAULT_POLICY, 1)
