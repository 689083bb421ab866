"""How far an outlet is: a tag at the primary, on the last commit of the replica branch whose events are acknowledged.

It is moved after the acknowledgement, from where it is known to stand: a crash repeats, and never skips. What it shows
the clean-up keeps, as what any reference shows.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

from sterna.catalog.model import Reference
from sterna.errors import CatalogConflict, CatalogError, CatalogStateUnknown, NotPrimary, ReferenceNotFound
from sterna.replica.region import RegionContext
from sterna.replica.tags import outlet_of, outlet_tag
from sterna.replica.writing import writer

log = logging.getLogger(__name__)


def positions(region: str, references: Iterator[Reference] | tuple[Reference, ...]) -> dict[str, str]:
    """Return how far each outlet of a region is that has a tag, by name: also those that nobody configures any more."""
    named = {outlet_of(region, each.name): each.hash for each in references if each.kind == "TAG"}
    return {name: hash for name, hash in named.items() if name is not None}


def remove_tag(context: RegionContext, outlet: str, hash: str) -> None:
    """Take an outlet's tag away, if it stands at that very commit.

    Raises:
        CatalogConflict: it stands elsewhere by now: somebody delivers.
    """
    writer(context).delete_tag(outlet_tag(context.region.name, outlet), hash)


class PositionTag:
    """The position of one outlet. Its deliverer says where it is; another thread moves the tag, so that a primary that
    is dark holds up no delivery.

    Args:
        context: the region, with connections of its own.
        outlet: the outlet's name.
    """

    def __init__(self, context: RegionContext, outlet: str) -> None:
        self._context = context
        self.name = outlet_tag(context.region.name, outlet)
        self.lost = False  # somebody else moved it: he is at work
        self.problem = ""
        self._stored: str | None = None
        self._wanted: str | None = None
        self._sent: set[str] = set()  # where it may stand by a move of ours whose answer was lost
        self._lock = threading.Lock()

    def begin(self, head: str) -> str:
        """Return the commit after which to begin; where there is no tag yet it is made at the branch's head.

        Args:
            head: the branch's head, as the region's own copy has it.

        Raises:
            CatalogError: neither the primary nor the region's own copy says where it stands.
        """
        try:
            found = self.look()
        except ReferenceNotFound:
            found = self._create(head)
        except CatalogError as error:
            found = self._in_own_copy(error)
        self.take(found)
        return found

    def look(self) -> str:
        """Return where the tag stands at the primary.

        Raises:
            ReferenceNotFound: there is none.
            CatalogError: the primary doesn't answer.
        """
        return self._context.primary.reference(self.name).hash

    def take(self, hash: str) -> None:
        """Go on from where the tag stands."""
        with self._lock:
            self._stored, self._wanted, self.lost = hash, hash, False
            self._sent.clear()

    def reached(self, hash: str) -> None:
        """Say how far the deliverer is; the tag follows."""
        self._wanted = hash

    @property
    def stored(self) -> str | None:
        """Where the tag stands, as far as is known here."""
        return self._stored

    def store(self) -> None:
        """Let the tag stand where the deliverer is; what goes wrong is told in `problem`, and tried again later."""
        with self._lock:
            wanted = self._wanted
            if self.lost or wanted is None or wanted == self._stored:
                return
            try:
                self._move(wanted)
                self.problem = ""
            except CatalogStateUnknown as error:
                self._sent.add(wanted)
                self._settle(error)
            except CatalogConflict as error:
                # Also where it stands at the very commit that was wanted: another one at work is as far as this one.
                self._settle(error)
            except CatalogError as error:
                self._failed(error)

    def _move(self, wanted: str) -> None:
        branch = self._context.region.replica_branch
        if self._stored is None:
            writer(self._context).create_tag(self.name, branch, wanted)
        else:
            try:
                writer(self._context).move_tag(self.name, self._stored, branch, wanted)
            except ReferenceNotFound:
                log.warning("%s is gone: it is made anew", self.name)
                writer(self._context).create_tag(self.name, branch, wanted)
        self._stored = wanted
        self._sent.clear()

    def _settle(self, error: CatalogError) -> None:
        """Look whether a move happened whose answer was lost, or somebody else moved the tag."""
        try:
            found = self.look()
        except CatalogError as later:
            self._failed(later)
            return
        if found in self._sent or found == self._stored:
            self._stored = found
            return
        self.lost = True
        log.warning("%s was moved by somebody else: another gateway delivers", self.name)

    def _failed(self, error: CatalogError) -> None:
        if self.problem != type(error).__name__:
            log.warning("%s can't be moved, and delivery goes on: %s", self.name, error)
        self.problem = type(error).__name__
        if isinstance(error, NotPrimary):
            self._context.close()  # who the primary is is asked anew

    def _create(self, head: str) -> str:
        own = self._context.catalog
        branch = own.default_branch if head == own.no_ancestor() else self._context.region.replica_branch
        try:
            created = writer(self._context).create_tag(self.name, branch, head).hash
        except (CatalogConflict, CatalogStateUnknown):
            return self.look()
        log.info("%s begins at the branch's head, %s", self.name, head[:12])
        return created

    def _in_own_copy(self, error: CatalogError) -> str:
        try:
            return self._context.catalog.reference(self.name).hash
        except ReferenceNotFound:
            raise error from None
