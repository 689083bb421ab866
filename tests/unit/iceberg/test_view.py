"""A view's metadata.json, where paths stand in `location`, properties and summaries: read, and localized by tokens."""

import gzip
import json

import pytest

from sterna.errors import BrokenMetadata, Unsupported
from sterna.iceberg.metadata.view import localize_view_metadata, read_view_metadata

URI = "s3://us/v/metadata/00001-a.metadata.json"
_VERSIONS = r""""versions":[
  {"version-id":1,"timestamp-ms":1,"schema-id":0,"summary":{"engine":"spark","x":"at s3://us/z"},"default-catalog":"s3","default-namespace":["d\u0062"],
 "representations":[{"type":"sql","sql":"SELECT * FROM t WHERE p = 's3:\/\/us/v'","dialect":"spark"},
 {"type":"sql","sql":"s3://us/v","dialect":"trino"}]} ,
  {"version-id" : 2, "timestamp-ms":2.0e0,"schema-id":0,"default-namespace":[],"representations":[ ],"x-version":{"location":"s3://us/v"}}]"""
VIEW = (
    r'{"view-uuid":"v-1","format-version":1,"location":"s3://us/v","current-version-id":1, "properties":{"comment":"c",'
    r'"write.metadata.path":"s3:\/\/us/v/m", "p":"s3://us/z","note":"see s3://us/z"},'
    + _VERSIONS
    + ',"schemas":[],"version-log":[{"version-id":1,"timestamp-ms":1}],"x":1.0,"properties-x":{"p":"s3://us/z"}}'
)


def below(uri: str) -> str:
    return uri.replace("s3://us", "s3://eu/r/us", 1)


def map_property_value(value: str) -> str | None:
    return below(value) if value.startswith("s3://us/") else None


def localize(data: bytes | str, uri: str = URI) -> bytes:
    return localize_view_metadata(
        data.encode() if isinstance(data, str) else data, uri, map_root=below, map_property=map_property_value
    )


def test_paths_change_and_every_version_stays_as_it_is():
    expected = VIEW.replace('"location":"s3://us/v","current', '"location":"s3://eu/r/us/v","current')
    expected = expected.replace(r"s3:\/\/us/v/m", "s3://eu/r/us/v/m").replace(
        '"p":"s3://us/z","note"', '"p":"s3://eu/r/us/z","note"'
    )
    assert localize(VIEW).decode() == expected
    assert _VERSIONS in expected


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_view_of_this_region_points_below_the_replica_root_too(slash: str):
    local = VIEW.replace(r"s3:\/\/us/v/m", f"s3://eu/v/m{slash}").replace(
        '"location":"s3://us/v","c', f'"location":"s3://eu/v{slash}","c'
    )
    done = json.loads(
        localize_view_metadata(
            local.encode(),
            URI,
            map_root=lambda uri: uri.replace("s3://eu", "s3://eu/r/eu"),
            map_property=map_property_value,
        )
    )
    assert (done["location"], done["properties"]["write.metadata.path"]) == (
        f"s3://eu/r/eu/v{slash}",
        f"s3://eu/r/eu/v/m{slash}",
    )


def test_a_summary_value_that_is_a_uri_is_mapped():
    assert localize(VIEW.replace("at s3://us/z", "s3://us/z")) == localize(VIEW).replace(
        b"at s3://us/z", b"s3://eu/r/us/z"
    )


def test_views_without_properties_get_none():
    bare = '{"view-uuid":"v","format-version":1,"location":"s3://us/v","versions":[]}'
    assert localize(bare).decode() == bare.replace("s3://us/v", "s3://eu/r/us/v")


@pytest.mark.parametrize("ending", [".gz.metadata.json", ".metadata.json.gz"])
def test_gzip_stays_gzip(ending: str):
    uri = f"s3://us/v/metadata/00001-a{ending}"
    assert gzip.decompress(localize(gzip.compress(VIEW.encode()), uri)) == localize(VIEW)
    with pytest.raises(BrokenMetadata):
        localize(VIEW, uri)


def test_reads_identity_and_properties():
    view = read_view_metadata(VIEW.encode(), URI)
    assert (view.format_version, view.uuid, view.location, view.properties["p"]) == (1, "v-1", "s3://us/v", "s3://us/z")


def test_newer_or_broken_views_are_refused():
    with pytest.raises(Unsupported, match="view format version 2") as caught:
        read_view_metadata(VIEW.replace('"format-version":1', '"format-version":2').encode(), URI)
    assert caught.value.file == URI
    for broken in ("{}", VIEW[:100], VIEW.replace('"view-uuid":"v-1",', ""), VIEW.replace(_VERSIONS, '"versions":{}')):
        with pytest.raises(BrokenMetadata):
            localize(broken)
