"""The catalog as one actor of sterna's sees it.

It may be slow, silent or unsure, and it lets nobody write on `main`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

from sterna.catalog.model import Commit, Content, DiffEntry, Key, Operation, Reference
from sterna.errors import CatalogStateUnknown
from tests.simulation.store import Violation
from tests.simulation.turns import Turn
from tests.support.doubles.catalog import InMemoryCatalog


class ActorsCatalog:
    """One actor's connection to the catalog.

    Args:
        catalog: the catalog itself.
        branch: the one branch that the actor may write.
        turn: stands before each call.
        late: takes commits that the server got and hasn't worked off.

    Attributes:
        old: it is that of a region which isn't the primary any more.
    """

    def __init__(self, catalog: InMemoryCatalog, branch: str, turn: Turn, late: list[Callable[[], object]]) -> None:
        self._catalog = catalog
        self._branch = branch
        self._turn = turn
        self._late = late
        self.old = False

    def go_to(self, catalog: InMemoryCatalog, *, old: bool) -> None:
        """Be at another catalog: an old primary's as it was, or the primary's."""
        self._catalog, self.old = catalog, old

    @property
    def default_branch(self) -> str:
        return self._catalog.default_branch

    def no_ancestor(self) -> str:
        return self._catalog.no_ancestor()

    def reference(self, name: str) -> Reference:
        self._turn.call(f"head of {name}")
        return self._catalog.reference(name)

    def references(self) -> tuple[Reference, ...]:
        self._turn.call("references")
        return self._catalog.references()

    def history(self, ref_or_hash: str, *, operations: bool, until: str | None = None) -> Iterator[Commit]:
        self._turn.call(f"history of {ref_or_hash.partition('@')[0]}")
        return self._catalog.history(ref_or_hash, operations=operations, until=until)

    def diff(self, ref: str, old_hash: str | None, new_hash: str) -> Iterator[DiffEntry]:
        self._turn.call(f"diff of {ref}")
        return self._catalog.diff(ref, old_hash, new_hash)

    def entries(self, ref: str, hash: str) -> Iterator[tuple[Key, Content]]:
        self._turn.call(f"entries of {ref}")
        return self._catalog.entries(ref, hash)

    def contents(self, ref: str, hash: str, keys: Collection[Key]) -> Mapping[Key, Content]:
        self._turn.call(f"contents of {ref}")
        return self._catalog.contents(ref, hash, keys)

    def read_current(self, ref: str, keys: Collection[Key]) -> tuple[str, Mapping[Key, Content]]:
        # Of other regions' branches, which show sources of copies, no answer is as good as none: nothing comes of it.
        if ref in (self._branch, self.default_branch):
            self._turn.call(f"contents of {ref}")
        return self._catalog.read_current(ref, keys)

    def exists(self, hash: str) -> bool:
        self._turn.call("does a commit exist")
        return self._catalog.exists(hash)

    def create_branch(self, name: str, at_hash: str | None = None) -> Reference:
        self._require_branch(name)
        self._turn.call(f"create {name}")
        created = self._catalog.create_branch(name, at_hash)
        self._turn.die("after")
        return created

    def commit(
        self,
        branch: str,
        expected_hash: str,
        operations: Sequence[Operation],
        message: str,
        properties: Mapping[str, str] | None = None,
        *,
        existing: Mapping[Key, Content | None] | None = None,
    ) -> str:
        self._require_branch(branch)
        self._turn.call(f"commit on {branch}: {message}")
        send = partial(self._catalog.commit, branch, expected_hash, operations, message, properties, existing=existing)
        if self._turn.chance(self._turn.faults.unknown):
            self._lose(send)
        commit_hash = send()
        self._turn.die("after")
        return commit_hash

    def _lose(self, send: Callable[[], object]) -> None:
        fate = self._turn.rng.choice(("made", "never made", "made later"))
        self._turn.tell(f"  the answer is lost; the commit is {fate}")
        if fate == "made":
            send()
        if fate == "made later":
            self._late.append(send)
        raise CatalogStateUnknown("the simulation lost the answer")

    def _require_branch(self, branch: str) -> None:
        if branch != self._branch:
            raise Violation(f"sterna writes on {branch}")
