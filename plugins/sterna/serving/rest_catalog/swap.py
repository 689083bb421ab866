"""The compare-and-swap on `main`: what was prepared for some keys is committed while those are what they were.

A commit to other keys in between doesn't matter: the swap is tried again on the new head. A lost answer is looked up by
the commit's own id; what can't be found out is said to be unknown, so that no client deletes files that `main` names.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import uuid4

from sterna.catalog.main_branch import commit_to_main
from sterna.catalog.model import Content, Key, Operation, key_name
from sterna.catalog.writer import CatalogWriter
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import (
    CatalogConflict,
    CatalogError,
    CatalogStateUnknown,
    CatalogUnreachable,
    CommitOutcomeUnknown,
    StaleBase,
)
from sterna.replication.replica.head import REGION

REST_COMMIT = "sterna.rest-commit"
"""Of a commit on `main` by a region's REST address: names that very commit, so that a lost answer is found again."""
REST_KEY = "sterna.rest-key"
"""Of such a commit: the client's `Idempotency-Key`, so that a repeated request is answered and not carried out."""
_SECONDS = 20.0  # within which the swap has to be over, others' commits and lost answers included
_PAUSE_SECONDS = 0.05


@dataclass(frozen=True)
class Swap:
    """What is to be committed to `main`.

    Args:
        expected: what `main` must have under each key then; None: nothing.
        operations: what changes.
        message: for people.
    """

    expected: Mapping[Key, Content | None]
    operations: tuple[Operation, ...]
    message: str


def swap_on_main(
    catalog: CatalogWriter,
    region: str,
    swap: Swap,
    head_hash: str,
    *,
    idempotency_key: str = "",
    seconds: float = _SECONDS,
) -> str:
    """Commit to `main` if the keys are still what they were, and return the commit's hash.

    Args:
        catalog: the one that takes commits.
        region: whose address commits.
        head_hash: `main`'s head at which the keys were read.
        idempotency_key: the client's, "" for none.
        seconds: after which it is given up.

    Raises:
        StaleBase: another commit changed one of the keys; nothing was committed.
        CommitOutcomeUnknown: no answer says whether it was committed.
        CatalogError: the catalog refused it; nothing was committed.
    """
    properties = {REGION: region, REST_COMMIT: str(uuid4())}
    if idempotency_key:
        properties[REST_KEY] = idempotency_key
    end, unknown = time.monotonic() + seconds, False
    while True:
        try:
            return commit_to_main(
                catalog,
                head_hash,
                swap.operations,
                swap.message,
                properties,
                identified_by=[REST_COMMIT],
                existing=swap.expected,
            )
        except CatalogConflict as error:
            if time.monotonic() > end:
                raise StaleBase(f"{SOURCE_BRANCH} changes faster than this commits: {error.message}") from error
            # Where the last answer was lost, this says that nothing was committed: the history was looked through.
            head_hash, unknown = _head_after_conflict(catalog, swap), False
        except (CatalogStateUnknown, CatalogUnreachable) as error:
            unknown = True
            if time.monotonic() > end:
                raise _outcome_unknown(error) from error
        except CatalogError as error:
            # Some errors come with a commit nevertheless, and an earlier attempt may have arrived.
            if committed := _committed_hash(catalog, head_hash, properties[REST_COMMIT]):
                return committed
            if unknown:
                raise _outcome_unknown(error) from error
            raise
        time.sleep(_PAUSE_SECONDS * random.uniform(0.5, 1.5))  # noqa: S311 - so that two don't meet again and again


def _head_after_conflict(catalog: CatalogWriter, swap: Swap) -> str:
    """Return `main`'s head, at which the keys still are what they were.

    Raises:
        StaleBase: one of them is not.
    """
    head, contents = catalog.read_current(SOURCE_BRANCH, list(swap.expected))
    changed = next((key for key, expected in swap.expected.items() if contents.get(key) != expected), None)
    if changed is not None:
        raise StaleBase("another commit to the table came first", table=key_name(changed))
    return head


def _committed_hash(catalog: CatalogWriter, since: str, commit_id: str) -> str:
    """Return the hash of the commit if it is on `main`, else "".

    Raises:
        CommitOutcomeUnknown: that can't be found out.
    """
    try:
        history = catalog.history(SOURCE_BRANCH, operations=False, until=since)
        return next((commit.hash for commit in history if commit.properties.get(REST_COMMIT) == commit_id), "")
    except CatalogError as error:
        raise _outcome_unknown(error) from error


def _outcome_unknown(error: CatalogError) -> CommitOutcomeUnknown:
    return CommitOutcomeUnknown(f"whether the commit is on {SOURCE_BRANCH} can't be found out: {error.message}")
