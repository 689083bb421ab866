"""What a region's Iceberg REST address does for writers: a method for each of the specification's writing routes.

Each takes the request's JSON as the specification has it, and raises a `RestCatalogError` with the status that the
specification has for it. Any other of sterna's errors means that nothing was committed. Once a commit was sent it is
answered, or `CommitOutcomeUnknown` is raised.

Source: the Iceberg REST Catalog specification, 1.12 (open-api/rest-catalog-open-api.yaml).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sterna.catalog.model import ICEBERG_TABLE, ICEBERG_VIEW, Content, Key
from sterna.config.near_places import near_roots
from sterna.config.sections.model import Services
from sterna.errors import BadUpdate, CommitOutcomeUnknown, SternaError
from sterna.replication.replica.region import RegionContext
from sterna.serving.rest_catalog import entry_changes, namespace_changes
from sterna.serving.rest_catalog.address import Address
from sterna.serving.rest_catalog.background_sync import RETRY_DELAY, BackgroundSync
from sterna.serving.rest_catalog.commit import commit_tables, committed_entry
from sterna.serving.rest_catalog.kept_region import KeptRegion
from sterna.serving.rest_catalog.metadata_draft import normalized_update
from sterna.serving.rest_catalog.model import LoadedTable
from sterna.serving.rest_catalog.names import is_unicode, read_identifier
from sterna.serving.rest_catalog.overlay import served_metadata
from sterna.serving.rest_catalog.reader import ReplicaCatalog
from sterna.serving.rest_catalog.requirements import normalized_requirement
from sterna.serving.rest_catalog.rules import Rights
from sterna.serving.rest_catalog.table_commit import TableCommit


class CatalogWriteService:
    """The writing side of a region's address; may be used by any number of threads.

    Args:
        address: the region, and what its requests share.
        catalog: the reading side.
    """

    def __init__(self, address: Address, catalog: ReplicaCatalog) -> None:
        self._address = address
        self._catalog = catalog

    def commit_table(self, key: Key, request: Mapping[str, Any], rights: Rights, idempotency_key: str) -> LoadedTable:
        """Commit to a table, and return it as it is here now.

        Args:
            request: a CommitTableRequest.
            rights: the client's.
            idempotency_key: the client's; "" for none.
        """
        commit = TableCommit(key, *_changes(request))
        return self._loaded_table(committed_entry(commit_tables(self._address, [commit], rights, idempotency_key), key))

    def commit_transaction(self, request: Mapping[str, Any], rights: Rights, idempotency_key: str) -> list[Key]:
        """Commit to several tables at once, and return their keys.

        Args:
            request: a CommitTransactionRequest.
            rights: the client's.
            idempotency_key: the client's; "" for none.

        Raises:
            BadUpdate: it is none, or has no changes.
        """
        changes = _objects(request, "table-changes")
        commits = [TableCommit(read_identifier(change.get("identifier")), *_changes(change)) for change in changes]
        if not commits:
            raise BadUpdate("there are no table-changes")
        commit_tables(self._address, commits, rights, idempotency_key)
        return [commit.key for commit in commits]

    def create_table(self, namespace: Key, request: Mapping[str, Any], idempotency_key: str) -> LoadedTable:
        """Make a table, or stage one: then nothing is committed, and it has no metadata.json yet.

        Args:
            request: a CreateTableRequest.
            idempotency_key: the client's; "" for none.
        """
        if request.get("stage-create") is True:
            metadata = entry_changes.stage_table(self._address, namespace, request)
            context = self._address.region()
            return LoadedTable("", served_metadata(metadata, context.mapping, self._address.near_root))
        return self._loaded_table(entry_changes.create_table(self._address, namespace, request, idempotency_key))

    def register_table(
        self, namespace: Key, request: Mapping[str, Any], rights: Rights, idempotency_key: str
    ) -> LoadedTable:
        """Put a table on `main` that a metadata.json describes.

        Args:
            request: a RegisterTableRequest.
            rights: the client's.
            idempotency_key: the client's; "" for none.
        """
        content = entry_changes.register_table(self._address, namespace, request, rights, idempotency_key)
        return self._loaded_table(content)

    def drop_table(self, key: Key, idempotency_key: str) -> None:
        """Drop a table; whether or not a purge was requested, its files stay."""
        entry_changes.drop(self._address, ICEBERG_TABLE, key, idempotency_key)

    def rename_table(self, source: Key, destination: Key, idempotency_key: str) -> None:
        """Give a table another name."""
        entry_changes.rename(self._address, ICEBERG_TABLE, source, destination, idempotency_key)

    def create_view(self, namespace: Key, request: Mapping[str, Any], idempotency_key: str) -> LoadedTable:
        """Make a view.

        Args:
            request: a CreateViewRequest.
            idempotency_key: the client's; "" for none.
        """
        return self._loaded_view(entry_changes.create_view(self._address, namespace, request, idempotency_key))

    def replace_view(self, key: Key, request: Mapping[str, Any], idempotency_key: str) -> LoadedTable:
        """Commit to a view.

        Args:
            request: a CommitViewRequest.
            idempotency_key: the client's; "" for none.
        """
        return self._loaded_view(entry_changes.commit_view(self._address, key, *_changes(request), idempotency_key))

    def drop_view(self, key: Key, idempotency_key: str) -> None:
        """Drop a view."""
        entry_changes.drop(self._address, ICEBERG_VIEW, key, idempotency_key)

    def rename_view(self, source: Key, destination: Key, idempotency_key: str) -> None:
        """Give a view another name."""
        entry_changes.rename(self._address, ICEBERG_VIEW, source, destination, idempotency_key)

    def create_namespace(self, namespace: Key, properties: Mapping[str, Any], idempotency_key: str) -> dict[str, Any]:
        """Make a namespace, and return the CreateNamespaceResponse."""
        created = namespace_changes.create_namespace(self._address, namespace, _texts(properties), idempotency_key)
        return {"namespace": list(namespace), "properties": created}

    def drop_namespace(self, namespace: Key, idempotency_key: str) -> None:
        """Drop an empty namespace."""
        namespace_changes.drop_namespace(self._address, namespace, idempotency_key)

    def update_namespace(self, namespace: Key, request: Mapping[str, Any], idempotency_key: str) -> dict[str, Any]:
        """Change a namespace's properties, and return the UpdateNamespacePropertiesResponse.

        Args:
            request: an UpdateNamespacePropertiesRequest.
            idempotency_key: the client's; "" for none.

        Raises:
            BadUpdate: it is none.
        """
        removals, updates = request.get("removals") or [], request.get("updates") or {}
        if not isinstance(removals, list) or not all(isinstance(name, str) for name in removals):
            raise BadUpdate("removals is no list of names")
        return dict(
            namespace_changes.update_namespace(self._address, namespace, removals, _texts(updates), idempotency_key)
        )

    def _loaded_table(self, content: Content) -> LoadedTable:
        with _committed():
            return self._catalog.read_table(content.metadata_location or "")

    def _loaded_view(self, content: Content) -> LoadedTable:
        with _committed():
            return self._catalog.read_view(content.metadata_location or "")


@contextmanager
def _committed() -> Iterator[None]:
    """Raise whatever fails after a commit as an unknown outcome, so that no client deletes what `main` names.

    Raises:
        CommitOutcomeUnknown: something failed.
    """
    try:
        yield
    except SternaError as error:
        raise CommitOutcomeUnknown(f"the commit was made, and can't be shown here yet: {error.message}") from error


def open_write_service(context: RegionContext, catalog: ReplicaCatalog, services: Services) -> CatalogWriteService:
    """Return the writing side of a region's address; no server is called yet.

    Args:
        catalog: the reading side, which shows what this process has changed.
        services: the services file.
    """
    # A request waits for a store as long as the settings say, and a sync as long as any other.
    recent, region = catalog.index.recent, KeptRegion(context.with_new_connections(catalog.objects))
    syncing = KeptRegion(context.with_new_connections())
    sync = BackgroundSync(syncing, recent, renew=syncing.renew, retry_delay=RETRY_DELAY)
    location = catalog.settings.location
    address = Address(region, location, recent, sync, cache=catalog.cache)
    address.earlier_roots = [root for root in near_roots(context.mapping, services) if root != location]
    address.inboxes = services.inbox_prefixes
    kept = [region, syncing]
    if credential_id := catalog.settings.catalog_credential_id:
        address.writing = KeptRegion(
            with_catalog_credential(context, credential_id).with_new_connections(catalog.objects)
        )
        kept.append(address.writing)

    def renew() -> None:
        for one in kept:
            one.renew()

    address.renew = renew
    return CatalogWriteService(address, catalog)


def with_catalog_credential(context: RegionContext, credential_id: str) -> RegionContext:
    """Return a region that logs in with another credential at whichever catalog takes commits."""
    regions = [
        region.model_copy(update={"catalog": region.catalog.model_copy(update={"credential_id": credential_id})})
        for region in context.registry.regions
    ]
    registry = context.registry.model_copy(update={"regions": regions})
    return RegionContext.of(registry, registry.region(context.region.name), context.secrets)


def _changes(request: Mapping[str, Any]) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Return a request's requirements and updates in the spelling that they are applied in: rules read them before."""
    return (
        [normalized_requirement(requirement) for requirement in _objects(request, "requirements")],
        [normalized_update(update) for update in _objects(request, "updates")],
    )


def _objects(request: Mapping[str, Any], field: str) -> Sequence[Mapping[str, Any]]:
    values = request.get(field)
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise BadUpdate(f"{field} is no list of objects")
    return values


def _texts(properties: object) -> dict[str, str]:
    if not isinstance(properties, dict) or not all(isinstance(value, str) for value in properties.values()):
        raise BadUpdate("properties are no texts")
    if not all(is_unicode(text) for item in properties.items() for text in item):
        raise BadUpdate("half a surrogate pair in a property")
    return properties
