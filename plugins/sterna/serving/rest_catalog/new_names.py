"""Names that a request adds to `main`: whether they are free, and what is answered when other commits come first.

A commit that comes too late gets 409. Clients read 409 for a new name as "it is there already", and `CREATE TABLE IF
NOT EXISTS` goes on as if it were. So that is the answer for names that are taken, and for no other.

Source: the Iceberg REST Catalog specification, 1.12, `createTable`; Iceberg's `ErrorHandlers.tableErrorHandler`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sterna.catalog.model import Key, key_name
from sterna.errors import CatalogConflict, CommitOutcomeUnknown, StaleBase
from sterna.serving.rest_catalog.address import Address, MainState, read_main
from sterna.serving.rest_catalog.name_errors import require_namespace, taken_name


@contextmanager
def adding_name(
    address: Address,
    key: Key,
    idempotency_key: str = "",
    *,
    old_name: Key | None = None,
    may_be_taken: bool = False,
) -> Iterator[None]:
    """Be the only one here at a new name while the block runs.

    Args:
        idempotency_key: the client's; "" for none.
        old_name: what gets the name; None: something new.
        may_be_taken: whether what has the name already is to be replaced.

    Raises:
        NoSuchNamespace, AlreadyExists: another commit came first, and the name can't be added any more.
        CatalogConflict: others came first all the time, and it still can be; nothing was committed.
        CommitOutcomeUnknown: another instance has carried the request out meanwhile.
    """
    try:
        with address.turns.take({key, old_name or key}):
            yield
    except StaleBase as error:
        namespace = key[:-1]
        main = read_main(address, [one for one in (namespace, key) if one], idempotency_key)
        if main.replayed:
            raise CommitOutcomeUnknown("the same request was carried out meanwhile", table=key_name(key)) from error
        if not may_be_taken:
            require_free_name(main, namespace, key)
        raise CatalogConflict(f"other commits came first: {error.message}", table=key_name(key)) from error


def require_free_name(main: MainState, namespace: Key, key: Key) -> None:
    """See that a name isn't taken, and that its namespace is there.

    Args:
        main: with both.
        namespace: the name's; () for none.

    Raises:
        NoSuchNamespace, AlreadyExists: it isn't so.
    """
    if namespace:
        require_namespace(main.contents[namespace], namespace)
    if (existing := main.contents[key]) is not None:
        raise taken_name(existing.kind, key)
