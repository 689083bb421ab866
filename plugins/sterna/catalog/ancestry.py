"""Whether a commit is part of a history, which is read only as far back as that needs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sterna.catalog.reader import CatalogReader

# Clocks of two catalog servers may differ by this much: a commit's parent is at most so much younger than itself.
_MAX_CLOCK_SKEW = timedelta(minutes=10)


class Ancestry:
    """A commit and those before it, read page by page as questions need them.

    Where the catalog fails, each later question that needs what was not read fails with the same error: an iterator
    that has raised says that it is at its end, and what it lacks would look as though it weren't part of the history.

    Args:
        catalog: where the commits are.
        head: hash of the newest; "": there is none.
        reference: the branch or tag whose rights are used; `-`: any.
    """

    def __init__(self, catalog: CatalogReader, head: str, reference: str = "-") -> None:
        root = catalog.no_ancestor()
        self._is_read = head in ("", root)
        self._commits = iter(()) if self._is_read else catalog.history(f"{reference}@{head}", operations=False)
        self._visited = {head or root, root}
        self._oldest = datetime.max.replace(tzinfo=UTC)
        self._error: Exception | None = None

    def contains(self, hash: str, seen_at: datetime | None = None) -> bool:
        """Return whether a commit is part of it; what is before the first commit is, too.

        Args:
            hash: the commit's.
            seen_at: a time at which it was there, which its own isn't behind: nothing much older is read.

        Raises:
            ReferenceNotFound: the catalog has lost commits that would have to be read.
            CatalogError: it doesn't answer, or didn't at an earlier question.
        """
        oldest = datetime.min.replace(tzinfo=UTC) if seen_at is None else seen_at - _MAX_CLOCK_SKEW
        while hash not in self._visited and not self._is_read and self._oldest >= oldest:
            self._read_next()
        return hash in self._visited

    def _read_next(self) -> None:
        if self._error is not None:
            raise self._error
        try:
            commit = next(self._commits, None)
        except Exception as error:
            self._error = error
            raise
        if commit is None:
            self._is_read = True
            return
        self._visited |= {commit.hash, commit.parent}
        self._oldest = commit.commit_time
