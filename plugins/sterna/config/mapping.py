"""From a URI to its location, to its place in a region's replica, and back.

Prefixes match by whole path segments, the longest first. The rest of a path is kept byte for byte, and so is the
spelling of the scheme: Iceberg matches position deletes to data files by string.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from sterna.config.metadata_names import localized_name, metadata_digest, without_digest
from sterna.config.registry.fingerprint import LOCALIZED_FOLDER, MetadataVersion, split_metadata_version
from sterna.config.registry.model import (
    Location,
    Region,
    Registry,
    canonical_prefix,
    digest,
    is_inside,
    prefix_spellings,
)
from sterna.config.registry.paths import PLAIN_NAME, UNUSUAL_PATH, validate_key, validate_path
from sterna.config.registry.policy import Policy
from sterna.config.registry.replica_paths import location_folder, replica_path, split_replica_path, version_root
from sterna.config.registry.residency import ExcludedPlace, excluded_places
from sterna.errors import NotResident, RegistryError, UnregisteredUri, UnsafeUri, Unsupported

SAFE_URI_CHARACTERS = 255
"""A whole URI in ASCII of so many characters is a key that every store can hold."""

_MAX_CACHED_FOLDERS = 100_000
# A disk takes several slashes for one; in a store they are another key.
_SLASHES = re.compile("/+")
_LOCAL_FILE_URI = re.compile("file:/(?!/[^/])")  # one with a host is on another machine
_UNMAPPABLE_ERRORS = (UnregisteredUri, UnsafeUri, Unsupported)


@dataclass(frozen=True)
class UriLocation:
    """The location of a URI.

    Its location, the alias it is spelled with ("" for the registry's spelling), the rest of the path.
    """

    location: Location
    alias: str
    path: str

    @property
    def replica_path(self) -> str:
        """The path of its copy below a replica root, and of its localized file below a metadata version's."""
        return replica_path(self.location.id, self.alias, self.path)


@dataclass(frozen=True)
class _Spelling:
    prefix: str
    location: Location
    alias: str


@dataclass(frozen=True)
class Mapping:
    """The mapping of one region: which URIs are local, and the URIs of the others' copies.

    The mapping is injective and `origin_uri` inverts it; the rest of a path is kept byte for byte. After a promotion
    with tables `main` names files below a region's replica root: each is taken back to its origin first, and so has the
    place that its origin has.
    """

    registry: Registry
    region: Region

    @cached_property
    def _spellings(self) -> tuple[_Spelling, ...]:
        spellings = [spelling for location in self.registry.locations for spelling in _location_spellings(location)]
        registered = {spelling.prefix for spelling in spellings if not spelling.alias}
        # A spelling that the registry uses for a location of its own is no alias of another.
        usable = [spelling for spelling in spellings if not spelling.alias or spelling.prefix not in registered]
        return tuple(sorted(usable, key=lambda spelling: len(spelling.prefix), reverse=True))

    @cached_property
    def _spelling_by_replica_folder(self) -> dict[str, _Spelling]:
        return {location_folder(spelling.location.id, spelling.alias): spelling for spelling in self._spellings}

    @cached_property
    def _root_spellings(self) -> tuple[str, ...]:
        return tuple(
            spelled for region in self.registry.regions for spelled in prefix_spellings(region.replica_root).values()
        )

    @cached_property
    def boundaries(self) -> frozenset[str]:
        """The URIs that are mapped in another way than others in their folders."""
        prefixes = {spelling.prefix: spelling for spelling in self._spellings}
        excluded = [place.prefix for place in self.excluded_places]
        # A prefix within another one, as it is below a root: files in it are mapped differently from files beside it.
        nested = [
            f"{region.replica_root}/{replica_path(outer.location.id, outer.alias, prefix[len(outer.prefix) + 1 :])}"
            for prefix in (*prefixes, *excluded)
            for outer in (prefixes[parent] for parent in _parent_folders(prefix) if parent in prefixes)
            for region in self.registry.regions
        ]
        return frozenset((*self._root_spellings, *prefixes, *excluded, *nested))

    @cached_property
    def _spelling_by_folder(self) -> dict[str, _Spelling]:
        return {}

    @cached_property
    def _content_folders(self) -> dict[str, tuple[str, str]]:
        return {}

    @cached_property
    def excluded_places(self) -> tuple[ExcludedPlace, ...]:
        """The places whose files this region may not have."""
        return excluded_places(self.registry, self.region.name)

    def require_resident(self, uri: str) -> None:
        """See that this region may have a file, as `main` names it.

        Raises:
            NotResident: a residency rule keeps the file, or the one that it is a copy of, out of this region.
            UnregisteredUri, UnsafeUri, Unsupported: as `replica_uri`.
        """
        if self.excluded_places:
            self._resolve_origin(uri)

    def _require_resident_origin(self, uri: str, origin: str) -> str:
        """Return a URI's origin, which this region may have."""
        if self.excluded_places:
            location = self.locate(origin.removesuffix("/")).location
            for place in self.excluded_places:
                if place.contains(origin.removesuffix("/"), location):
                    raise NotResident(f"the file may not be in {self.region.name}: {place.rule}", file=uri)
        return origin

    def maps_like_folder(self, uri: str, name: str) -> bool:
        """Return whether a URI is mapped as every other in its folder is.

        What was found out for one of them holds for it.
        """
        plain = PLAIN_NAME.fullmatch(name) or (name and not UNUSUAL_PATH.search(name))
        return bool(plain) and uri not in self.boundaries

    def locate(self, uri: str) -> UriLocation:
        """Find the location of a URI.

        Raises:
            UnregisteredUri: no prefix of the registry matches.
            UnsafeUri: the path must not be followed: a control character, a query, an empty part, or a part that is
                `.` or `..`, spelled out or not.
        """
        folder, _, name = uri.rpartition("/")
        spelling = self._spelling_by_folder.get(folder)
        if spelling is not None and self.maps_like_folder(uri, name):
            return UriLocation(spelling.location, spelling.alias, uri[len(spelling.prefix) + 1 :])
        return self._search_spellings(uri, folder)

    def _search_spellings(self, uri: str, folder: str) -> UriLocation:
        for spelling in self._spellings:
            if is_inside(uri, spelling.prefix):
                path = uri[len(spelling.prefix) + 1 :]
                validate_path(uri, path)
                if path and len(self._spelling_by_folder) < _MAX_CACHED_FOLDERS:
                    self._spelling_by_folder[folder] = spelling
                return UriLocation(spelling.location, spelling.alias, path)
        if _LOCAL_FILE_URI.match(uri) and any(
            is_inside(_SLASHES.sub("/", uri), candidate.prefix) for candidate in self._spellings
        ):
            validate_path(uri, uri)
        raise UnregisteredUri(
            "the URI lies in no location of the registry",
            file=uri,
            hint="register its prefix, then the next sync takes it up",
        )

    def is_local(self, uri: str) -> bool:
        """Return whether a URI's location is in this region."""
        return self.locate(uri).location.region == self.region.name

    def replica_uri(self, uri: str) -> str:
        """Return the URI below the replica root of a content file's copy.

        Raises:
            UnregisteredUri, UnsafeUri: as `locate`; also for a mapped key that the store can't hold.
            Unsupported: the URI is below a replica root, in another spelling or as no copy of a content file.
        """
        return self._file_uri(self.region.replica_root, uri, self._resolve_content_origin(uri))

    def localized_uri(self, uri: str, version: MetadataVersion) -> str:
        """Return the URI below the replica root of a path-bearing file's localized copy.

        Copies have another folder: else a table that lists another one's manifest or position deletes as a data file
        would put the original where the localized file belongs. And each metadata version has a folder of its own.

        Raises:
            UnregisteredUri, UnsafeUri, Unsupported: as `replica_uri`.
        """
        return self._file_uri(version_root(self.region.replica_root, version), uri, self._resolve_origin(uri))

    def metadata_version(self, uri: str) -> MetadataVersion | None:
        """Return the metadata version of a localized file, in this region or another; None for any other URI."""
        root = self._replica_root(uri)
        return None if root is None else split_metadata_version(uri[len(root) + 1 :])[0]

    def replica_folder(self, uri: str) -> str:
        """Return what `replica_uri` returns, for a folder such as a table's `location`.

        A trailing slash and a bare prefix are fine.
        """
        return self._folder_uri(self.region.replica_root, self._resolve_origin(uri))

    def _file_uri(self, root: str, uri: str, origin: str) -> str:
        if uri.endswith("/") or not self.locate(origin).path:
            raise UnsafeUri("the URI names a folder, not a file", file=uri)
        mapped = self._folder_uri(root, origin)
        validate_key(uri, mapped)
        return mapped

    def _folder_uri(self, root: str, origin: str) -> str:
        trailing = "/" if origin.endswith("/") else ""
        return f"{root}/{self.locate(origin[:-1] if trailing else origin).replica_path}{trailing}"

    def _resolve_origin(self, uri: str) -> str:
        """Return the origin of a URI on `main`: itself, or what it is a copy of."""
        if not self.below_replica_root(uri):
            return self._require_resident_origin(uri, uri)
        origin = self.origin_uri(uri)
        path, version = self.locate(origin.removesuffix("/")).replica_path, self.metadata_version(uri)
        replica_uris = (f"{version_root(region.replica_root, version)}/{path}" for region in self.registry.regions)
        if uri.removesuffix("/") not in replica_uris:
            # Two URIs that differ on `main` would become one, and deletes would hit what they don't hit there.
            raise Unsupported(
                "the URI is below a replica root, in another spelling or folder than its origin has there", file=uri
            )
        return self._require_resident_origin(uri, origin)

    def _resolve_content_origin(self, uri: str) -> str:
        if any(is_inside(uri, f"{region.replica_root}/{LOCALIZED_FOLDER}") for region in self.registry.regions):
            raise Unsupported("a file that sterna localized is named as a content file", file=uri)
        return self._resolve_origin(uri)

    def content_uri(self, uri: str) -> str:
        """Return where this region reads a content file: the URI itself when local, else its place below the
        replica root.

        It depends on the origin alone, so that there is one place for a file that `main` names below one root and later
        another, and deletes name what they hit. A file that was born here is read there: it is the original, or a copy
        that was put in its place.
        """
        folder, _, name = uri.rpartition("/")
        cached = self._content_folders.get(folder)
        if cached is None or not self.maps_like_folder(uri, name):
            replica, local = self._search_content(uri, folder)
        else:
            replica, local = f"{cached[0]}/{name}", cached[1] and f"{cached[1]}/{name}"
            if len(replica) > SAFE_URI_CHARACTERS or not replica.isascii():
                validate_key(uri, replica)
        return local or replica

    def _search_content(self, uri: str, folder: str) -> tuple[str, str]:
        origin = self._resolve_content_origin(uri)
        replica, local = (
            self._file_uri(self.region.replica_root, uri, origin),
            origin if self.is_local(origin) else "",
        )
        if len(self._content_folders) < _MAX_CACHED_FOLDERS:
            self._content_folders[folder] = replica.rpartition("/")[0], local.rpartition("/")[0]
        return replica, local

    def content_folders(self, uri: str) -> tuple[str, str]:
        """Return the folders of what `content_uri` returns for each URI that is mapped as every other in its folder is.

        Args:
            uri: one of them.

        Returns:
            That below the replica root, and the local one, "" where the folder isn't local.
        """
        folder, _, _ = uri.rpartition("/")
        if cached := self._content_folders.get(folder):
            return cached
        replica, local = self._search_content(uri, folder)
        return replica.rpartition("/")[0], local.rpartition("/")[0]

    def deleted_file_uri(self, uri: str, version: MetadataVersion) -> str:
        """Return the URI for a path-bearing file that was deleted and may be gone.

        It is opened nowhere; see `content_uri_or_original`.
        """
        try:
            return uri if self.is_local(uri) else self.localized_uri(uri, version)
        except _UNMAPPABLE_ERRORS:
            return uri

    def content_uri_or_original(self, uri: str) -> str:
        """Return `content_uri`, or the URI itself where it has no place here: for names that aren't opened, and
        that match no other name.

        Raises:
            NotResident: a residency rule keeps the file out of this region: not even its name goes there.
        """
        try:
            return self.content_uri(uri)
        except _UNMAPPABLE_ERRORS:
            return uri

    def map_property_value(self, value: str) -> str | None:
        """Map a property's or summary's value when the whole value is a URI with a registered prefix, else return
        None.
        """
        registered = any(is_inside(value.rstrip("/"), spelling.prefix) for spelling in self._spellings)
        return self.replica_folder(value) if registered else None

    def origin_uri(self, uri: str) -> str:
        """Take a URI below a region's replica root, as the registry spells it, back to its origin; any other is its
        own origin.

        Raises:
            UnregisteredUri: it is below a replica root, but under no registered id.
        """
        root = self._replica_root(uri)
        if root is None:
            return uri
        folder, rest = split_replica_path(split_metadata_version(uri[len(root) + 1 :])[1])
        spelling = self._spelling_by_replica_folder.get(folder)
        if spelling is None:
            raise UnregisteredUri("below a replica root, but under no id of the registry", file=uri)
        return f"{spelling.prefix}{rest}"

    def _replica_root(self, uri: str) -> str | None:
        """Return the replica root that contains a URI, as the registry spells it."""
        return next(
            (region.replica_root for region in self.registry.regions if is_inside(uri, region.replica_root)), None
        )

    def below_replica_root(self, uri: str) -> bool:
        """Return whether a URI, in any spelling, is below the replica root of any region."""
        return any(is_inside(uri, root) for root in self._root_spellings)

    def metadata_uri(
        self,
        uri: str,
        policy: Policy,
        version: MetadataVersion,
        *,
        view: bool = False,
        extra_snapshot_id: int | None = None,
    ) -> str:
        """Return the URI of a metadata.json's localized copy: `<mapped folder>/<stem>-<digest><ending>`.

        With a snapshot that the policy leaves out and the catalog's entry names it is
        `<mapped folder>/<stem>-<digest>-<snapshot id><ending>`: `extra_snapshot_id` takes the id out again.

        The digest covers the mapping, the table's policy, the localizer's version, and for views the names of their own
        catalog, so that the content is a function of the URI. Engines read the version number in front and the codec
        from the ending: both stay. The stem is the source's, but `v5` becomes `5-`: Trino reads digits, a dash, and
        then hex digits and dashes alone.
        """
        folder, _, name = self.localized_uri(uri, version).rpartition("/")
        digest = self.digest(policy, version.localizer_version, view=view)
        mapped = f"{folder}/{localized_name(name, digest, extra_snapshot_id)}"
        validate_key(uri, mapped)
        return mapped

    def is_metadata_uri(
        self, localized: str, uri: str, policy: Policy, version: MetadataVersion, *, view: bool = False
    ) -> bool:
        """Return whether a metadata.json's localized copy is as `metadata_uri` names it, or as version 0.1 did.

        Args:
            localized: the copy's URI, with any snapshot's id in its name.
            uri, policy, version, view: those of `metadata_uri`.
        """
        expected = self.metadata_uri(uri, policy, version, view=view)
        same_digest = metadata_digest(localized) == metadata_digest(expected)
        return same_digest and without_digest(localized) == without_digest(expected)

    def metadata_origin(self, uri: str) -> str:
        """Return which metadata.json a localized one was made of.

        Args:
            uri: as `metadata_uri` returned it.

        Raises:
            UnregisteredUri: as `origin_uri`.
        """
        return without_digest(self.origin_uri(uri))

    def digest(self, policy: Policy, localizer_version: int, *, view: bool = False) -> str:
        """Return 16 hex digits over everything that decides what a localized metadata.json contains."""
        # A later rule changes the name of each metadata.json, so that every table is planned again.
        exclusions = (
            [sorted((place.prefix, place.location) for place in self.excluded_places)] if self.excluded_places else []
        )
        return digest(
            [
                self.registry.bindings(),
                self.region.name,
                self.region.replica_root,
                policy.history.digest_fields(),
                localizer_version,
                *exclusions,
                *([views] if view and (views := self.registry.views.digest_fields()) else []),
            ]
        )


def validate_bindings(registry: Registry, bound: dict[str, str]) -> None:
    """Compare the registry with the bindings that a replica commit recorded.

    Raises:
        RegistryError: an id has another prefix or region now, or files of a bound prefix would get a second
            place.
    """
    for location in registry.locations:
        recorded = bound.get(location.id)
        if recorded is not None and recorded != location.binding:
            raise RegistryError(
                f"location {location.id!r} is bound to {recorded!r} by the replica branch, and to "
                f"{location.binding!r} in the registry",
                hint="an id keeps its prefix and region for ever: restore it, or give the new prefix a new id",
            )
    _validate_claims({location.id: location for location in registry.locations}, bound)


def _validate_claims(locations: dict[str, Location], bound: dict[str, str]) -> None:
    # Position deletes would name a file's old place, manifests that are localized from now on its new one.
    for bound_id, binding in bound.items():
        prefix = binding.rpartition(" ")[0]
        splitting = next(
            (
                location
                for location in locations.values()
                if location.id not in bound and _claims(location.prefix, prefix)
            ),
            None,
        )
        if splitting is not None:
            raise RegistryError(
                f"new location {splitting.id!r} ({splitting.prefix}) is inside {bound_id!r} ({prefix}), which is "
                "already replicated"
            )
        covering = next(
            (
                location
                for location in locations.values()
                if bound_id not in locations and _claims(prefix, location.prefix)
            ),
            None,
        )
        if covering is not None:
            raise RegistryError(
                f"location {bound_id!r} ({prefix}) is bound by the replica branch and gone from the registry, where "
                f"{covering.id!r} covers it",
                hint="restore it: an id keeps its prefix for ever",
            )


def _claims(prefix: str, other: str) -> bool:
    """Return whether a prefix claims files of another one: it is inside it, or another spelling of it."""
    return prefix != other and is_inside(canonical_prefix(prefix), canonical_prefix(other))


def _parent_folders(prefix: str) -> Iterator[str]:
    """Yield the parent folders of a prefix."""
    while (prefix := prefix.rpartition("/")[0]) and "://" in prefix:
        yield prefix


def _location_spellings(location: Location) -> list[_Spelling]:
    return [_Spelling(prefix, location, alias) for alias, prefix in prefix_spellings(location.prefix).items()]
