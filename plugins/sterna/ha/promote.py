"""Making another region the primary: planned, with nothing lost; or because the primary is gone, with a known loss."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from sterna.edges.nessie.catalog import open_nessie
from sterna.edges.postgres.connection import connected
from sterna.edges.postgres.epoch import Epoch
from sterna.edges.secrets import Secrets
from sterna.errors import CatalogError, CatalogUnreachable, NotPrimary, SternaError, UsageError
from sterna.ha.model import CatalogSite, Primary
from sterna.ha.rejoin import Lost, bring_back
from sterna.ha.seed import unsubscribe
from sterna.ha.site import (
    fence,
    look_at_all,
    prepare,
    raise_epoch,
    references_digest,
    refuse_unread,
    tell_primary,
    unfence,
    unseen_error,
)
from sterna.ha.tables import Moves, move
from sterna.registry.model import SOURCE_BRANCH, Region, Registry
from sterna.replica.region import RegionContext

_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Promotion:
    """What a promotion would do.

    Args:
        region: the primary to be.
        epoch: the epoch that begins.
        old: the primary until now; "" where there is none yet.
        planned: the old primary is asked to stop first, so that nothing is lost.
        heard: when the region last heard from the old primary; None once the connection has ended.
        main: head of `main` that the region has.
        newest: when that was committed, None where its Nessie doesn't say: what the old primary took later is lost,
            unless it returns.
        silent: regions that don't answer and have to be seeded once they do; nobody can tell whether they know a newer
            epoch.
        gone: those among them that an operator gave up.
        resumed: the region is the one of the newest epoch, and takes no commits: another one may have replaced it.
    """

    region: str
    epoch: Epoch
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
        epoch: the epoch that began.
        following: regions that follow the new primary.
        left: regions that have to rejoin, with the reason.
        lost: commits that one of the regions that follow had and the new primary had not, kept on branches.
        tables: what was done to `main`, for a promotion with tables.
    """

    epoch: Epoch
    following: tuple[str, ...]
    left: Mapping[str, str]
    lost: tuple[Lost, ...] = ()
    tables: Moves | None = None


def plan_promotion(
    registry: Registry, secrets: Secrets, name: str, *, planned: bool, gone: Collection[str] = ()
) -> Promotion:
    """Look at all regions and say what a promotion would do; changes nothing.

    Args:
        registry: all regions have a `catalog.database`.
        secrets: finds credentials.
        name: the region to be promoted.
        planned: stop the old primary first and wait for equality.
        gone: regions of which an operator says that they take no commits, though something answers for them, or their
            credential is missing here.

    Raises:
        UsageError: the promotion makes no sense, would lose more than another one, or might make a second primary; the
            message says which.
        CatalogUnreachable: whether there is a primary can't be told.
        DatabaseUnreachable: a region that has to answer does not.
        DatabaseRefused: it refuses the login.
        CredentialError: its credential is missing.
    """
    sites = _given_up(look_at_all(registry.regions, secrets), name, gone)
    target, told = sites[name], tell_primary(list(sites.values()))
    newest = told.newest
    if target.problem:
        raise unseen_error(target, f"region {name} can't be promoted: ")
    old = newest.region if newest else ""
    if newest is None:
        epoch = Epoch(1, name)
        _refuse_first(told)
    elif old == name:
        epoch = newest  # begun and not finished, or finished: the same steps again do no harm
        _refuse_again(sites, newest, planned)
    else:
        epoch = Epoch(newest.number + 1, name)
        _refuse(sites, name, old, planned)
    refuse_unread(sites.values(), "; or, once it is certain that it takes no commits, --gone {region}")
    return Promotion(
        region=name,
        epoch=epoch,
        old="" if old == name else old,
        planned=planned,
        heard=target.following.heard if target.following else None,
        main=target.main,
        newest=None if planned else newest_commit_time(registry.region(name), secrets),
        silent=tuple(site.region for site in sites.values() if site.problem),
        resumed=old == name and not target.writable,
        gone=tuple(gone),
    )


def refuse_changed(agreed: Promotion, now: Promotion) -> None:
    """Refuse a promotion that is no more the one that somebody has agreed to: an answer may take hours.

    Args:
        agreed: what was shown.
        now: what a look after the answer finds.

    Raises:
        UsageError: another epoch would begin, another primary be replaced, less of `main` be there, or less was seen.
    """
    again = "run it again, and look at what it says; nothing was changed"
    if (now.epoch, now.old, now.planned, now.resumed) != (agreed.epoch, agreed.old, agreed.planned, agreed.resumed):
        raise UsageError(f"since you were asked, another promotion came to be due: epoch {now.epoch}", hint=again)
    if unseen := sorted({*now.silent} - {*agreed.silent}):
        raise UsageError(f"since you were asked, {', '.join(unseen)} fell silent", hint=again)
    if agreed.newest and (now.newest is None or now.newest < agreed.newest):
        raise UsageError(f"since you were asked, commits went from {now.region}'s main, or can't be seen", hint=again)


def promote(
    registry: Registry,
    secrets: Secrets,
    promotion: Promotion,
    say: Callable[[str], None],
    *,
    patience: float = 60.0,
    moves: Moves | None = None,
) -> Promoted:
    """Carry a promotion out; safe to repeat after a crash anywhere.

    Args:
        registry: the registry that it was planned with.
        secrets: finds credentials.
        promotion: what to do.
        say: told of each step.
        patience: seconds until a planned promotion gives up waiting for equality, and gives the old primary its right
            back.
        moves: with tables: those that somebody agreed to.

    Raises:
        DatabaseUnreachable: a region that has to answer does not, or a commit at the old primary did not end in time.
        NotPrimary: the old primary's last commits did not arrive in time.
    """
    target = registry.region(promotion.region)
    others = [region for region in registry.regions if region.name != target.name]
    with connected(target, secrets) as connection:
        prepare(connection, target)
        if promotion.planned and promotion.old:
            _hand_over(registry.region(promotion.old), target, secrets, say, patience)
        # In one transaction: whoever follows nobody could not be promoted again, were this killed in between.
        with connection.transaction():
            unsubscribe(connection)
            raise_epoch(connection, target, promotion.epoch.number)
    say(f"{target.name} is the primary, epoch {promotion.epoch}")
    following: list[str] = []
    left: dict[str, str] = {}
    lost: list[Lost] = []
    for other in others:
        if not promotion.planned and other.name == promotion.old:
            left[other.name] = "it was the primary: sterna catalog rejoin, when it is back"
            continue
        try:
            # With all that a rejoin looks at: when a promotion is repeated, this may be an old primary that came back
            # meanwhile.
            lost += bring_back(registry, other, target, secrets, say).lost
            following.append(other.name)
        except SternaError as error:
            left[other.name] = f"{error}; sterna catalog rejoin, when it is back"
    if moves is None:
        return Promoted(promotion.epoch, tuple(following), left, tuple(lost))
    with RegionContext.of(registry, target, secrets) as context:
        return Promoted(promotion.epoch, tuple(following), left, tuple(lost), move(context, moves, say))


def newest_commit_time(region: Region, secrets: Secrets) -> datetime | None:
    """Return the time of the newest commit that a region's copy of `main` has; None: it can't be told."""
    try:
        with open_nessie(region.catalog.read, region.catalog.credential_id, secrets) as catalog:
            commit = next(iter(catalog.history(SOURCE_BRANCH, operations=False)), None)
    except CatalogError:  # it is good to know, and no condition
        return None
    return commit.commit_time if commit else None


def _given_up(sites: Mapping[str, CatalogSite], name: str, gone: Collection[str]) -> dict[str, CatalogSite]:
    """Return the sites, with those that an operator gives up as ones that are silent."""
    for region in gone:
        if region not in sites or region == name or not sites[region].problem:
            raise UsageError(f"{region} isn't another region whose catalog can't be seen: nobody can give it up")
    return {
        region: replace(site, refuses=False, unasked=False, slow=False) if region in gone else site
        for region, site in sites.items()
    }


def _refuse_first(told: Primary) -> None:
    """Refuse to begin the first epoch unless it is known that there is none."""
    if told.unseen:
        raise CatalogUnreachable(
            f"can't tell whether there is a primary already: {'; '.join(told.unseen.values())}",
            hint="before the first epoch every region has to be seen; nothing was changed",
        )
    if told.doubts:
        raise UsageError(f"can't tell whether there is a primary already: {'; '.join(told.doubts)}")


def _refuse_again(sites: Mapping[str, CatalogSite], newest: Epoch, planned: bool) -> None:
    """Refuse to go on with an epoch that the region does not know itself, or after which another one may have begun."""
    target = sites[newest.region]
    if target.epoch != newest:
        raise UsageError(
            f"region {target.region} does not know its own epoch {newest}: its database was emptied or restored, and "
            "the others would become copies of it",
            hint="another region has the catalog; nothing was changed",
        )
    if planned and not target.writable:
        _refuse_silent(sites, target.region)


def _refuse_silent(sites: Mapping[str, CatalogSite], primary: str) -> None:
    """Refuse while a region is silent that the primary, which takes no commits, may have made way for."""
    if silent := [site for site in sites.values() if site.silent]:
        raise UsageError(
            f"{primary} takes no commits, and whether it was replaced can't be told: "
            f"{'; '.join(site.problem for site in silent)}",
            hint=(
                f"to undo a switch that was broken off: promote {primary} without --planned, once it is certain that "
                f"{', '.join(site.region for site in silent)} takes no commits"
            ),
        )


def _refuse(sites: Mapping[str, CatalogSite], name: str, old: str, planned: bool) -> None:
    """Refuse what would lose more than it has to, or might make a second primary."""
    if old not in sites:
        raise UsageError(f"the primary {old} is not in this registry: nobody can ask it whether it takes commits")
    target, primary = sites[name], sites[old]
    if target.following is None or target.following.region != old:
        raise UsageError(f"region {name} does not follow the primary {old}: it can't take over what it has not got")
    if planned:
        if primary.problem:
            raise UsageError(
                f"a planned promotion needs the primary: {primary.problem}",
                hint="without --planned, if it is gone for good",
            )
        if not primary.writable:
            _refuse_silent(sites, old)
        return
    if primary.problem and not primary.silent:
        raise UsageError(
            f"the primary {old} {'was not asked' if primary.unasked else 'answers'}, and may take commits: "
            f"{primary.problem}",
            hint=f"{'see why it is slow' if primary.slow else 'mend the login'}, then use --planned; or, once it is "
            f"certain that it takes none, --gone {old}",
        )
    if not primary.problem and primary.writable:
        raise UsageError(
            f"the primary {old} answers, and may take commits: stop it, or use --planned", hint="nothing was changed"
        )
    for site in sites.values():
        ahead = site.following
        # Places in the log alone don't tell: one that was seeded later, from the same state, is further on.
        further = ahead and ahead.region == old and ahead.received > target.following.received
        if further and site.region != name and site.references != target.references:
            raise UsageError(f"region {site.region} has received more of {old} than {name}: promote that one")


def _hand_over(old: Region, target: Region, secrets: Secrets, say: Callable[[str], None], patience: float) -> None:
    """Stop commits at the old primary and wait until the new one has all of them."""
    with connected(old, secrets) as primary, connected(target, secrets) as copy:
        deadline = time.monotonic() + patience
        fence(primary, old, patience=patience)
        say(f"{old.name} takes no more commits; waiting until {target.name} has them all")
        wanted = references_digest(primary)
        try:
            while references_digest(copy) != wanted:
                if time.monotonic() > deadline:
                    raise NotPrimary(
                        f"after {patience:.0f} s {target.name} has not got all that {old.name} has",
                        hint="see catalog status",
                    )
                time.sleep(_POLL_SECONDS)
        except BaseException:
            unfence(primary, old)
            say(f"{old.name} takes commits again: nothing was changed")
            raise
