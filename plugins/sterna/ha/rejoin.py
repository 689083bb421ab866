"""Bringing a region back after a failover.

What only it has is kept on branches, then it becomes a copy like the others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from sterna.catalog.model import Commit
from sterna.edges.nessie.catalog import NessieCatalog, open_nessie
from sterna.edges.postgres.connection import connected
from sterna.edges.postgres.epoch import Epoch, read_epoch
from sterna.edges.secrets import Secrets
from sterna.errors import CatalogUnreachable, NotPrimary, UsageError
from sterna.ha.model import CatalogSite, Primary
from sterna.ha.seed import Seeded, copy_missing, seed
from sterna.ha.site import fence, look_at_all, prepare, refuse_unread, tell_primary, unseen_error
from sterna.registry.model import SOURCE_BRANCH, Region, Registry
from sterna.replica.tags import may_be_of

if TYPE_CHECKING:
    from psycopg import Connection

_HEADS, _TAGS = "refs/heads/", "refs/tags/"
# Clocks of two Nessie servers may differ by this much: a commit's parent is at most so much younger than itself.
_SLACK = timedelta(minutes=10)
# Where a branch without commits points, in Nessie.
_NO_ANCESTOR = "2e1cfa82b035c26cbbbdae632cea070514eb8b773f616aaeaf668e2f0be8f10d"
_FIRST = "sterna catalog promote --region <the first one>"


@dataclass(frozen=True)
class Lost:
    """Commits of one branch, or under one tag, that only the region has.

    Args:
        branch: where they were made; of a tag alone `refs/tags/…`.
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
    lost: tuple[Lost, ...]


def rejoin(
    registry: Registry, secrets: Secrets, name: str, say: Callable[[str], None], *, keep: bool = True
) -> Rejoined:
    """Fence a region's catalog, keep what only it has, and make it follow the primary; safe to repeat after a crash
    anywhere.

    Args:
        registry: all regions have a `catalog.database`.
        secrets: finds credentials.
        name: the region.
        say: told of each step.
        keep: look for commits that only this region has; without it they are forgotten.

    Raises:
        UsageError: the region is the primary; or another region is at work and can't be read.
        NotPrimary: the region of the newest epoch does not say itself that it takes commits.
        CatalogUnreachable: who the primary is can't be told.
        DatabaseUnreachable: one of the two does not answer.
        DatabaseRefused: one of the two refuses the login.
        CredentialError: a credential of one of the two is missing.
    """
    sites = look_at_all(registry.regions, secrets)
    source = registry.region(_source(sites, name))
    for site in sites.values():
        if site.problem:
            say(f"{site.region} was not seen; whether it knows a newer epoch can't be told: {site.problem}")
    return bring_back(registry, registry.region(name), source, secrets, say, keep=keep)


def bring_back(
    registry: Registry,
    target: Region,
    source: Region,
    secrets: Secrets,
    say: Callable[[str], None],
    *,
    keep: bool = True,
) -> Rejoined:
    """Do what `rejoin` does, with a primary that is known; see there.

    Raises:
        DatabaseUnreachable: one of the two does not answer.
        UsageError: the region has commits and knows no epoch: which of them only it has can't be told.
    """
    lost: tuple[Lost, ...] = ()
    with connected(target, secrets) as connection, connected(source, secrets) as of:
        if keep and read_epoch(connection) is None:
            _refuse_history(connection, target)
        elif keep:
            prepare(connection, target)
            fence(connection, target)
            say(f"{target.name} takes no commits")
            with open_nessie(source.catalog.write, source.catalog.credential_id, secrets) as primary:
                lost = _keep_lost(registry, connection, of, primary, say)
    others = [region for region in registry.regions if region not in (target, source)]
    return Rejoined(seed(target, source, others, secrets, say), lost)


@dataclass(frozen=True)
class Guarded:
    """What a guard found out.

    Args:
        primary: the region of the newest epoch that was seen.
        epoch: that epoch.
        unseen: by region, why it was not seen, where that leaves open whether the guarded region is the primary; empty
            where another one is, for epochs only grow.
    """

    primary: str
    epoch: Epoch
    unseen: Mapping[str, str] = field(default_factory=dict)


def fence_if_old(region: Region, registry: Registry, secrets: Secrets) -> str:
    """Do what `guard_region` does, and return the region of the newest epoch that was seen."""
    return guard_region(region, registry, secrets).primary


def guard_region(region: Region, registry: Registry, secrets: Secrets) -> Guarded:
    """Fence a region's catalog when another region knows a newer epoch; what is run before and beside a region's
    Nessie servers. It never gives a right back.

    Args:
        region: the region.
        registry: all regions have a `catalog.database`.
        secrets: finds credentials.

    Raises:
        DatabaseUnreachable: the region's own Postgres does not answer.
        DatabaseRefused: it refuses the login.
        CredentialError: its credential is missing.
        CatalogUnreachable: no other region was seen, or one of them was not and the others know no epoch: nobody can
            tell.
        NotPrimary: no region was ever promoted; or the region is named the primary and does not know it.
    """
    sites = look_at_all(registry.regions, secrets)
    own = sites.pop(region.name)
    if own.problem:
        raise unseen_error(own)
    if sites and all(site.problem for site in sites.values()):
        raise CatalogUnreachable(
            f"no other region answers, so that nobody can tell whether {region.name} may still be the primary; it "
            f"knows epoch {own.epoch}: {'; '.join(site.problem for site in sites.values())}",
            hint="once one answers, run this again; to go on without, see docs/operations.md",
        )
    told = tell_primary([own, *sites.values()])
    newest = told.newest
    if newest is None:
        raise _no_primary(told)
    if newest.region == region.name and own.epoch != newest:
        raise NotPrimary(
            f"{region.name} is named the primary of epoch {newest} and knows epoch {own.epoch} itself: its database "
            "was emptied or restored",
            hint="start no Nessie of it before it is certain which region has the catalog: sterna catalog status",
        )
    # Only where there is something to take: the fence waits for a commit under way, and new ones wait behind it.
    if newest.region != region.name and (own.writable or not own.main):
        with connected(region, secrets) as connection:
            prepare(connection, region)
            fence(connection, region)
    return Guarded(newest.region, newest, told.unseen if newest.region == region.name else {})


def _source(sites: Mapping[str, CatalogSite], name: str) -> str:
    """Return the region to be followed: one that says itself that it is the primary, and takes commits."""
    if sites[name].problem:
        raise unseen_error(sites[name], f"whether region {name} is the primary itself can't be told: ")
    told = tell_primary(list(sites.values()))
    newest = told.newest
    if newest is None:
        raise _no_primary(told)
    if newest.region == name:
        raise UsageError(f"region {name} is the primary: there is nothing that it could follow")
    source = sites.get(newest.region)
    if source is None:
        raise UsageError(f"the primary {newest.region} is not in this registry")
    if source.problem:
        raise unseen_error(source, f"the primary {newest.region} has to be seen: ")
    if source.epoch != newest or not source.writable:
        said = "takes no commits" if source.epoch == newest else f"knows epoch {source.epoch} itself"
        raise NotPrimary(
            f"{newest.region} is named the primary of epoch {newest}, and {said}: whom to follow can't be told",
            hint="sterna catalog status",
        )
    refuse_unread(sites.values(), ", or stop that server; nothing was changed")
    return newest.region


def _no_primary(told: Primary) -> CatalogUnreachable | NotPrimary:
    """Return the error where no region that was seen knows an epoch."""
    if not told.known:
        why = "; ".join((*told.unseen.values(), *told.doubts))
        return CatalogUnreachable(f"can't tell which region's catalog is the primary: {why}")
    return NotPrimary("no region's catalog is the primary yet", hint=_FIRST)


def _refuse_history(connection: Connection[Any], target: Region) -> None:
    """Refuse where a region that knows no epoch has commits.

    Nobody can tell since when they are its own, so that they would be forgotten.
    """
    there = connection.execute("SELECT to_regclass('refs2') IS NOT NULL").fetchone()
    own = (
        [name for name, head in read_references(connection).items() if head != _NO_ANCESTOR]
        if there and there[0]
        else []
    )
    if own:
        raise UsageError(
            f"region {target.name} has commits and knows no epoch: which of them only it has can't be told: "
            f"{', '.join(sorted(own)[:5])}",
            hint="sterna catalog reseed forgets them; nothing was changed",
        )


def _keep_lost(
    registry: Registry, own: Connection[Any], of: Connection[Any], primary: NessieCatalog, say: Callable[[str], None]
) -> tuple[Lost, ...]:
    epoch = _switch_after(own, of)
    if epoch is None:
        return ()
    switched, since = epoch
    differing = {
        name: head
        for name, head in read_references(own).items()
        if switched.get(name) != head and not _is_own(name, registry.regions)
    }
    if not differing:
        return ()
    copy_missing(own, of, say)
    main = _Line(primary, switched.get(SOURCE_BRANCH, ""))
    lost: list[Lost] = []
    for branch, head in differing.items():
        if branch.startswith(_TAGS) and any(head == commit.hash for each in lost for commit in each.commits):
            continue  # a branch has it, too
        commits = _beyond(primary, head, (main, _Line(primary, switched.get(branch, ""))))
        if commits:
            kept = lost_branch(since, head)
            primary.create_branch(kept, head, detached=True)
            say(f"{len(commits)} commits on {branch} that only this region had are kept on {kept}")
            lost.append(Lost(branch, head, kept, commits))
    return tuple(lost)


def lost_branch(since: datetime, head: str) -> str:
    """Return the branch that keeps what only an old primary had, of the moment when another one followed it."""
    return f"lost/{since:%Y-%m-%d}/{head[:16]}"


def _switch_after(own: Connection[Any], of: Connection[Any]) -> tuple[dict[str, str], datetime] | None:
    """Return where the references stood when the first epoch began that this region does not know, and when that was.

    None where it knows all: since the newest one it was a copy, and had nothing of its own.
    """
    known = read_epoch(own)
    rows = of.execute("SELECT epoch, region, heads::text, since FROM sterna_epoch ORDER BY epoch, region").fetchall()
    newer = [row for row in rows if known is None or (row[0], row[1]) > (known.number, known.region)]
    if not newer:
        return None
    _, _, heads, since = newer[0]
    return {name.removeprefix(_HEADS): head for name, head in json.loads(heads).items()}, since


def read_references(connection: Connection[Any]) -> dict[str, str]:
    """Return where branches stand by their names, and behind them tags by `refs/tags/…`."""
    rows = connection.execute(
        "SELECT ref_name, encode(pointer, 'hex') FROM refs2 WHERE ref_name ~ '^refs/(heads|tags)/' "
        "AND deleted IS NOT TRUE ORDER BY ref_name"
    )
    return {str(name).removeprefix(_HEADS): str(head) for name, head in rows}


def _is_own(name: str, regions: Sequence[Region]) -> bool:
    """Tell whether a reference is sterna's: what replicas show, which is made again, and how far their readers are."""
    tag = name.removeprefix(_TAGS) if name.startswith(_TAGS) else ""
    return any(name == each.replica_branch or may_be_of(each.name, tag) for each in regions)


def _beyond(primary: NessieCatalog, head: str, lines: Sequence[_Line]) -> tuple[Commit, ...]:
    """Return the commits from a head back to the first one that lies on any of some lines."""
    history = primary.history(f"-@{head}", operations=False)
    return tuple(takewhile(lambda commit: not any(line.has(commit) for line in lines), history))


class _Line:
    """A line of history, read backwards from a head no further than somebody asks.

    Args:
        primary: the catalog.
        head: where it begins; "" for none.
    """

    def __init__(self, primary: NessieCatalog, head: str) -> None:
        self._commits = primary.history(f"-@{head}", operations=False) if head else iter(())
        self._read: set[str] = set()

    def has(self, commit: Commit) -> bool:
        """Say whether a commit lies on the line."""
        for each in self._commits:
            self._read.add(each.hash)
            if each.commit_time < commit.commit_time - _SLACK:
                break
        return commit.hash in self._read
