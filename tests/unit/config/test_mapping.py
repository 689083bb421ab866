"""Mapping a URI to its place in a replica and back, and refusing those that must not be followed."""

import pickle
import re

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from sterna.config.mapping import Mapping, validate_bindings
from sterna.config.metadata_names import extra_snapshot_id, metadata_digest
from sterna.config.registry.fingerprint import MetadataVersion
from sterna.config.registry.policy import Policy
from sterna.errors import RegistryError, TableError, UnregisteredUri, UnsafeUri, Unsupported, redact_uri
from sterna.replication.verify.locations import Places
from sterna.replication.verify.source_versions import source_metadata_uri
from tests.unit.config import samples

# Nested prefixes, prefixes that differ in their last letters only, two spellings registered as two locations, every
# store.
MAPPING = samples.mapping(
    samples.location("lake", "s3://lake"),
    samples.location("lake-old", "s3://lake-old", "eu"),
    samples.location("deep", "s3://lake/a/b", "eu"),
    samples.location("spelled", "s3a://lake/a"),
    samples.location("blue", "abfss://c@acc.dfs.core.windows.net/w"),
    samples.location("google", "gs://g/w"),
    samples.location("disk", "file:///data/w"),
)
TODAY = MetadataVersion(2)
STARTS = [
    "s3://lake",
    "s3a://lake",
    "s3n://lake",
    "s3://lake-old",
    "s3a://lake-old",
    "s3://lake/a",
    "s3a://lake/a",
    "s3n://lake/a",
    "s3://lake/a/b",
    "s3a://lake/a/b",
    "abfss://c@acc.dfs.core.windows.net/w",
    "abfs://c@acc.dfs.core.windows.net/w",
    "gs://g/w",
    "file:///data/w",
    "file:/data/w",
    "s3://us-bucket",
    "s3://eu-bucket",
    "s3a://eu-bucket/replica2",
]
PARTS = st.one_of(
    st.sampled_from(
        [
            "a",
            "b",
            "lake~s3a",
            "%20",
            "%2F",
            "%2e",
            "..",
            "%2E%2e",
            "x%2f..",
            "#",
            "a+b=c",
            "é",
            "e\u0301",
            "-x",
            "$(x)",
            "`",
            "'",
            "",
        ]
    ),
    st.text(min_size=1, max_size=8),
)
URIS = st.builds(
    lambda start, parts: "/".join((start, *parts)), st.sampled_from(STARTS), st.lists(PARTS, min_size=1, max_size=4)
)


def mapped(uri: str) -> str | None:
    try:
        return MAPPING.replica_uri(uri)
    except TableError:
        return None


@given(URIS)
def test_the_mapping_is_inverted(uri: str) -> None:
    target = mapped(uri)
    assume(target is not None)
    assert target is not None
    assert MAPPING.origin_uri(target) == uri
    assert target.startswith("s3://eu-bucket/replica/")


@given(URIS, URIS)
@example("s3://lake/a/x", "s3a://lake/a/x")
@example("file:///data/w/x", "file:/data/w/x")
def test_two_uris_never_share_a_place(one: str, other: str) -> None:
    assume(one != other)
    first, second = mapped(one), mapped(other)
    assert first is None or first != second


@given(URIS)
def test_a_uri_is_mapped_or_refused_with_a_table_error_and_its_name(uri: str) -> None:
    try:
        MAPPING.replica_uri(uri)
    except TableError as error:
        assert error.file in (redact_uri(uri), redact_uri(repr(uri)))


@given(URIS)
def test_what_is_mapped_has_no_part_that_is_dots_even_decoded(uri: str) -> None:
    target = mapped(uri)
    assume(target is not None)
    assert target is not None
    parts = target.partition("://")[2].lower().replace("%2e", ".").replace("%2f", "/").split("/")
    assert not {".", ".."} & set(parts)


@pytest.mark.parametrize(
    ("uri", "target"),
    [
        ("s3://lake/t/f.parquet", "lake/t/f.parquet"),
        ("s3://lake-old/t/f", "lake-old/t/f"),
        ("s3a://lake-old/t/f", "lake-old~s3a/t/f"),
        ("s3://lake/a/bc/f", "spelled~s3/bc/f"),
        ("s3://lake/a/b/f", "deep/f"),
        ("s3n://lake/a/b/f", "deep~s3n/f"),
        ("s3a://lake/a/x", "spelled/x"),
        ("abfs://c@acc.dfs.core.windows.net/w/x", "blue~abfs/x"),
        ("s3://lake/p=a%20b/%2F#+é/x", "lake/p=a%20b/%2F#+é/x"),
        ("s3://us-bucket/x", "us/x"),
    ],
)
def test_the_place_of_a_uri(uri: str, target: str) -> None:
    assert MAPPING.replica_uri(uri) == f"s3://eu-bucket/replica/{target}"


def test_a_spelling_that_is_registered_for_itself_is_no_other_locations() -> None:
    for first, second in (("s3://bucket", "s3a://bucket"), ("s3a://bucket", "s3://bucket")):
        both = samples.mapping(samples.location("one", first), samples.location("two", second))
        assert [both.locate(f"{prefix}/x").location.id for prefix in (first, second)] == ["one", "two"]


@pytest.mark.parametrize(
    "uri", ["s3://lake2/x", "s3://lak", "s3:/lake/x", "S3://lake/x", "/lake/x", "", "gs://g/w2/x", "http://lake/x"]
)
def test_a_uri_outside_the_registry_is_refused(uri: str) -> None:
    with pytest.raises(UnregisteredUri):
        MAPPING.replica_uri(uri)


@pytest.mark.parametrize(
    "uri",
    [
        "s3://lake/../x",
        "s3://lake/./x",
        "s3://lake/a/..",
        "s3://lake/%2e%2e/x",
        "s3://lake/%2E./x",
        "s3://lake/a%2F..%2Fb",
        "s3://lake//x",
        "s3://lake/a//x",
        "s3://lake/x?versionId=1",
        "s3://lake/a\nb",
        "s3://lake/a\x7f",
        "s3://lake/a\ud800",
        "s3://lake/",
        "s3://lake",
        "s3a://lake-old",
        "s3://lake/x/",
        "s3://lake/" + "x" * 1012,
        "s3://lake/" + "é" * 506,
    ],
)
def test_an_unsafe_uri_is_refused(uri: str) -> None:
    with pytest.raises(UnsafeUri):
        MAPPING.replica_uri(uri)


@pytest.mark.parametrize(
    "uri", ["file:////srv/lake/x", "file:///srv//lake/x", "file:/srv//lake", "file:///srv///lake/x"]
)
def test_an_empty_part_before_a_registered_folder_is_told_as_what_it_is(uri: str) -> None:
    """A disk takes it for the registered one, and nobody registers it so; in a store it is another key."""
    disk = samples.mapping(samples.location("disk", "file:///srv/lake"), samples.location("store", "s3://srv/lake"))
    with pytest.raises(UnsafeUri, match="empty path part"):
        disk.locate(uri)
    for other in ("file:////srv/lakes/x", "file:///lake//x", "file://srv/lake/x", "s3://srv//lake"):
        with pytest.raises(UnregisteredUri):
            disk.locate(other)
    assert disk.locate("file:///srv/lake/x").path == disk.locate("file:/srv/lake/x").path == "x"


@pytest.mark.parametrize("uri", ["s3://user:pw@lake/x", "s3://user@lake/x"])
def test_user_info_makes_a_uri_an_unregistered_one(uri: str) -> None:
    with pytest.raises(UnregisteredUri):
        MAPPING.locate(uri)


def test_an_encoded_dot_is_decoded_once_only() -> None:
    assert MAPPING.replica_uri("s3://lake/%252e%252e/x").endswith("/lake/%252e%252e/x")


def test_a_uri_below_a_replica_root_is_held_in_any_spelling_but_its_own() -> None:
    for uri in ("s3a://eu-bucket/replica/lake/x", "s3a://us-bucket/replica/lake/x"):
        with pytest.raises(Unsupported):
            MAPPING.replica_uri(uri)
    assert not MAPPING.below_replica_root("s3://eu-bucket/replica2/x")


class TestAfterAPromotionWithTables:
    """`main` names files below a replica root."""

    US = Mapping(MAPPING.registry, MAPPING.registry.region("us"))

    def test_a_region_reads_what_is_below_its_own_root_where_it_is(self) -> None:
        assert MAPPING.content_uri("s3://eu-bucket/replica/lake/t/x") == "s3://eu-bucket/replica/lake/t/x"
        assert (
            MAPPING.localized_uri("s3://eu-bucket/replica/_localized/lake/t/m", TODAY)
            == "s3://eu-bucket/replica/_localized/lake/t/m"
        )

    def test_the_region_where_a_file_was_born_reads_its_own(self) -> None:
        assert self.US.content_uri("s3://eu-bucket/replica/lake/t/x") == "s3://lake/t/x"
        assert self.US.content_uri("s3://eu-bucket/replica/lake/t/y") == "s3://lake/t/y"
        assert (
            self.US.localized_uri("s3://eu-bucket/replica/_localized/lake/t/m", TODAY)
            == "s3://us-bucket/replica/_localized/lake/t/m"
        )
        assert self.US.replica_folder("s3://eu-bucket/replica/lake/t") == "s3://us-bucket/replica/lake/t"

    def test_what_another_edition_is_of_the_same_origin_has_one_place(self) -> None:
        older, newer = ("s3://eu-bucket/replica/_localized/lake/t/m", "s3://eu-bucket/replica/_localized/_3/lake/t/m")
        assert self.US.origin_uri(older) == self.US.origin_uri(newer) == "s3://lake/t/m"
        for uri in (older, newer):
            assert self.US.localized_uri(uri, MetadataVersion(3)) == "s3://us-bucket/replica/_localized/_3/lake/t/m"
            assert MAPPING.deleted_file_uri(uri, MetadataVersion(3)) == uri
            assert self.US.deleted_file_uri(uri, MetadataVersion(3)) == "s3://us-bucket/replica/_localized/_3/lake/t/m"
        with pytest.raises(Unsupported):  # it would be its origin's, in another spelling of the root
            self.US.localized_uri("s3a://eu-bucket/replica/_localized/_3/lake/t/m", MetadataVersion(3))

    def test_what_was_born_in_a_region_has_one_place_there(self) -> None:
        """Below its own root, too, where writers put it after two promotions with tables.

        Deletes have to name what they hit.
        """
        assert (
            self.US.content_uri("s3://us-bucket/replica/lake/t/x")
            == self.US.content_uri("s3://eu-bucket/replica/lake/t/x")
            == "s3://lake/t/x"
        )

    def test_another_region_has_one_copy_of_both(self) -> None:
        assert (
            MAPPING.content_uri("s3://us-bucket/replica/google/t/x")
            == MAPPING.content_uri("gs://g/w/t/x")
            == "s3://eu-bucket/replica/google/t/x"
        )

    @pytest.mark.parametrize(
        ("uri", "error"),
        [
            ("s3://us-bucket/replica/_localized/lake/x", Unsupported),  # rewritten, so no copy of anything
            ("s3://us-bucket/replica/_localized/_3-1/lake/x", Unsupported),
            (
                "s3://us-bucket/replica/lake/a/b/x",
                Unsupported,
            ),  # its origin is in the location `deep`: two names, one place
            ("s3://us-bucket/replica/lake/a/b", Unsupported),
            ("s3://us-bucket/replica/nobody/x", UnregisteredUri),
            ("s3://us-bucket/replica/_sterna/runs/x", UnregisteredUri),
            ("s3://us-bucket/replica/x", UnregisteredUri),
            ("s3://us-bucket/replica/lake", UnsafeUri),
            ("s3://us-bucket/replica/lake/", UnsafeUri),
        ],
    )
    def test_what_sterna_does_not_write_there_is_held(self, uri: str, error: type[TableError]) -> None:
        for mapping in (MAPPING, self.US):
            with pytest.raises(error):
                mapping.content_uri(uri)


def test_a_content_file_stays_where_it_is_when_local() -> None:
    assert MAPPING.content_uri("s3://lake-old/x") == "s3://lake-old/x"
    assert MAPPING.content_uri("s3a://lake-old/x") == "s3a://lake-old/x"
    assert MAPPING.content_uri("s3://lake/x") == "s3://eu-bucket/replica/lake/x"


def test_folders_keep_their_trailing_slash() -> None:
    assert MAPPING.replica_folder("s3://lake") == "s3://eu-bucket/replica/lake"
    assert MAPPING.replica_folder("s3://lake/") == "s3://eu-bucket/replica/lake/"
    assert MAPPING.replica_folder("s3://lake/t/") == "s3://eu-bucket/replica/lake/t/"


def test_only_whole_values_with_a_registered_prefix_are_known() -> None:
    assert MAPPING.map_property_value("s3://lake/t") == "s3://eu-bucket/replica/lake/t"
    assert MAPPING.map_property_value("see s3://lake/t") is None
    assert MAPPING.map_property_value("s3://elsewhere/t") is None
    with pytest.raises(UnsafeUri):
        MAPPING.map_property_value("s3://lake/../t")


def test_below_the_replica_root_but_under_no_id() -> None:
    for uri in ("s3://eu-bucket/replica/nobody/x", "s3://eu-bucket/replica", "s3://eu-bucket/replica/lake~gs/x"):
        with pytest.raises(UnregisteredUri):
            MAPPING.origin_uri(uri)
    assert MAPPING.origin_uri("s3://lake/x") == "s3://lake/x"


@pytest.mark.parametrize("ending", [".metadata.json", ".gz.metadata.json", ".metadata.json.gz"])
def test_metadata_keeps_version_and_codec_and_gets_the_digest(ending: str) -> None:
    place = MAPPING.metadata_uri(f"s3://lake/t/metadata/00003-uuid{ending}", Policy(tables=["**"]), TODAY)
    digest = MAPPING.digest(Policy(tables=["**"]), 2)
    assert place == f"s3://eu-bucket/replica/_localized/lake/t/metadata/00003-uuid-{digest}{ending}"
    later = MAPPING.metadata_uri(
        f"s3://lake/t/metadata/00003-uuid{ending}", Policy(tables=["**"]), MetadataVersion(3, 1)
    )
    digest = MAPPING.digest(Policy(tables=["**"]), 3)
    assert later == f"s3://eu-bucket/replica/_localized/_3-1/lake/t/metadata/00003-uuid-{digest}{ending}"


@pytest.mark.parametrize("ending", [".metadata.json", ".gz.metadata.json", ".metadata.json.gz", ".other", ""])
@pytest.mark.parametrize("snapshot", [4711, 9223372036854775807, -4711, 0])
def test_the_name_tells_the_snapshot_that_the_entry_alone_keeps(ending: str, snapshot: int) -> None:
    policy, plain = Policy(tables=["**"]), f"s3://lake/t/metadata/00003-uuid{ending}"
    digest = MAPPING.digest(policy, 2)
    suffixes = (f"-{digest}-s5", f"-{digest}-{5:017x}", f"-{5:017x}")
    stems = (f"s3://lake/t/metadata/00003-uuid{suffix}{ending}" for suffix in suffixes)
    for uri in (plain, *stems, f"{plain}-s5", f"{plain}-{digest}"):
        without = MAPPING.metadata_uri(uri, policy, TODAY)
        place = MAPPING.metadata_uri(uri, policy, TODAY, extra_snapshot_id=snapshot)
        assert (extra_snapshot_id(without), extra_snapshot_id(place)) == (None, snapshot)
        assert place.replace(f"-{digest}-{snapshot % 2**64:017x}", f"-{digest}") == without
        if ending.endswith(("json", "gz")) and uri.endswith(ending):
            assert MAPPING.metadata_origin(place) == MAPPING.metadata_origin(without) == uri
            assert source_metadata_uri(place, Places(MAPPING)) == source_metadata_uri(without, Places(MAPPING)) == uri


# Trino 476 reads no other name by Nessie.
_TRINO_NAME = re.compile(r"(\d+-[-a-fA-F0-9]*|v\d+)(\.[a-zA-Z0-9]+)?\.metadata\.json(\.[a-zA-Z0-9]+)?")


@pytest.mark.parametrize("ending", [".metadata.json", ".gz.metadata.json", ".metadata.json.gz"])
@pytest.mark.parametrize("snapshot", [None, 4711, -4711])
def test_trino_reads_each_name_that_it_reads_on_main(ending: str, snapshot: int | None) -> None:
    stems = ("v5", "v05", "v0", "5-", "5--", "05-", "00005-1b2c", "00003-409702ba-4735-4645-8f14-09537cc0b2c8")
    places = {}
    for stem in stems:
        uri = f"s3://lake/t/metadata/{stem}{ending}"
        places[uri] = MAPPING.metadata_uri(uri, Policy(tables=["**"]), TODAY, extra_snapshot_id=snapshot)
        assert _TRINO_NAME.fullmatch(places[uri].rpartition("/")[2])
        assert MAPPING.metadata_origin(places[uri]) == uri
    assert len(set(places.values())) == len(stems)


@pytest.mark.parametrize("stem", ["v5", "5", "00003-uuid"])
def test_names_that_version_0_1_wrote_are_read(stem: str) -> None:
    place = f"s3://eu-bucket/replica/_localized/lake/t/metadata/{stem}-{'0' * 16}"
    for suffix, snapshot in (("", None), ("-s4711", 4711), ("-s-4711", -4711)):
        old = f"{place}{suffix}.metadata.json"
        assert extra_snapshot_id(old) == snapshot
        assert MAPPING.metadata_origin(old) == f"s3://lake/t/metadata/{stem}.metadata.json"


@pytest.mark.parametrize("snapshot", [None, 4711, -4711])
@pytest.mark.parametrize("stem", ["v5", "00003-uuid"])
def test_a_localized_name_is_known_by_its_digest_in_either_form(stem: str, snapshot: int | None) -> None:
    policy, uri = Policy(tables=["**"]), f"s3://lake/t/metadata/{stem}.metadata.json"
    place = MAPPING.metadata_uri(uri, policy, TODAY, extra_snapshot_id=snapshot)
    digest = MAPPING.digest(policy, 2)
    suffix = "" if snapshot is None else f"-s{snapshot}"
    old = f"s3://eu-bucket/replica/_localized/lake/t/metadata/{stem}-{digest}{suffix}.metadata.json"
    for localized in (place, old):
        assert metadata_digest(localized) == digest
        assert MAPPING.is_metadata_uri(localized, uri, policy, TODAY)
        assert not MAPPING.is_metadata_uri(localized.replace(digest, "0" * 16), uri, policy, TODAY)
        assert not MAPPING.is_metadata_uri(localized, uri.replace("t/metadata", "u/metadata"), policy, TODAY)
        assert not MAPPING.is_metadata_uri(localized, uri, policy, MetadataVersion(3, 1))
    assert metadata_digest(uri) == ""


def test_the_digest_depends_on_bindings_and_not_on_how_a_policy_names_its_tables() -> None:
    one, other = Policy(tables=["**"]), Policy(tables=["a.*"])
    assert MAPPING.digest(one, 1) == MAPPING.digest(other, 1)
    assert MAPPING.digest(one, 1) != samples.mapping().digest(one, 1)


def test_a_mapping_pickles() -> None:
    MAPPING.replica_uri("s3://lake/x")
    assert pickle.loads(pickle.dumps(MAPPING)).replica_uri("s3://lake/x") == MAPPING.replica_uri("s3://lake/x")


class TestBindings:
    def test_a_registry_agrees_with_itself(self) -> None:
        registry = samples.registry([samples.location("lake", "s3://lake")])
        validate_bindings(registry, registry.bindings())
        validate_bindings(
            samples.registry([samples.location("lake", "s3://lake"), samples.location("new", "s3://new")]),
            registry.bindings(),
        )

    @pytest.mark.parametrize(
        ("locations", "said"),
        [
            ([samples.location("lake", "s3://other")], ["s3://lake us", "s3://other us"]),
            ([samples.location("lake", "s3://lake", "eu")], ["s3://lake us", "s3://lake eu"]),
            (
                [samples.location("lake", "s3://lake"), samples.location("in", "s3://lake/x")],
                ["'in'", "s3://lake/x", "'lake'"],
            ),
            (
                [samples.location("lake", "s3://lake"), samples.location("in", "s3a://lake/x")],
                ["'in'", "s3a://lake/x", "'lake'"],
            ),
            (
                [samples.location("lake", "s3://lake"), samples.location("same", "s3n://lake")],
                ["'same'", "s3n://lake", "'lake'"],
            ),
        ],
    )
    def test_a_bound_prefix_keeps_its_files(self, locations: list, said: list[str]) -> None:
        bound = samples.registry([samples.location("lake", "s3://lake")]).bindings()
        with pytest.raises(RegistryError) as raised:
            validate_bindings(samples.registry(locations), bound)
        assert all(text in str(raised.value) for text in said)

    def test_a_bound_location_can_not_vanish_into_the_one_around_it(self) -> None:
        bound = samples.registry(
            [samples.location("lake", "s3://lake"), samples.location("in", "s3://lake/x")]
        ).bindings()
        with pytest.raises(RegistryError, match="'in'"):
            validate_bindings(samples.registry([samples.location("lake", "s3://lake")]), bound)


@pytest.mark.parametrize("name", ["a\\b", "a./b", "b."])
def test_names_of_which_azure_makes_others_are_refused_there(name: str) -> None:
    azure = "abfss://files@account.dfs.core.windows.net/x"
    there = samples.mapping(samples.location("az", azure))
    with pytest.raises(UnsafeUri, match="Azure"):
        there.replica_uri(f"{azure}/{name}")
    assert there.replica_uri(f"s3://us-bucket/{name}").endswith(name)
    regions = [samples.region("us", "s3://us-bucket/replica"), samples.region("eu", f"{azure}/replica")]
    registry = samples.registry([samples.location("az", azure, "eu")], regions)
    with pytest.raises(UnsafeUri, match="Azure"):
        Mapping(registry, registry.region("eu")).replica_uri(f"s3://us-bucket/{name}")
