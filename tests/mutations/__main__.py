"""Do the tests of every run find what could go wrong? Plants faults in a copy of a tree; runs tests until one fails.

    .venv/bin/python -m tests.mutations                        all of them; goes on where it was ended
    .venv/bin/python -m tests.mutations --list                 their names, and what each would do to users
    .venv/bin/python -m tests.mutations --only "holds are ignored"
    .venv/bin/python -m tests.mutations --first                no tests but those that are named for each
    .venv/bin/python -m tests.mutations --tree ../before       in another checkout, with that one's tests and .venv
    .venv/bin/python -m tests.mutations --table                the results as a table, nothing is run

First the tests that are named for a mutation, then those of its component, then all that need no server, then those of
the component with servers: never more than what CI runs. A test finds a mutation when it fails twice with it, and
passes without. It ends with 1 when a mutation was missed, and with 2 when one could not be planted or judged.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.mutations.hunt import Hunt, copy_of
from tests.mutations.model import Mutation, Result
from tests.mutations.planted import MUTATIONS
from tests.mutations.results import Results, state_of, table

_TREE: Final = Path(__file__).parents[2]
_RESULTS: Final = Path("build/mutations.jsonl")


def main(arguments: Sequence[str] | None = None, mutations: Sequence[Mutation] = MUTATIONS) -> int:
    """Look for mutations; return 0 when each was found, 1 when one was missed, 2 when one was not judged.

    Args:
        arguments: of the command line.
        mutations: what can be planted.
    """
    options = _parser().parse_args(arguments)
    chosen = [mutation for mutation in mutations if not options.only or mutation.name in options.only]
    if unknown := set(options.only) - {mutation.name for mutation in chosen}:
        print(f"no mutation is called {min(unknown)!r}: see --list")
        return 2
    if options.list:
        for mutation in chosen:
            print(f"{mutation.component}: {mutation.name}\n    {mutation.harm}")
        return 0
    results = Results(options.results, state_of(options.tree))
    if not options.table:
        _run_hunt(options, chosen, results)
    judged = [(mutation, results.of(mutation, any_state=options.table)) for mutation in chosen]
    print(table(judged))
    verdicts = {result.verdict if result else "error" for _, result in judged}
    return 2 if verdicts & {"error", "undecided"} else 1 if "missed" in verdicts else 0


def _run_hunt(options: argparse.Namespace, chosen: Sequence[Mutation], results: Results) -> None:
    left = [mutation for mutation in chosen if options.again or _judged(results.of(mutation)) is None]
    print(f"{len(chosen)} mutations, {len(chosen) - len(left)} of them judged before", flush=True)
    own = options.tree.absolute() / ".venv/bin/python"
    with copy_of(options.tree) as copy:
        hunt = Hunt(
            copy,
            options.processes,
            options.minutes,
            _print_progress,
            with_servers=not options.no_servers,
            only_first=options.first or options.tests is not None,
            python=own if own.exists() else Path(sys.executable),
        )
        first = {pending.name: tuple(options.tests) if options.tests else pending.first for pending in left}
        if len(left) > 1:
            hunt.run_without([replace(pending, first=first[pending.name]) for pending in left])
        for number, mutation in enumerate(left, 1):
            _print_progress(f"{number}/{len(left)} {mutation.component}: {mutation.name}")
            result = hunt.look_for(replace(mutation, first=first[mutation.name]))
            results.add(mutation, result)
            _print_progress(f"  {result.verdict} after {result.seconds:.0f} s {result.by} {result.how}")


def _judged(result: Result | None) -> Result | None:
    return result if result and result.verdict in ("found", "missed") else None


def _print_progress(line: str) -> None:
    print(line, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description="Do tests find planted faults?")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this mutation; may be repeated")
    parser.add_argument("--tree", type=Path, default=_TREE, help="a checkout to look at (this one)")
    parser.add_argument("--results", type=Path, default=_RESULTS, help=f"where results are kept ({_RESULTS})")
    parser.add_argument("--again", action="store_true", help="also what was judged before")
    parser.add_argument("--first", action="store_true", help="only the tests that are named for each")
    parser.add_argument("--tests", nargs="+", metavar="PATH", help="only these, of files or tests below tests/")
    parser.add_argument("--no-servers", action="store_true", help="only tests that need no server")
    parser.add_argument("--processes", type=int, default=0, help="how many run the larger stages (0: one)")
    parser.add_argument("--minutes", type=float, default=60.0, help="how long each stage may take (60)")
    parser.add_argument("--list", action="store_true", help="name them, and run nothing")
    parser.add_argument("--table", action="store_true", help="show the newest results of any state, and run nothing")
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("ended; the same command goes on from here")
