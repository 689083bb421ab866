"""One region's syncs, one after the other, until somebody kills them.

`python -m tests.support.faults.syncing REGISTRY REGION`.
"""

from __future__ import annotations

import sys
import time

from sterna.config.secrets import environment_secrets
from sterna.errors import Remedy, SternaError
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.region import open_region
from sterna.replication.sync.run import sync

_PAUSE_SECONDS = 0.3


def main() -> None:
    """Sync; what a later run cures is left to the next one, anything else ends this process with its error."""
    registry, region = sys.argv[1:]
    while True:
        with open_region(registry, region, environment_secrets()) as context:
            try:
                sync(context, SyncOptions(), lambda line: None)
            except SternaError as error:
                if error.remedy is not Remedy.RETRY:
                    raise
                print(error, file=sys.stderr, flush=True)
        time.sleep(_PAUSE_SECONDS)


if __name__ == "__main__":
    main()
