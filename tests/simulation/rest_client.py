"""Clients of addresses: engines that load, write files, commit, lose answers, send again and clean up after themselves.

They believe what they are told, as engines do: whoever is refused deletes all that he wrote, and whoever succeeds
deletes his own manifests and lists that the answer doesn't name (Java's `SnapshotProducer`). After an unknown outcome
nothing is deleted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from sterna.catalog.model import Key
from sterna.errors import RestCatalogError, SternaError, TableError
from sterna.replication.replica.region import RegionContext
from sterna.serving.rest_catalog.rules import Rights
from tests.simulation.actor import Actor
from tests.simulation.clock import Clock
from tests.simulation.compacting import read
from tests.simulation.rest_main import Attempt, Change, ObservedMain, TableWriters
from tests.simulation.rest_process import Process, RequestTurn
from tests.simulation.rest_tables import TableFiles
from tests.simulation.store import Store, Violation
from tests.simulation.tables import Snapshot, Table
from tests.simulation.turns import Crash

OK, NO_ANSWER, UNKNOWN, CONFLICT, UNAVAILABLE, NOT_FOUND, COME_AGAIN = 200, 502, 500, 409, 503, 404, 429
_COLUMN = {"id": 1, "name": "id", "type": "long", "required": False}
_CREATIONS = 0.04  # of all that clients do
_TRANSACTIONS = 0.12  # of the rest, those that change two tables at once
_SENDS = 4  # of one request, at most
_TRIES = 3  # of a change that meets others
_PATIENCE_SECONDS = 600.0  # shorter than the time for which an Idempotency-Key, or a young snapshot, is kept


@dataclass(frozen=True)
class Habits:
    """How a client behaves, and what befalls it.

    Args:
        loses: how often an answer, or the request itself, is lost.
        dies: how often the client does, by step.
        sends_key: each request has an `Idempotency-Key`.
        resends: how often a request without an answer is sent again.
    """

    loses: float
    dies: float
    sends_key: bool
    resends: float


@dataclass(frozen=True)
class Answer:
    """What a client gets: a status, and the body where all went well."""

    status: int
    body: Any = None
    why: str = ""


class Surroundings:
    """What a region's clients share.

    Args:
        main: `main`, and its observer.
        store: the stores, without faults.
        clock: the clock.
        processes: the region's, behind a balancer.
        arrive: lets the catalog work off what it has got.
        home: how all URIs of the region begin.
    """

    def __init__(
        self,
        main: ObservedMain,
        store: Store,
        clock: Clock,
        processes: list[Process],
        arrive: Callable[[], None],
        home: str,
    ) -> None:
        self.main = main
        self.store = store
        self.clock = clock
        self.processes = processes
        self.arrive = arrive
        self.home = home
        self.files = TableFiles(store, self._require_local)

    def _require_local(self, uri: str) -> None:
        if not uri.startswith(self.home):
            raise Violation(f"rest: {uri} is served where all begins with {self.home}")


class Client(Actor):
    """One client.

    Args:
        name, context, tell: as in `Actor`; the context is what its requests use.
        rng: decides everything.
        surroundings: its region.
        habits: how it behaves.
        first: the number before the first of its files and snapshots.
    """

    def __init__(
        self,
        name: str,
        context: RegionContext,
        tell: Callable[[str], None],
        rng: Random,
        surroundings: Surroundings,
        habits: Habits,
        first: int,
    ) -> None:
        super().__init__(name, context, tell)
        self.request_turn: RequestTurn = self.turn  # type: ignore[assignment] - made so
        self.habits = habits
        self._rng = rng
        self._around = surroundings
        self._writers = TableWriters(rng, surroundings.clock.now_ms, first)
        self._files: set[str] = set()

    def work(self) -> None:
        """Have one change committed, however many tries it takes, or give it up."""
        if self.turn.chance(_CREATIONS):
            self._create()
            return
        self._files = set()
        change = Change(parts=1 + self.turn.chance(_TRANSACTIONS))
        for number in range(_TRIES):
            attempts = self._write(change)
            if not attempts or not self._commit(attempts, is_last=number == _TRIES - 1):
                return
        self.tell("gives up")

    def load(self, key: Key) -> Table | None:
        """Load a table from some process of the region, None where that isn't to be had now."""
        return self.load_from(self._rng.choice(self._around.processes), key)

    def load_from(self, process: Process, key: Key) -> Table | None:
        """Load a table from a process, None where that isn't to be had now."""
        since = process.shown.get(key, 0)  # others may be shown newer versions before this answer is read
        answer = self._ask(process, lambda: process.load(key))
        return self._read(process, key, json.loads(answer.body), since) if answer.status == OK else None

    def _read(self, process: Process, key: Key, result: dict[str, Any], since: int) -> Table:
        """Read a table as a process serves it, which is no older than what it had served before it was asked."""
        table = self._around.files.read(result["metadata"], result["metadata-location"])
        position = self._around.main.position(key, table, since)
        process.shown[key] = max(process.shown.get(key, 0), position)
        return table

    def _write(self, change: Change) -> list[Attempt]:
        """Load some tables, and write the files of a change of them; [] where they can't be loaded now."""
        process = self._rng.choice(self._around.processes)
        listed = self._ask(process, process.list_tables)
        if listed.status != OK or len(listed.body) < change.parts:
            return []
        attempts = []
        for key in self._rng.sample(listed.body, change.parts):
            loaded = self.load(key)
            if loaded is None:
                return []
            attempts.append(self._attempt(change, key, loaded))
            self._write_files(attempts[-1])
        return attempts

    def _attempt(self, change: Change, key: Key, table: Table) -> Attempt:
        before = read(table.snapshot(table.current))
        self._writers.rows = Counter(before)
        what, changed = self._writers.change_rows(table)
        after = +self._writers.rows
        attempt = Attempt(change, key, table, changed, after - before, before - after)
        self.tell(f"{what} of {'.'.join(key)} as snapshot {attempt.snapshot} on {table.current}")
        self._around.main.attempts[attempt.snapshot] = attempt
        return attempt

    def _write_files(self, attempt: Attempt) -> None:
        for uri, data in attempt.table.files().items():
            if uri not in self._around.store.objects and uri != attempt.table.path:
                self._step()
                self._files.add(uri)
                self._around.store.put(uri, data)

    def _commit(self, attempts: list[Attempt], *, is_last: bool) -> bool:
        """Send a commit until it is known what became of it; return whether the change has to be made anew."""
        end, unknown = self._around.clock.seconds() + _PATIENCE_SECONDS, False
        for _ in range(_SENDS):
            answer = self._send(attempts)
            self.tell(f"{answer.status} for snapshot {attempts[0].snapshot} {answer.why}")
            if answer.status == OK:
                self._succeed(attempts, answer.body)
                return False
            if answer.status in (NO_ANSWER, UNKNOWN):
                unknown = True
            elif answer.status not in (UNAVAILABLE, COME_AGAIN):
                return self._be_refused(attempts, answer, is_last=is_last)
            elif answer.status == UNAVAILABLE and not unknown and not self.turn.chance(self.habits.resends):
                self._clean_up(attempts, answer)
                return False
            if not self._sends_again(end):
                break
        for attempt in attempts[:1]:
            self._look(attempt)
        return False

    def _sends_again(self, end: float) -> bool:
        """Wait a moment, and tell whether it is worth another try."""
        self.turn.rest()
        if self._around.clock.seconds() > end or not self.turn.chance(self.habits.resends):
            return False
        # What the catalog has got it works off long before a client sends a request again.
        self._around.arrive()
        return True

    def _send(self, attempts: list[Attempt]) -> Answer:
        process, first = self._rng.choice(self._around.processes), attempts[0]
        service, requests = process.service, [_request(attempt) for attempt in attempts]
        if len(attempts) == 1:
            key = self._key(first.snapshot)
            answer = self._exchange(
                process, lambda: service.commit_table(first.key, requests[0], Rights(), key).body(), attempts
            )
        else:
            key = self._key(first.snapshot)
            body = {"table-changes": requests}
            answer = self._exchange(process, lambda: service.commit_transaction(body, Rights(), key), attempts)
        return answer

    def _create(self) -> None:
        """Make a table, whose place the address chooses."""
        end, unknown = self._around.clock.seconds() + _PATIENCE_SECONDS, False
        name = f"c{self._writers.number()}"
        request = {"name": name, "schema": {"type": "struct", "fields": [_COLUMN]}}
        for _ in range(_SENDS):
            process = self._rng.choice(self._around.processes)
            service, key = process.service, self._key(name)
            answer = self._exchange(process, lambda: service.create_table(("n",), request, key).body())  # noqa: B023
            self.tell(f"{answer.status} for {name} {answer.why}")
            # It may have been renamed since.
            if answer.status == OK and not any(("n", name) in keys for keys in self._around.main.changed):
                raise Violation(f"rest: acknowledged, and not on main: {name}")
            unknown |= answer.status in (NO_ANSWER, UNKNOWN)
            if answer.status == CONFLICT and (key or not unknown):
                raise Violation(f"rest: {name} is told to be there already: {answer}")
            if answer.status in (OK, CONFLICT) or not self._sends_again(end):
                return

    def _key(self, of: object) -> str:
        return f"key-{of}" if self.habits.sends_key else ""

    def _exchange(self, process: Process, request: Callable[[], Any], attempts: Sequence[Attempt] = ()) -> Answer:
        """Send something, and get the answer, if nothing is lost on the way.

        Args:
            attempts: what the process shows from now on, if all goes well.
        """
        if self.turn.chance(self.habits.loses / 2):
            return Answer(NO_ANSWER, why="(the request is lost)")
        answer = self._ask(process, request)
        self._around.main.observe()
        for attempt in attempts if answer.status == OK else ():
            position = self._around.main.positions.get(attempt.snapshot, 0)
            process.shown[attempt.key] = max(process.shown.get(attempt.key, 0), position)
        self._step()
        if self.turn.chance(self.habits.loses):
            return Answer(NO_ANSWER, why=f"(the answer {answer.status} is lost)")
        return answer

    def _ask(self, process: Process, request: Callable[[], Any]) -> Answer:
        """Have a process do something, and get what its routes would answer."""
        self.turn.tell(f"asks {process.name}")
        try:
            with self.request_turn.at(process):
                return Answer(OK, request())
        except Crash:
            return Answer(NO_ANSWER, why="(the process died)")
        except RestCatalogError as error:
            return Answer(error.status, why=f"{type(error).__name__}: {error.message}")
        except TableError as error:
            return Answer(400, why=f"{type(error).__name__}: {error.message}")
        except SternaError as error:
            return Answer(UNAVAILABLE, why=f"{type(error).__name__}: {error.message}")

    def _step(self) -> None:
        """Let others go on, or die."""
        if self.turn.chance(self.turn.faults.switch):
            self.turn.rest()
        if self.turn.chance(self.habits.dies):
            self.tell("the client dies")
            raise Crash

    def _succeed(self, attempts: list[Attempt], body: Any) -> None:
        """See that what was acknowledged is there, and delete one's own manifests and lists that aren't needed.

        Args:
            body: a LoadTableResult; a list for a transaction, whose tables have to be loaded.
        """
        for attempt in attempts:
            if attempt.snapshot not in attempt.change.committed:
                raise Violation(f"rest: acknowledged, and not on main: snapshot {attempt.snapshot}")
        if isinstance(body, dict):
            self._finish(attempts[0], self._around.files.read(body["metadata"], body["metadata-location"]))

    def _finish(self, attempt: Attempt, table: Table) -> None:
        snapshot = table.snapshot(attempt.snapshot)
        if snapshot is None:
            raise Violation(f"rest: acknowledged, and not in the answer: snapshot {attempt.snapshot}")
        if read(snapshot) != read(attempt.table.snapshot(attempt.snapshot)):
            raise Violation(f"rest: the answer has other rows of snapshot {attempt.snapshot} than were written")
        named = {uri for kept in table.snapshots for uri in _path_bearing(kept)}
        mine = _path_bearing(attempt.table.snapshots[-1]) & self._files
        earlier = self._files - attempt.table.files().keys()
        for uri in sorted((mine - named) | earlier):
            self._delete(uri)

    def _be_refused(self, attempts: list[Attempt], answer: Answer, *, is_last: bool) -> bool:
        self._around.main.observe()
        if answer.status == CONFLICT and not is_last:
            return True
        if answer.status not in (CONFLICT, NOT_FOUND) and all(map(self._is_on_base, attempts)):
            raise Violation(f"rest: an honest client is refused: {answer}")
        self._clean_up(attempts, answer)
        return False

    def _is_on_base(self, attempt: Attempt) -> bool:
        table = self._around.main.tables().get(attempt.key)
        return table is not None and (table.uuid, table.current) == (attempt.base.uuid, attempt.base.current)

    def _clean_up(self, attempts: list[Attempt], answer: Answer) -> None:
        """Delete everything that was written, since nothing was committed."""
        if attempts[0].change.committed:
            raise Violation(f"rest: refused with {answer.status}, and main has it: {attempts[0].change}")
        for uri in sorted(self._files):
            self._delete(uri)

    def _delete(self, uri: str) -> None:
        self._step()
        if self._around.main.names(uri):
            raise Violation(f"rest: a client's clean-up deletes what main names: {uri}")
        self.turn.tell(f"the client deletes {uri}")
        self._around.store.delete(uri)

    def _look(self, attempt: Attempt) -> None:
        """Look whether it is there: what isn't may come yet, so nothing is deleted then."""
        loaded = self.load(attempt.key)
        if loaded is not None and loaded.snapshot(attempt.snapshot) is not None:
            self.tell(f"finds snapshot {attempt.snapshot}")
            if attempt.change.parts == 1:
                self._finish(attempt, loaded)


def _path_bearing(snapshot: Snapshot) -> set[str]:
    return {snapshot.path, *(manifest.path for manifest in snapshot.manifests)}


def _request(attempt: Attempt) -> dict[str, Any]:
    """Return the CommitTableRequest of the REST specification."""
    snapshot = attempt.table.snapshots[-1]
    added = {
        "snapshot-id": snapshot.id,
        "sequence-number": snapshot.sequence,
        "timestamp-ms": snapshot.time_ms,
        "manifest-list": snapshot.path,
        "summary": {"operation": snapshot.operation},
        "schema-id": 0,
    } | ({} if snapshot.parent is None else {"parent-snapshot-id": snapshot.parent})
    return {
        "identifier": {"namespace": list(attempt.key[:-1]), "name": attempt.key[-1]},
        "requirements": [
            {"type": "assert-table-uuid", "uuid": attempt.base.uuid},
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": attempt.base.current},
        ],
        "updates": [
            {"action": "add-snapshot", "snapshot": added},
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot.id},
        ],
    }
