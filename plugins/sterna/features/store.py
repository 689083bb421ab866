"""A view's rows in the store, for runs: each step is one of the store's own, guarded by epoch and run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sterna.edges.secrets import Secrets
from sterna.edges.valkey.store import open_store, telling
from sterna.errors import FeaturesMoved
from sterna.features import scripts
from sterna.features.model import (
    FIELDS,
    TOMBSTONE_MS,
    Column,
    State,
    Value,
    columns_text,
    read_state,
    read_value,
    state_key,
    value_head,
    value_key,
)
from sterna.services.features import Online

_AT_ONCE = 500  # keys in one step: others are answered in between


@dataclass(frozen=True)
class Run:
    """A run's right to write.

    Args:
        view: the view's name.
        epoch: the epoch that it began in.
        number: its number there.
        snapshot: the snapshot that it leads to.
        at: that snapshot's commit time, in milliseconds since 1970.
        mark: the server's mark when it began; what a full run stands by.
    """

    view: str
    epoch: int
    number: int
    snapshot: int
    at: int
    mark: str


class FeatureStore:
    """A region's store of features.

    Args:
        online: where it is.
        secrets: finds its credential.

    Raises:
        CredentialError: that is missing.
    """

    def __init__(self, online: Online, secrets: Secrets) -> None:
        self.url = online.url
        self._client: Any = open_store(online.url, online.credential_id, secrets)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def mark(self) -> str:
        """Return what tells that a server still holds what it held; another one after a restart or an eviction."""
        with telling(self.url):
            info: Any = self._client.info()
        return mark_of(info)

    def state(self, view: str) -> State:
        """Return how far a view is."""
        with telling(self.url):
            found: Any = self._client.hmget(state_key(view), list(FIELDS))
        return read_state(found)

    def begin(
        self, view: str, seen: State, target: tuple[int, int], digest: str, columns: Sequence[Column], *, full: bool
    ) -> Run:
        """Begin a run; from now on older ones are refused.

        Args:
            view: the view.
            seen: its state, by which the run was planned.
            target: the snapshot that it leads to, and its commit time.
            digest: what the rows are made of.
            columns: their columns.
            full: it begins a new epoch.

        Raises:
            FeaturesMoved: the state is another one by now.
        """
        mark = self.mark()
        epoch, number = self._eval(
            scripts.BEGIN,
            [state_key(view)],
            [
                *(seen.epoch, seen.run, "full" if full else ""),
                *(target[0], digest, columns_text(columns)),
            ],
        )
        if not number:
            raise FeaturesMoved(f"another run fills view {view}")
        return Run(view, epoch, number, *target, mark)

    def put(self, run: Run, rows: Sequence[tuple[str, bytes | None]]) -> None:
        """Write rows, or tombstones for None.

        Raises:
            FeaturesMoved: a newer run, or another epoch, has begun.
        """
        heads = {gone: value_head(run.epoch, run.number, run.snapshot, run.at, gone=gone) for gone in (False, True)}
        for at in range(0, len(rows), _AT_ONCE):
            part = rows[at : at + _AT_ONCE]
            keys = [state_key(run.view), *(value_key(run.view, id) for id, _ in part)]
            values = [heads[row is None] + (row or b"") for _, row in part]
            self._go_on(run, self._eval(scripts.PUT, keys, [run.epoch, run.number, TOMBSTONE_MS, *values]))

    def finish(self, run: Run, ready: str) -> None:
        """Say that a view stands for a run's snapshot.

        Args:
            run: the run.
            ready: the mark of the server that holds all rows; "" where nobody knows.

        Raises:
            FeaturesMoved: as `put`.
        """
        given = [run.epoch, run.number, run.snapshot, run.at, ready]
        self._go_on(run, self._eval(scripts.FINISH, [state_key(run.view)], given))

    def refuse(self, view: str, why: str) -> int:
        """Delete all of a view's rows, and have nobody write any; return how many there were."""
        return self.sweep(view, int(self._eval(scripts.REFUSE, [state_key(view)], [why or "refused"])))

    def empty(self, view: str) -> int:
        """Delete all of a view's rows, whose table has none any more; return how many there were."""
        return self.sweep(view, int(self._eval(scripts.REFUSE, [state_key(view)], [""])))

    def sweep(self, view: str, epoch: int) -> int:
        """Delete the rows that epochs before one left behind; return how many."""
        gone = 0
        with telling(self.url):
            for keys in self.value_keys(view):
                gone += int(self._client.eval(scripts.TAKE, len(keys), *keys, epoch))
        return gone

    def rows(self, view: str) -> Iterator[tuple[str, Value]]:
        """Yield what is there under each id, tombstones too."""
        start = len(value_key(view, "").encode())
        with telling(self.url):
            for keys in self.value_keys(view):
                values: Any = self._client.mget(keys)
                for key, data in zip(keys, values, strict=True):
                    if data is not None and (value := read_value(data)) is not None:
                        yield key[start:].decode(), value

    def get(self, view: str, ids: Sequence[str]) -> list[Value | None]:
        """Return what is there under some ids."""
        if not ids:
            return []
        with telling(self.url):
            found: Any = self._client.mget([value_key(view, id) for id in ids])
        return [None if data is None else read_value(data) for data in found]

    def value_keys(self, view: str) -> Iterator[list[bytes]]:
        """Yield the keys of a view's rows, some at a time; one may come twice."""
        cursor = 0
        while True:
            answer: Any = self._client.scan(cursor, match=value_key(view, "*"), count=1_000)
            cursor, keys = answer
            if keys:
                yield keys
            if not cursor:
                return

    def _eval(self, script: str, keys: Sequence[str], given: Sequence[Any]) -> Any:
        with telling(self.url):
            return self._client.eval(script, len(keys), *keys, *given)

    def _go_on(self, run: Run, answer: int) -> None:
        if answer < 0:
            raise FeaturesMoved(f"another run fills view {run.view}: run {run.number} of epoch {run.epoch} stops")


def mark_of(info: Any) -> str:
    """Return the mark from what a server says of itself: `INFO`.

    It says who the server is since when, and how many keys it has dropped for want of memory.
    """
    return f"{info['run_id']}/{info['evicted_keys']}"
