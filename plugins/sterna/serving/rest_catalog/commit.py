"""Commits to `main` by a region's address: on a base that it serves, by compare-and-swap, answered as it will be here.

Until the swap is sent, a refusal is 4xx or 503, and a client may delete what it wrote. Afterwards it is answered with
what was committed, or with 500: no client may delete a file that `main` may name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from types import MappingProxyType

from sterna.catalog.model import Content, Delete, Key, Operation, Put, key_name
from sterna.errors import (
    BadUpdate,
    Busy,
    CatalogConflict,
    CommitOutcomeUnknown,
    RequirementFailed,
    StaleBase,
    SternaError,
)
from sterna.replication.replica.commit_access import writer
from sterna.serving.rest_catalog.address import Address, MainState, read_main, renewing
from sterna.serving.rest_catalog.answer import localize_entry, replaced_contents, stands_for
from sterna.serving.rest_catalog.home_files import TABLE_FAULTS, naming_table
from sterna.serving.rest_catalog.name_errors import missing_table, require_namespace
from sterna.serving.rest_catalog.recent_changes import NOTHING
from sterna.serving.rest_catalog.repeated_commits import all_replayed, read_tables
from sterna.serving.rest_catalog.rules import Rights, is_replicated, require_replicated
from sterna.serving.rest_catalog.served_base import SYNC_SECONDS, bring_up, require_served_base, require_unpaused
from sterna.serving.rest_catalog.swap import Swap, swap_on_main
from sterna.serving.rest_catalog.table_commit import (
    MainTable,
    TableCommit,
    prepare_commit,
    prepare_creation,
)

NO_RENAMES: Mapping[Key, Key] = MappingProxyType({})


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
            if _look_again(address, keys, commits, idempotency_key)[1]:
                return committed_entries(address, keys)
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
    namespaces = {commit.key[:-1] for commit in commits if commit.creates} - {()}
    main = read_main(address, [*(commit.key for commit in commits), *namespaces], idempotency_key)
    if main.replayed:  # before anything is read that may fail: a client deletes what it thinks refused
        return committed_entries(address, main.contents)
    tables = read_tables(address, commits, main)
    if all_replayed(commits, tables):
        return committed_entries(address, main.contents)
    for namespace in namespaces:
        require_namespace(main.contents[namespace], namespace)
    try:
        prepared = _prepare(address, commits, tables, rights)
    except RequirementFailed:
        bring_up(address, main.contents)  # the client loads the table again, and has to see what came first
        raise
    if not prepared:
        return committed_entries(address, main.contents)
    puts = tuple(Put(key, content) for key, content in prepared.items())
    message = f"commit to {', '.join(map(key_name, prepared))} in {address.region().region.name}"
    return carry_out(address, main, puts, message, idempotency_key, commits=commits)


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


def _prepare(
    address: Address, commits: Sequence[TableCommit], tables: Mapping[Key, MainTable | None], rights: Rights
) -> dict[Key, Content]:
    """Return the entries to put; without those that nothing changes."""
    context, prepared = address.region(), dict[Key, Content]()
    require_unpaused(context, tables)
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


def change_entries(
    address: Address,
    keys: Collection[Key],
    prepare: Callable[[MainState], Sequence[Operation]],
    message: str,
    idempotency_key: str = "",
) -> dict[Key, Content]:
    """Read some keys on `main`, and commit what is to become of them; a request that was carried out is answered.

    Args:
        keys: those that are changed, and others that the change depends on.
        prepare: returns the operations; what it raises is raised, and nothing was committed.
        message: for people.
        idempotency_key: as in `carry_out`, which this returns, and raises, the same as.
    """
    main = read_main(address, keys, idempotency_key)
    if main.replayed:
        return committed_entries(address, keys)
    require_unpaused(address.region(), keys)
    return carry_out(address, main, prepare(main), message, idempotency_key)


def change_names(
    address: Address,
    keys: Collection[Key],
    prepare: Callable[[MainState], Sequence[Operation]],
    message: str,
    idempotency_key: str = "",
    renamed: Mapping[Key, Key] = NO_RENAMES,
) -> None:
    """Do as `change_entries` where the answer has no entry.

    Args:
        keys, prepare, message, idempotency_key: as in `change_entries`.
        renamed: by new key, the old one.
    """
    main = read_main(address, keys, idempotency_key)
    if main.replayed:
        show_repeated(address, keys, renamed)
    else:
        require_unpaused(address.region(), keys)
        carry_out(address, main, prepare(main), message, idempotency_key, renamed)


def show_repeated(address: Address, keys: Collection[Key], renamed: Mapping[Key, Key] = NO_RENAMES) -> None:
    """Show what a request has changed that was carried out before; where that can't be yet, a sync is going to.

    Args:
        renamed: by new key, the old one.
    """
    with suppress(CommitOutcomeUnknown):
        committed_entries(address, keys, renamed)


def carry_out(
    address: Address,
    main: MainState,
    operations: Sequence[Operation],
    message: str,
    idempotency_key: str = "",
    renamed: Mapping[Key, Key] = NO_RENAMES,
    commits: Sequence[TableCommit] = (),
) -> dict[Key, Content]:
    """Commit operations to `main` if the keys still are what they were, and show them here from now on.

    Args:
        main: the keys as they were read: those that are changed, and others that the change depends on.
        idempotency_key: the client's; "" for none.
        renamed: by new key, the old one.
        commits: what the client sent: the tables show whether another instance has carried it out, key or not.

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
        with renewing(address):
            catalog = writer((address.writing or address.region)())
            swap_on_main(catalog, context.region.name, swap, main.head, idempotency_key=idempotency_key)
        return _show(address, _after(main.contents, operations), shown, renamed, before=main.contents)
    except StaleBase:
        now, is_committed = _look_again(address, list(main.contents), commits, idempotency_key)
        if is_committed:
            return committed_entries(address, now.contents, renamed)
        bring_up(address, now.contents)
        raise
    finally:
        address.sync.request()


def _look_again(
    address: Address, keys: Collection[Key], commits: Sequence[TableCommit], idempotency_key: str
) -> tuple[MainState, bool]:
    """Return what `main` has after a lost race, and whether that is what was requested; arguments as in `carry_out`.

    Raises:
        CommitOutcomeUnknown: it can't be read.
    """
    try:
        now = read_main(address, keys, idempotency_key)
        return now, now.replayed or (bool(commits) and all_replayed(commits, read_tables(address, commits, now)))
    except SternaError as error:
        message = "a commit came first, and whether that was this one's own first attempt can't be seen"
        raise CommitOutcomeUnknown(f"{message}: {error.message}") from error


def _after(before: Mapping[Key, Content | None], operations: Sequence[Operation]) -> dict[Key, Content | None]:
    after = dict(before)
    after.update({operation.key: None for operation in operations if isinstance(operation, Delete)})
    after.update({operation.key: operation.content for operation in operations if isinstance(operation, Put)})
    return after


def committed_entries(
    address: Address, keys: Collection[Key], renamed: Mapping[Key, Key] = NO_RENAMES
) -> dict[Key, Content]:
    """Return this region's own entries for what `main` has under keys that were committed to before.

    Args:
        keys: with the old ones of those that were renamed.
        renamed: by new key, the old one.

    Raises:
        CommitOutcomeUnknown: this region can't show it yet.
    """
    try:
        # What is shown is read first: else it may be newer than what was read of `main`, and would go back to that.
        count, shown = address.recent.count, address.shown(keys)
        contents = read_main(address, keys).contents
    except SternaError as error:
        raise CommitOutcomeUnknown(f"the commit was made, and can't be shown here yet: {error.message}") from error
    unseen = {new: old for new, old in renamed.items() if shown[new] is None}
    try:
        return _show(address, contents, shown, unseen, since=count)
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
    before: Mapping[Key, Content | None] = NOTHING,
) -> dict[Key, Content]:
    """Return this region's own entries for what `main` has, and show them from now on.

    Args:
        contents: by key, what `main` has; None: nothing.
        shown: what clients of this region saw before that was so.
        renamed: by new key, the old one.
        since: the count of recent changes then: of keys that others have changed since, theirs is shown. None: these
            are the newest, since the keys' turns were kept.
        before: what `main` had until then, which a sync that was planned before may still publish.

    Raises:
        CommitOutcomeUnknown: this region can't show it yet: the client has to look again.
    """
    try:
        entries = {key: _entry(address, key, source, shown[renamed.get(key, key)]) for key, source in contents.items()}
        replaced = replaced_contents(address.region(), before, contents, shown)
    except SternaError as error:
        raise CommitOutcomeUnknown(f"the commit was made, and can't be shown here yet: {error.message}") from error
    changes = {key: (shown[key], entry) for key, entry in entries.items() if entry != shown[key] or key in replaced}
    address.recent.record(changes, since, replaced)
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
    address.sync.wait(address.sync.request(), SYNC_SECONDS)
    now_shown = address.shown([key])[key]
    if now_shown is None or now_shown == shown:
        raise StaleBase("a sync has to copy files first", table=key_name(key))
    return now_shown  # it, or what was committed after it
