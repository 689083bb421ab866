"""Bringing a region back after a failover: what only it has is kept on branches, then it becomes a copy like the others."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from sterna.edges.catalog import Commit
from sterna.edges.epoch import find_primary, read_epoch
from sterna.edges.nessie import NessieCatalog, open_nessie
from sterna.edges.postgres import connected
from sterna.edges.secrets import Secrets
from sterna.errors import UsageError
from sterna.ha.seed import Seeded, copy_missing, seed
from sterna.ha.site import fence, prepare
from sterna.registry.model import Region, Registry

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


def rejoin(registry: Registry, secrets: Secrets, name: str, say: Callable[[str], None], *, keep: bool = True) -> Rejoined:
    """Fence a region's catalog, keep what only it has, and make it follow the primary; safe to repeat after a crash anywhere.

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
    lost: tuple[Lost, ...] = ()
    with connected(target, secrets) as connection, connected(source, secrets) as of:
        if keep and read_epoch(connection) is not None:
            prepare(connection, target)
            fence(connection, target)
            say(f"{name} takes no commits")
            with open_nessie(source.catalog.write, source.catalog.credential_id, secrets) as primary:
                lost = _keep_lost(registry, connection, of, primary, say)
    others = [region for region in registry.regions if region not in (target, source)]
    return Rejoined(seed(target, source, others, secrets, say), lost)


def fence_if_old(region: Region, registry: Registry, secrets: Secrets) -> str:
    """Fence a region's catalog when another region knows a newer epoch; what is run before and beside a region's Nessie servers.

    Args:
        region: the region.
        registry: all regions have a `catalog.database`.
        secrets: finds credentials.

    Returns:
        The region that is the primary.

    Raises:
        DatabaseUnreachable: the region's own Postgres does not answer.
    """
    primary = find_primary(registry.regions, secrets)
    if primary is not region:
        with connected(region, secrets) as connection:
            prepare(connection, region)
            fence(connection, region)
    return primary.name


def _keep_lost(
    registry: Registry, own: Connection[Any], of: Connection[Any], primary: NessieCatalog, say: Callable[[str], None]
) -> tuple[Lost, ...]:
    switched, since = _switch_after(own, of)
    ours = {branch.replica_branch for branch in registry.regions}  # sterna makes them again
    differing = {name: head for name, head in _branches(own).items() if switched.get(name) != head and name not in ours}
    if not differing:
        return ()
    copy_missing(own, of, say)
    lost = []
    for branch, head in differing.items():
        commits = _beyond(primary, head, switched.get(branch, ""))
        if commits:
            kept = f"lost/{since:%Y-%m-%d}/{head[:16]}"
            primary.create_branch(kept, head, detached=True)
            say(f"{len(commits)} commits on {branch} that only this region had are kept on {kept}")
            lost.append(Lost(branch, head, kept, commits))
    return tuple(lost)


def _switch_after(own: Connection[Any], of: Connection[Any]) -> tuple[dict[str, str], Any]:
    """Return where the references stood when the first epoch began that this region does not know, and when that was."""
    known = read_epoch(own)
    rows = of.execute("SELECT epoch, region, heads::text, since FROM sterna_epoch ORDER BY epoch, region").fetchall()
    newer = [row for row in rows if known is None or (row[0], row[1]) > (known.number, known.region)]
    row = newer[0] if newer else rows[-1]
    return {name.removeprefix(_HEADS): head for name, head in json.loads(row[2]).items()}, row[3]


def _branches(connection: Connection[Any]) -> dict[str, str]:
    rows = connection.execute(
        "SELECT ref_name, encode(pointer, 'hex') FROM refs2 WHERE ref_name LIKE 'refs/heads/%' AND deleted IS NOT TRUE"
    )
    return {str(name).removeprefix(_HEADS): str(head) for name, head in rows}


def _beyond(primary: NessieCatalog, head: str, switched: str) -> tuple[Commit, ...]:
    """Return the commits from a head back to where its branch stood at the switch; none when the branch had passed that head already."""
    if switched:
        since = next(iter(primary.history(f"-@{head}", operations=False))).commit_time - _SLACK
        passed = takewhile(lambda commit: commit.commit_time >= since, primary.history(f"-@{switched}", operations=False))
        if any(commit.hash == head for commit in passed):
            return ()
    return tuple(primary.history(f"-@{head}", operations=False, until=switched or None))
