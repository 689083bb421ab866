"""Changes of namespaces: they are made, dropped, or get other properties, on `main`, and that is shown here at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sterna.catalog.model import Delete, Key, Put, key_name, namespace_content
from sterna.errors import BadUpdate, CatalogRefused, NamespaceNotEmpty
from sterna.serving.rest_catalog.address import Address, MainState, read_main
from sterna.serving.rest_catalog.commit import carry_out, change_names, show_repeated, stale_as_conflict
from sterna.serving.rest_catalog.name_errors import require_namespace
from sterna.serving.rest_catalog.new_names import adding_name, require_free_name
from sterna.serving.rest_catalog.rules import reject_protected_properties, reject_replica_uris


def create_namespace(
    address: Address, namespace: Key, properties: Mapping[str, str], idempotency_key: str = ""
) -> dict[str, str]:
    """Make a namespace, and return its properties as this region has them.

    Args:
        idempotency_key: the client's; "" for none.

    Raises:
        AlreadyExists, NoSuchNamespace: it is there, or its parent isn't.
        BadUpdate, Forbidden: a property can't or mustn't be set.
        CatalogConflict: as `adding_name`.
        CommitOutcomeUnknown: as `change_names`.
    """
    reject_protected_properties(properties, (), {})
    reject_replica_uris(address.region().mapping, properties)
    parents = [namespace[:-1]] if len(namespace) > 1 else []

    def put(main: MainState) -> list[Put]:
        require_free_name(main, namespace[:-1], namespace)
        return [Put(namespace, namespace_content(namespace, properties))]

    with adding_name(address, namespace, idempotency_key):
        message = f"create namespace {key_name(namespace)}"
        change_names(address, [*parents, namespace], put, message, idempotency_key)
    return dict(properties)


def drop_namespace(address: Address, namespace: Key, idempotency_key: str = "") -> None:
    """Drop an empty namespace.

    Args:
        idempotency_key: the client's; "" for none.

    Raises:
        NoSuchNamespace, NamespaceNotEmpty: it isn't there, or has something in it.
        CatalogConflict: another commit came first; nothing was committed.
        CommitOutcomeUnknown: as `carry_out`.
    """
    with stale_as_conflict(), address.turns.take([namespace]):
        main = read_main(address, [namespace], idempotency_key)
        if main.replayed:
            show_repeated(address, [namespace])
            return
        require_namespace(main.contents[namespace], namespace)
        try:
            # `main` was read before: a proxy's refusal of that says nothing of what is in the namespace.
            carry_out(address, main, [Delete(namespace)], f"drop namespace {key_name(namespace)}", idempotency_key)
        except CatalogRefused as error:
            raise NamespaceNotEmpty(
                f"the namespace is not empty: {error.message}", table=key_name(namespace)
            ) from error


def update_namespace(
    address: Address,
    namespace: Key,
    removals: Sequence[str],
    updates: Mapping[str, str],
    idempotency_key: str = "",
) -> dict[str, list[str]]:
    """Change a namespace's properties.

    Args:
        removals: names of properties to remove.
        updates: properties to set.
        idempotency_key: the client's; "" for none.

    Returns:
        The names under `updated`, `removed` and `missing`, as the REST specification has them.

    Raises:
        NoSuchNamespace: there is none.
        BadUpdate, Forbidden: a property can't or mustn't be changed.
        CatalogConflict: another commit came first; nothing was committed.
        CommitOutcomeUnknown: as `carry_out`.
    """
    if both := sorted(set(removals) & updates.keys()):
        raise BadUpdate(f"a property is to be set and removed: {both[0]}")
    reject_replica_uris(address.region().mapping, updates)
    with stale_as_conflict(), address.turns.take([namespace]):
        main = read_main(address, [namespace], idempotency_key)
        content = require_namespace(main.contents[namespace], namespace)
        current = content.payload.get("properties") or {}
        reject_protected_properties(updates, removals, current)
        changed = {name: value for name, value in current.items() if name not in removals} | dict(updates)
        if changed != current and not main.replayed:
            put = Put(namespace, namespace_content(namespace, changed, content.id))
            carry_out(address, main, [put], f"properties of namespace {key_name(namespace)}", idempotency_key)
        return {
            "updated": sorted(updates),
            "removed": sorted(name for name in removals if name in current),
            "missing": sorted(name for name in removals if name not in current),
        }
