"""The commit that puts tables back on `main`, as long as `main` has what they were selected for."""

from __future__ import annotations

import time
from collections.abc import Mapping, Set
from dataclasses import replace
from datetime import UTC, datetime
from uuid import uuid4

from sterna.catalog.main_branch import commit_to_main
from sterna.catalog.model import NAMESPACE, Content, Key
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import CatalogConflict, CatalogError
from sterna.maintenance.restore.model import RestoreReport, RestoreRequest, Selection
from sterna.maintenance.restore.select import restore_operations, select
from sterna.replication.replica.commit_access import writer
from sterna.replication.replica.head import MOVED_TABLES, REGION, RESTORE_ID, RESTORED_FROM
from sterna.replication.replica.region import Progress, RegionContext
from sterna.replication.replica.tags import branch_before_restore
from sterna.runtime.retry_delay import RetryDelay

_COMMIT_SECONDS = 120.0  # an attempt takes two requests, and one between two commits of others succeeds
_PAUSE = RetryDelay(0.01, 0.25)


def commit_restored(
    context: RegionContext,
    request: RestoreRequest,
    old_contents: Mapping[Key, Content],
    selection: Selection,
    contents: Mapping[Key, Content],
    report: RestoreReport,
    copies: int,
    progress: Progress,
) -> RestoreReport:
    """Commit what was selected; return the report with the commit.

    While others commit to `main`, each attempt reads only the keys that it changes or needs, whatever else `main` has.

    Args:
        request: what was asked for.
        old_contents: what `main` had at the commit as of which tables are restored.
        selection: what comes back.
        contents: by the key that each table or view gets, what `main` is to hold.
        report: of the restore.
        copies: how many of them are copies.
        progress: receives the name of the branch that keeps the state before.

    Raises:
        CatalogConflict: `main` has something else under one of the keys by now, or changes faster than this commits.
        NothingToRestore, TableLives: as `select`, by what `main` has by now.
        CatalogError: the catalog doesn't answer, or refuses the commit or that branch.
    """
    operations = restore_operations(selection, contents)
    properties = {REGION: context.region.name, RESTORED_FROM: report.as_of, RESTORE_ID: uuid4().hex}
    properties |= {MOVED_TABLES: str(copies)} if copies else {}
    message = f"{len(report.tables)} tables and views restored as of {report.as_of[:12]}"
    needed_keys = _needed_keys(selection)
    deadline, failures, kept_on = time.monotonic() + _COMMIT_SECONDS, 0, ""
    while True:
        head, present = context.primary.read_current(SOURCE_BRANCH, sorted(needed_keys))
        if not _is_as_selected(selection, needed_keys, present):
            _raise_changed(context, request, old_contents, head)
        kept_on = kept_on or _keep_present(context, selection, head, progress)
        existing = {operation.key: present.get(operation.key) for operation in operations}
        try:
            commit = commit_to_main(
                writer(context), head, operations, message, properties, identified_by=[RESTORE_ID], existing=existing
            )
        except CatalogConflict as error:
            if time.monotonic() >= deadline:
                raise _starved(error) from error
            failures += 1
            time.sleep(_PAUSE.draw(failures))
            continue
        return replace(report, commit=commit, kept_on=kept_on)


def _needed_keys(selection: Selection) -> set[Key]:
    """Return the keys that a selection changes, and the namespaces that have to be there."""
    keys = {selected.target for selected in selection.tables} | {put.key for put in selection.namespaces}
    return {key[:length] for key in keys for length in range(1, len(key) + 1)}


def _is_as_selected(selection: Selection, needed_keys: Set[Key], present: Mapping[Key, Content]) -> bool:
    """Return whether `main` has under the keys of a selection what it was made for."""
    expected: dict[Key, Content | None] = {put.key: None for put in selection.namespaces}
    expected |= {selected.target: selected.present for selected in selection.tables}
    if any(present.get(key) != content for key, content in expected.items()):
        return False
    parents = [present.get(key) for key in needed_keys - expected.keys()]
    return all(content is not None and content.kind == NAMESPACE for content in parents)


def _raise_changed(
    context: RegionContext, request: RestoreRequest, old_contents: Mapping[Key, Content], head: str
) -> None:
    """Say what `main` has by now in place of what was selected for.

    Raises:
        NothingToRestore, TableLives: as `select`.
        CatalogConflict: it would be another restore.
    """
    select(request, old_contents, dict(context.primary.entries(SOURCE_BRANCH, head)))
    raise CatalogConflict("main has changed what is to be restored: read it again; nothing was committed")


def _starved(error: CatalogConflict) -> CatalogConflict:
    return CatalogConflict(
        f"main was committed to again and again for {_COMMIT_SECONDS:.0f} seconds; nothing was restored: "
        f"{error.message}",
        hint="try again, best while writers pause",
    )


def _keep_present(context: RegionContext, selection: Selection, head: str, progress: Progress) -> str:
    """Keep the state before on a branch where something that lives is replaced; return its name, else "".

    That is done before the first attempt: who may not make branches replaces nothing. Where `main` moves, later
    attempts require what the branch has under the keys that are replaced.

    Args:
        head: hash of the head of `main`, which has what is replaced.

    Raises:
        CatalogError: the branch can't be made.
    """
    if all(selected.present is None for selected in selection.tables):
        return ""
    try:
        name = writer(context).create_branch(branch_before_restore(datetime.now(UTC), head), head).name
    except CatalogError as error:
        message = f"the branch that keeps the state before can't be made, and nothing was committed: {error.message}"
        raise type(error)(message, hint=error.hint) from error
    progress(f"the state before is kept on the branch {name}: delete it where nothing is committed")
    return name
