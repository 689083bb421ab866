"""Commits to `main` by a region's address: on a base that it serves, by compare-and-swap, answered as it will be here.

Until the swap is sent, a refusal is 4xx or 503, and a client may delete what it wrote. Afterwards it is answered with
what was committed, or with 500: no client may delete a file that `main` may name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

from sterna.catalog.model import Content, Delete, Key, Operation, Put, key_name
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import (
    BadUpdate,
    Busy,
    CatalogConflict,
    CatalogError,
    CommitOutcomeUnknown,
    ReferenceNotFound,
    RequirementFailed,
    StaleBase,
    SternaError,
)
from sterna.replication.replica.commit_access import writer
from sterna.replication.replica.region import RegionContext
from sterna.serving.rest_catalog import main_metadata
from sterna.serving.rest_catalog.answer import localize_entry, stands_for
from sterna.serving.rest_catalog.background_sync import BackgroundSync
from sterna.serving.rest_catalog.byte_cache import ByteCache
from sterna.serving.rest_catalog.held_tables import raise_for_held
from sterna.serving.rest_catalog.home_files import TABLE_FAULTS, naming_table
from sterna.serving.rest_catalog.name_errors import missing_table
from sterna.serving.rest_catalog.recent_changes import RecentChanges
from sterna.serving.rest_catalog.replays import IdempotencyKeys
from sterna.serving.rest_catalog.rules import ReservedPlaces, Rights, is_replicated, require_replicated
from sterna.serving.rest_catalog.swap import Swap, swap_on_main
from sterna.serving.rest_catalog.table_commit import (
    MainTable,
    TableCommit,
    is_replay,
    prepare_commit,
    prepare_creation,
    read_table,
)
from sterna.serving.rest_catalog.turns import Turns

NO_RENAMES: Mapping[Key, Key] = MappingProxyType({})
_SYNC_SECONDS = 15.0  # that a commit waits for a sync to bring a table up


@dataclass
class Address:
    """What the requests to one address share.

    Args:
        region: returns the region, whose connections live as long as the process.
        near_root: the region's own location, as the section `catalog` has it.
        recent: what this process has changed.
        sync: brings the region up to `main`.
        turns: the order of the commits to each table.
        keys: the idempotency keys of commits.
        writing: returns the region as it logs in at the catalog to write `main`; None: as it does otherwise.
        earlier_roots: other locations in which `near` was before, or is for ingestion.
        inboxes: prefixes of ingestion.
        renew: has `region` and `writing` look up again which catalog takes commits.
        cache: metadata files of `main`, which never change; None: each is read every time.
    """

    region: Callable[[], RegionContext]
    near_root: str
    recent: RecentChanges
    sync: BackgroundSync
    turns: Turns = field(default_factory=Turns)
    keys: IdempotencyKeys = field(default_factory=IdempotencyKeys)
    writing: Callable[[], RegionContext] | None = None
    earlier_roots: Sequence[str] = ()
    inboxes: Sequence[str] = ()
    renew: Callable[[], None] = lambda: None
    cache: ByteCache | None = None

    @property
    def reserved(self) -> ReservedPlaces:
        """Where no table may be made here."""
        return ReservedPlaces((self.near_root, *self.earlier_roots), self.inboxes)

    def read_metadata(self, uri: str) -> dict[str, Any]:
        """Return the JSON of a metadata.json on `main`; errors as `main_metadata.read_metadata` has them."""
        return main_metadata.read_metadata(self.region(), uri, self.cache)

    def shown(self, keys: Collection[Key]) -> dict[Key, Content | None]:
        """Return what clients of this address see under some keys; None: nothing."""
        context = self.region()
        catalog, branch = context.catalog, context.region.replica_branch
        try:
            _, contents = catalog.read_current(branch, keys)
        except ReferenceNotFound:  # the region's first sync makes it
            contents = {}
        return {key: self.recent.content(key, contents.get(key)) for key in keys}


@dataclass(frozen=True)
class MainState:
    """Some keys on `main`, at one commit.

    Args:
        head: the commit's hash.
        contents: by key; None: nothing.
        replayed: a commit with the request's idempotency key is there already.
    """

    head: str
    contents: Mapping[Key, Content | None]
    replayed: bool = False


def read_main(address: Address, keys: Collection[Key], idempotency_key: str = "") -> MainState:
    """Read some keys on `main`, from the catalog that takes commits.

    Args:
        idempotency_key: the request's; "" for none.

    Raises:
        BadUpdate: that is no such key.
        CatalogError: the catalog can't be read.
    """
    with _renewing(address):
        catalog = address.region().primary
        head, contents = catalog.read_current(SOURCE_BRANCH, keys)
        replayed = bool(idempotency_key) and address.keys.has(catalog, head, idempotency_key)
    return MainState(head, {key: contents.get(key) for key in keys}, replayed)


@contextmanager
def _renewing(address: Address) -> Iterator[None]:
    """Look the primary up again after a failure: it may have been one of the catalog that was the primary before."""
    try:
        yield
    except (CatalogError, CommitOutcomeUnknown):
        address.renew()
        raise


def commit_tables(
    address: Address, commits: Sequence[TableCommit], rights: Rights, idempotency_key: str = ""
) -> dict[Key, Content]:
    """Commit to one or more tables, in one commit on `main`.

    Args:
        commits: each to another table.
        rights: the client's.
        idempotency_key: the client's; "" for none.

    Returns:
        By key, the entry that this region's replica branch will have: `main`'s new metadata, localized.

    Raises:
        RestCatalogError: the commit can't or mustn't be taken, came too late, or its outcome is unknown.
        Busy: too many wait for the table; nothing was committed.
        CatalogConflict: a creation came too late; nothing was committed.
        CatalogError, StoreError, TableError: nothing was committed: something can't be read or written.
    """
    keys = [commit.key for commit in commits]
    if len(set(keys)) != len(keys):
        raise BadUpdate("a transaction has two commits to one table")
    for commit in commits:
        _require_visible(address, commit)
    snapshot_ids = frozenset(snapshot_id for commit in commits for snapshot_id in commit.snapshot_ids)
    with stale_as_conflict() if any(commit.creates for commit in commits) else nullcontext(), ExitStack() as turn:
        try:
            turn.enter_context(address.turns.take(keys, snapshot_ids))
        except (Busy, StaleBase):
            # A client deletes what it thinks refused, and this may be a request that was sent again.
            is_committed = partial(_is_committed, address, commits)
            main, was_committed = _look_again(address, keys, idempotency_key, is_committed)
            if was_committed:
                return committed_entries(address, main.contents)
            raise
        return _commit_in_turn(address, commits, rights, idempotency_key)


@contextmanager
def stale_as_conflict() -> Iterator[None]:
    """Raise that another commit came first as what has a client send the request again, unchanged.

    A 409 means to clients that a new name is taken, or that a dropped namespace is not empty.

    Raises:
        CatalogConflict: another commit came first.

    Source: Iceberg's `ErrorHandlers`.
    """
    try:
        yield
    except StaleBase as error:
        raise CatalogConflict(f"other commits came first: {error.message}", table=error.table) from error


def _commit_in_turn(
    address: Address, commits: Sequence[TableCommit], rights: Rights, idempotency_key: str
) -> dict[Key, Content]:
    main = read_main(address, [commit.key for commit in commits], idempotency_key)
    if main.replayed:  # before anything is read that may fail: a client deletes what it thinks refused
        return committed_entries(address, main.contents)
    tables = _read_tables(address, main)
    if _all_replayed(commits, tables):
        return committed_entries(address, main.contents)
    try:
        prepared = _prepare(address, commits, tables, rights)
    except RequirementFailed:
        bring_up(address, main.contents)  # the client loads the table again, and has to see what came first
        raise
    if not prepared:
        return committed_entries(address, main.contents)
    puts = tuple(Put(key, content) for key, content in prepared.items())
    message = f"commit to {', '.join(map(key_name, prepared))} in {address.region().region.name}"
    is_committed = partial(_is_committed, address, commits)
    return carry_out(address, main, puts, message, idempotency_key, is_committed=is_committed)


def _require_visible(address: Address, commit: TableCommit) -> None:
    """See that no policy keeps a table from this region: its clients don't see it, whatever `main` has.

    Raises:
        Forbidden: it would be a new one.
        NoSuchTable: it would be changed.
    """
    if commit.creates:
        require_replicated(address.region(), commit.key)
    elif not is_replicated(address.region(), commit.key):
        raise missing_table(commit.key)


def _read_tables(address: Address, main: MainState) -> dict[Key, MainTable | None]:
    tables: dict[Key, MainTable | None] = {}
    for key, content in main.contents.items():
        with naming_table(address.region().mapping, key_name(key)):
            tables[key] = read_table(address.read_metadata, key, content)
    return tables


def _is_committed(address: Address, commits: Sequence[TableCommit], main: MainState) -> bool:
    return _all_replayed(commits, _read_tables(address, main))


def _all_replayed(commits: Sequence[TableCommit], tables: Mapping[Key, MainTable | None]) -> bool:
    """Return whether `main` has all snapshots that the commits add: a transaction is there as a whole or not at all.

    Raises:
        BadUpdate: a snapshot has another one's id.
    """
    states = [(tables[commit.key], commit) for commit in commits if commit.adds_snapshots]
    return bool(states) and all(table is not None and is_replay(table, commit) for table, commit in states)


def _prepare(
    address: Address, commits: Sequence[TableCommit], tables: Mapping[Key, MainTable | None], rights: Rights
) -> dict[Key, Content]:
    """Return the entries to put; without those that nothing changes."""
    context, prepared = address.region(), dict[Key, Content]()
    for commit in commits:
        table = tables[commit.key]
        if table is None:
            if not commit.creates:
                raise missing_table(commit.key)
            prepared[commit.key] = prepare_creation(context, address.reserved, commit, rights)
            continue
        shown = require_served_base(address, commit.key, table.content)
        with naming_table(context.mapping, key_name(commit.key), TABLE_FAULTS):
            content = prepare_commit(context, address.reserved, table, shown, commit, rights)
        if content is not None:
            prepared[commit.key] = content
    return prepared


def require_served_base(address: Address, key: Key, source: Content) -> Content:
    """See that this region serves what `main` has of a table, and return the region's own entry.

    A sync is waited for where it is behind.

    Args:
        source: the entry on `main`.

    Raises:
        StaleBase: this region is behind.
        HomeUnavailable: it is, and stays so while the store of another region can't be used.
        TableUnusable: it is, and stays so while the table is held.
    """
    context, shown = address.region(), address.shown([key])[key]
    if shown is None or not stands_for(context, key, shown, source):
        address.sync.wait(address.sync.request(), _SYNC_SECONDS)
        shown = address.shown([key])[key]
    if shown is None or not stands_for(context, key, shown, source):
        address.renew()  # what was read as `main` may be an old primary's
        message = f"{context.region.name} doesn't serve the table as {SOURCE_BRANCH} has it"
        raise_for_held(address.region(), key, source, address.sync.failure, message)
        raise StaleBase(message, table=key_name(key))
    return shown


def bring_up(address: Address, contents: Mapping[Key, Content | None]) -> None:
    """Wait until this region shows what `main` has under some keys, where that takes a moment."""
    context, shown = address.region(), address.shown(contents)
    behind = [
        key
        for key, source in contents.items()
        if (shown[key] is not None if source is None else not stands_for(context, key, shown[key], source))
    ]
    if behind:
        address.sync.wait(address.sync.request(), _SYNC_SECONDS)


def carry_out(
    address: Address,
    main: MainState,
    operations: Sequence[Operation],
    message: str,
    idempotency_key: str = "",
    renamed: Mapping[Key, Key] = NO_RENAMES,
    is_committed: Callable[[MainState], bool] = lambda main: False,
) -> dict[Key, Content]:
    """Commit operations to `main` if the keys still are what they were, and show them here from now on.

    Args:
        main: the keys as they were read: those that are changed, and others that the change depends on.
        idempotency_key: the client's; "" for none.
        renamed: by new key, the old one.
        is_committed: returns whether `main` shows that another instance has carried the request out, key or not.

    Returns:
        By key, the entries that this region's replica branch will have; without those that are gone.

    Raises:
        StaleBase: another commit changed one of the keys; this region shows that by now, where it can.
        CommitOutcomeUnknown: whether it was committed can't be found out; or it was, and can't be shown here yet.
        CatalogError: nothing was committed.
    """
    context, shown = address.region(), address.shown(main.contents)
    swap = Swap(main.contents, tuple(operations), message)
    try:
        with _renewing(address):
            catalog = writer((address.writing or address.region)())
            swap_on_main(catalog, context.region.name, swap, main.head, idempotency_key=idempotency_key)
        return _show(address, _after(main.contents, operations), shown, renamed)
    except StaleBase:
        now, was_committed = _look_again(address, list(main.contents), idempotency_key, is_committed)
        if was_committed:
            return committed_entries(address, now.contents)
        bring_up(address, now.contents)
        raise
    finally:
        address.sync.request()


def _look_again(
    address: Address, keys: Collection[Key], idempotency_key: str, is_committed: Callable[[MainState], bool]
) -> tuple[MainState, bool]:
    """Return what `main` has after a lost race, and whether that is what was requested; arguments as in `carry_out`.

    Raises:
        CommitOutcomeUnknown: it can't be read.
    """
    try:
        now = read_main(address, keys, idempotency_key)
        return now, now.replayed or is_committed(now)
    except SternaError as error:
        message = "a commit came first, and whether that was this one's own first attempt can't be seen"
        raise CommitOutcomeUnknown(f"{message}: {error.message}") from error


def _after(before: Mapping[Key, Content | None], operations: Sequence[Operation]) -> dict[Key, Content | None]:
    after = dict(before)
    after.update({operation.key: None for operation in operations if isinstance(operation, Delete)})
    after.update({operation.key: operation.content for operation in operations if isinstance(operation, Put)})
    return after


def committed_entries(address: Address, keys: Collection[Key]) -> dict[Key, Content]:
    """Return this region's own entries for what `main` has under keys that were committed to before.

    Raises:
        CommitOutcomeUnknown: this region can't show it yet.
    """
    try:
        # What is shown is read first: else it may be newer than what was read of `main`, and would go back to that.
        count, shown = address.recent.count, address.shown(keys)
        contents = read_main(address, keys).contents
    except SternaError as error:
        raise CommitOutcomeUnknown(f"the commit was made, and can't be shown here yet: {error.message}") from error
    try:
        return _show(address, contents, shown, since=count)
    finally:
        address.sync.request()


def committed_entry(entries: Mapping[Key, Content], key: Key) -> Content:
    """Return the entry of a key that was committed to.

    Raises:
        CommitOutcomeUnknown: another commit has dropped it since.
    """
    if key not in entries:
        raise CommitOutcomeUnknown("the commit was made, and it has been dropped since", table=key_name(key))
    return entries[key]


def _show(
    address: Address,
    contents: Mapping[Key, Content | None],
    shown: Mapping[Key, Content | None],
    renamed: Mapping[Key, Key] = NO_RENAMES,
    since: int | None = None,
) -> dict[Key, Content]:
    """Return this region's own entries for what `main` has, and show them from now on.

    Args:
        contents: by key, what `main` has; None: nothing.
        shown: what clients of this region saw before that was so.
        renamed: by new key, the old one.
        since: the count of recent changes then: of keys that others have changed since, theirs is shown. None: these
            are the newest, since the keys' turns were kept.

    Raises:
        CommitOutcomeUnknown: this region can't show it yet: the client has to look again.
    """
    try:
        entries = {key: _entry(address, key, source, shown[renamed.get(key, key)]) for key, source in contents.items()}
    except SternaError as error:
        raise CommitOutcomeUnknown(f"the commit was made, and can't be shown here yet: {error.message}") from error
    changes = {key: (shown[key], entries[key]) for key in entries if entries[key] != shown[key]}
    address.recent.record(changes, since)
    return {key: content for key, content in entries.items() if content is not None}


def _entry(address: Address, key: Key, source: Content | None, shown: Content | None) -> Content | None:
    """Return this region's own entry for what `main` has under a key.

    Raises:
        StaleBase: a sync has to copy files first, and isn't done yet.
        TableError, StoreError: it can't be localized.
    """
    if source is None:
        return None
    context = address.region()
    if shown is not None and stands_for(context, key, shown, source):
        return shown
    entry = localize_entry(context, key, source, shown)
    if entry is not None:
        return entry
    address.sync.wait(address.sync.request(), _SYNC_SECONDS)
    now_shown = address.shown([key])[key]
    if now_shown is None or now_shown == shown:
        raise StaleBase("a sync has to copy files first", table=key_name(key))
    return now_shown  # it, or what was committed after it
