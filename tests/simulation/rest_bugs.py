"""Bugs of an address that the simulation has to find; each is put into sterna's own code while a `with` block lasts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

from sterna.catalog.model import Content, Key
from sterna.config.limits import Limits
from sterna.errors import CommitOutcomeUnknown, StaleBase
from sterna.iceberg.files import LocalizedFile
from sterna.serving.rest_catalog import commit, repeated_commits, table_commit, take_back
from sterna.serving.rest_catalog.carried_entries import CarriedEntries
from sterna.serving.rest_catalog.client_files import ClientFiles
from sterna.serving.rest_catalog.recent_changes import RecentChanges
from sterna.serving.rest_catalog.replays import IdempotencyKeys
from sterna.serving.rest_catalog.swap import Swap
from sterna.serving.rest_catalog.take_back import TakenBack
from tests.simulation.bugs import planted


def a_replica_uri_gets_through() -> AbstractContextManager[Any]:
    """Entries that are carried over keep the names that this region serves."""
    return planted(CarriedEntries.take, CarriedEntries, lambda *_: {})


def a_list_has_a_wrong_length() -> AbstractContextManager[Any]:
    """The list says how long the client's manifest was, or nearly."""

    def file(uri: str, length: int) -> LocalizedFile:
        return LocalizedFile(uri, length + uri.endswith("-m0.avro"))

    return planted(take_back.LocalizedFile, take_back, file)


def a_delete_names_the_replicas_file() -> AbstractContextManager[Any]:
    """Position deletes stay as the client wrote them: they match no data file on `main`."""

    def write(
        client: ClientFiles, uris: Iterable[str], map_content: Callable[[str], str], limits: Limits, put: Any
    ) -> dict[str, LocalizedFile]:
        return {uri: LocalizedFile(uri, len(client.read(uri))) for uri in uris}

    return planted(take_back.write_deletes, take_back, write)


def a_base_is_stale() -> AbstractContextManager[Any]:
    """The swap is tried again on whatever `main` has by now."""
    real = commit.swap_on_main

    def swap(catalog: Any, region: str, swap: Swap, head_hash: str, **options: Any) -> str:
        return real(catalog, region, replace(swap, expected={}), head_hash, **options)

    return planted(commit.swap_on_main, commit, swap)


@contextmanager
def a_replay_is_committed_twice() -> Iterator[None]:
    """Nobody looks whether a request was carried out before."""
    with (
        planted(repeated_commits.is_replay, repeated_commits, lambda table, commit: False),
        planted(IdempotencyKeys.has, IdempotencyKeys, lambda *_: False),
    ):
        yield


def main_names_a_clients_list() -> AbstractContextManager[Any]:
    """What `main` is to name is written in the place of the client's own list, which he deletes in the end."""
    real = table_commit.take_back_snapshot

    def take(objects: Any, *arguments: Any, **options: Any) -> TakenBack:
        taken = real(objects, *arguments, **options)
        objects.store.put(taken.client_list, objects.store.objects[taken.snapshot["manifest-list"]].data)
        return replace(taken, snapshot={**taken.snapshot, "manifest-list": taken.client_list})

    return planted(table_commit.take_back_snapshot, table_commit, take)


def no_answer_is_told_as_no() -> AbstractContextManager[Any]:
    """Where nothing says whether a commit happened, the client is told that it didn't."""
    real = commit.carry_out

    def carry_out(*arguments: Any, **options: Any) -> dict[Key, Content]:
        try:
            return real(*arguments, **options)
        except CommitOutcomeUnknown as error:
            raise StaleBase(error.message) from error

    return planted(commit.carry_out, commit, carry_out)


def own_commits_are_forgotten() -> AbstractContextManager[Any]:
    """A process shows what the replica branch has, whatever it has acknowledged."""
    return planted(RecentChanges.record, RecentChanges, lambda *_, **__: None)
