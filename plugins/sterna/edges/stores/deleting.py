"""Deleting objects of one store: many in one request, and one by one where that fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sterna.edges.stores.open_store import LATER, OpenStore, call_store
from sterna.errors import ObjectMissing, SternaError, StoreUnreachable
from sterna.registry.credential import address_of

_HOPELESS = 3  # deletions that failed one after another, and no other succeeded: it is the store


def delete_each(found: Sequence[tuple[str, OpenStore, str]], proceed: Callable[[], bool]) -> dict[str, SternaError]:
    """Delete objects of one store in one request.

    Where that fails, one by one, so that each has an error of its own.
    """
    import obstore

    uri, store, key = found[0]
    if not proceed():
        late = StoreUnreachable(f"{address_of(store.location)} took too long over the deletions before; {LATER}")
        return {each: late for each, _, _ in found}
    try:
        call_store(
            store, uri, lambda: obstore.delete(store.client, [item[2] for item in found] if len(found) > 1 else key)
        )
        return {}
    except ObjectMissing:
        if len(found) == 1:
            return {}
    except SternaError as error:
        if len(found) == 1:
            return {uri: error}
    failures: dict[str, SternaError] = {}
    for number, item in enumerate(found, 1):
        failures |= delete_each([item], proceed)
        if len(failures) == number == _HOPELESS:
            return {each: next(iter(failures.values())) for each, _, _ in found}
    return failures
