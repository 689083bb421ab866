"""The read side of a region's Iceberg REST address: its replica branch, and nothing of another region's stores.

Source: the Iceberg REST Catalog specification, 1.12 (open-api/rest-catalog-open-api.yaml).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from sterna.catalog.model import ICEBERG_TABLE, ICEBERG_VIEW, NAMESPACE, Content, Key, key_name
from sterna.codec import parse_json
from sterna.config.mapping import Mapping as RegionMapping
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.config.sections.catalog import CatalogRegion
from sterna.config.sections.model import Services
from sterna.errors import BrokenMetadata, Forbidden, NoSuchVersion, TableError
from sterna.iceberg.json_text import read_document
from sterna.replication.replica.authorization import TableAccess
from sterna.replication.replica.region import RegionContext
from sterna.serving.rest_catalog.byte_cache import ByteCache, ServedBody
from sterna.serving.rest_catalog.metadata_log import with_served_log
from sterna.serving.rest_catalog.model import LoadedTable, SnapshotMode
from sterna.serving.rest_catalog.name_errors import missing_namespace, missing_table, missing_view
from sterna.serving.rest_catalog.names import identifier_json
from sterna.serving.rest_catalog.overlay import served_metadata, served_view_metadata
from sterna.serving.rest_catalog.pages import PageRequest, take_page
from sterna.serving.rest_catalog.past_versions import PastVersions
from sterna.serving.rest_catalog.replica_index import BranchContents, ReplicaIndex, children
from sterna.serving.rest_catalog.settings import region_settings
from sterna.storage.objects import Objects

_ETAG_HEX_DIGITS = 32
_ANY_NAME = "any-table"  # for a rule that covers whatever is in a namespace
STORE_RETRY_SECONDS = 5.0
"""Seconds between two calls to a store that has kept silent: no longer than `Retry-After` has clients wait."""
_NO_CONFIG = b'"config":{}}'  # how the body of each table ends


@dataclass(frozen=True)
class Readable:
    """What one client may see.

    Args:
        access: the region's rules.
        roles: of the client's token.
    """

    access: TableAccess
    roles: Collection[str]

    def table(self, key: Key) -> bool:
        """Return whether it may see a table or view."""
        return self.access.may_read(key_name(key), self.roles)

    def namespace(self, key: Key, branch: BranchContents) -> bool:
        """Return whether it may see a namespace: one that has tables or views shows at least one of them.

        An empty one is shown where a table in it would be.

        Args:
            branch: what there is.
        """
        name = key_name(key)
        excluded = self.access.registry.exclusion_reason(name, self.access.region, namespace=True)
        if excluded or not self.access.rules_allow(name, self.roles):
            return False
        members = branch.members.get(key) or [(*key, _ANY_NAME)]
        return any(self.table(member) for member in members)


@dataclass(frozen=True)
class ReplicaCatalog:
    """What one region's clients read.

    Args:
        mapping: of this region.
        settings: the region's, in the section `catalog`.
        index: what the replica branch holds.
        main_index: what `main` holds.
        objects: the region's stores.
        cache: bodies of tables and views.
        past_versions: what the branch held before.
        fixed: what it held when `main` was at the commit, or the time, that clients read; None: they read its head.
    """

    mapping: RegionMapping
    settings: CatalogRegion
    index: ReplicaIndex
    main_index: ReplicaIndex
    objects: Objects = field(repr=False)
    cache: ByteCache = field(repr=False)
    past_versions: PastVersions = field(repr=False)
    fixed: BranchContents | None = field(default=None, repr=False)

    def as_of(self, version: str) -> ReplicaCatalog:
        """Return the same with what the replica held as of a version of `main`, which is fixed.

        Args:
            version: the hash of a commit, or a time; see `PastVersions.read`, which raises what this does.
        """
        return replace(self, fixed=self.past_versions.read(version))

    def config(self, endpoints: Sequence[str], prefix: str = "") -> dict[str, Any]:
        """Return the CatalogConfig.

        Args:
            endpoints: the routes that there are, as the specification names them.
            prefix: of the paths that the client is to use; "": none.
        """
        overrides = {"prefix": prefix} if prefix else {}
        return {"defaults": dict(self.settings.defaults), "overrides": overrides, "endpoints": list(endpoints)}

    def _branch(self) -> BranchContents:
        return self.index.read() if self.fixed is None else self.fixed

    def list_namespaces(self, readable: Readable, parents: Sequence[Key], page: PageRequest | None) -> dict[str, Any]:
        """Return the namespaces directly in another one.

        Args:
            parents: which one is meant, the first that is there; (): the top.

        Raises:
            NoSuchNamespace: there is no such parent.
        """
        branch = self._branch()
        parent = next((parent for parent in parents if branch.has_namespace(parent)), parents[0])
        if parent:
            _require_namespace(branch, readable, parent)
        keys = [key for key in children(branch.namespaces, parent) if readable.namespace(key, branch)]
        chosen, token = take_page(keys, page)
        return _with_token({"namespaces": [list(key) for key in chosen]}, token)

    def load_namespace(self, readable: Readable, key: Key) -> dict[str, Any]:
        """Return a namespace and its properties.

        Raises:
            NoSuchNamespace: there is none.
        """
        branch = self._branch()
        _require_namespace(branch, readable, key)
        _require_not_held(branch, key)
        content = branch.content(key, NAMESPACE)
        properties = content.payload.get("properties") if content is not None else None
        return {"namespace": list(key), "properties": self._served_properties(properties or {})}

    def _served_properties(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        """A namespace's location is this region's own or left out: clients put new tables below it."""
        served = dict(properties)
        location = served.pop("location", None)
        try:
            origin = self.mapping.origin_uri(location) if isinstance(location, str) else ""
            if origin and self.mapping.is_local(origin.rstrip("/")):
                served["location"] = origin
        except TableError:  # in no location of the registry
            pass
        return served

    def list_tables(self, readable: Readable, namespace: Key, page: PageRequest | None) -> dict[str, Any]:
        """Return the tables in a namespace.

        Raises:
            NoSuchNamespace: there is none.
        """
        return _list_identifiers(self._branch(), readable, namespace, page, lambda branch: branch.tables)

    def list_views(self, readable: Readable, namespace: Key, page: PageRequest | None) -> dict[str, Any]:
        """Return the views in a namespace.

        Raises:
            NoSuchNamespace: there is none.
        """
        return _list_identifiers(self._branch(), readable, namespace, page, lambda branch: branch.views)

    def require_table(self, readable: Readable, key: Key) -> Content:
        """Return what the replica branch holds of a table.

        Raises:
            NoSuchTable: nothing that this client may see.
        """
        content = self._content(readable, key, ICEBERG_TABLE)
        if content is None:
            raise missing_table(key)
        return content

    def require_view(self, readable: Readable, key: Key) -> Content:
        """Return what the replica branch holds of a view.

        Raises:
            NoSuchView: nothing that this client may see.
        """
        content = self._content(readable, key, ICEBERG_VIEW)
        if content is None:
            raise missing_view(key)
        return content

    def _content(self, readable: Readable, key: Key, kind: str) -> Content | None:
        if not readable.table(key):
            return None
        branch = self._branch()
        _require_not_held(branch, key)
        content = branch.content(key, kind)
        return content if content is not None and content.metadata_location else None

    def load_table(
        self,
        readable: Readable,
        key: Key,
        mode: SnapshotMode = SnapshotMode.ALL,
        config: Mapping[str, str] = MappingProxyType({}),
    ) -> ServedBody:
        """Return a table's LoadTableResult.

        Args:
            mode: which snapshots are in it.
            config: properties for the client.

        Raises:
            NoSuchTable: there is none.
            NoSuchVersion: it is cleaned up by now.
            StoreError, TableError: its metadata.json can't be read.
        """
        uri = str(self.require_table(readable, key).metadata_location)
        self._require_kept(key, uri)
        return self._served(
            ("table", uri, mode, *config.items()), lambda: replace(self.read_table(uri, mode), config=config)
        )

    def load_view(self, readable: Readable, key: Key) -> ServedBody:
        """Return a view's LoadViewResult.

        Raises:
            NoSuchView: there is none.
            NoSuchVersion: it is cleaned up by now.
            StoreError, TableError: its metadata.json can't be read.
        """
        uri = str(self.require_view(readable, key).metadata_location)
        self._require_kept(key, uri)
        return self._served(("view", uri), lambda: self.read_view(uri))

    def _require_kept(self, key: Key, uri: str) -> None:
        """See that a clean-up hasn't deleted what an earlier version shows: its body may still be in memory.

        Raises:
            NoSuchVersion: one has.
            StoreError: the store doesn't answer.
        """
        if self.fixed is not None and self.objects.size(uri) is None:
            raise NoSuchVersion("what the region showed then is cleaned up by now", table=key_name(key), file=uri)

    def read_table(self, uri: str, mode: SnapshotMode = SnapshotMode.ALL) -> LoadedTable:
        """Return a table as clients get it, from a metadata.json of the replica.

        Args:
            uri: of the metadata.json.
            mode: which snapshots are in it.
        """
        metadata = served_metadata(self.read_metadata(uri), self.mapping, self.settings.location)
        metadata = with_served_log(metadata, self.mapping, uri, self.read_metadata)
        if mode is SnapshotMode.REFS:
            metadata = with_referenced_snapshots(metadata)
        return LoadedTable(uri, metadata)

    def read_view(self, uri: str) -> LoadedTable:
        """Return a view as clients get it, from a metadata.json of the replica."""
        return LoadedTable(uri, served_view_metadata(self.read_metadata(uri), self.mapping, self.settings.location))

    def read_metadata(self, uri: str) -> dict[str, Any]:
        """Return a metadata.json of this region, as it is there.

        Raises:
            BrokenMetadata, StoreError: it can't be read.
        """
        try:
            metadata = parse_json(read_document(self.objects.read(uri), uri).text)
        except ValueError as error:
            raise BrokenMetadata(f"the metadata file can't be read: {error}", file=uri) from None
        if not isinstance(metadata, dict):
            raise BrokenMetadata("the metadata file holds no object", file=uri)
        return metadata

    def _served(self, cache_key: tuple[object, ...], read: Callable[[], LoadedTable]) -> ServedBody:
        # The content of a metadata.json is a function of its URI, and the settings are those of this process.
        body = self.cache.get(cache_key)
        if body is None:
            body = served_body(read().body())
            self.cache.put(cache_key, body)
        return body


def served_body(document: Mapping[str, Any]) -> ServedBody:
    """Return a body of JSON and its ETag, which covers all of it."""
    # Escaped, so that a text with half a surrogate pair is carried as it is.
    content = json.dumps(document, separators=(",", ":")).encode()
    return ServedBody(content, f'"{hashlib.sha256(content).hexdigest()[:_ETAG_HEX_DIGITS]}"')


def with_access(body: ServedBody, access: Mapping[str, Any]) -> bytes:
    """Return the body of a table with what its client needs for its files; other bytes stay as they are.

    Args:
        body: of a table that is served without properties for the client.
        access: `config`, and further parts of a LoadTableResult.
    """
    head, ending, rest = body.content.rpartition(_NO_CONFIG)
    assert ending and not rest
    return head + json.dumps(access, separators=(",", ":")).encode()[1:]


def with_referenced_snapshots(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table's metadata with those snapshots alone that a branch or tag names, or that are current."""
    referenced = {ref.get("snapshot-id") for ref in (metadata.get("refs") or {}).values()}
    referenced.add(metadata.get("current-snapshot-id"))
    snapshots = [snapshot for snapshot in metadata.get("snapshots") or () if snapshot.get("snapshot-id") in referenced]
    return {**metadata, "snapshots": snapshots}


def open_replica_catalog(context: RegionContext, services: Services) -> ReplicaCatalog:
    """Return the read side of a region's address; no server is called yet.

    Raises:
        UsageError: as `region_settings`.
    """
    region, settings = context.region, region_settings(context.mapping, services)
    index, main_index = (ReplicaIndex(context.catalog, name) for name in (region.replica_branch, SOURCE_BRANCH))
    objects = Objects(context.mapping, context.secrets, timeout=settings.timeout, retry_seconds=STORE_RETRY_SECONDS)
    cache, past_versions = ByteCache(settings.cache), PastVersions(context)
    return ReplicaCatalog(context.mapping, settings, index, main_index, objects, cache, past_versions)


def _require_namespace(branch: BranchContents, readable: Readable, key: Key) -> None:
    if not branch.has_namespace(key) or not readable.namespace(key, branch):
        raise missing_namespace(key)


def _require_not_held(branch: BranchContents, key: Key) -> None:
    """See that an earlier version has what `main` had then.

    Raises:
        Forbidden: it was held or in transit, and what the replica had of it is an older commit's.
    """
    held = branch.held.get(key_name(key))
    if held is not None:
        raise Forbidden(f"at that commit it was {held.state} here: {held.kind}", table=held.key)


def _list_identifiers(
    branch: BranchContents,
    readable: Readable,
    namespace: Key,
    page: PageRequest | None,
    keys_of: Callable[[BranchContents], list[Key]],
) -> dict[str, Any]:
    _require_namespace(branch, readable, namespace)
    keys = [key for key in children(keys_of(branch), namespace) if readable.table(key)]
    chosen, token = take_page(keys, page)
    return _with_token({"identifiers": [identifier_json(key) for key in chosen]}, token)


def _with_token(body: dict[str, Any], token: str | None) -> dict[str, Any]:
    return body if token is None else {**body, "next-page-token": token}
