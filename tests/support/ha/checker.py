"""A history of commits and reads through a failover, and what must hold of it.

Writers commit to `main` as clients behind a name do: they ask one region after the other and stay with the one that
accepts. Readers look at `main`'s head in each region through its own Nessie. Afterwards the catalog's own histories say
what became of it all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

from sterna.catalog.model import Unchanged
from sterna.catalog.nessie.catalog import NessieCatalog
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import CatalogConflict, CatalogStateUnknown, SternaError

_PAUSE_SECONDS = 0.05


@dataclass(frozen=True)
class AcceptedCommit:
    """A commit that was acknowledged.

    Args:
        hash: the commit.
        region: whose Nessie accepted it.
    """

    hash: str
    region: str


@dataclass
class History:
    """What clients saw.

    Args:
        accepted: acknowledged commits.
        unclear: messages of commits that were sent and got no clear answer.
        seen: region → heads of `main` in the order in which they were seen there, each once in a row.
    """

    accepted: list[AcceptedCommit] = field(default_factory=list)
    unclear: list[str] = field(default_factory=list)
    seen: dict[str, list[str]] = field(default_factory=dict)

    def hashes(self, region: str | None = None) -> set[str]:
        """Return the acknowledged commits, of one region or of all."""
        return {commit.hash for commit in self.accepted if region in (None, commit.region)}

    def assert_nothing_lost(self, main: Sequence[str]) -> None:
        """Every acknowledged commit is in `main`'s history."""
        assert self.accepted, "nobody committed"
        assert self.hashes() - set(main) == set()

    def assert_forward(self, region: str, main: Sequence[str], lost: Sequence[str] = ()) -> None:
        """Each head that was seen in a region is an ancestor of the next; but for one step from what was lost back
        to `main`.

        Args:
            region: the region.
            main: hashes of `main`, newest first.
            lost: the hashes of the branch that keeps what was lost, newest first.
        """
        lines = [{hash: number for number, hash in enumerate(reversed(line))} for line in (main, lost)]
        heads = self.seen[region]
        assert heads
        back = 0
        for earlier, later in pairwise(heads):
            forward = any(earlier in line and later in line and line[earlier] < line[later] for line in lines)
            back += not forward
            assert forward or (back == 1 and earlier not in lines[0] and later in lines[0]), (
                f"{region} went back from {earlier} to {later}"
            )

    def assert_one_primary_per_term(self, main: Sequence[str], terms: Sequence[tuple[int, str, str]]) -> None:
        """All of `main`'s acknowledged commits between two switches were accepted by the region whose epoch it was.

        Args:
            main: hashes of `main`, newest first.
            terms: number, region, and head of `main` as it began, of each epoch.
        """
        place = {hash: number for number, hash in enumerate(reversed(main))}
        starts = [(place.get(head, -1), region) for _, region, head in terms]
        for commit in self.accepted:
            if commit.hash in place:
                primary = [region for start, region in starts if start < place[commit.hash]][-1]
                assert commit.region == primary, (
                    f"{commit.hash} was accepted by {commit.region} while {primary} was the primary"
                )


def write(
    history: History, regions: Sequence[str], open: Callable[[str], NessieCatalog], name: str, ended: threading.Event
) -> None:
    """Commit to `main` again and again, through whichever region accepts, until told to end."""
    catalogs = {region: open(region) for region in regions}
    order, number = list(regions), 0
    while not ended.is_set():
        number += 1
        message = f"{name} {number}"
        try:
            catalog = catalogs[order[0]]
            head = catalog.reference(SOURCE_BRANCH).hash
            hash = catalog.commit(SOURCE_BRANCH, head, [Unchanged(("nothing",))], message, {})
            history.accepted.append(AcceptedCommit(hash, order[0]))
        except CatalogConflict:
            continue
        except CatalogStateUnknown:
            history.unclear.append(message)
        except SternaError:
            order.append(order.pop(0))
        ended.wait(_PAUSE_SECONDS)
    for catalog in catalogs.values():
        catalog.close()


def read(history: History, region: str, open: Callable[[str], NessieCatalog], ended: threading.Event) -> None:
    """Look at `main`'s head in one region, again and again, until told to end."""
    heads = history.seen.setdefault(region, [])
    with open(region) as catalog:
        while not ended.wait(_PAUSE_SECONDS):
            try:
                head = catalog.reference(SOURCE_BRANCH).hash
            except SternaError:
                continue
            if heads[-1:] != [head]:
                heads.append(head)


@contextmanager
def watched(regions: Sequence[str], open: Callable[[str], NessieCatalog], writers: int = 2) -> Iterator[History]:
    """Let clients write and read while the block runs; yield what they see.

    Args:
        regions: all regions.
        open: returns a new client of a region's Nessie.
        writers: how many commit at once.
    """
    history, ended = History(), threading.Event()
    threads = [
        threading.Thread(target=write, args=(history, regions, open, f"writer {number}", ended))
        for number in range(writers)
    ]
    threads += [threading.Thread(target=read, args=(history, region, open, ended)) for region in regions]
    for thread in threads:
        thread.start()
    try:
        yield history
    finally:
        ended.set()
        for thread in threads:
            thread.join()
