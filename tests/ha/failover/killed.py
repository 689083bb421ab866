"""A command of sterna's that kills itself at a named point: `python -m tests.ha.failover.killed POINT COMMAND …`."""

from __future__ import annotations

import sys

from sterna.catalog.nessie.catalog import NessieCatalog
from sterna.cli.main import main as sterna
from sterna.replication.failover import catalog_seed, promote, rejoin
from tests.support.faults.killed import Point, strike

POINTS = {
    "promote: once the old primary is fenced": Point("after", promote, promote.fence),
    "promote: once the copy has left it": Point("after", promote, promote.unsubscribe),
    "promote: once the epoch has begun": Point("after", promote, promote.begin_term),
    "promote: before the others follow": Point("before", promote, promote.rejoin_to_primary),
    "seed: once the copy is fenced": Point("after", catalog_seed, catalog_seed.fence),
    "seed: once the slot is made": Point("before", catalog_seed, catalog_seed.copy_missing_objects, 2),
    "seed: once all is copied": Point("after", catalog_seed, catalog_seed.copy_missing_objects, 2),
    "seed: in the middle of the references": Point("after", catalog_seed, catalog_seed.replace_rows),
    "seed: before it subscribes": Point("before", catalog_seed, catalog_seed.subscribe),
    "seed: once it has subscribed": Point("after", catalog_seed, catalog_seed.run_sql),
    "rejoin: once the region is fenced": Point("after", rejoin, rejoin.fence),
    "rejoin: once some of the lost is kept": Point("after", NessieCatalog, NessieCatalog.create_branch),
    "rejoin: once all of the lost is kept": Point("before", rejoin, rejoin.seed),
}
"""What each point is called, and where it is."""


def main() -> None:
    """Run the command, up to the point."""
    strike(POINTS[sys.argv[1]])
    sterna(sys.argv[2:])


if __name__ == "__main__":
    main()
