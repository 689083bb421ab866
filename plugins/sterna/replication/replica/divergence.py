"""A `main` that was reassigned, reset or rewritten behind the watermark.

Where its history parts from the one that the replica followed.
"""

from __future__ import annotations

from itertools import islice, zip_longest

from sterna.catalog.model import Commit
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import Diverged, UsageError
from sterna.replication.replica.region import RegionContext

_FIRST_PAGE_COMMITS = 8  # commits of `main`: the first page of its history


def divergence_error(context: RegionContext, source_hash: str, watermark: str) -> Diverged:
    """Return the error of a watermark that is no ancestor of `main`'s head."""
    return Diverged(
        f"{SOURCE_BRANCH} is at {source_hash}; {watermark}, which {context.region.replica_branch} is at, is none of "
        "its ancestors",
        hint=f"{SOURCE_BRANCH} was reassigned, reset or rewritten: find the cause; the replica stays as it is until "
        f"main is put back, or `sterna reset-watermark --to {source_hash}` takes it as the truth",
    )


def validate_reset_target(context: RegionContext, source_hash: str, watermark: str, target_hash: str) -> list[Commit]:
    """Require that the commit which an operator confirms is `main`'s present head, or below it.

    Args:
        source_hash: hash of `main`'s head.
        watermark: the hash of `main` that the replica is at, "" when the catalog doesn't have it.
        target_hash: the confirmed hash: `main`'s head, or a commit before it that the replica's own history lacks.

    Returns:
        `main`'s commits after the point where the two lines part, newest first, with operations; none where there is no
        watermark.

    Raises:
        UsageError: it is another one.
    """
    if watermark:
        commits = commits_since_fork(context, source_hash, watermark)
        watermark_hashes = {watermark} if starts_at_watermark(commits, source_hash, watermark) else set()
        is_valid = target_hash in {source_hash, *(commit.hash for commit in commits)} | watermark_hashes
    else:
        commits, last_hash = [], source_hash
        for commit in context.primary.history(f"{SOURCE_BRANCH}@{source_hash}", operations=False, until=target_hash):
            last_hash = commit.parent
        is_valid = last_hash == target_hash
    if not is_valid:
        raise UsageError(
            f"{target_hash} is not {SOURCE_BRANCH}'s head: it is at {source_hash}, and {target_hash} is none "
            f"of the commits that led there since it left {watermark or 'its beginning'}",
            hint="read main's log, and name the commit to be confirmed",
        )
    return commits


def starts_at_watermark(commits: list[Commit], source_hash: str, watermark: str) -> bool:
    """Return whether `main`'s commits since the fork begin at the watermark: then `main` hasn't diverged."""
    return (commits[-1].parent if commits else source_hash) == watermark


def commits_since_fork(context: RegionContext, source_hash: str, watermark: str) -> list[Commit]:
    """Return `main`'s commits after the point where its line parts from the watermark's, newest first.

    What is read follows the distance to that point, on whichever line it is longer, and not the length of `main`.

    Args:
        source_hash: hash of `main`'s head.
        watermark: a hash that the catalog has; where it is on `main`, it is itself the fork point (`follows`).

    Returns:
        The commits, with operations; all of `main` where the lines have nothing in common.
    """
    if source_hash == watermark:
        return []
    catalog = context.primary
    main_history = catalog.history(f"{SOURCE_BRANCH}@{source_hash}", operations=True)
    main_commits: list[Commit] = []
    # Most syncs are a few commits behind, and end here: the other history need not be read.
    for commit in islice(main_history, _FIRST_PAGE_COMMITS):
        main_commits.append(commit)
        if commit.parent == watermark:
            return main_commits
    positions = {commit.hash: number for number, commit in enumerate(main_commits)}
    replica_hashes: set[str] = set()
    replica_history = catalog.history(watermark, operations=False) if watermark != catalog.no_ancestor() else iter(())
    # In parallel, so that at most twice as many commits are read as there are above the fork.
    for main_commit, replica_commit in zip_longest(main_history, replica_history):
        if main_commit is not None:
            positions[main_commit.hash] = len(main_commits)
            main_commits.append(main_commit)
        if replica_commit is not None:
            replica_hashes.add(replica_commit.hash)
        for candidate in (main_commit, replica_commit):
            if candidate is not None and candidate.hash in positions and candidate.hash in replica_hashes:
                return main_commits[: positions[candidate.hash]]
    return main_commits
