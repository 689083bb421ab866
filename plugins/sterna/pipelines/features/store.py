"""A view's rows in the store, for runs: each step is one of the store's own, guarded by generation and run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sterna.config.secrets import Secrets
from sterna.config.sections.features import OnlineConfig
from sterna.errors import FeaturesMoved
from sterna.pipelines.features import scripts
from sterna.pipelines.features.model import (
    FIELDS,
    TOMBSTONE_MS,
    Column,
    State,
    Value,
    encode_columns,
    read_state,
    read_value,
    state_key,
    value_head,
    value_key,
)
from sterna.pipelines.features.valkey import open_store, translate_errors

_MAX_KEYS_PER_CALL = 500  # keys in one step: others are answered in between


@dataclass(frozen=True)
class FillRun:
    """A run's right to write.

    Args:
        view: the view's name.
        generation: the one that it began in.
        number: its number there.
        snapshot: the snapshot that it leads to.
        committed_ms: that snapshot's commit time, in milliseconds since 1970.
        server_id: the server's id when it began, which a full run relies on.
    """

    view: str
    generation: int
    number: int
    snapshot: int
    committed_ms: int
    server_id: str


class FeatureStore:
    """A region's store of features.

    Raises:
        CredentialError: that is missing.
    """

    def __init__(self, online: OnlineConfig, secrets: Secrets) -> None:
        self.url = online.url
        self._client: Any = open_store(online.url, online.credential_id, secrets)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def server_id(self) -> str:
        """Return the server's id, which changes with a restart or an eviction: unchanged, all data is still there."""
        with translate_errors(self.url):
            info: Any = self._client.info()
        return parse_server_id(info)

    def state(self, view: str) -> State:
        """Return how far a view is."""
        with translate_errors(self.url):
            fields: Any = self._client.hmget(state_key(view), list(FIELDS))
        return read_state(fields)

    def begin(
        self,
        view: str,
        expected_state: State,
        target: tuple[int, int],
        digest: str,
        columns: Sequence[Column],
        *,
        full: bool,
    ) -> FillRun:
        """Begin a run; from now on older ones are refused.

        Args:
            expected_state: its state, by which the run was planned.
            target: the snapshot that it leads to, and its commit time.
            digest: what the rows are made of.
            columns: their columns.
            full: it begins a new generation.

        Raises:
            FeaturesMoved: the state is another one by now.
        """
        server_id = self.server_id()
        generation, number = self._eval(
            scripts.BEGIN,
            [state_key(view)],
            [
                *(expected_state.generation, expected_state.run, "full" if full else ""),
                *(target[0], digest, encode_columns(columns)),
            ],
        )
        if not number:
            raise FeaturesMoved(f"another run fills view {view}")
        return FillRun(view, generation, number, *target, server_id)

    def put(self, run: FillRun, rows: Sequence[tuple[str, bytes | None]]) -> None:
        """Write rows, or tombstones for None.

        Raises:
            FeaturesMoved: a newer run, or another generation, has begun.
        """
        heads = {
            gone: value_head(run.generation, run.number, run.snapshot, run.committed_ms, gone=gone)
            for gone in (False, True)
        }
        for start in range(0, len(rows), _MAX_KEYS_PER_CALL):
            chunk = rows[start : start + _MAX_KEYS_PER_CALL]
            keys = [state_key(run.view), *(value_key(run.view, id) for id, _ in chunk)]
            values = [heads[row is None] + (row or b"") for _, row in chunk]
            self._require_current_run(
                run, self._eval(scripts.PUT, keys, [run.generation, run.number, TOMBSTONE_MS, *values])
            )

    def finish(self, run: FillRun, complete_server: str) -> None:
        """Record that a view has a run's snapshot.

        Args:
            complete_server: the id of the server that holds all rows; "": unknown.

        Raises:
            FeaturesMoved: as `put`.
        """
        arguments = [run.generation, run.number, run.snapshot, run.committed_ms, complete_server]
        self._require_current_run(run, self._eval(scripts.FINISH, [state_key(run.view)], arguments))

    def exclude(self, view: str, reason: str) -> int:
        """Delete all of a view's rows, and fence off running writers; return how many there were."""
        return self.delete_older_generations(
            view, int(self._eval(scripts.EXCLUDE, [state_key(view)], [reason or "refused"]))
        )

    def clear(self, view: str) -> int:
        """Delete all rows of a view whose table is empty or gone; return how many there were."""
        return self.delete_older_generations(view, int(self._eval(scripts.EXCLUDE, [state_key(view)], [""])))

    def delete_older_generations(self, view: str, generation: int) -> int:
        """Delete the rows of generations before one; return how many."""
        gone = 0
        with translate_errors(self.url):
            for keys in self.value_keys(view):
                gone += int(self._client.eval(scripts.DELETE_OLDER, len(keys), *keys, generation))
        return gone

    def rows(self, view: str) -> Iterator[tuple[str, Value]]:
        """Yield what is there under each id, tombstones too."""
        start = len(value_key(view, "").encode())
        with translate_errors(self.url):
            for keys in self.value_keys(view):
                values: Any = self._client.mget(keys)
                for key, data in zip(keys, values, strict=True):
                    if data is not None and (value := read_value(data)) is not None:
                        yield key[start:].decode(), value

    def get(self, view: str, ids: Sequence[str]) -> list[Value | None]:
        """Return what is there under some ids."""
        if not ids:
            return []
        with translate_errors(self.url):
            values: Any = self._client.mget([value_key(view, id) for id in ids])
        return [None if data is None else read_value(data) for data in values]

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

    def _eval(self, script: str, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        with translate_errors(self.url):
            return self._client.eval(script, len(keys), *keys, *arguments)

    def _require_current_run(self, run: FillRun, answer: int) -> None:
        if answer < 0:
            raise FeaturesMoved(
                f"another run fills view {run.view}: run {run.number} of generation {run.generation} stops"
            )


def parse_server_id(info: Any) -> str:
    """Return the server's id from its `INFO`: its run id, and how many keys it has evicted."""
    return f"{info['run_id']}/{info['evicted_keys']}"
