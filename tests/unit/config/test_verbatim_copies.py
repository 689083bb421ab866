"""Where verbatim copies are: of other regions' files alone, and found again from the localized files."""

from __future__ import annotations

import pytest

from sterna.config.mapping import Mapping
from sterna.config.registry.fingerprint import MetadataVersion
from sterna.config.registry.model import Registry
from sterna.config.registry.policy import DEFAULT_POLICY
from sterna.config.verbatim_copies import copies_of_localized, marker_uri, verbatim_uri
from tests.unit.config.samples import mapping

ROOT = "s3://eu-bucket/replica"


def keeping(*names: str, **residency: object) -> Mapping:
    """The mapping of eu in a registry, some of whose regions keep copies."""
    plain = mapping()
    document = plain.registry.model_dump(mode="json", by_alias=True) | residency
    for region in document["regions"]:
        region["verbatim_copies"] = region["name"] in names
    registry = Registry.model_validate(document)
    return Mapping(registry, registry.region("eu"))


@pytest.mark.parametrize(
    ("uri", "copy"),
    [
        ("s3://us-bucket/t/metadata/m.avro", f"{ROOT}/_sterna/verbatim/us/t/metadata/m.avro"),
        ("s3a://us-bucket/t/m.avro", f"{ROOT}/_sterna/verbatim/us~s3a/t/m.avro"),
        ("s3://eu-bucket/t/m.avro", ""),
        ("s3://us-bucket/replica/_localized/eu/t/m.avro", ""),
        (f"{ROOT}/_localized/us/t/m.avro", ""),
        ("s3://unknown/t/m.avro", ""),
        ("s3://us-bucket/t/../m.avro", ""),
        (f"s3://us-bucket/{'n' * 1020}", ""),
    ],
)
def test_a_copy_has_one_place_and_only_foreign_files_have_one(uri: str, copy: str) -> None:
    assert verbatim_uri(keeping("eu"), uri) == copy
    assert verbatim_uri(keeping("us"), uri) == "", "another region's setting"
    assert verbatim_uri(mapping(), uri) == ""


def test_what_may_not_be_here_has_no_copy() -> None:
    rules = {"residency": [{"prefixes": ["s3://us-bucket/secret"], "never": ["eu"]}]}
    assert verbatim_uri(keeping("eu", **rules), "s3://us-bucket/secret/m.avro") == ""
    assert verbatim_uri(keeping("eu", **rules), "s3://us-bucket/open/m.avro")


@pytest.mark.parametrize("extra", [None, 7, -7])
@pytest.mark.parametrize("ending", [".metadata.json", ".gz.metadata.json", ".metadata.json.gz", ".json", ""])
def test_copies_are_found_from_localized_files(ending: str, extra: int | None) -> None:
    regions, version = keeping("eu"), MetadataVersion(3)
    uri = f"s3://us-bucket/t/metadata/00001-{'ab' * 8}{ending}"
    served = regions.metadata_uri(uri, DEFAULT_POLICY, version, extra_snapshot_id=extra)
    assert {verbatim_uri(regions, uri), marker_uri(regions, served)} == {*copies_of_localized(regions, [served])}
    assert marker_uri(mapping(), served) == marker_uri(regions, uri) == ""
    assert regions.metadata_origin(served) == uri
    manifest = "s3a://us-bucket/t/metadata/m.avro"
    localized = regions.localized_uri(manifest, version)
    assert list(copies_of_localized(regions, [localized, f"{ROOT}/us/t/data.parquet"])) == [
        verbatim_uri(regions, manifest)
    ]
    assert list(copies_of_localized(mapping(), [localized])) == []
