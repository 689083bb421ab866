"""Reading, writing and finding objects, each with its own location's endpoint and credential."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from collections.abc import Mapping as AbstractMapping
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, TypeVar

from sterna.config.mapping import Mapping
from sterna.config.orphan_removal import may_sweep
from sterna.config.registry.credential import describe_store
from sterna.config.registry.folders import BANDWIDTH, state_folder
from sterna.config.registry.model import Location, Registry, is_inside
from sterna.config.secrets import Secrets
from sterna.config.verbatim_copies import content_copy, regions_with_copies, verbatim_uri
from sterna.errors import OUTAGES, CredentialError, ObjectMissing, SternaError, StoreUnreachable, UnsafeUri
from sterna.storage.bandwidth import BandwidthShare, is_limited, open_share
from sterna.storage.circuit_breaker import RETRY_SECONDS
from sterna.storage.client import (
    PAGE_SIZE,
    RESUME_HINT,
    OpenStore,
    call_store,
    head_size,
    list_pages,
    put_new,
    require_not_forked,
    validate_key,
    with_file,
)
from sterna.storage.content import read_object
from sterna.storage.listing import absent_keys, key_runs, list_folders, list_run
from sterna.storage.memory_budget import MemoryBudget, check_size, map_ordered, read_bounded
from sterna.storage.read_cache import cache_uri
from sterna.storage.throttle import ReadThrottle

_MEMORY_FACTOR = 2  # copies of each file that is read are in memory for a moment
_MAX_CACHED_FOLDERS = 100_000
_MAX_FAILED_DELETIONS = 3  # deletions that failed one after another, and no other succeeded: it is the store
_PLAIN_KEY = re.compile(r"[\w/.=~'-]+(?: [\w/.=~'-]+)*", re.ASCII)
_T = TypeVar("_T")
_R = TypeVar("_R")


class Objects:
    """The objects of all locations: source URIs and URIs below the replica root alike.

    It holds no secret until it opens a location, may be used by any number of threads, and pickles by its arguments.

    Args:
        mapping: finds the location of a URI, and refuses those that must not be followed.
        secrets: finds a location's credential.
        timeout: seconds that a store may stay silent, and within which failed requests are tried again.
        workers: requests under way at once where there are many to make.
        retry_seconds: between two calls to a store that has kept silent.
    """

    def __init__(
        self,
        mapping: Mapping,
        secrets: Secrets,
        *,
        timeout: float = 60.0,
        workers: int = 32,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self.mapping = mapping
        self.secrets = secrets
        self.timeout = timeout
        self.workers = workers
        self.retry_seconds = retry_seconds
        self._stores: dict[str, OpenStore] = {}
        self._sweep_stores: dict[str, OpenStore] = {}
        self._folders: dict[str, tuple[OpenStore, str]] = {}
        self._open_lock = threading.Lock()
        self._read_budget, self._parse_budget, self._commit_budget = (
            MemoryBudget(mapping.region.limits.plan_bytes) for _ in range(3)
        )
        self._large: Callable[[str, int], None] = lambda uri, size: None
        self._copy_mappings: tuple[Mapping, ...] = ()
        self._outages: dict[str, tuple[StoreUnreachable, float]] = {}

    @classmethod
    def from_spec(cls, spec: dict[str, Any], secrets: Secrets) -> Objects:
        """Build from what `spec` returned, in another process; credentials are found there."""
        registry = Registry.model_validate(spec["registry"])
        mapping = Mapping(registry, registry.region(spec["region"]))
        return cls(
            mapping,
            secrets,
            timeout=spec["timeout"],
            workers=spec["workers"],
            retry_seconds=spec["retry_seconds"],
        )

    def spec(self) -> dict[str, Any]:
        """Return plain JSON data, without secrets, from which another process can build the same."""
        registry = self.mapping.registry.model_dump(mode="json")
        return {
            "registry": registry,
            "region": self.mapping.region.name,
            "timeout": self.timeout,
            "workers": self.workers,
            "retry_seconds": self.retry_seconds,
        }

    def __reduce__(self) -> tuple[Any, ...]:
        names = (self.mapping.registry, self.mapping.region.name)
        return (_rebuild, (*names, self.secrets, self.timeout, self.workers, self.retry_seconds))

    def with_read_cache(self, run: str) -> Objects:
        """Return the same objects, but that what they read of other regions is kept below a run's folder."""
        return _CachingObjects(self, run)

    def without_read_cache(self) -> Objects:
        """Return the same objects, without a read cache."""
        return self

    def reset_circuit_breakers(self) -> None:
        """Close the circuit breakers of unresponsive stores: a new sync begins, and they may answer by now."""
        self._outages.clear()
        for store in list(self._stores.values()):
            store.circuit_breaker.record_success()

    def with_large_file_hook(self, on_large: Callable[[str, int], None]) -> Objects:
        """Return the same objects, with a callback before a large file is read or parsed.

        Args:
            on_large: called with a file's URI, and about how many bytes it takes in memory.
        """
        return self._copy_with(_large=on_large)

    def with_verbatim_copies(self) -> Objects:
        """Return the same objects, but that files of another region whose store can't be used are read from verbatim
        copies, of this region or of the cheapest one that has them.

        Another process has to be asked for it again.
        """
        return self._copy_with(_copy_mappings=regions_with_copies(self.mapping))

    def _copy_with(self, **changes: Any) -> Objects:
        copy = object.__new__(type(self))  # `copy` would use the pickled state, without connections
        copy.__dict__.update(self.__dict__ | changes)
        return copy

    def verbatim_copies(self, uri: str) -> list[str]:
        """Return where verbatim copies of another region's file may be, in the order in which they are read."""
        if not self._copy_mappings or self.mapping.is_local(uri):
            return []
        return [copy for mapping in self._copy_mappings if (copy := verbatim_uri(mapping, uri))]

    def read(self, uri: str, *, limit: int | None = None) -> bytes:
        """Return an object's content.

        Args:
            limit: bytes; a larger object is refused before it is read. What is larger than the region's limit
                `file_bytes` is refused in any case, but for what sterna itself keeps beside the replica.

        Raises:
            ObjectMissing, StoreUnreachable, StoreDenied: it can't be read.
            OverLimit: it is larger than the region's limit.
            TooLarge: it is larger than the caller's limit.
            UnregisteredUri, UnsafeUri: as `Mapping.locate`.
        """
        copies = self.verbatim_copies(uri)
        if not copies:
            return self._read_at(uri, limit)
        try:
            return self._read_origin(uri, limit)
        except OUTAGES:
            for copy in copies:
                with suppress(ObjectMissing, *OUTAGES):
                    return self._read_at(copy, limit, uri)
            raise

    def _read_origin(self, uri: str, limit: int | None) -> bytes:
        """Return an object's content, unless its store was silent a moment ago: then the copies have it sooner.

        A proxy's answers for a store that is down close a circuit breaker, and each may take its time.
        """
        location = self.mapping.locate(uri).location.id
        error, until = self._outages.get(location, (None, 0.0))
        if error is not None and time.monotonic() < until:
            raise StoreUnreachable(error.message, file=uri, hint=error.hint)
        try:
            return self._read_at(uri, limit)
        except StoreUnreachable as error:
            self._outages[location] = error, time.monotonic() + self.retry_seconds
            raise

    def _read_at(self, uri: str, limit: int | None, original: str = "") -> bytes:
        """Return an object's content.

        Args:
            limit: see `read`.
            original: the file whose copy it is, for which limits hold; "": itself.
        """
        store, key = self._locate(uri)

        def validate_size(size: int) -> None:
            check_size(self.mapping, original or uri, size, limit)

        return call_store(store, uri, lambda: read_object(store, key, uri, self.timeout, validate_size))

    def read_bounded(self, sizes: dict[str, int]) -> Iterator[tuple[str, bytes | SternaError]]:
        """Yield each URI with its content or error, as `read_many`; all concurrent reads together take at most the
        region's `plan_bytes` of memory.

        Args:
            sizes: the expected bytes of each object; -1 where unknown.
        """
        return read_bounded(self, sizes, self._read_budget, self.workers, _MEMORY_FACTOR, self._large)

    @contextmanager
    def reserve_memory(self, uri: str, memory_bytes: int) -> Iterator[None]:
        """Wait until a file may be parsed that takes about so many bytes of memory.

        Don't call `read_bounded` meanwhile: others parse while they read, and both would wait.
        """
        self._large(uri, memory_bytes)
        with self._parse_budget.reserve(memory_bytes):
            yield

    @contextmanager
    def reserve_commit_memory(self, memory_bytes: int) -> Iterator[None]:
        """Wait until a commit's new files may be held against others that take about so many bytes of memory.

        Files may be read and parsed meanwhile: no reader and no parser waits for this.
        """
        with self._commit_budget.reserve(memory_bytes):
            yield

    def read_many(self, uris: Iterable[str], workers: int | None = None) -> Iterator[tuple[str, bytes | SternaError]]:
        """Yield each URI with its content, or with the error that kept it from being read, in the given order.

        Args:
            workers: how many are read at once; about as many more wait in memory. Default: the object's own.
        """

        def attempt(uri: str) -> tuple[str, bytes | SternaError]:
            try:
                return uri, self.read(uri)
            except SternaError as error:
                return uri, error

        return map_ordered(attempt, uris, workers or self.workers)

    def size(self, uri: str) -> int | None:
        """Return an object's size in bytes, None where there is no such object.

        Raises:
            StoreUnreachable, StoreDenied, UnregisteredUri, UnsafeUri: as `read`.
        """
        store, key = self._locate(uri)
        return head_size(store, key, uri)

    def require_readable(self, uri: str) -> None:
        """Read the beginning of an object.

        A store may return an object's size and yet refuse its content.

        Raises:
            ObjectMissing, StoreUnreachable, StoreDenied, UnregisteredUri, UnsafeUri: as `read`.
        """
        import obstore

        store, key = self._locate(uri)
        # Not by a range: some servers (`rclone serve s3`) answer one that is the whole object in another way.
        call_store(store, uri, lambda: next(iter(obstore.get(store.client, key).stream(min_chunk_size=1)), None))

    def sizes(self, uris: Iterable[str]) -> dict[str, int | None]:
        """Return the size of each object, None where there is none, with few requests.

        The keys of a store are sorted and cut into runs. A run is listed from its first key on; a listing that needs
        more than one request for 20 keys is given up, and a HEAD request is sent for each key that it has not passed.
        So there are at most 1.05 requests a key, and one for a thousand keys where these are adjacent (or all missing).

        Raises:
            StoreUnreachable, StoreDenied, UnregisteredUri, UnsafeUri: as `read`; for the first URI that they happen to.
        """
        stores: dict[str, OpenStore] = {}
        keys: dict[str, dict[str, str]] = {}  # by location id and key, a URI
        aliases: list[tuple[str, str, str]] = []
        for uri in uris:
            store, key = self._locate(uri)
            id = store.location.id
            stores[id] = store
            if keys.setdefault(id, {}).setdefault(key, uri) != uri:
                aliases.append((uri, id, key))
        sizes: dict[str, dict[str, int | None]] = {id: dict.fromkeys(absent_keys(stores[id], keys[id])) for id in keys}
        runs = [(stores[id], run) for id in keys for run in key_runs(stores[id], sorted(keys[id]))]
        for (store, _), run_sizes in zip(runs, self._map(lambda run: list_run(*run), runs), strict=True):
            sizes[store.location.id].update(run_sizes)
        remaining = [(id, key) for id in keys for key in keys[id] if key not in sizes[id]]
        heads = self._map(
            lambda location_key: head_size(
                stores[location_key[0]], location_key[1], keys[location_key[0]][location_key[1]]
            ),
            remaining,
        )
        for (id, key), size in zip(remaining, heads, strict=True):
            sizes[id][key] = size
        by_uri = {uri: sizes[id][key] for id in keys for key, uri in keys[id].items()}
        return by_uri | {uri: sizes[id][key] for uri, id, key in aliases}

    def source_sizes(self, expected: AbstractMapping[str, int]) -> dict[str, int | None]:
        """Return the sizes of content files that `main` names; see `sizes`.

        Of objects that read verbatim copies: where a store can't be used, a file of which a region that keeps these has
        a copy of the expected size counts as that large.

        Args:
            expected: bytes of each file.

        Raises:
            StoreUnreachable, StoreDenied, UnregisteredUri, UnsafeUri: as `read`; no region has some file's copy.
        """
        try:
            return self.sizes(expected)
        except OUTAGES:
            copied: set[str] = set()
            for mapping in self._copy_mappings:
                copies = {uri: copy for uri in expected if uri not in copied and (copy := content_copy(mapping, uri))}
                with suppress(*OUTAGES):
                    sizes = self.sizes(copies.values())
                    copied |= {uri for uri, copy in copies.items() if sizes[copy] == expected[uri]}
            if copied != expected.keys():
                raise
            return dict(expected)

    def write_new(self, uri: str, data: bytes, *, assume_absent: bool = False) -> int:
        """Write an object unless one is there already, which stays as it is.

        Args:
            assume_absent: the caller has just seen that nothing is there, and any other writer there would write the
                same.

        Returns:
            The length in bytes of the object that is there now.

        Raises:
            ObjectMissing: another writer's object was deleted meanwhile.
            StoreUnreachable, StoreDenied, UnregisteredUri, UnsafeUri: as `read`.
        """
        # Checked first, since some stores (`rclone serve s3`) treat a conditional request as a plain one; the write is
        # conditional nevertheless, since another one may come between the two.
        store, key = self._locate(uri)
        existing_size = None if assume_absent else head_size(store, key, uri)
        if existing_size is None:
            if put_new(store, key, uri, data):
                return len(data)
            existing_size = head_size(store, key, uri)
        if existing_size is None:
            raise ObjectMissing("another writer wrote the object and deleted it again", file=uri)
        return existing_size

    def overwrite(self, uri: str, data: bytes) -> int:
        """Write an object of the replica over a wrong one that is there; return its length.

        That is for `repair`, and for verbatim copies that aren't whole.

        Raises:
            UnsafeUri: it isn't below this region's replica root.
            StoreUnreachable, StoreDenied, UnregisteredUri: as `read`.
        """
        import obstore

        if not is_inside(uri, self.mapping.region.replica_root):
            raise UnsafeUri("only what sterna wrote below the replica root is ever written over", file=uri)
        store, key = self._locate(uri)
        call_store(store, uri, lambda: obstore.put(store.client, key, data, use_multipart=False))
        return len(data)

    def delete(self, uris: Sequence[str], *, may_continue: Callable[[], bool] = lambda: True) -> dict[str, SternaError]:
        """Delete objects below this region's replica root; sterna deletes nowhere else. One that is gone already is
        no failure.

        Args:
            uris: the objects, a few thousand at most.
            may_continue: called before each request; where it returns False, the rest is not deleted.

        Returns:
            The error of each object that may still be there.

        Raises:
            UnsafeUri: one of them is elsewhere, or must not be followed: then none is deleted.
        """
        root = self.mapping.region.replica_root
        outside = next((uri for uri in uris if not uri.startswith(f"{root}/")), None)
        if outside is not None:
            raise UnsafeUri(f"not below the replica root {root}: sterna deletes nothing there", file=outside)
        # No location is below a replica root, so that all of them are in one store.
        return self._delete([(uri, *self._locate(uri)) for uri in uris], may_continue)

    def sweep(
        self,
        uris: Sequence[str],
        *,
        near_roots: Collection[str] = (),
        may_continue: Callable[[], bool] = lambda: True,
    ) -> dict[str, SternaError]:
        """Delete writers' files in this region's locations that the registry opts in (`sweep: true`), with the
        credential that may delete there; other arguments and the result are those of `delete`.

        Args:
            near_roots: below these, tables' files in `near` and in the REST address's folder may be deleted, too.

        Raises:
            UnsafeUri: one of them is elsewhere, below a replica root, or is sterna's own: then none is deleted.
            CredentialError: the credential that may delete is missing, or doesn't fit the store.
        """
        stores: dict[str, list[tuple[str, OpenStore, str]]] = {}
        for uri in uris:
            place = self.mapping.locate(uri)
            location = place.location
            if not may_sweep(self.mapping, uri, location, near_roots):
                raise UnsafeUri("not in a location of this region that may be swept: nothing is deleted", file=uri)
            validate_key(place, uri)
            if location.id not in self._sweep_stores:
                id = location.sweep_credential_id or location.credential_id
                sweep_location = location.model_copy(update={"credential_id": id})
                self._sweep_stores[location.id] = OpenStore(sweep_location, self.secrets, self.timeout)
            store = self._sweep_stores[location.id]
            stores.setdefault(location.id, []).append((uri, store, store.key(place.path)))
        failures: dict[str, SternaError] = {}
        for targets in stores.values():
            failures |= self._delete(targets, may_continue)
        return failures

    def _delete(
        self, targets: Sequence[tuple[str, OpenStore, str]], may_continue: Callable[[], bool]
    ) -> dict[str, SternaError]:
        # A list of keys travels as XML, where some servers read odd ones as others: those go one by one.
        plain_targets = [target for target in targets if _PLAIN_KEY.fullmatch(target[2])]
        groups = [plain_targets[start : start + PAGE_SIZE] for start in range(0, len(plain_targets), PAGE_SIZE)]
        groups += [[target] for target in targets if not _PLAIN_KEY.fullmatch(target[2])]
        failures: dict[str, SternaError] = {}
        for group_failures in self._map(lambda group: delete_objects(group, may_continue), groups):
            failures |= group_failures
        return failures

    def list(self, uri_prefix: str, *, after: str = "") -> Iterator[tuple[str, int, datetime]]:
        """Yield URI, size in bytes and time of last change of every object below a folder, spelled as the folder is.

        Args:
            after: begin behind this path below it.

        Raises:
            StoreUnreachable, StoreDenied, UnregisteredUri, UnsafeUri: as `read`.
        """
        folder = uri_prefix.rstrip("/")
        store, path = self._locate_folder(folder)
        start = folder[: len(folder) - len(path)].rstrip("/")
        prefix = store.key(path)
        skip = len(store.base) + 1 if store.base else 0
        for page in list_pages(store, folder, prefix, "/".join(filter(None, (prefix, after))) if after else ""):
            for meta in page:
                yield f"{start}/{meta['path'][skip:]}", meta["size"], meta["last_modified"]

    def folders(self, uri_prefix: str) -> Sequence[str]:
        """Return the names of the folders right below a folder, by one request, or a few where there are thousands.

        Raises:
            StoreUnreachable, StoreDenied, UnregisteredUri, UnsafeUri: as `read`.
        """
        store, path = self._locate_folder(uri_prefix)
        return list_folders(store, uri_prefix, store.key(path))

    def _locate_folder(self, uri: str) -> tuple[OpenStore, str]:
        """Return a folder's store, and its path below the location's prefix."""
        place = self.mapping.locate(uri)
        try:
            return self.open(place.location), place.path
        except CredentialError as error:
            raise with_file(error, uri) from None

    def open(self, location: Location) -> OpenStore:
        """Return a location's store; it is opened the first time.

        Raises:
            CredentialError: its credential is missing, or doesn't fit the store.
        """
        require_not_forked()
        opened = self._stores.get(location.id)
        if opened is not None:
            return opened
        with self._open_lock:
            if location.id not in self._stores:
                store = OpenStore(location, self.secrets, self.timeout, self.retry_seconds)
                if location.region != self.mapping.region.name and is_limited(location):
                    store.throttle = ReadThrottle(lambda: self._share(location)).acquire
                self._stores[location.id] = store
            return self._stores[location.id]

    def _share(self, location: Location) -> BandwidthShare:
        """Return a share of the bandwidth of another region's location."""
        leases = self.mapping.locate(state_folder(self.mapping.region.replica_root, BANDWIDTH))
        return open_share(location, leases, self.secrets)

    def _locate(self, uri: str) -> tuple[OpenStore, str]:
        require_not_forked()
        folder, _, name = uri.rpartition("/")
        located = self._folders.get(folder)
        if located is None or not self.mapping.maps_like_folder(uri, name):
            located = self._resolve(uri)
            if len(self._folders) < _MAX_CACHED_FOLDERS:
                self._folders[folder] = located[0], located[1].removesuffix(name)
            return located
        return located[0], located[1] + name

    def _resolve(self, uri: str) -> tuple[OpenStore, str]:
        place = self.mapping.locate(uri)
        if not place.path:
            raise UnsafeUri("the URI names a location, not a file", file=uri)
        validate_key(place, uri)
        try:
            store = self.open(place.location)
        except CredentialError as error:
            raise with_file(error, uri) from None
        return store, store.key(place.path)

    def _map(self, function: Callable[[_T], _R], items: Sequence[_T]) -> Iterator[_R]:
        return map_ordered(function, items, self.workers) if len(items) > 1 else map(function, items)


class _CachingObjects(Objects):
    """Objects that keep whatever they read of other regions below a run's folder.

    Args:
        objects: whose connections are used.
        run: URI of the run's folder; "" keeps nothing.
    """

    _run: str

    def __init__(self, objects: Objects, run: str) -> None:
        # Resolved folders are the run's own: what shares the connections may outlive it by far.
        self.__dict__.update(objects.__dict__ | {"_run": run, "_folders": {}})

    def without_read_cache(self) -> Objects:
        """Return the same objects, without a read cache."""
        return self._copy_with(_run="")

    def _read_at(self, uri: str, limit: int | None, original: str = "") -> bytes:
        """Return an object's content, and keep it where it is an original: this region's own copies are made of it."""
        data = super()._read_at(uri, limit, original)
        if self._run and not original and not self.mapping.is_local(uri):
            self.write_new(cache_uri(self._run, uri), data, assume_absent=True)
        return data


def _rebuild(
    registry: Registry, region: str, secrets: Secrets, timeout: float, workers: int, retry_seconds: float
) -> Objects:
    mapping = Mapping(registry, registry.region(region))
    return Objects(mapping, secrets, timeout=timeout, workers=workers, retry_seconds=retry_seconds)


def delete_objects(
    targets: Sequence[tuple[str, OpenStore, str]], may_continue: Callable[[], bool]
) -> dict[str, SternaError]:
    """Delete objects of one store in one request.

    Where that fails, one by one, so that each has an error of its own.
    """
    import obstore

    uri, store, key = targets[0]
    if not may_continue():
        timeout_error = StoreUnreachable(
            f"{describe_store(store.location)} took too long over the deletions before; {RESUME_HINT}"
        )
        return {target_uri: timeout_error for target_uri, _, _ in targets}
    try:
        call_store(
            store,
            uri,
            lambda: obstore.delete(store.client, [target[2] for target in targets] if len(targets) > 1 else key),
        )
        return {}
    except ObjectMissing:
        if len(targets) == 1:
            return {}
    except SternaError as error:
        if len(targets) == 1:
            return {uri: error}
    failures: dict[str, SternaError] = {}
    for count, target in enumerate(targets, 1):
        failures |= delete_objects([target], may_continue)
        if len(failures) == count == _MAX_FAILED_DELETIONS:
            return {target_uri: next(iter(failures.values())) for target_uri, _, _ in targets}
    return failures
