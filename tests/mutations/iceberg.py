"""Faults in mapping, manifests and deletes."""

from __future__ import annotations

from functools import partial
from typing import Final

from tests.mutations.model import Mutation

_SYNC: Final = ("integration/sync", "integration/verify")
_mapping = partial(
    Mutation, component="mapping", file="config/mapping.py", near=("unit/config",), servers=("integration/sync",)
)
_manifest = partial(Mutation, component="manifests", near=("unit/iceberg",), servers=_SYNC)
_delete = partial(Mutation, component="deletes", near=("unit/iceberg",), servers=_SYNC)

MAPPING: Final = (
    _mapping(
        name="first prefix instead of the longest",
        old="return tuple(sorted(usable, key=lambda spelling: len(spelling.prefix), reverse=True))",
        new="return tuple(usable)",
        harm="a file of a location that lies within another is copied from and to the wrong place",
        first=("unit/config/test_mapping.py::test_the_place_of_a_uri",),
    ),
    _mapping(
        name="an alias takes another location's own prefix",
        old="usable = [spelling for spelling in spellings if not spelling.alias or spelling.prefix not in registered]",
        new="usable = spellings",
        harm="files of a location that is registered with s3a:// are taken for those of its namesake with s3://",
        first=("unit/config/test_mapping.py::test_a_spelling_that_is_registered_for_itself_is_no_other_locations",),
    ),
    _mapping(
        name="two spellings share a folder",
        file="config/registry/replica_paths.py",
        old='return f"{location_id}{_ALIAS_MARK}{alias}" if alias else location_id',
        new="return location_id",
        harm="two files that main tells apart become one, and position deletes hit rows that are not deleted",
        first=("unit/config/test_digest.py::test_order_counts_among_locations_that_are_one_place_in_two_spellings",),
    ),
    _mapping(
        name="only the region's own replica root is taken back",
        old="for region in self.registry.regions if is_inside(uri, region.replica_root)), None",
        new="for region in (self.region,) if is_inside(uri, region.replica_root)), None",
        harm="after a promotion, files below the other region's root are mapped a second time",
        first=("unit/config/test_mapping.py::TestAfterAPromotionWithTables",),
    ),
    _mapping(
        name="the digest forgets the policy of history",
        old=("                policy.history.digest_fields(),\n"),
        new="",
        earlier=('                policy.history.model_dump(mode="json"),\n', ""),
        harm="a table whose history is to be shorter keeps the long one, as its metadata.json has the same name",
        first=("unit/config/test_digest.py::test_the_names_of_localized_metadata_stay_what_they_are",),
    ),
)

MANIFESTS: Final = (
    _manifest(
        name="the referenced data file keeps its path",
        file="iceberg/manifests/entry.py",
        old="referenced = map_content(entry.referenced_data_file) if entry.referenced_data_file else None",
        new="referenced_data_file = entry.referenced_data_file",
        earlier=(
            "referenced = None if entry.referenced is None else mapping.content(entry.referenced)",
            "referenced = entry.referenced",
        ),
        harm="deletion vectors match no data file of the replica, and deleted rows come back",
        first=("unit/iceberg/test_manifest_deletes.py",),
    ),
    _manifest(
        name="cut bounds of paths stay",
        file="iceberg/manifests/entry.py",
        old="return (None, None) if moved else (entry.lower_bound, entry.upper_bound)",
        new="return entry.lower_bound, entry.upper_bound",
        harm="engines skip position deletes by bounds of paths that stand nowhere here: deleted rows come back",
        first=("unit/iceberg/test_manifest_deletes.py::test_bounds_that_are_no_whole_path_are_dropped",),
    ),
    _manifest(
        name="equal bounds of paths are not mapped",
        file="iceberg/manifests/entry.py",
        old='bound = map_content(entry.lower_bound.decode("utf-8")).encode()',
        new='bound = entry.lower_bound.decode("utf-8").encode()',
        earlier=(
            'bound = mapping.content(entry.lower.decode("utf-8")).encode()',
            'bound = entry.lower.decode("utf-8").encode()',
        ),
        harm="engines skip the deletes of a single data file, and deleted rows come back",
        first=("unit/iceberg/test_manifest_deletes.py",),
    ),
    _manifest(
        name="split offsets stay where the length is the same",
        file="iceberg/manifests/entry.py",
        old="drop_layout = moved and entry.status != DELETED and not entry.is_deletion_vector",
        new="drop_layout = localized.length != entry.size and entry.status != DELETED and not entry.is_deletion_vector",
        harm="an engine that splits a rewritten file of the old length begins in the middle of a row group",
        first=("unit/iceberg/test_manifest_deletes.py", "unit/iceberg/test_manifest_bytes.py::test_manifests"),
    ),
    _manifest(
        name="a manifest that became shorter keeps its length",
        file="iceberg/manifests/manifest_list.py",
        old="if localized.length != manifest.length:",
        new="if localized.length > manifest.length:",
        harm="engines that trust the length read beyond the manifest's end",
        first=("unit/iceberg/test_manifest_list.py::test_manifest_list_changes_paths_and_lengths",),
    ),
    _manifest(
        name="a deleted entry keeps its position deletes' path",
        file="iceberg/manifests/entry.py",
        old="return LocalizedFile(mapping.map_deleted_deletes(entry.path), entry.size)",
        new="return LocalizedFile(entry.path, entry.size)",
        harm="who reads changes by deleted entries sees delete files of another region's store",
        first=(
            "unit/iceberg/test_manifest_deletes.py::test_a_deleted_delete_is_mapped_and_neither_looked_up_nor_refused",
        ),
    ),
)

DELETES: Final = (
    _delete(
        name="rows in the order of their positions",
        file="iceberg/deletes/rows.py",
        old="return np.lexsort((positions, ranks))",
        new="return np.lexsort((ranks, positions))",
        harm="readers that merge by path and position miss deletes: deleted rows come back",
        first=("unit/iceberg/test_position_deletes.py::test_paths_change_and_nothing_else",),
    ),
    _delete(
        name="new paths in the order of the old ones",
        file="iceberg/deletes/rows.py",
        old="paths = sorted(set(new), key=str.encode)",
        new="paths = list(dict.fromkeys(new))",
        harm="position deletes are not sorted by path where the mapping changes the order",
        first=("unit/iceberg/test_position_deletes.py::test_paths_change_and_nothing_else",),
    ),
    _delete(
        name="only the first deletion vector of a Puffin file",
        file="iceberg/deletes/puffin.py",
        old="for blob in document.elements(blobs):",
        new="for blob in list(document.elements(blobs))[:1]:",
        harm="the other vectors name data files of another region's store",
        first=("unit/iceberg/test_puffin.py::test_vectors_of_java",),
    ),
    _delete(
        name="the key-value metadata of a Parquet file is lost",
        file="iceberg/deletes/parquet.py",
        old="        writer.add_key_value_metadata(source.metadata.metadata or {})\n",
        new="",
        harm="what the writer said of the file, its schema among it, is gone",
        first=("unit/iceberg/test_position_deletes.py::test_paths_change_and_nothing_else",),
    ),
    _delete(
        name="what was read of ORC isn't compared with the statistics",
        file="iceberg/deletes/orc.py",
        old="if statistics.get(name, value) != value:",
        new="if not statistics:",
        harm="a damaged file deletes other rows: ORC has no checksums",
        first=("unit/iceberg/test_position_deletes_orc.py::test_positions_that_disagree_with_the_statistics",),
    ),
)
