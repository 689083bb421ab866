"""The catalog's port for reading: references, history, differences, contents.

`sterna.catalog.nessie.catalog` talks to a real server; `tests/support/doubles/catalog.py` keeps the same promises in
memory, and one behaviour suite (`tests/integration/catalog/test_catalog.py`) runs over both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Protocol

from sterna.catalog.model import Commit, Content, DiffEntry, Key, Reference


class CatalogReader(Protocol):
    """Read access to a catalog.

    `ref` and `hash` together mean the commit `hash`, read with the rights on `ref`. All methods
    raise CatalogUnreachable when the catalog gives no usable answer in time, CatalogDenied when it refuses the
    credential, CatalogRefused when it rejects the request, and ReferenceNotFound when a reference or hash is
    unknown.
    """

    @property
    def default_branch(self) -> str:
        """The name of the catalog's default branch, `main`."""
        ...

    def no_ancestor(self) -> str:
        """Return the hash of "before the first commit"."""
        ...

    def reference(self, name: str) -> Reference:
        """Return a branch or tag by its name.

        Raises:
            ReferenceNotFound: there is none; the message names those that exist.
        """
        ...

    def references(self) -> tuple[Reference, ...]:
        """Return all branches and tags, by name."""
        ...

    def history(self, ref_or_hash: str, *, operations: bool, until: str | None = None) -> Iterator[Commit]:
        """Yield a reference's commits, newest first, fetched page by page as they are consumed.

        Args:
            ref_or_hash: a branch or tag, a hash, or `ref@hash`.
            operations: whether commits come with their operations.
            until: the hash to stop before. It was reached where it is the last commit's `parent` (or, when nothing was
                yielded, the starting point itself): without a match the iterator ends at the first commit.

        Yields:
            The commits.
        """
        ...

    def diff(self, ref: str, old_hash: str | None, new_hash: str) -> Iterator[DiffEntry]:
        """Yield the keys that differ between two commits, with both contents.

        A diff does not show whether `old_hash` is an ancestor of `new_hash`: walk the history for that.

        Args:
            ref: the reference whose rights are used for both.
            old_hash: the older commit, None to compare with an empty catalog.
            new_hash: hash of the newer commit.

        Yields:
            One entry a key, in no promised order.
        """
        ...

    def entries(self, ref: str, hash: str) -> Iterator[tuple[Key, Content]]:
        """Yield every key of a commit with its content, in no promised order."""
        ...

    def contents(self, ref: str, hash: str, keys: Collection[Key]) -> Mapping[Key, Content]:
        """Return the contents of some keys at a commit; a key that does not exist there is absent."""
        ...

    def read_current(self, ref: str, keys: Collection[Key]) -> tuple[str, Mapping[Key, Content]]:
        """Return a branch's or tag's commit, and the contents of some keys there, as `contents`: in one round trip."""
        ...

    def exists(self, hash: str) -> bool:
        """Return whether the catalog has a commit."""
        ...


def entries_since(catalog: CatalogReader, ref: str, since: str | None, hash: str) -> Iterator[tuple[Key, Content]]:
    """Yield a commit's contents; after an earlier one, only the keys whose content differs from it.

    Args:
        ref: the reference whose rights are used.
        since: the earlier commit; None or the catalog's "no ancestor": nothing was read.
        hash: hash of the commit.
    """
    if hash == catalog.no_ancestor():
        return
    if since in (None, catalog.no_ancestor()):
        yield from catalog.entries(ref, hash)
        return
    for entry in catalog.diff(ref, since, hash):
        if entry.new is not None:
            yield entry.key, entry.new
