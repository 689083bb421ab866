"""A sink's position: a tag at the primary, on the last commit of the replica branch whose events are acknowledged.

It is moved after the acknowledgement, by compare-and-swap: a crash repeats events, and never skips one. gc retains what
the tag reaches, as it does for any reference.
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
    """Return the positions of a region's sinks by name, from the tags: also of sinks that are no longer configured."""
    named = {
        parse_sink_tag(region, reference.name): reference.hash for reference in references if reference.kind == "TAG"
    }
    return {name: hash for name, hash in named.items() if name is not None}


def remove_tag(context: RegionContext, sink: str, hash: str) -> None:
    """Delete a sink's tag if it is at a commit.

    Raises:
        CatalogConflict: the tag has moved: a gateway delivers.
    """
    writer(context).delete_tag(sink_tag(context.region.name, sink), hash)


class PositionTag:
    """The position of one sink. The deliverer sets it; another thread moves the tag, so that an unavailable primary
    doesn't delay delivery.

    Args:
        context: the region, with connections of its own.
        sink: the sink's name.
    """

    def __init__(self, context: RegionContext, sink: str) -> None:
        self._context = context
        self.name = sink_tag(context.region.name, sink)
        self.taken_over = False  # another gateway moved the tag
        self.problem = ""
        self._stored: str | None = None
        self._target: str | None = None
        self._unconfirmed: set[str] = set()  # targets of moves whose answers were lost
        self._lock = threading.Lock()

    def begin(self, head: str) -> str:
        """Return the commit after which to begin; a missing tag is created at the branch's head.

        Args:
            head: the branch's head, as the region's own copy has it.

        Raises:
            CatalogError: neither the primary nor the region's own copy can be read.
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
        """Return the tag's commit at the primary.

        Raises:
            ReferenceNotFound: there is no tag.
            CatalogError: the primary doesn't answer.
        """
        return self._context.primary.reference(self.name).hash

    def adopt(self, hash: str) -> None:
        """Take the tag's commit as the position."""
        with self._lock:
            self._stored, self._target, self.taken_over = hash, hash, False
            self._unconfirmed.clear()

    def advance(self, hash: str) -> None:
        """Set the deliverer's position; `save` moves the tag there."""
        self._target = hash

    @property
    def stored(self) -> str | None:
        """The tag's commit after the last successful move."""
        return self._stored

    def save(self) -> None:
        """Move the tag to the deliverer's position; an error is shown in `problem`, and the next call retries."""
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
                # Even if the tag is at the target: then another gateway has delivered as far as this one.
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
                log.warning("%s is gone: it is recreated", self.name)
                writer(self._context).create_tag(self.name, branch, target)
        self._stored = target
        self._unconfirmed.clear()

    def _resolve_conflict(self, error: CatalogError) -> None:
        """Find out whether a move succeeded whose answer was lost, or another gateway moved the tag."""
        try:
            position = self.read()
        except CatalogError as read_error:
            self._record_failure(read_error)
            return
        if position in self._unconfirmed or position == self._stored:
            self._stored = position
            return
        self.taken_over = True
        log.warning("%s was moved by another client: another gateway delivers", self.name)

    def _record_failure(self, error: CatalogError) -> None:
        if self.problem != type(error).__name__:
            log.warning("%s can't be moved, and delivery goes on: %s", self.name, error)
        self.problem = type(error).__name__
        if isinstance(error, NotPrimary):
            self._context.close()  # the primary is resolved again

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
