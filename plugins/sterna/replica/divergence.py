"""A `main` that was reassigned, reset or rewritten behind the watermark.

Where its history parts from the one that the replica followed.
"""

from __future__ import annotations

from itertools import islice, zip_longest

from sterna.catalog.model import Commit
from sterna.errors import Diverged, UsageError
from sterna.registry.model import SOURCE_BRANCH
from sterna.replica.region import RegionContext

_ALONE = 8  # commits of `main`: the first page of its history


def diverged(context: RegionContext, source_hash: str, watermark: str) -> Diverged:
    """Return the error that says that a watermark is no ancestor of `main`'s head."""
    return Diverged(
        f"{SOURCE_BRANCH} is at {source_hash}; {watermark}, which {context.region.replica_branch} stands for, is "
        "none of its ancestors",
        hint=f"{SOURCE_BRANCH} was reassigned, reset or rewritten: find out by whom; the replica stays as "
        "it is until main is put back, or "
        f"`sterna reseed --from {source_hash}` takes it as the truth",
    )


def accepted(context: RegionContext, source_hash: str, watermark: str, wanted: str) -> list[Commit]:
    """See that an operator who gives his word for a commit of `main` has seen where `main` stands now.

    Args:
        context: the region.
        source_hash: `main`'s head.
        watermark: the hash of `main` that the replica stands for, "" when the catalog doesn't know it.
        wanted: the hash that he names: `main`'s head, or a commit before it that the replica's own line of history
            doesn't have.

    Returns:
        `main`'s commits after the point where the two lines part, newest first, with operations; none where there is no
        watermark.

    Raises:
        UsageError: it is another one.
    """
    if watermark:
        commits = since_fork(context, source_hash, watermark)
        followed = {watermark} if follows(commits, source_hash, watermark) else set()
        good = wanted in {source_hash, *(commit.hash for commit in commits)} | followed
    else:
        commits, last = [], source_hash
        for commit in context.primary.history(f"{SOURCE_BRANCH}@{source_hash}", operations=False, until=wanted):
            last = commit.parent
        good = last == wanted
    if not good:
        raise UsageError(
            f"{wanted} is not where {SOURCE_BRANCH} stands: it is at {source_hash}, and {wanted} is none of the "
            "commits that led there "
            f"since it left {watermark or 'its beginning'}",
            hint="look at main's log, and name the commit that you take for the truth",
        )
    return commits


def follows(commits: list[Commit], source_hash: str, watermark: str) -> bool:
    """Tell whether `main`'s commits since the fork begin at the watermark: then nothing parted."""
    return (commits[-1].parent if commits else source_hash) == watermark


def since_fork(context: RegionContext, source_hash: str, watermark: str) -> list[Commit]:
    """Return `main`'s commits after the point where its line parts from the watermark's, newest first.

    What is read follows the distance to that point, on whichever line it is longer, and not the length of `main`.

    Args:
        context: the region.
        source_hash: `main`'s head.
        watermark: a hash that the catalog knows; where `main` has not left it, the lines part there (`follows`).

    Returns:
        The commits, with operations; all of `main` where the lines have nothing in common.
    """
    if source_hash == watermark:
        return []
    catalog = context.primary
    ours = catalog.history(f"{SOURCE_BRANCH}@{source_hash}", operations=True)
    line: list[Commit] = []
    # Most syncs are a few commits behind, and end here: the other line need not be asked for.
    for commit in islice(ours, _ALONE):
        line.append(commit)
        if commit.parent == watermark:
            return line
    places = {commit.hash: number for number, commit in enumerate(line)}
    passed: set[str] = set()
    theirs = catalog.history(watermark, operations=False) if watermark != catalog.no_ancestor() else iter(())
    # Side by side, so that no more is read than lies above the fork, twice at most.
    for mine, other in zip_longest(ours, theirs):
        if mine is not None:
            places[mine.hash] = len(line)
            line.append(mine)
        if other is not None:
            passed.add(other.hash)
        for met in (mine, other):
            if met is not None and met.hash in places and met.hash in passed:
                return line[: places[met.hash]]
    return line
