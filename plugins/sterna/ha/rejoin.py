"""Bringing a region back after a failover.

What only it has is kept on branches, then it becomes a copy like the others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from sterna.catalog.model import Commit
from sterna.edges.nessie.catalog import NessieCatalog, open_nessie
from sterna.edges.postgres.connection import connected
from sterna.edges.postgres.epoch import find_primary, read_epoch
from sterna.edges.secrets import Secrets
from sterna.errors import CatalogUnreachable, DatabaseRefused, DatabaseUnreachable, NotPrimary, UsageError
from sterna.ha.seed import Seeded, copy_missing, seed
from sterna.ha.site import fence, look_at_all, newest_epoch, prepare
from sterna.registry.model import SOURCE_BRANCH, Region, Registry

if TYPE_CHECKING:
    from psycopg import Connection

_HEADS = "refs/heads/"
# Clocks of two Nessie servers may differ by this much: a commit's parent is at most so much younger than itself.
_SLACK = timedelta(minutes=10)


@dataclass(frozen=True)
class Lost:
    """Commits of one branch that only the region has.

    Args:
        branch: where they were made.
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
        UsageError: the region is the primary.
        DatabaseUnreachable: one of the two does not answer.
    """
    target, source = registry.region(name), find_primary(registry.regions, secrets)
    if target is source:
        raise UsageError(f"region {name} is the primary: there is nothing that it could follow")
    return bring_back(registry, target, source, secrets, say, keep=keep)


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
    """
    lost: tuple[Lost, ...] = ()
    with connected(target, secrets) as connection, connected(source, secrets) as of:
        if keep and read_epoch(connection) is not None:
            prepare(connection, target)
            fence(connection, target)
            say(f"{target.name} takes no commits")
            with open_nessie(source.catalog.write, source.catalog.credential_id, secrets) as primary:
                lost = _keep_lost(registry, connection, of, primary, say)
    others = [region for region in registry.regions if region not in (target, source)]
    return Rejoined(seed(target, source, others, secrets, say), lost)


def fence_if_old(region: Region, registry: Registry, secrets: Secrets) -> str:
    """Fence a region's catalog when another region knows a newer epoch; what is run before and beside a region's
    Nessie servers.

    Args:
        region: the region.
        registry: all regions have a `catalog.database`.
        secrets: finds credentials.

    Returns:
        The region that is the primary.

    Raises:
        DatabaseUnreachable: the region's own Postgres does not answer.
        CatalogUnreachable: no other region's does, so that nobody can tell.
        NotPrimary: no region was ever promoted.
    """
    sites = look_at_all(registry.regions, secrets)
    own = sites.pop(region.name)
    if own.problem:
        raise (DatabaseRefused if own.refuses else DatabaseUnreachable)(own.problem)
    if sites and all(site.problem for site in sites.values()):
        raise CatalogUnreachable(
            f"no other region answers, so that nobody can tell whether {region.name} may still be the primary; it "
            f"knows epoch {own.epoch}",
            hint="once one answers, run this again; to go on without, see docs/operations.md",
        )
    newest = newest_epoch([own, *sites.values()])
    if newest is None:
        raise NotPrimary(
            "no region's catalog is the primary yet", hint="sterna catalog promote --region <the first one>"
        )
    # Only where there is something to take: the fence waits for a commit under way, and new ones wait behind it.
    if newest.region != region.name and (own.writable or not own.main):
        with connected(region, secrets) as connection:
            prepare(connection, region)
            fence(connection, region)
    return newest.region


def _keep_lost(
    registry: Registry, own: Connection[Any], of: Connection[Any], primary: NessieCatalog, say: Callable[[str], None]
) -> tuple[Lost, ...]:
    epoch = _switch_after(own, of)
    if epoch is None:
        return ()
    switched, since = epoch
    ours = {branch.replica_branch for branch in registry.regions}  # sterna makes them again
    differing = {name: head for name, head in _branches(own).items() if switched.get(name) != head and name not in ours}
    if not differing:
        return ()
    copy_missing(own, of, say)
    main = _Line(primary, switched.get(SOURCE_BRANCH, ""))
    lost = []
    for branch, head in differing.items():
        commits = _beyond(primary, head, (main, _Line(primary, switched.get(branch, ""))))
        if commits:
            kept = f"lost/{since:%Y-%m-%d}/{head[:16]}"
            primary.create_branch(kept, head, detached=True)
            say(f"{len(commits)} commits on {branch} that only this region had are kept on {kept}")
            lost.append(Lost(branch, head, kept, commits))
    return tuple(lost)


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


def _branches(connection: Connection[Any]) -> dict[str, str]:
    rows = connection.execute(
        "SELECT ref_name, encode(pointer, 'hex') FROM refs2 WHERE ref_name LIKE 'refs/heads/%' AND deleted IS NOT TRUE"
    )
    return {str(name).removeprefix(_HEADS): str(head) for name, head in rows}


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
