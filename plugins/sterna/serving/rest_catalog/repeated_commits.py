"""Commits to tables that are sent a second time: whether `main` has them already, key or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sterna.catalog.model import Content, Key, key_name
from sterna.errors import OUTAGES, CommitOutcomeUnknown, HomeUnavailable, SternaError, TableUnusable
from sterna.serving.rest_catalog.address import Address, MainState
from sterna.serving.rest_catalog.answer import stands_for
from sterna.serving.rest_catalog.home_files import naming_table
from sterna.serving.rest_catalog.table_commit import MainTable, TableCommit, is_replay, read_table
from sterna.serving.rest_catalog.table_draft import MAIN_BRANCH, NO_SNAPSHOT

_UNREADABLE = (HomeUnavailable, TableUnusable, *OUTAGES)


def read_tables(address: Address, commits: Sequence[TableCommit], main: MainState) -> dict[Key, MainTable | None]:
    """Return the tables of some commits as `main` has them.

    Raises:
        CommitOutcomeUnknown: one can't be read, and `main` may have the commits already.
        HomeUnavailable, TableUnusable, StoreError, CredentialError: one can't be read; nothing was committed.
    """
    tables: dict[Key, MainTable | None] = {}
    try:
        for key in [commit.key for commit in commits]:
            with naming_table(address.region().mapping, key_name(key)):
                tables[key] = read_table(address.read_metadata, key, main.contents[key])
    except _UNREADABLE as error:
        adding = [commit for commit in commits if commit.adds_snapshots]
        if not adding or any(_is_absent(address, commit, main.contents[commit.key]) for commit in adding):
            raise
        message = f"the commit may have been made before, and that can't be seen: {error.message}"
        raise CommitOutcomeUnknown(message, table=error.table, file=error.file) from error
    return tables


def all_replayed(commits: Sequence[TableCommit], tables: Mapping[Key, MainTable | None]) -> bool:
    """Return whether `main` has all snapshots that the commits add: a transaction is there as a whole or not at all.

    Raises:
        BadUpdate: a snapshot has another one's id.
    """
    states = [(tables[commit.key], commit) for commit in commits if commit.adds_snapshots]
    return bool(states) and all(table is not None and is_replay(table, commit) for table, commit in states)


def _is_absent(address: Address, commit: TableCommit, content: Content | None) -> bool:
    """Return whether `main` can't have a commit that adds snapshots, by what this region serves of the table.

    That is the version of `main`, lacks the snapshots, and its newest one is the commit's base: of others, what is
    served may leave some out.

    Args:
        content: the entry on `main`; None: there is none.
    """
    if content is None:
        return True
    try:
        shown = address.shown([commit.key])[commit.key]
        if shown is None or not stands_for(address.region(), commit.key, shown, content):
            return False
        metadata = address.read_metadata(shown.metadata_location or "")
    except SternaError:
        return False
    served = {snapshot.get("snapshot-id") for snapshot in metadata.get("snapshots") or ()}
    newest = metadata.get("current-snapshot-id")
    base = None if newest == NO_SNAPSHOT else newest
    return served.isdisjoint(commit.snapshot_ids) and _bases(commit) == [base]


def _bases(commit: TableCommit) -> list[Any]:
    """Return the snapshots that a commit's requirements have as the table's newest one; None for no snapshot."""
    return [
        requirement.get("snapshot-id")
        for requirement in commit.requirements
        if requirement.get("type") == "assert-ref-snapshot-id" and requirement.get("ref") == MAIN_BRANCH
    ]
