"""Results on disk, so that a run that was ended goes on where it was, and as a table."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.mutations.model import Mutation, Result


def state_of(tree: Path) -> str:
    """Return what a checkout is like: its commit, and a digest of what differs from it."""

    def git(*arguments: str) -> bytes:
        return subprocess.run(["git", *arguments], cwd=tree, check=True, capture_output=True).stdout

    digest = hashlib.sha256(git("diff", "HEAD") + git("ls-files", "--others", "--exclude-standard"))
    changed = bool(git("status", "--porcelain"))
    commit = git("rev-parse", "HEAD").decode().strip()[:12]
    return f"{commit}+{digest.hexdigest()[:8]}" if changed else commit


@dataclass(frozen=True)
class Results:
    """A file with a line of JSON a result, the newest last.

    Args:
        path: the file.
        state: of the tree that is looked at.
    """

    path: Path
    state: str

    def add(self, mutation: Mutation, result: Result) -> None:
        """Write a result down."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps({"state": self.state, "fault": _digest(mutation), **asdict(result)}) + "\n")

    def of(self, mutation: Mutation, *, any_state: bool = False) -> Result | None:
        """Return a mutation's newest result for the tree as it is now, or None.

        Args:
            mutation: the mutation, as it is now.
            any_state: of whichever tree.
        """
        matches = [
            line
            for line in self._lines()
            if line.pop("fault") == _digest(mutation) and (line.pop("state") == self.state or any_state)
        ]
        return Result(**matches[-1]) if matches else None

    def _lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []


def _digest(mutation: Mutation) -> str:
    return hashlib.sha256(repr((mutation.name, mutation.file, mutation.old, mutation.new)).encode()).hexdigest()[:12]


def table(rows: Iterable[tuple[Mutation, Result | None]]) -> str:
    """Return results as a Markdown table."""
    lines = ["| component | mutation | result |", "|---|---|---|"]
    for mutation, result in rows:
        lines.append(f"| {mutation.component} | {mutation.name} | {_format_result(result)} |")
    return "\n".join(lines)


def _format_result(result: Result | None) -> str:
    if result is None:
        return "not run"
    file, _, test = result.by.removeprefix("tests/").partition("::")
    return f"`{file}`: `{test.partition('[')[0]}`" if result.verdict == "found" else f"{result.verdict}: {result.how}"
