"""What the tasks of a sync need, imported once in the scheduler: a LocalExecutor forks its tasks from there.

Otherwise each of the four tasks between a commit and its publication imports the same libraries again, which takes
longer than their work.
"""

from __future__ import annotations

import logging
import sys
from importlib import import_module

from airflow.listeners import hookimpl

# None of them starts a thread, or opens a connection, before it is used.
MODULES = (
    "httpx",
    "obstore.store",
    "pandas",  # pyarrow imports it where it is installed
    "pyarrow.compute",
    "pyarrow.parquet",
    "sterna.airflow.operators",
    "sterna.iceberg.metadata.history",
    "sterna.iceberg.manifests.manifest",
    "sterna.iceberg.manifests.manifest_list",
    "sterna.iceberg.metadata.table",
    "sterna.iceberg.deletes.position_deletes",
    "sterna.iceberg.metadata.view",
    "sterna.notifications.change_log.fresh_tables",
    "sterna.replication.sync.stages",
)


@hookimpl
def on_starting(component: object) -> None:
    """Import the modules, if this process is a scheduler."""
    # The component has its kind only later.
    if sys.argv[1:2] != ["scheduler"]:
        return
    for name in MODULES:
        try:
            import_module(name)
        except ImportError as error:  # tasks may run elsewhere, with other packages
            logging.getLogger(__name__).info("sterna's tasks start slower: %s", error)
            return
