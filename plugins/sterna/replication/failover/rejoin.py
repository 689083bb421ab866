"""Rejoins a region after a failover.

Commits that only it has are kept on branches; then it becomes a copy like the others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from sterna.catalog.ancestry import Ancestry
from sterna.catalog.model import Commit
from sterna.catalog.nessie.catalog import NessieCatalog, open_nessie
from sterna.config.registry.model import SOURCE_BRANCH, Region, Registry
from sterna.config.secrets import Secrets
from sterna.errors import CatalogUnreachable, NotPrimary, UsageError
from sterna.postgres.connection import open_connection
from sterna.postgres.term import Term, read_term
from sterna.replication.failover.catalog_seed import Seeded, copy_missing_objects, seed
from sterna.replication.failover.model import CatalogSite, Primary
from sterna.replication.failover.site import (
    ensure_schema,
    fence,
    inspect_sites,
    require_readable,
    resolve_primary,
    unseen_error,
)
from sterna.replication.replica.tags import LOST_PREFIX, has_region_prefix

if TYPE_CHECKING:
    from psycopg import Connection

_HEADS_PREFIX, _TAGS_PREFIX = "refs/heads/", "refs/tags/"
# Where a branch without commits points, in Nessie.
_NO_ANCESTOR = "2e1cfa82b035c26cbbbdae632cea070514eb8b773f616aaeaf668e2f0be8f10d"
_FIRST_PROMOTION_HINT = "sterna catalog promote --region <the first one>"


@dataclass(frozen=True)
class LostCommits:
    """Commits of one branch, or under one tag, that only the region has.

    Args:
        branch: where they were made; `refs/tags/…` for those only under a tag.
        head: the last of them.
        kept: the branch that keeps them, `lost/<date>/<hash>`.
        commits: all of them, newest first.
    """

    branch: str
    head: str
    kept: str
    commits: tuple[Commit, ...]


@dataclass(frozen=True)
class Rejoined:
    """What a rejoin did."""

    seeded: Seeded
    lost: tuple[LostCommits, ...]


def rejoin(
    registry: Registry, secrets: Secrets, name: str, progress: Callable[[str], None], *, keep: bool = True
) -> Rejoined:
    """Fence a region's catalog, keep what only it has, and make it follow the primary; safe to repeat after a crash
    anywhere.

    Args:
        registry: all regions have a `catalog.database`.
        progress: receives a message for each step.
        keep: keep commits that only this region has; without it they are lost.

    Raises:
        UsageError: the region is the primary; or another region is at work and can't be read.
        NotPrimary: the region of the newest term takes no commits, or has another term itself.
        CatalogUnreachable: which region is the primary isn't certain.
        DatabaseUnreachable: one of the two does not answer.
        DatabaseRefused: one of the two refuses the login.
        CredentialError: a credential of one of the two is missing.
    """
    sites = inspect_sites(registry.regions, secrets)
    source = registry.region(_resolve_source(sites, name))
    for site in sites.values():
        if site.problem:
            progress(f"{site.region} was not seen, and may have a newer term: {site.problem}")
    return rejoin_to_primary(registry, registry.region(name), source, secrets, progress, keep=keep)


def rejoin_to_primary(
    registry: Registry,
    target: Region,
    source: Region,
    secrets: Secrets,
    progress: Callable[[str], None],
    *,
    keep: bool = True,
) -> Rejoined:
    """Rejoin a region to a known primary; see `rejoin`.

    Raises:
        DatabaseUnreachable: one of the two does not answer.
        UsageError: the region has commits and no term: which of them only it has isn't known.
    """
    lost: tuple[LostCommits, ...] = ()
    with open_connection(target, secrets) as target_connection, open_connection(source, secrets) as source_connection:
        if keep and read_term(target_connection) is None:
            _require_no_commits(target_connection, target)
        elif keep:
            ensure_schema(target_connection, target)
            fence(target_connection, target)
            progress(f"{target.name} takes no commits")
            with open_nessie(source.catalog.write, source.catalog.credential_id, secrets) as primary:
                lost = _preserve_lost_commits(registry, target_connection, source_connection, primary, progress)
    others = [region for region in registry.regions if region not in (target, source)]
    return Rejoined(seed(target, source, others, secrets, progress), lost)


@dataclass(frozen=True)
class GuardCheck:
    """What a guard found out.

    Args:
        primary: the region of the newest term that was seen.
        term: that term.
        unseen: by region, why it was not seen, where that leaves open whether the guarded region is the primary; empty
            where another one is, for terms only grow.
    """

    primary: str
    term: Term = field(metadata={"json": "epoch"})
    unseen: Mapping[str, str] = field(default_factory=dict)


def guard_region(region: Region, registry: Registry, secrets: Secrets) -> GuardCheck:
    """Fence a region's catalog when another region has a newer term; run before and beside a region's Nessie servers.

    It never lifts a fence.

    Args:
        registry: all regions have a `catalog.database`.

    Raises:
        DatabaseUnreachable: the region's own Postgres does not answer.
        DatabaseRefused: it refuses the login.
        CredentialError: its credential is missing.
        CatalogUnreachable: no other region was seen, or one of them was not and the others have no term.
        NotPrimary: no region was ever promoted; or the newest term is the region's, and it doesn't have it itself.
    """
    sites = inspect_sites(registry.regions, secrets)
    own = sites.pop(region.name)
    if own.problem:
        raise unseen_error(own)
    if sites and all(site.problem for site in sites.values()):
        raise CatalogUnreachable(
            f"no other region answers, so that nobody can tell whether {region.name} may still be the primary; it "
            f"knows term {own.term}: {'; '.join(site.problem for site in sites.values())}",
            hint="once one answers, run this again; to continue without one, see docs/operations.md",
        )
    primary = resolve_primary([own, *sites.values()])
    newest_term = primary.newest
    if newest_term is None:
        raise _no_primary_error(primary)
    if newest_term.region == region.name and own.term != newest_term:
        raise NotPrimary(
            f"{region.name} is named the primary of term {newest_term} and knows term {own.term} itself: its "
            "database was emptied or restored",
            hint="start no Nessie of it before it is certain which region has the catalog: sterna catalog status",
        )
    # Only where it may write: the fence waits for commits in progress, and new ones wait behind it.
    if newest_term.region != region.name and (own.writable or not own.main):
        with open_connection(region, secrets) as connection:
            ensure_schema(connection, region)
            fence(connection, region)
    return GuardCheck(newest_term.region, newest_term, primary.unseen if newest_term.region == region.name else {})


def _resolve_source(sites: Mapping[str, CatalogSite], name: str) -> str:
    """Return the region to follow: the primary by its own term, which takes commits."""
    if sites[name].problem:
        raise unseen_error(sites[name], f"region {name} may be the primary itself: ")
    primary = resolve_primary(list(sites.values()))
    newest_term = primary.newest
    if newest_term is None:
        raise _no_primary_error(primary)
    if newest_term.region == name:
        raise UsageError(f"region {name} is the primary: there is nothing that it could follow")
    source = sites.get(newest_term.region)
    if source is None:
        raise UsageError(f"the primary {newest_term.region} is not in this registry")
    if source.problem:
        raise unseen_error(source, f"the primary {newest_term.region} has to be seen: ")
    if source.term != newest_term or not source.writable:
        contradiction = "takes no commits" if source.term == newest_term else f"has term {source.term} itself"
        raise NotPrimary(
            f"{newest_term.region} is named the primary of term {newest_term}, and {contradiction}: which region "
            "to follow isn't certain",
            hint="sterna catalog status",
        )
    require_readable(sites.values(), ", or stop that server; nothing was changed")
    return newest_term.region


def _no_primary_error(primary: Primary) -> CatalogUnreachable | NotPrimary:
    """Return the error where no region that was seen has a term."""
    if not primary.known:
        reasons = "; ".join((*primary.unseen.values(), *primary.doubts))
        return CatalogUnreachable(f"can't determine which region's catalog is the primary: {reasons}")
    return NotPrimary("no region's catalog is the primary yet", hint=_FIRST_PROMOTION_HINT)


def _require_no_commits(connection: Connection[Any], target: Region) -> None:
    """Refuse a region that has commits and no term: which of them are its own isn't known, so they would be lost."""
    is_seeded = connection.execute("SELECT to_regclass('refs2') IS NOT NULL").fetchone()
    heads = read_references(connection) if is_seeded and is_seeded[0] else {}
    branches = [name for name, head in heads.items() if head != _NO_ANCESTOR]
    if branches:
        raise UsageError(
            f"region {target.name} has commits and knows no term: which of them only it has can't be told: "
            f"{', '.join(sorted(branches)[:5])}",
            hint="sterna catalog resync forgets them; nothing was changed",
        )


def _preserve_lost_commits(
    registry: Registry,
    target_connection: Connection[Any],
    source_connection: Connection[Any],
    primary: NessieCatalog,
    progress: Callable[[str], None],
) -> tuple[LostCommits, ...]:
    switch = _next_switch(target_connection, source_connection)
    if switch is None:
        return ()
    switch_heads, since = switch
    differing = {
        name: head
        for name, head in read_references(target_connection).items()
        if switch_heads.get(name) != head and not _is_managed_reference(name, registry.regions)
    }
    if not differing:
        return ()
    copy_missing_objects(target_connection, source_connection, progress)
    main = Ancestry(primary, switch_heads.get(SOURCE_BRANCH, ""))
    lost: list[LostCommits] = []
    for branch, head in differing.items():
        if branch.startswith(_TAGS_PREFIX) and any(
            head == commit.hash for lost_commits in lost for commit in lost_commits.commits
        ):
            continue  # a branch has it, too
        commits = _commits_beyond(primary, head, (main, Ancestry(primary, switch_heads.get(branch, ""))))
        if commits:
            kept_branch = lost_branch(since, head)
            primary.create_branch(kept_branch, head, detached=True)
            progress(f"{len(commits)} commits on {branch} that only this region had are kept on {kept_branch}")
            lost.append(LostCommits(branch, head, kept_branch, commits))
    return tuple(lost)


def lost_branch(since: datetime, head: str) -> str:
    """Return the branch that keeps what only an old primary had, by the time of the term that followed."""
    return f"{LOST_PREFIX}{since:%Y-%m-%d}/{head[:16]}"


def _next_switch(
    target_connection: Connection[Any], source_connection: Connection[Any]
) -> tuple[dict[str, str], datetime] | None:
    """Return the heads of references at the beginning of the first term that this region doesn't have, and its time.

    None where it has all: since the newest one it was a copy, without commits of its own.
    """
    last_term = read_term(target_connection)
    rows = source_connection.execute(
        "SELECT epoch, region, heads::text, since FROM sterna_epoch ORDER BY epoch, region"
    ).fetchall()
    newer = [row for row in rows if last_term is None or (row[0], row[1]) > (last_term.number, last_term.region)]
    if not newer:
        return None
    _, _, heads, since = newer[0]
    return {name.removeprefix(_HEADS_PREFIX): head for name, head in json.loads(heads).items()}, since


def read_references(connection: Connection[Any]) -> dict[str, str]:
    """Return the heads of branches by their names, then those of tags by `refs/tags/…`."""
    rows = connection.execute(
        "SELECT ref_name, encode(pointer, 'hex') FROM refs2 WHERE ref_name ~ '^refs/(heads|tags)/' "
        "AND deleted IS NOT TRUE ORDER BY ref_name"
    )
    return {str(name).removeprefix(_HEADS_PREFIX): str(head) for name, head in rows}


def _is_managed_reference(name: str, regions: Sequence[Region]) -> bool:
    """Return whether a reference is sterna's: a replica branch, which is published again, or a tag of a region."""
    tag = name.removeprefix(_TAGS_PREFIX) if name.startswith(_TAGS_PREFIX) else ""
    return any(name == region.replica_branch or has_region_prefix(region.name, tag) for region in regions)


def _commits_beyond(primary: NessieCatalog, head: str, histories: Sequence[Ancestry]) -> tuple[Commit, ...]:
    """Return the commits from a head back to the first one that is part of any of some histories."""
    history = primary.history(f"-@{head}", operations=False)
    return tuple(
        takewhile(
            lambda commit: not any(ancestry.contains(commit.hash, commit.commit_time) for ancestry in histories),
            history,
        )
    )
