"""What every bench does alike: rounds in turn with the rival, peak memory, and one line of JSON at the end."""

from __future__ import annotations

import json
import math
import os
import platform
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, Literal

import psutil

RESULTS = Path(__file__).with_name("results")
RESULTS_VARIABLE = "STERNA_BENCH_RESULTS"
"""Names another folder for results that aren't to be published."""

Run = Callable[[], float]
"""Does the work once and returns its seconds, without what it needed to prepare and to clear away."""


@dataclass(frozen=True)
class Result:
    """What a bench found in one case.

    Args:
        name: the bench.
        case: what of it was measured, such as the number of entries.
        goal: the bound; None where a figure is shown for what it is.
        bound: whether the figure must be at least or at most the goal.
        unit: what the figure is: `times` (the rival's seconds by ours, pair by pair), `s` (ours) or `MiB`.
        sides: what ran, ours first, and what each round came to, in the unit of the plot.
        measured: the figure, where it isn't the median of ours or of the ratios.
        details: whatever else a reader should see.
    """

    name: str
    case: str
    goal: float | None
    bound: Literal["at least", "at most"]
    unit: Literal["times", "s", "MiB"]
    sides: Mapping[str, tuple[float, ...]]
    measured: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def ratio(self) -> float | None:
        """The median, pair by pair, of the rival's seconds by ours.

        None where there is no rival, or the figure is another one.
        """
        if self.unit != "times" or self.measured is not None:
            return None
        ours, rival, *_ = self.sides.values()
        return median(theirs / mine for mine, theirs in zip(ours, rival, strict=False))

    @property
    def figure(self) -> float:
        """What is compared with the goal."""
        if self.measured is not None:
            return self.measured
        if self.ratio is not None:
            return self.ratio
        return median(next(iter(self.sides.values())))

    @property
    def met(self) -> bool | None:
        """Whether the goal was met; None without a goal."""
        if self.goal is None:
            return None
        return self.figure >= self.goal if self.bound == "at least" else self.figure <= self.goal

    def as_json(self) -> dict[str, Any]:
        """Return the result as a line of its file."""
        return {
            "name": self.name,
            "case": self.case,
            "goal": None if self.goal is None else f"{self.bound} {self.goal:g} {self.unit}",
            "met": self.met,
            "figure": rounded(self.figure),
            "unit": self.unit,
            "ratio": None if self.ratio is None else rounded(self.ratio),
            "sides": {
                name: {"median": rounded(median(measurements)), "rounds": [rounded(value) for value in measurements]}
                for name, measurements in self.sides.items()
            },
            "details": dict(self.details),
            "rounds": len(next(iter(self.sides.values()))),
            "cores": os.cpu_count(),
            "load": round(os.getloadavg()[0], 1),
            "versions": versions(),
            "at": f"{datetime.now(UTC):%Y-%m-%dT%H:%MZ}",
        }


def report(result: Result) -> dict[str, Any]:
    """Append a result to its bench's file, redraw the bench's plot, print the line, and return it."""
    from bench.plot import draw

    folder = Path(os.environ.get(RESULTS_VARIABLE) or RESULTS)
    folder.mkdir(parents=True, exist_ok=True)
    line = result.as_json()
    path = folder / f"{result.name}.json"
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    path.with_suffix(".svg").write_text(draw(latest(path)))
    print(json.dumps(line), flush=True)
    return line


def latest(path: Path) -> list[dict[str, Any]]:
    """Return the last line of each case in a bench's file; none when there is no file."""
    lines = [json.loads(text) for text in path.read_text().splitlines()] if path.exists() else []
    return list({line["case"]: line for line in lines}.values())


def alternate(
    sides: Mapping[str, Run], rounds: int, progress: Callable[[str], None], warm_up: int = 1
) -> dict[str, tuple[float, ...]]:
    """Run the sides in turn, A B A B, so that whatever else the machine does meets all of them.

    Args:
        sides: by name, ours first.
        rounds: how often each is measured.
        progress: called with a line a run.
        warm_up: rounds before those, which don't count.
    """
    timings: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(-warm_up, rounds):
        for name, run in sides.items():
            seconds = run()
            progress(f"{'warm-up' if number < 0 else f'round {number + 1}'}: {name}: {seconds:.3f} s")
            if number >= 0:
                timings[name].append(seconds)
    return {name: tuple(values) for name, values in timings.items()}


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of the values doesn't exceed (nearest rank)."""
    return sorted(values)[max(1, math.ceil(share * len(values))) - 1]


def rounded(value: float) -> float:
    """Return a figure with four digits."""
    return float(f"{value:.4g}")


def versions() -> dict[str, str]:
    """Return the versions of everything that was measured."""
    from sterna.servers.jars import ICEBERG_SPARK, NESSIE
    from sterna.storage.rclone.transfer import rclone_version

    return {
        "sterna": version("sterna"),
        "python": platform.python_version(),
        "spark": version("pyspark"),
        "iceberg": ICEBERG_SPARK.revision,
        "nessie": NESSIE.revision,
        "rclone": rclone_version(),
    }


@contextmanager
def peak_memory(pid: int | None = None, every: float = 1.0) -> Iterator[dict[str, float]]:
    """Watch a process and its children; the dictionary that is yielded has, at the end, the largest of each kind in
    MiB.

    Args:
        pid: the process; None: this one.
        every: seconds between two samples, each of which takes some milliseconds from what is measured.
    """
    peaks: dict[str, float] = {}
    ended = threading.Event()

    def watch() -> None:
        own = psutil.Process(pid)
        while not ended.wait(every):
            watched = [own]
            with suppress(psutil.Error):
                watched += own.children(recursive=True)
            for process in watched:
                with suppress(psutil.Error):  # one that has ended, as a zombie does, hides no other
                    kind = "driver" if process.pid == own.pid else kind_of(process.cmdline())
                    peaks[kind] = max(peaks.get(kind, 0.0), process.memory_info().rss / 2**20)

    thread = threading.Thread(target=watch, daemon=True, name="bench-memory")
    thread.start()
    try:
        yield peaks
    finally:
        ended.set()
        thread.join()


def kind_of(command: list[str]) -> str:
    """Return what a child process is, by its command line."""
    line = " ".join(command)
    kinds = {
        "pyspark.daemon": "worker",
        "rclone/child.py": "copy child",
        "serve s3": "endpoint",
        "rclone": "rclone",
        "nessie": "nessie",
    }
    return next((kind for text, kind in kinds.items() if text in line), "jvm" if "java" in line else "other")
