"""Mapping URIs from every scheme into a region of every scheme: injective, and inverted by `source`.

`test_mapping.py` has the single cases.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from sterna.config.mapping import Mapping
from sterna.config.registry.fingerprint import MetadataVersion, list_metadata_versions, split_metadata_version
from sterna.config.registry.model import Policy, Registry, prefix_spellings
from sterna.config.uri_columns import map_content_uris
from sterna.errors import TableError, UnregisteredUri, UnsafeUri, Unsupported
from sterna.replication.plan.batches import cut_batches
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica import file_list as listing
from sterna.replication.replica.file_list import CONTENT
from tests.unit.config.samples import location, region

# A store of every scheme, each with a region's replica root in it. Ids and prefixes look like one another on purpose.
STORES = {
    "s3": "s3://lake",
    "gs": "gs://lake",
    "blue": "abfss://lake@acc.dfs.core.windows.net",
    "old-blue": "wasbs://lake@acc.blob.core.windows.net",
    "disk": "file:///lake",
    "oss": "oss://lake",
    "cosn": "cosn://lake",
}
REGISTRY = Registry.model_validate(
    {
        "regions": [region(name, f"{prefix}/replica") for name, prefix in STORES.items()],
        "locations": [
            *(location(name, prefix, name) for name, prefix in STORES.items()),
            *(location(f"{name}-in", f"{prefix}/in", "s3") for name, prefix in STORES.items() if name != "s3"),
            location("spelled", "s3a://lake/a", "gs"),
        ],
    }
)
MAPPINGS = {name: Mapping(REGISTRY, REGISTRY.region(name)) for name in STORES}
PREFIXES = [spelled for place in REGISTRY.locations for spelled in prefix_spellings(place.prefix).values()]
PARTS = st.one_of(
    st.sampled_from(
        [
            "a",
            "in",
            "b",
            "s3",
            "gs~s3a",
            "_localized",
            "_3",
            "_3-1",
            "_2",
            "s3~s3a",
            "%20",
            "%2F",
            "%252e",
            "#",
            "a+b=c",
            "é",
            "e\u0301",
            "...",
            "@",
            ":",
        ]
    ),
    st.text(min_size=1, max_size=6),
)
PATHS = st.lists(PARTS, min_size=1, max_size=5).map("/".join)
URIS = st.builds("{}/{}".format, st.sampled_from(PREFIXES), PATHS)
REGIONS = st.sampled_from(list(MAPPINGS.values()))
TODAY, NEXT = MetadataVersion(2), MetadataVersion(3, 1)
EDITIONS = st.builds(MetadataVersion, st.integers(2, 12), st.integers(0, 2))


def always(*strategies: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """`given` without a limit of time an example: the machine may be busy."""
    return lambda test: settings(deadline=None)(given(*strategies)(test))


def tried(function: Callable[[str], str], uri: str) -> str:
    """Map a URI that can be mapped."""
    try:
        return function(uri)
    except TableError:
        assume(False)
        raise


def localizing(mapping: Mapping, edition: MetadataVersion = TODAY) -> Callable[[str], str]:
    return partial(mapping.localized_uri, version=edition)


@always(REGIONS, URIS, EDITIONS)
@example(MAPPINGS["disk"], "file:/lake/a", TODAY)
@example(MAPPINGS["s3"], "wasb://lake@acc.blob.core.windows.net/in/a", NEXT)
def test_the_origin_of_what_is_mapped_is_the_uri_itself(mapping: Mapping, uri: str, edition: MetadataVersion) -> None:
    for function, expected in (
        (mapping.replica_uri, None),
        (localizing(mapping, edition), edition),
        (mapping.replica_folder, None),
    ):
        target = tried(function, uri)
        assert mapping.origin_uri(target) == uri
        assert mapping.metadata_version(target) == expected
        assert target.startswith(f"{mapping.region.replica_root}/")
        assert mapping.locate(target).location.region == mapping.region.name
    place = mapping.locate(uri)
    assert target.endswith(f"/{place.path}")


@always(REGIONS, URIS, URIS, EDITIONS, EDITIONS)
@example(MAPPINGS["gs"], "s3://lake/a/x", "s3a://lake/a/x", TODAY, NEXT)
@example(
    MAPPINGS["gs"], "abfs://lake@acc.dfs.core.windows.net/x", "abfss://lake@acc.dfs.core.windows.net/x", TODAY, NEXT
)
@example(
    MAPPINGS["s3"], "wasb://lake@acc.blob.core.windows.net/x", "wasbs://lake@acc.blob.core.windows.net/x", TODAY, NEXT
)
@example(MAPPINGS["blue"], "file:/lake/x", "file:///lake/x", TODAY, NEXT)
@example(MAPPINGS["blue"], "s3://lake/_localized/gs/x", "gs://lake/x", TODAY, NEXT)
@example(MAPPINGS["blue"], "s3://lake/_localized/_3-1/gs/x", "gs://lake/x", NEXT, TODAY)
def test_no_two_uris_share_a_place_nor_a_copy_and_a_localized_file(
    mapping: Mapping, one: str, other: str, edition: MetadataVersion, later: MetadataVersion
) -> None:
    assume(one != other and edition != later)
    places = [
        tried(function, uri)
        for uri in (one, other)
        for function in (mapping.replica_uri, localizing(mapping, edition), localizing(mapping, later))
    ]
    assert len(set(places)) == 6


@always(st.lists(EDITIONS, unique=True))
def test_editions_are_told_by_their_folders(editions: list[MetadataVersion]) -> None:
    folders = {"us-lake"} | {edition.folder.removeprefix("_localized").removeprefix("/") for edition in editions}
    listed = list_metadata_versions(folders - {""})
    assert set(listed) == {TODAY, *editions}
    assert listed == sorted(
        listed, key=lambda edition: (edition.localizer_version, edition.rewrite_count), reverse=True
    )


@pytest.mark.parametrize(
    "name", ["_0", "_2", "_1", "_03", "_3-0", "_3-01", "_3-", "_3x", "_-1", "_", "_3-1-1", "_9999999"]
)
def test_a_folder_that_no_edition_has_is_nobodys(name: str) -> None:
    below = f"_localized/{name}/gs/x"
    edition, rest = split_metadata_version(below)
    assert (edition, rest) in [(None, below), (TODAY, f"{name}/gs/x")]
    with pytest.raises(UnregisteredUri):
        MAPPINGS["s3"].origin_uri(f"{REGISTRY.region('s3').replica_root}/{below}")


ODD_NAMES = st.sampled_from(
    ["", ".", "..", "%2e", "x%2f..", "a?b", "x\n", "a.", "b\\c", ".hidden", "in", "a", "replica", "x" * 1024, "é" * 200]
)


@always(
    REGIONS,
    st.sampled_from(PREFIXES),
    st.one_of(PATHS, st.just("")),
    st.lists(st.one_of(PARTS, ODD_NAMES), min_size=2, max_size=4),
)
@example(MAPPINGS["s3"], "gs://lake", "", ["x", "in"])
@example(MAPPINGS["gs"], "gs://lake", "", ["x", "replica"])
@example(MAPPINGS["gs"], "s3a://lake", "", ["x", "a"])
@example(MAPPINGS["gs"], "s3://lake", "", ["x", "x" * 1024])
@example(MAPPINGS["disk"], "s3://lake", "", ["x", "é" * 200])
def test_what_was_found_out_for_one_file_of_a_folder_misleads_no_other(
    mapping: Mapping, prefix: str, path: str, names: list[str]
) -> None:
    folder = "/".join(filter(None, (prefix, path)))
    warm = Mapping(mapping.registry, mapping.region)
    for name in names:
        uri = f"{folder}/{name}"
        for method in ("locate", "content_uri"):
            assert answer(warm, method, uri) == answer(Mapping(mapping.registry, mapping.region), method, uri)


@always(
    REGIONS,
    st.lists(
        st.tuples(st.sampled_from(PREFIXES), st.sampled_from(["", "x/", "é/", "x/in/"]), st.one_of(PARTS, ODD_NAMES)),
        max_size=8,
    ),
)
@example(MAPPINGS["gs"], [("gs://lake", "", "x"), ("gs://lake", "", "in")])
@example(MAPPINGS["gs"], [("gs://lake", "", "x"), ("gs://lake", "", "replica")])
@example(MAPPINGS["disk"], [("s3://lake", "x/", "y"), ("s3://lake", "x/", "y" * 1024)])
@example(MAPPINGS["disk"], [("s3://lake", "x/", "y"), ("s3://lake", "x/", "é" * 200)])
@example(MAPPINGS["gs"], [("s3://lake", "x/", "y"), ("s3://lake", "x/", "y" * 1024)])
@example(MAPPINGS["gs"], [("s3://lake", "x/", "y"), ("s3://lake", "x/", "y\n")])
@example(MAPPINGS["gs"], [("s3://lake", "x/", "y"), ("s3://lake", "x/", ".z")])
@example(MAPPINGS["blue"], [("s3://lake", "x/", "y"), ("s3://lake", "x/", "z.")])
@example(MAPPINGS["blue"], [("s3://lake", "é/", "y"), ("s3://lake", "é/", "y" * 1000)])
def test_uris_as_columns_are_mapped_as_each_alone_is(mapping: Mapping, parts: list[tuple[str, str, str]]) -> None:
    uris = [f"{prefix}/{folder}{name}" for prefix, folder, name in parts]
    assume(all(uri.encode(errors="ignore").decode() == uri for uri in uris))
    alone = [answer(Mapping(mapping.registry, mapping.region), "content_uri", uri) for uri in uris]
    errors = [one for one in alone if isinstance(one, tuple)]
    for copies in (1, 200):  # a few are mapped one by one
        # A slice, and a mapping that knows folders already, as in a worker.
        column = pa.array(["s3://lake/before/x", *uris * copies, "s3://lake/behind/x"], pa.string())
        column = column.slice(1, len(uris) * copies)
        for warm in (Mapping(mapping.registry, mapping.region),) * 2:
            try:
                assert map_content_uris(warm, column).to_pylist() == alone * copies
            except TableError as error:
                assert (type(error), str(error)) in errors


def answer(mapping: Mapping, method: str, uri: str) -> object:
    try:
        return getattr(mapping, method)(uri)
    except TableError as error:
        return type(error), str(error)


@always(URIS)
def test_a_content_file_is_local_in_its_own_region_and_copied_in_every_other(uri: str) -> None:
    homes = [name for name, mapping in MAPPINGS.items() if tried(mapping.content_uri, uri) == uri]
    assert homes == [MAPPINGS["s3"].locate(uri).location.region]


@always(REGIONS, URIS, EDITIONS)
def test_a_metadata_json_keeps_its_folder_and_version(mapping: Mapping, uri: str, edition: MetadataVersion) -> None:
    policy = Policy(tables=["**"])
    place = tried(lambda uri: mapping.metadata_uri(uri, policy, edition), f"{uri}/00007-x.metadata.json")
    start = mapping.localized_uri(f"{uri}/00007-x", edition)
    assert re.fullmatch(rf"{re.escape(start)}-[0-9a-f]{{16}}\.metadata\.json", place)


def refused(mapping: Mapping, uri: str, *kinds: type[TableError]) -> None:
    for function in (mapping.replica_uri, localizing(mapping), localizing(mapping, NEXT), mapping.content_uri):
        with pytest.raises(kinds or TableError) as raised:
            function(uri)
        assert raised.value.file


DOTS = st.lists(st.sampled_from([".", "%2e", "%2E"]), min_size=1, max_size=2).map("".join)
SLASHED = st.builds("{}{}{}".format, st.sampled_from(["", "x%2f", "x%2F"]), DOTS, st.sampled_from(["", "%2fx", "%2F"]))


@always(
    REGIONS,
    st.sampled_from(PREFIXES),
    st.lists(PARTS, max_size=3),
    st.one_of(DOTS, SLASHED),
    st.lists(PARTS, max_size=3),
)
def test_dots_are_refused_wherever_they_stand(
    mapping: Mapping, prefix: str, before: list[str], dots: str, after: list[str]
) -> None:
    refused(mapping, "/".join((prefix, *before, dots, *after)))


@always(
    REGIONS,
    st.sampled_from(PREFIXES),
    st.lists(PARTS, max_size=3),
    st.sampled_from(["", "x\n", "\r", "\t", "\x7f", "?", "a?b=c"]),
    PATHS,
)
@example(MAPPINGS["s3"], "gs://lake", ["a:"], "", "b")
def test_empty_parts_control_characters_and_queries_are_refused(
    mapping: Mapping, prefix: str, before: list[str], bad: str, after: str
) -> None:
    refused(mapping, "/".join((prefix, *before, bad, after)))


@always(REGIONS, st.sampled_from(PREFIXES), st.sampled_from(["user", "user:pw", ":pw", ""]), PATHS)
def test_user_info_is_refused(mapping: Mapping, prefix: str, user: str, path: str) -> None:
    scheme, separator, rest = prefix.partition("://")
    assume(separator and not path.endswith("/"))
    refused(mapping, f"{scheme}://{user}@{rest}/{path}", UnregisteredUri)


@always(REGIONS, st.sampled_from(PREFIXES), st.text("abc%.-~", min_size=1, max_size=4), PATHS)
def test_what_only_begins_like_a_prefix_is_unregistered(mapping: Mapping, prefix: str, more: str, path: str) -> None:
    assume(not path.endswith("/") and not any(f"{prefix}{more}/".startswith(f"{other}/") for other in PREFIXES))
    refused(mapping, f"{prefix}{more}/{path}", UnregisteredUri)
    assert mapping.map_property_value(f"{prefix}{more}/{path}") is None


@always(REGIONS, st.sampled_from(sorted(STORES)), st.integers(1, 3), PATHS)
def test_what_lies_below_any_replica_root_is_refused_in_any_spelling_but_its_own(
    mapping: Mapping, owner: str, spelling: int, path: str
) -> None:
    root = REGISTRY.region(owner).replica_root
    others = sorted(spelled for spelled in prefix_spellings(root).values() if spelled != root)
    assume(others)
    uri = f"{others[spelling % len(others)]}/{path}"
    tried(lambda uri: mapping.locate(uri).path, uri)
    refused(mapping, uri, Unsupported, UnsafeUri)


@always(REGIONS, REGIONS, URIS, EDITIONS, EDITIONS)
def test_a_copy_is_read_where_its_origin_would_be(
    mapping: Mapping, owner: Mapping, uri: str, edition: MetadataVersion, mine: MetadataVersion
) -> None:
    """After a promotion with tables `main` names the owner's copies."""
    copy, localized, folder = (
        tried(function, uri) for function in (owner.replica_uri, localizing(owner, edition), owner.replica_folder)
    )
    here, there = tried(mapping.content_uri, uri), tried(localizing(mapping, mine), uri)
    assert mapping.content_uri(copy) == here
    assert mapping.localized_uri(copy, mine) == mapping.localized_uri(localized, mine) == there
    assert mapping.replica_folder(f"{folder}/") == f"{mapping.replica_folder(uri)}/"
    assert mapping.origin_uri(copy) == mapping.origin_uri(localized) == uri
    with pytest.raises(Unsupported):
        mapping.content_uri(localized)


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("edition", [TODAY, NEXT])
def test_a_key_may_be_as_long_as_the_store_allows_and_not_a_byte_longer(
    name: str, prefix: str, edition: MetadataVersion
) -> None:
    mapping, localized = MAPPINGS[name], localizing(MAPPINGS[name], edition)
    if name == "disk":
        fits = f"{prefix}/{'é' * 127}x"
    else:
        taken = len(localized(f"{prefix}/x").partition("://")[2].partition("/")[2])
        fits = f"{prefix}/{'é' * ((1025 - taken) // 2)}{'x' * ((1025 - taken) % 2)}"
    assert mapping.origin_uri(localized(fits)) == fits
    with pytest.raises(UnsafeUri, match="longer than 255 bytes" if name == "disk" else "1025 bytes"):
        localized(f"{fits}x")


@always(REGIONS, st.lists(URIS, min_size=1, max_size=30, unique=True))
def test_a_batch_has_files_of_one_origin_and_spelling(mapping: Mapping, uris: list[str]) -> None:
    targets: list[str] = []
    for uri in list(uris):
        try:
            targets.append(mapping.replica_uri(uri))
        except TableError:  # one of many: to drop the whole example for it would leave few
            uris.remove(uri)
    assume(targets)
    listed = listing.rows("t", CONTENT, [(uri, target, 1) for uri, target in zip(uris, targets, strict=True)], 0)
    numbers, batches = cut_batches(listed, mapping, SyncOptions(files_per_batch=2))
    for batch in batches:
        placed = [
            (mapping.locate(uri), target)
            for uri, target, at in zip(uris, targets, numbers.to_pylist(), strict=True)
            if at == batch.number
        ]
        assert len({(place.location.id, place.alias) for place, _ in placed}) == 1
        assert (
            len({target.removesuffix(f"/{place.path}") for place, target in placed}) == 1
        )  # what a copy takes for the batch's folder
