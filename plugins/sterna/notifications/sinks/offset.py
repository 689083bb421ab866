"""How far a sink is: a tag at the primary, on the last commit of the replica branch whose events are acknowledged.

It is moved after the acknowledgement, from where it is known to stand: a crash repeats, and never skips. What it shows
the clean-up keeps, as what any reference shows.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

from sterna.catalog.model import Reference
from sterna.errors import CatalogConflict, CatalogError, CatalogStateUnknown, NotPrimary, ReferenceNotFound
from sterna.replication.replica.commit_access import writer
from sterna.replication.replica.region import RegionContext
from sterna.replication.replica.tags import parse_sink_tag, sink_tag

log = logging.getLogger(__name__)


def sink_positions(region: str, references: Iterator[Reference] | tuple[Reference, ...]) -> dict[str, str]:
    """Return how far each sink of a region is that has a tag, by name: also those that nobody configures any more."""
    named = {
        parse_sink_tag(region, reference.name): reference.hash for reference in references if reference.kind == "TAG"
    }
    return {name: hash for name, hash in named.items() if name is not None}


def remove_tag(context: RegionContext, sink: str, hash: str) -> None:
    """Take a sink's tag away, if it stands at that very commit.

    Raises:
        CatalogConflict: it stands elsewhere by now: somebody delivers.
    """
    writer(context).delete_tag(sink_tag(context.region.name, sink), hash)


class PositionTag:
    """The position of one sink. Its deliverer says where it is; another thread moves the tag, so that a primary that
    is dark holds up no delivery.

    Args:
        context: the region, with connections of its own.
        sink: the sink's name.
    """

    def __init__(self, context: RegionContext, sink: str) -> None:
        self._context = context
        self.name = sink_tag(context.region.name, sink)
        self.taken_over = False  # somebody else moved it: he is at work
        self.problem = ""
        self._stored: str | None = None
        self._target: str | None = None
        self._unconfirmed: set[str] = set()  # where it may stand by a move of ours whose answer was lost
        self._lock = threading.Lock()

    def begin(self, head: str) -> str:
        """Return the commit after which to begin; where there is no tag yet it is made at the branch's head.

        Args:
            head: the branch's head, as the region's own copy has it.

        Raises:
            CatalogError: neither the primary nor the region's own copy says where it stands.
        """
        try:
            position = self.read()
        except ReferenceNotFound:
            position = self._create(head)
        except CatalogError as error:
            position = self._read_own_copy(error)
        self.adopt(position)
        return position

    def read(self) -> str:
        """Return where the tag stands at the primary.

        Raises:
            ReferenceNotFound: there is none.
            CatalogError: the primary doesn't answer.
        """
        return self._context.primary.reference(self.name).hash

    def adopt(self, hash: str) -> None:
        """Go on from where the tag stands."""
        with self._lock:
            self._stored, self._target, self.taken_over = hash, hash, False
            self._unconfirmed.clear()

    def advance(self, hash: str) -> None:
        """Say how far the deliverer is; the tag follows."""
        self._target = hash

    @property
    def stored(self) -> str | None:
        """Where the tag stands, as far as is known here."""
        return self._stored

    def save(self) -> None:
        """Let the tag stand where the deliverer is; what goes wrong is told in `problem`, and tried again later."""
        with self._lock:
            target = self._target
            if self.taken_over or target is None or target == self._stored:
                return
            try:
                self._move(target)
                self.problem = ""
            except CatalogStateUnknown as error:
                self._unconfirmed.add(target)
                self._resolve_conflict(error)
            except CatalogConflict as error:
                # Also where it stands at the very commit that was wanted: another one at work is as far as this one.
                self._resolve_conflict(error)
            except CatalogError as error:
                self._record_failure(error)

    def _move(self, target: str) -> None:
        branch = self._context.region.replica_branch
        if self._stored is None:
            writer(self._context).create_tag(self.name, branch, target)
        else:
            try:
                writer(self._context).move_tag(self.name, self._stored, branch, target)
            except ReferenceNotFound:
                log.warning("%s is gone: it is made anew", self.name)
                writer(self._context).create_tag(self.name, branch, target)
        self._stored = target
        self._unconfirmed.clear()

    def _resolve_conflict(self, error: CatalogError) -> None:
        """Look whether a move happened whose answer was lost, or somebody else moved the tag."""
        try:
            position = self.read()
        except CatalogError as read_error:
            self._record_failure(read_error)
            return
        if position in self._unconfirmed or position == self._stored:
            self._stored = position
            return
        self.taken_over = True
        log.warning("%s was moved by somebody else: another gateway delivers", self.name)

    def _record_failure(self, error: CatalogError) -> None:
        if self.problem != type(error).__name__:
            log.warning("%s can't be moved, and delivery goes on: %s", self.name, error)
        self.problem = type(error).__name__
        if isinstance(error, NotPrimary):
            self._context.close()  # who the primary is is asked anew

    def _create(self, head: str) -> str:
        catalog = self._context.catalog
        branch = catalog.default_branch if head == catalog.no_ancestor() else self._context.region.replica_branch
        try:
            created = writer(self._context).create_tag(self.name, branch, head).hash
        except (CatalogConflict, CatalogStateUnknown):
            return self.read()
        log.info("%s begins at the branch's head, %s", self.name, head[:12])
        return created

    def _read_own_copy(self, error: CatalogError) -> str:
        try:
            return self._context.catalog.reference(self.name).hash
        except ReferenceNotFound:
            raise error from None
