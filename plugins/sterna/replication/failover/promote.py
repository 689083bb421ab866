"""Promotes another region to primary: planned, without loss; or because the primary is lost, with a known loss."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import attrgetter

from sterna.catalog.nessie.catalog import open_nessie
from sterna.config.registry.model import SOURCE_BRANCH, Region, Registry
from sterna.config.secrets import Secrets
from sterna.errors import CatalogError, CatalogUnreachable, NotPrimary, SternaError, UsageError
from sterna.postgres.connection import open_connection
from sterna.postgres.term import Term
from sterna.replication.failover.catalog_seed import unsubscribe
from sterna.replication.failover.model import CatalogSite, Primary
from sterna.replication.failover.rejoin import LostCommits, rejoin_to_primary
from sterna.replication.failover.site import (
    begin_term,
    ensure_schema,
    fence,
    inspect_sites,
    references_digest,
    require_readable,
    resolve_primary,
    unfence,
    unseen_error,
)
from sterna.replication.failover.tables import MovePlan, apply_moves
from sterna.replication.replica.region import RegionContext

_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Promotion:
    """What a promotion would do.

    Args:
        region: the primary to be.
        term: the term that begins.
        old: the primary until now; "" where there is none yet.
        planned: the old primary is fenced first, so that nothing is lost.
        heard: when the region last received a message from the old primary; None once the connection has ended.
        main: head of `main` that the region has.
        newest: when that was committed, None where its Nessie doesn't answer: what the old primary took later is lost,
            unless it returns.
        silent: regions that don't answer and have to be seeded once they do; they may have a newer term.
        gone: those among them that an operator gave up.
        resumed: the region is the one of the newest term, and takes no commits: another one may have replaced it.
    """

    region: str
    term: Term = field(metadata={"json": "epoch"})
    old: str
    planned: bool
    heard: datetime | None
    main: str
    newest: datetime | None
    silent: tuple[str, ...]
    resumed: bool = False
    gone: tuple[str, ...] = ()


@dataclass(frozen=True)
class Promoted:
    """What a promotion did.

    Args:
        term: the term that began.
        following: regions that follow the new primary.
        left: regions that have to rejoin, with the reason.
        lost: commits that a following region had and the new primary had not; they are kept on branches.
        tables: what was done to `main`, for a promotion with tables.
    """

    term: Term = field(metadata={"json": "epoch"})
    following: tuple[str, ...]
    left: Mapping[str, str]
    lost: tuple[LostCommits, ...] = ()
    tables: MovePlan | None = None


def plan_promotion(
    registry: Registry, secrets: Secrets, name: str, *, planned: bool, gone: Collection[str] = ()
) -> Promotion:
    """Read the state of all regions and plan a promotion; changes nothing.

    Args:
        registry: all regions have a `catalog.database`.
        name: the region to be promoted.
        planned: stop the old primary first and wait for equality.
        gone: regions that an operator declares to take no commits, though a server answers for them, or their
            credential is missing here.

    Raises:
        UsageError: the promotion makes no sense, would lose more than another one, or might make a second primary.
        CatalogUnreachable: whether there is a primary isn't certain.
        DatabaseUnreachable: a region that has to answer does not.
        DatabaseRefused: it refuses the login.
        CredentialError: its credential is missing.
    """
    sites = _with_abandoned_regions(inspect_sites(registry.regions, secrets), name, gone)
    target, primary = sites[name], resolve_primary(list(sites.values()))
    newest_term = primary.newest
    if target.problem:
        raise unseen_error(target, f"region {name} can't be promoted: ")
    old = newest_term.region if newest_term else ""
    if newest_term is None:
        term = Term(1, name)
        _validate_first_term(primary)
    elif old == name:
        term = newest_term  # begun and not finished, or finished: the same steps again do no harm
        _validate_resumed_term(sites, newest_term, planned)
    else:
        term = Term(newest_term.number + 1, name)
        _validate_promotion(sites, name, old, planned)
    require_readable(sites.values(), "; or, once it is certain that it takes no commits, --gone {region}")
    return Promotion(
        region=name,
        term=term,
        old="" if old == name else old,
        planned=planned,
        heard=target.following.heard if target.following else None,
        main=target.main,
        newest=None if planned else newest_commit_time(registry.region(name), secrets),
        silent=tuple(site.region for site in sites.values() if site.problem),
        resumed=old == name and not target.writable,
        gone=tuple(gone),
    )


def require_unchanged(approved: Promotion, current: Promotion) -> None:
    """Refuse a promotion that differs from the approved one: an approval may take hours.

    Args:
        approved: the promotion as it was shown.
        current: the promotion as planned after the approval.

    Raises:
        UsageError: another term would begin, another primary be replaced, less of `main` be there, or less was seen.
    """
    hint = "run it again, and read its output; nothing was changed"
    facts = attrgetter("term", "old", "planned", "resumed")
    if facts(current) != facts(approved):
        raise UsageError(f"since the approval another promotion became due: term {current.term}", hint=hint)
    if unseen := sorted({*current.silent} - {*approved.silent}):
        raise UsageError(f"since the approval {', '.join(unseen)} stopped answering", hint=hint)
    if approved.newest and (current.newest is None or current.newest < approved.newest):
        raise UsageError(f"since the approval {current.region}'s main has lost commits, or can't be read", hint=hint)


def promote(
    registry: Registry,
    secrets: Secrets,
    promotion: Promotion,
    progress: Callable[[str], None],
    *,
    max_wait: float = 60.0,
    moves: MovePlan | None = None,
) -> Promoted:
    """Carry a promotion out; safe to repeat after a crash anywhere.

    Args:
        registry: the registry that it was planned with.
        progress: receives a message for each step.
        max_wait: seconds until a planned promotion gives up waiting for equality, and gives the old primary its right
            back.
        moves: with tables: the approved ones.

    Raises:
        DatabaseUnreachable: a region that has to answer does not, or a commit at the old primary did not end in time.
        NotPrimary: the old primary's last commits did not arrive in time.
    """
    target = registry.region(promotion.region)
    others = [region for region in registry.regions if region.name != target.name]
    with open_connection(target, secrets) as connection:
        ensure_schema(connection, target)
        if promotion.planned and promotion.old:
            _hand_over(registry.region(promotion.old), target, secrets, progress, max_wait)
        # In one transaction: a region without a subscription could not be promoted again, were this killed in between.
        with connection.transaction():
            unsubscribe(connection)
            begin_term(connection, target, promotion.term.number)
    progress(f"{target.name} is the primary, term {promotion.term}")
    following: list[str] = []
    not_following: dict[str, str] = {}
    lost: list[LostCommits] = []
    for other in others:
        if not promotion.planned and other.name == promotion.old:
            not_following[other.name] = "it was the primary: sterna catalog rejoin, when it is back"
            continue
        try:
            # With all checks of a rejoin: when a promotion is repeated, this may be an old primary that came back
            # meanwhile.
            lost += rejoin_to_primary(registry, other, target, secrets, progress).lost
            following.append(other.name)
        except SternaError as error:
            not_following[other.name] = f"{error}; sterna catalog rejoin, when it is back"
    if moves is None:
        return Promoted(promotion.term, tuple(following), not_following, tuple(lost))
    with RegionContext.of(registry, target, secrets) as context:
        return Promoted(
            promotion.term, tuple(following), not_following, tuple(lost), apply_moves(context, moves, progress)
        )


def newest_commit_time(region: Region, secrets: Secrets) -> datetime | None:
    """Return the time of the newest commit of a region's copy of `main`; None where it can't be read."""
    try:
        with open_nessie(region.catalog.read, region.catalog.credential_id, secrets) as catalog:
            commit = next(iter(catalog.history(SOURCE_BRANCH, operations=False)), None)
    except CatalogError:  # it is informative, and no condition
        return None
    return commit.commit_time if commit else None


def _with_abandoned_regions(
    sites: Mapping[str, CatalogSite], name: str, gone: Collection[str]
) -> dict[str, CatalogSite]:
    """Return the sites; those that an operator gives up count as silent."""
    for region in gone:
        if region not in sites or region == name or not sites[region].problem:
            raise UsageError(f"{region} isn't another region whose catalog can't be seen: it can't be given up")
    return {
        region: replace(site, refuses=False, unasked=False, slow=False) if region in gone else site
        for region, site in sites.items()
    }


def _validate_first_term(primary: Primary) -> None:
    """Refuse to begin the first term unless it is certain that there is none."""
    if primary.unseen:
        raise CatalogUnreachable(
            f"can't tell whether there is a primary already: {'; '.join(primary.unseen.values())}",
            hint="before the first term every region has to be seen; nothing was changed",
        )
    if primary.doubts:
        raise UsageError(f"there may be a primary already: {'; '.join(primary.doubts)}")


def _validate_resumed_term(sites: Mapping[str, CatalogSite], newest_term: Term, planned: bool) -> None:
    """Refuse to resume a term that the region itself does not have, or after which another one may have begun."""
    target = sites[newest_term.region]
    if target.term != newest_term:
        raise UsageError(
            f"region {target.region} does not know its own term {newest_term}: its database was emptied or "
            "restored, and the others would become copies of it",
            hint="another region has the catalog; nothing was changed",
        )
    if planned and not target.writable:
        _require_no_silent_region(sites, target.region)


def _require_no_silent_region(sites: Mapping[str, CatalogSite], primary: str) -> None:
    """Refuse while a region is silent that may have replaced the primary, which takes no commits."""
    if silent := [site for site in sites.values() if site.is_silent]:
        raise UsageError(
            f"{primary} takes no commits, and may have been replaced: {'; '.join(site.problem for site in silent)}",
            hint=(
                f"to undo a switch that was broken off: promote {primary} without --planned, once it is certain that "
                f"{', '.join(site.region for site in silent)} takes no commits"
            ),
        )


def _validate_promotion(sites: Mapping[str, CatalogSite], name: str, old: str, planned: bool) -> None:
    """Validate that a promotion loses no more than it has to, and can't make a second primary."""
    if old not in sites:
        raise UsageError(f"the primary {old} is not in this registry: whether it takes commits can't be checked")
    target, primary = sites[name], sites[old]
    if target.following is None or target.following.region != old:
        raise UsageError(f"region {name} does not follow the primary {old}: it can't take over what it has not got")
    if planned:
        if primary.problem:
            raise UsageError(
                f"a planned promotion needs the primary: {primary.problem}",
                hint="without --planned, if it is lost",
            )
        if not primary.writable:
            _require_no_silent_region(sites, old)
        return
    if primary.problem and not primary.is_silent:
        raise UsageError(
            f"the primary {old} {'was not contacted' if primary.unasked else 'answers'}, and may take commits: "
            f"{primary.problem}",
            hint=f"{'see why it is slow' if primary.slow else 'correct the login'}, then use --planned; or, once it is "
            f"certain that it takes none, --gone {old}",
        )
    if not primary.problem and primary.writable:
        raise UsageError(
            f"the primary {old} answers, and may take commits: stop it, or use --planned", hint="nothing was changed"
        )
    for site in sites.values():
        subscription = site.following
        # LSNs alone aren't enough: a region that was seeded later, from the same state, has a later one.
        is_ahead = subscription and subscription.region == old and subscription.received > target.following.received
        if is_ahead and site.region != name and site.references != target.references:
            raise UsageError(f"region {site.region} has received more of {old} than {name}: promote that one")


def _hand_over(old: Region, target: Region, secrets: Secrets, progress: Callable[[str], None], max_wait: float) -> None:
    """Stop commits at the old primary and wait until the new one has all of them."""
    with open_connection(old, secrets) as primary, open_connection(target, secrets) as copy:
        deadline = time.monotonic() + max_wait
        fence(primary, old, max_wait=max_wait)
        progress(f"{old.name} takes no more commits; waiting until {target.name} has them all")
        expected = references_digest(primary)
        try:
            while references_digest(copy) != expected:
                if time.monotonic() > deadline:
                    raise NotPrimary(
                        f"after {max_wait:.0f} s {target.name} has not got all that {old.name} has",
                        hint="see catalog status",
                    )
                time.sleep(_POLL_SECONDS)
        except BaseException:
            unfence(primary, old)
            progress(f"{old.name} takes commits again: nothing was changed")
            raise
