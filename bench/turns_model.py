"""A model of two regions that commit to one table: how many clients give up, with and without turns after a conflict.

Clients come at random moments, load the table, write a list and commit. What they loaded is old where another commit
came first: they are refused, and come again as Iceberg's Java library does by default, four times. A region shows
another region's commit a moment after it was made. It is a model: nothing is measured.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from bench.common import percentile

_RETRIES = 4
_FIRST_WAIT = 0.1
_REGIONS = 2
_RESERVED = 2.0


@dataclass(frozen=True)
class Costs:
    """What takes how many seconds, on average.

    Args:
        write: a client's list.
        show: until a region shows another one's commit.
        prepare: from a request until its swap, by region: the second one is an ocean away.
        swap: the swap itself, by region.
    """

    write: float
    show: float
    prepare: tuple[float, float]
    swap: tuple[float, float]


@dataclass(eq=False)
class _Client:
    region: int
    since: float
    attempts: int = 0
    base: int = 0
    turns: int = 0


@dataclass
class _Line:
    """The commits at a region's address: `at_turn` has the turn, and keeps it when it is refused."""

    at_turn: _Client | None = None
    waiting: deque[_Client] = field(default_factory=deque)


class Model:
    """Commits of two regions to one table.

    Args:
        costs: what takes how long.
        turns: whether the addresses give turns.
        seed: of what is at random.
        per_minute: commits of each region.
    """

    def __init__(self, costs: Costs, *, turns: bool, seed: int, per_minute: float = 30) -> None:
        self._costs, self._turns, self._rate = costs, turns, per_minute / 60
        self._random, self._numbers = random.Random(seed), count()
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._now, self._main, self._shown = 0.0, 0, [0] * _REGIONS
        self._lines = [_Line() for _ in range(_REGIONS)]
        self.seconds: list[float] = []
        """Of commits that were made."""
        self.gave_up = 0
        for region in range(_REGIONS):
            self._arrive(region, first=True)

    def run(self, seconds: float) -> None:
        """Let so much time pass."""
        while self._events and self._events[0][0] <= seconds:
            self._now, _, action, arguments = heapq.heappop(self._events)
            action(*arguments)

    def _after(self, seconds: float, action: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self._events, (self._now + seconds, next(self._numbers), action, arguments))

    def _about(self, seconds: float) -> float:
        return seconds * self._random.uniform(0.8, 1.3)

    def _arrive(self, region: int, first: bool = False) -> None:
        self._after(self._random.expovariate(self._rate), self._arrive, region)
        if not first:
            self._start(_Client(region, self._now))

    def _start(self, client: _Client) -> None:
        client.attempts, client.base = client.attempts + 1, self._shown[client.region]
        self._after(self._about(self._costs.write), self._request, client)

    def _request(self, client: _Client) -> None:
        line = self._lines[client.region]
        if not self._turns or line.at_turn in (None, client):
            self._prepare(client)
        else:
            line.waiting.append(client)

    def _prepare(self, client: _Client) -> None:
        if self._turns:
            self._take(client)
        self._after(self._about(self._costs.prepare[client.region]) / 2, self._read_main, client)

    def _take(self, client: _Client) -> None:
        client.turns += 1
        self._lines[client.region].at_turn = client
        self._after(_RESERVED, self._run_out, client, client.turns)

    def _run_out(self, client: _Client, turns: int) -> None:
        if client.turns == turns:
            self._give_turn(client)

    def _give_turn(self, client: _Client) -> None:
        line = self._lines[client.region]
        if line.at_turn is client:
            line.at_turn = None
            if line.waiting:
                self._prepare(line.waiting.popleft())

    def _read_main(self, client: _Client) -> None:
        if client.base != self._main:
            self._refuse(client)
        else:
            self._after(self._about(self._costs.prepare[client.region]) / 2, self._swap, client)

    def _swap(self, client: _Client) -> None:
        if client.base != self._main:
            self._refuse(client)
            return
        self._main += 1
        for region in range(_REGIONS):
            delay = self._costs.swap[region] if region == client.region else self._about(self._costs.show)
            self._after(delay, self._show, region, self._main)
        self._after(self._costs.swap[client.region], self._acknowledge, client)

    def _show(self, region: int, version: int) -> None:
        self._shown[region] = max(self._shown[region], version)

    def _acknowledge(self, client: _Client) -> None:
        self.seconds.append(self._now - client.since)
        self._give_turn(client)

    def _refuse(self, client: _Client) -> None:
        """Bring the table up, and answer; the client keeps its turn."""
        behind = self._shown[client.region] != self._main
        self._after(self._about(self._costs.show) if behind else 0.0, self._answer, client, self._main)

    def _answer(self, client: _Client, version: int) -> None:
        self._show(client.region, version)
        if client.attempts > _RETRIES:
            self.gave_up += 1
            self._give_turn(client)
            return
        if self._turns:
            self._take(client)
        wait = _FIRST_WAIT * 2 ** (client.attempts - 1)
        self._after(wait * self._random.uniform(1.0, 1.1), self._start, client)


CASES = {
    "an ocean between them, six round trips a commit": Costs(0.15, 0.5, (0.08, 0.5), (0.03, 0.2)),
    "an ocean between them, three round trips a commit": Costs(0.15, 0.3, (0.08, 0.2), (0.03, 0.1)),
    "side by side": Costs(0.1, 0.2, (0.06, 0.06), (0.03, 0.03)),
}


def bench(minutes: float, seeds: int) -> None:
    """Print, for each case, what becomes of the commits."""
    for case, costs in CASES.items():
        for turns in (False, True):
            models = [Model(costs, turns=turns, seed=seed) for seed in range(seeds)]
            for model in models:
                model.run(60 * minutes)
            seconds = [one for model in models for one in model.seconds]
            gave_up = sum(model.gave_up for model in models)
            print(
                f"{case}, {'with' if turns else 'without'} turns: {gave_up / (gave_up + len(seconds)):.1%} give up, "
                f"p50 {percentile(seconds, 0.5):.2f} s, p99 {percentile(seconds, 0.99):.2f} s"
            )
