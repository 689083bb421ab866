"""Changes of the catalog's entries: tables and views that are made, registered, renamed or dropped.

All of it happens on `main`, and is shown here at once. Dropping deletes no file: `purgeRequested` is a request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from sterna.catalog.model import (
    ICEBERG_TABLE,
    ICEBERG_VIEW,
    NAMESPACE,
    Content,
    Delete,
    Key,
    Operation,
    Put,
    key_name,
)
from sterna.config.near_places import written_places
from sterna.errors import (
    BadUpdate,
    Forbidden,
    RestCatalogError,
    TableError,
)
from sterna.replication.replica.region import RegionContext
from sterna.serving.rest_catalog import main_metadata
from sterna.serving.rest_catalog.address import Address, MainState, read_main
from sterna.serving.rest_catalog.answer import localize_entry
from sterna.serving.rest_catalog.commit import change_entries, change_names, committed_entry, stale_as_conflict
from sterna.serving.rest_catalog.home_files import naming_table
from sterna.serving.rest_catalog.name_errors import missing_table, missing_view
from sterna.serving.rest_catalog.names import require_key
from sterna.serving.rest_catalog.new_locations import new_location_prefix
from sterna.serving.rest_catalog.new_names import adding_name, require_free_name
from sterna.serving.rest_catalog.new_tables import create_table_metadata
from sterna.serving.rest_catalog.overlay import overlaid_properties, served_view_metadata
from sterna.serving.rest_catalog.requirements import check_requirements
from sterna.serving.rest_catalog.rules import (
    Rights,
    is_replicated,
    reject_protected_properties,
    reject_protected_updates,
    reject_replica_uris,
    reject_wider_replication,
    require_own_location,
    require_own_write_paths,
    require_readable_everywhere,
    require_replicated,
)
from sterna.serving.rest_catalog.served_base import bring_up
from sterna.serving.rest_catalog.table_draft import completed
from sterna.serving.rest_catalog.view_updates import apply_view_updates, create_view_metadata

_MISSING: dict[str, Callable[[Key], RestCatalogError]] = {ICEBERG_TABLE: missing_table, ICEBERG_VIEW: missing_view}
_NO_RIGHTS = Rights()
_KIND_NAMES = {ICEBERG_TABLE: "table", ICEBERG_VIEW: "view", NAMESPACE: "namespace"}


def stage_table(address: Address, namespace: Key, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of a table that a later commit is to make; nothing is written.

    Args:
        request: a CreateTableRequest of the REST specification.

    Raises:
        NoSuchNamespace, AlreadyExists: it can't be made.
        BadUpdate, Forbidden: the request can't or mustn't be fulfilled.
    """
    key = _new_key(namespace, request)
    require_replicated(address.region(), key)
    require_free_name(read_main(address, [namespace, key]), namespace, key)
    return _new_table_metadata(address, key, request)


def create_table(address: Address, namespace: Key, request: Mapping[str, Any], idempotency_key: str = "") -> Content:
    """Make a table in this region, and return this region's own entry for it.

    Args:
        request: a CreateTableRequest of the REST specification.
        idempotency_key: the client's; "" for none.

    Raises:
        NoSuchNamespace, AlreadyExists: it can't be made.
        BadUpdate, Forbidden: the request can't or mustn't be fulfilled.
        CatalogConflict: as `adding_name`.
        CommitOutcomeUnknown: as `change_entries`.
    """
    key = _new_key(namespace, request)
    require_replicated(address.region(), key)

    def write() -> Content:
        metadata = _new_table_metadata(address, key, request)
        folder = main_metadata.address_folder(address.near_root, metadata)
        uri = main_metadata.write_metadata(address.region().objects, folder, metadata)
        return main_metadata.table_content(metadata, uri)

    return _create(address, namespace, key, write, "table", idempotency_key)


def _create(
    address: Address, namespace: Key, key: Key, write: Callable[[], Content], kind_name: str, idempotency_key: str
) -> Content:
    """Put a new table or view on `main`, and return this region's own entry for it.

    Args:
        write: writes its metadata.json, and returns its entry.
    """

    def put(main: MainState) -> list[Put]:
        require_free_name(main, namespace, key)
        return [Put(key, write())]

    message = f"create {kind_name} {key_name(key)} in {address.region().region.name}"
    with adding_name(address, key, idempotency_key):
        entries = change_entries(address, [namespace, key], put, message, idempotency_key)
    return committed_entry(entries, key)


def _new_table_metadata(address: Address, key: Key, request: Mapping[str, Any]) -> dict[str, Any]:
    context = address.region()
    properties = _object(request, "properties")
    reject_protected_properties(properties, (), {})
    reject_replica_uris(context.mapping, request)
    location = _new_location(address, key, request)
    require_own_write_paths(context, address.reserved, key, location, properties)
    overlaid = overlaid_properties(None)
    kept = {name: value for name, value in properties.items() if name not in overlaid}
    return create_table_metadata({**request, "properties": kept}, location, _now_ms())


def _new_location(address: Address, key: Key, request: Mapping[str, Any]) -> str:
    """Return where a new table or view is: where the client says, or in a folder of its own."""
    context, location = address.region(), request.get("location")
    if location is None:
        location = f"{new_location_prefix(context.mapping, address.reserved, key)}{uuid4()}"
    uri = require_own_location(context, address.reserved, location)
    require_readable_everywhere(context, key, [uri])
    return uri


def register_table(
    address: Address, namespace: Key, request: Mapping[str, Any], rights: Rights = _NO_RIGHTS, idempotency_key: str = ""
) -> Content:
    """Put a table that a metadata.json describes on `main`, and return this region's own entry for it.

    Args:
        request: a RegisterTableRequest of the REST specification.
        rights: the client's.
        idempotency_key: the client's; "" for none.

    Raises:
        NoSuchNamespace, AlreadyExists: it can't be put there.
        BadUpdate, Forbidden: it is no such file, or a table mustn't be there, or in the place of another one.
        CatalogConflict: as `adding_name`.
        CommitOutcomeUnknown: as `change_entries`.
    """
    context, key = address.region(), _new_key(namespace, request)
    require_replicated(context, key)
    content = _registered_content(context, key, request.get("metadata-location"))
    overwrites = request.get("overwrite") is True

    def put(main: MainState) -> list[Put]:
        existing = main.contents[key]
        if existing is None or not overwrites or existing.kind != ICEBERG_TABLE:
            require_free_name(main, namespace, key)
        if existing is not None:
            _require_right_to_overwrite(rights, key)
        return [Put(key, content.with_id(None if existing is None else existing.id))]

    message = f"register table {key_name(key)} in {context.region.name}"
    with adding_name(address, key, idempotency_key, may_be_taken=overwrites):
        entries = change_entries(address, [namespace, key], put, message, idempotency_key)
    return committed_entry(entries, key)


def _require_right_to_overwrite(rights: Rights, key: Key) -> None:
    """See that a client may put another metadata.json in a table's place: snapshots and properties may go by that.

    Raises:
        Forbidden: it may not remove snapshots either.
    """
    if not rights.expire:
        raise Forbidden("registering another metadata.json over a table is for maintenance alone", table=key_name(key))


def _registered_content(context: RegionContext, key: Key, uri: object) -> Content:
    """Return the entry for a metadata.json, all of whose files have to be there."""
    if not isinstance(uri, str):
        raise BadUpdate("there is no metadata-location")
    try:
        own_uri = main_metadata.uri_on_main(context.mapping, uri)
        metadata = main_metadata.read_metadata(context, own_uri)
        completed(metadata)
        main_metadata.address_folder("", metadata)
        reject_replica_uris(context.mapping, metadata)
        require_readable_everywhere(context, key, [uri.rstrip("/") for uri in written_places(metadata)])
        content = main_metadata.table_content(metadata, own_uri)
        localize_entry(context, key, content, None)
    except TableError as error:
        raise BadUpdate(f"the table can't be registered: {error.message}", file=error.file or uri) from error
    return content


def rename(address: Address, kind: str, source: Key, destination: Key, idempotency_key: str = "") -> None:
    """Give a table or view another name.

    Args:
        kind: the content type: `ICEBERG_TABLE` or `ICEBERG_VIEW`.
        idempotency_key: the client's; "" for none.

    Raises:
        NoSuchTable, NoSuchView, NoSuchNamespace, AlreadyExists: it can't be renamed.
        Forbidden: a policy keeps the new name from this region, or the old one from a region that would have the new.
        CatalogConflict: as `adding_name`.
        CommitOutcomeUnknown: as `change_names`.
    """
    namespace = destination[:-1]

    def move(main: MainState) -> list[Operation]:
        content = _existing(address, main, kind, source)
        require_replicated(address.region(), destination)
        reject_wider_replication(address.region(), source, destination)
        require_free_name(main, namespace, destination)
        return [Delete(source), Put(destination, content)]

    message = f"rename {_KIND_NAMES[kind]} {key_name(source)} to {key_name(destination)}"
    with adding_name(address, destination, idempotency_key, old_name=source):
        renamed = {destination: source}
        change_names(address, [namespace, source, destination], move, message, idempotency_key, renamed)


def drop(address: Address, kind: str, key: Key, idempotency_key: str = "") -> None:
    """Drop a table or view; its files stay.

    Args:
        kind: the content type: `ICEBERG_TABLE` or `ICEBERG_VIEW`.
        idempotency_key: the client's; "" for none.

    Raises:
        NoSuchTable, NoSuchView: there is none.
        CatalogConflict: another commit came first; nothing was committed.
        CommitOutcomeUnknown: as `change_names`.
    """

    def delete(main: MainState) -> list[Delete]:
        _existing(address, main, kind, key)
        return [Delete(key)]

    with stale_as_conflict(), address.turns.take([key]):
        change_names(address, [key], delete, f"drop {_KIND_NAMES[kind]} {key_name(key)}", idempotency_key)


def create_view(address: Address, namespace: Key, request: Mapping[str, Any], idempotency_key: str = "") -> Content:
    """Make a view, and return this region's own entry for it.

    Args:
        request: a CreateViewRequest of the REST specification.
        idempotency_key: the client's; "" for none.

    Raises:
        NoSuchNamespace, AlreadyExists: it can't be made.
        BadUpdate, Forbidden: the request can't or mustn't be fulfilled.
        CatalogConflict: as `adding_name`.
        CommitOutcomeUnknown: as `change_entries`.
    """
    context, key = address.region(), _new_key(namespace, request)
    require_replicated(context, key)
    reject_protected_properties(_object(request, "properties"), (), {})
    reject_replica_uris(context.mapping, request)

    def write() -> Content:
        metadata = create_view_metadata(request, _new_location(address, key, request), _now_ms())
        return _written_view(address, metadata)

    return _create(address, namespace, key, write, "view", idempotency_key)


def commit_view(
    address: Address,
    key: Key,
    requirements: Sequence[Mapping[str, Any]],
    updates: Sequence[Mapping[str, Any]],
    idempotency_key: str = "",
) -> Content:
    """Commit to a view, and return this region's own entry for it.

    Args:
        requirements, updates: as the REST specification has them.
        idempotency_key: the client's; "" for none.

    Raises:
        NoSuchView: there is none.
        RequirementFailed, StaleBase: another commit came first.
        BadUpdate, Forbidden: the commit can't or mustn't be taken.
        CommitOutcomeUnknown: as `change_entries`.
    """

    def put(main: MainState) -> list[Put]:
        content = _existing(address, main, ICEBERG_VIEW, key)
        uri = content.metadata_location or ""
        with naming_table(address.region().mapping, key_name(key)):
            metadata = address.read_metadata(uri)
        try:
            check_requirements(metadata, requirements)
        except RestCatalogError:
            bring_up(address, main.contents)
            raise
        reject_protected_updates(updates, metadata.get("properties") or {})
        own_updates = _own_view_updates(address, key, updates, metadata)
        changed = apply_view_updates(metadata, own_updates, _now_ms())
        return [Put(key, _written_view(address, changed, uri).with_id(content.id))]

    message = f"commit to view {key_name(key)} in {address.region().region.name}"
    with address.turns.take([key]):
        return committed_entry(change_entries(address, [key], put, message, idempotency_key), key)


def _own_view_updates(
    address: Address, key: Key, updates: Sequence[Mapping[str, Any]], metadata: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    """Return a view's updates without the location that was served."""
    context, own = address.region(), []
    location = str(metadata.get("location"))
    roots = address.reserved.near_roots
    served = [served_view_metadata(metadata, context.mapping, root)["location"] for root in roots]
    served_locations = {uri.rstrip("/") for uri in (location, context.mapping.replica_folder(location), *served)}
    for update in updates:
        if update.get("action") == "set-location":
            if str(update.get("location")).rstrip("/") in served_locations:
                continue
            uri = require_own_location(context, address.reserved, update.get("location"))
            require_readable_everywhere(context, key, [uri])
        own.append(update)
    reject_replica_uris(context.mapping, own)
    return own


def _written_view(address: Address, metadata: Mapping[str, Any], previous_uri: str = "") -> Content:
    folder = main_metadata.address_folder(address.near_root, metadata, "view-uuid")
    uri = main_metadata.write_metadata(address.region().objects, folder, metadata, previous_uri)
    return main_metadata.view_content(metadata, uri)


def _new_key(namespace: Key, request: Mapping[str, Any]) -> Key:
    name = request.get("name")
    if not isinstance(name, str) or not name:
        raise BadUpdate("there is no name")
    return require_key((*namespace, name))


def _object(request: Mapping[str, Any], field: str) -> dict[str, Any]:
    value = request.get(field)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadUpdate(f"{field} is no object")
    return value


def _existing(address: Address, main: MainState, kind: str, key: Key) -> Content:
    """Return a table or view on `main`; one that a policy keeps from this region isn't there for its clients.

    Raises:
        NoSuchTable, NoSuchView: there is none.
    """
    content = main.contents[key]
    if content is None or content.kind != kind or not is_replicated(address.region(), key):
        raise _MISSING[kind](key)
    return content


def _now_ms() -> int:
    return int(time.time() * 1000)
