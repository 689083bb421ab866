"""All object stores of all regions, in memory; what a sync sees of them, and the rclone that copies between them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from datetime import datetime

from sterna.config.mapping import Mapping
from sterna.errors import ObjectMissing, SternaError, StoreUnreachable
from sterna.storage.rclone.transfer import Folder, Transfer
from sterna.storage.read_cache import cache_uri
from tests.simulation.turns import Turn
from tests.support.small_world import no_secrets


class Violation(AssertionError):
    """Something that must always hold does not."""


@dataclass(frozen=True)
class Object:
    """An object: its content, and when it was written."""

    data: bytes
    time: datetime


class Store:
    """URIs and what stands there.

    Args:
        now: the clock.
        roots: the replica roots; what stood at a URI below one once may never be replaced by something else.

    Attributes:
        dark: how the URIs begin that nobody gets an answer about.
        guard: looks at each file of `main` before a sweep deletes it.
    """

    def __init__(self, now: Callable[[], datetime], *roots: str) -> None:
        self.objects: dict[str, Object] = {}
        self.deleted = 0
        self.guard: Callable[[str], None] = lambda uri: None
        self.dark: set[str] = set()
        self.now = now
        self._roots = tuple(f"{root}/" for root in roots)
        self._states = tuple(f"{root}_sterna/" for root in self._roots)
        self.ever: dict[str, bytes] = {}

    def put(self, uri: str, data: bytes) -> None:
        if self.is_below_root(uri):
            there = self.objects.get(uri)
            before = self.ever.setdefault(uri, data) if there is None else there.data
            # A task that runs once more after the clean-up took its run's evidence away writes a report anew.
            if before != data and not (there is None and uri.startswith(self._states)):
                raise Violation(f"overwritten with other content: {uri}")
        self.objects[uri] = Object(data, self.now())

    def delete(self, uri: str) -> None:
        if self.objects.pop(uri, None) is not None:
            self.deleted += 1

    def is_dark(self, uri: str) -> bool:
        return any(uri.startswith(place) for place in self.dark)

    def is_below_root(self, uri: str) -> bool:
        return uri.startswith(self._roots)


class Objects:
    """The stores as one actor of sterna's sees them: `sterna.storage.objects.Objects`, in memory."""

    def __init__(self, store: Store, mapping: Mapping, turn: Turn, run: str = "") -> None:
        self.store = store
        self.mapping = mapping
        self.turn = turn
        self.workers = 1
        self.secrets = no_secrets
        self._run = run
        self._large: Callable[[str, int], None] = lambda uri, memory: None

    def with_read_cache(self, run: str) -> Objects:
        return Objects(self.store, self.mapping, self.turn, run)

    def without_read_cache(self) -> Objects:
        clone = copy(self)
        clone._run = ""
        return clone

    def verbatim_copies(self, uri: str) -> list[str]:
        """No region keeps any here."""
        return []

    def with_verbatim_copies(self) -> Objects:
        return self

    def reset_circuit_breakers(self) -> None:
        """No store is silent here for longer than a call."""

    def read(self, uri: str, *, limit: int = 0) -> bytes:
        self.mapping.locate(uri)
        self._ask("read", uri)
        if uri not in self.store.objects:
            raise ObjectMissing("no such object", file=uri)
        data = self.store.objects[uri].data
        if self._run and not self.mapping.is_local(uri):
            self.write_new(cache_uri(self._run, uri), data, assume_absent=True)
        return data

    def read_many(self, uris: Iterable[str], workers: int | None = None) -> Iterator[tuple[str, bytes | SternaError]]:
        for uri in uris:
            try:
                yield uri, self.read(uri)
            except SternaError as error:
                yield uri, error

    def read_bounded(self, sizes: Iterable[str]) -> Iterator[tuple[str, bytes | SternaError]]:
        return self.read_many(sizes)

    @contextmanager
    def reserve_memory(self, uri: str, memory_bytes: int) -> Iterator[None]:
        self._large(uri, memory_bytes)
        yield

    def with_large_file_hook(self, on_large: Callable[[str, int], None]) -> Objects:
        clone = copy(self)
        clone._large = on_large
        return clone

    def size(self, uri: str) -> int | None:
        self.mapping.locate(uri)
        self._ask("look for", uri)
        stored = self.store.objects.get(uri)
        return None if stored is None else len(stored.data)

    def require_readable(self, uri: str) -> None:
        self._ask("look into", uri)
        if uri not in self.store.objects:
            raise ObjectMissing("no such object", file=uri)

    def _ask(self, what: str, uri: str) -> None:
        self.turn.call(what, uri)
        if self.store.is_dark(uri):
            self.turn.tell("  it is dark there")
            raise StoreUnreachable("it is dark there", file=uri)

    def sizes(self, uris: Iterable[str]) -> dict[str, int | None]:
        return {uri: self.size(uri) for uri in sorted(uris)}

    def source_sizes(self, expected: Iterable[str]) -> dict[str, int | None]:
        return self.sizes(expected)

    def write_new(self, uri: str, data: bytes, *, assume_absent: bool = False) -> int:
        if not self.store.is_below_root(uri):
            raise Violation(f"written outside the replica root: {uri}")
        self.turn.call("write", uri)
        # Who has looked may be late: the store takes what comes last.
        there = None if assume_absent else self.store.objects.get(uri)
        if there is None:
            self.store.put(uri, data)
        self.turn.die("after")
        return len(data if there is None else there.data)

    def overwrite(self, uri: str, data: bytes) -> int:
        """Write what alone is written over: signs of life of the large lane, the newest delays, markers of pauses."""
        state = f"{self.mapping.region.replica_root}/_sterna"
        if not uri.startswith(tuple(f"{state}/{name}/" for name in ("transit", "delays", "paused"))):
            raise Violation(f"written over: {uri}")
        self.turn.call("write over", uri)
        self.store.objects[uri] = Object(data, self.store.now())
        self.turn.die("after")
        return len(data)

    def delete(self, uris: Sequence[str], *, may_continue: Callable[[], bool] = lambda: True) -> dict[str, SternaError]:
        failures: dict[str, SternaError] = {}
        for uri in uris:
            try:
                self.turn.call("delete", uri)
                if not self.store.is_below_root(uri):
                    raise Violation(f"deleted outside the replica root: {uri}")
                if not may_continue():
                    raise StoreUnreachable("too late", file=uri)
                self.store.delete(uri)
                self.turn.die("after")
            except StoreUnreachable as error:
                failures[uri] = error
        return failures

    def sweep(
        self,
        uris: Sequence[str],
        *,
        near_roots: Collection[str] = (),
        may_continue: Callable[[], bool] = lambda: True,
    ) -> dict[str, SternaError]:
        failures: dict[str, SternaError] = {}
        for uri in uris:
            try:
                self.turn.call("sweep", uri)
                if not uri.startswith("s3://eu-lake/") or not may_continue():
                    raise StoreUnreachable("too late, or elsewhere", file=uri)
                self.store.guard(uri)
                self.store.delete(uri)
                self.turn.die("after")
            except StoreUnreachable as error:
                failures[uri] = error
        return failures

    def list(self, uri_prefix: str, *, after: str = "") -> Iterator[tuple[str, int, datetime]]:
        folder = uri_prefix.rstrip("/") + "/"
        self.turn.call("list", folder)
        for uri, stored in sorted(self.store.objects.items()):
            if uri.startswith(folder) and uri > folder + after:
                yield uri, len(stored.data), stored.time

    def copy_files(self, origin: Folder, replica: Folder, names: Sequence[str], **_: object) -> Transfer:
        """What rclone does: it passes over what is gone without a word, and sometimes it fails."""
        sent, errors = [], ""
        for name in names:
            source = f"{origin.location.prefix}/{name}"
            target = "/".join(filter(None, (replica.location.prefix, replica.path, name)))
            self.turn.call("copy", source)
            if self.store.is_dark(source) or self.turn.chance(self.turn.faults.copy):
                errors = f"Failed to copy {name}"
                self.turn.tell("  fails")
                continue
            stored, there = self.store.objects.get(source), self.store.objects.get(target)
            if stored is None or (there is not None and there.data == stored.data):
                continue
            if not self.store.is_below_root(target):
                raise Violation(f"copied outside the replica root: {target}")
            self.store.put(target, stored.data)
            sent.append(stored)
            self.turn.die("after")
        return Transfer(sum(len(item.data) for item in sent), len(sent), errors)
