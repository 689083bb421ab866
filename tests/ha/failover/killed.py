"""A command of sterna's that kills itself at a named point: `python -m tests.ha.failover.killed POINT COMMAND …`."""

from __future__ import annotations

import sys

from sterna.cli.main import main as sterna
from tests.support.faults.killed import strike

POINTS = {
    "promote: once the old primary is fenced": "after sterna.ha.promote.fence",
    "promote: once the copy has left it": "after sterna.ha.promote.unsubscribe",
    "promote: once the epoch has begun": "after sterna.ha.promote.raise_epoch",
    "promote: before the others follow": "before sterna.ha.promote.bring_back",
    "seed: once the copy is fenced": "after sterna.ha.seed.fence",
    "seed: once the slot is made": "before sterna.ha.seed.copy_missing 2",
    "seed: once all is copied": "after sterna.ha.seed.copy_missing 2",
    "seed: in the middle of the references": "after sterna.ha.seed._replace",
    "seed: before it subscribes": "before sterna.ha.seed._subscribe",
    "seed: once it has subscribed": "after sterna.ha.seed.run_sql",
    "rejoin: once the region is fenced": "after sterna.ha.rejoin.fence",
    "rejoin: once some of the lost is kept": "after sterna.edges.nessie.catalog.NessieCatalog.create_branch",
    "rejoin: once all of the lost is kept": "before sterna.ha.rejoin.seed",
}
"""What each point is called, the function that is killed before or after, and at which call."""


def main() -> None:
    """Run the command, up to the point."""
    when, path, *call = POINTS[sys.argv[1]].split()
    strike(f"{when} {path}", int(call[0]) if call else 1)
    sterna(sys.argv[2:])


if __name__ == "__main__":
    main()
