"""Deleting objects of one store: many in one request, and one by one where that fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sterna.config.registry.credential import describe_store
from sterna.errors import ObjectMissing, SternaError, StoreUnreachable
from sterna.storage.client import RESUME_HINT, OpenStore, call_store

_MAX_FAILURES = 3  # deletions that failed one after another, and no other succeeded: it is the store


def delete_objects(
    targets: Sequence[tuple[str, OpenStore, str]], may_continue: Callable[[], bool]
) -> dict[str, SternaError]:
    """Delete objects of one store in one request.

    Where that fails, one by one, so that each has an error of its own.
    """
    import obstore

    uri, store, key = targets[0]
    if not may_continue():
        timeout_error = StoreUnreachable(
            f"{describe_store(store.location)} took too long over the deletions before; {RESUME_HINT}"
        )
        return {target_uri: timeout_error for target_uri, _, _ in targets}
    try:
        call_store(
            store,
            uri,
            lambda: obstore.delete(store.client, [target[2] for target in targets] if len(targets) > 1 else key),
        )
        return {}
    except ObjectMissing:
        if len(targets) == 1:
            return {}
    except SternaError as error:
        if len(targets) == 1:
            return {uri: error}
    failures: dict[str, SternaError] = {}
    for count, target in enumerate(targets, 1):
        failures |= delete_objects([target], may_continue)
        if len(failures) == count == _MAX_FAILURES:
            return {target_uri: next(iter(failures.values())) for target_uri, _, _ in targets}
    return failures
