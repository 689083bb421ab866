"""Which tests run in one process, because they share servers, and which are begun first.

A server that two processes start is started twice, and the one Spark of a process takes a minute to get warm. So the
tests that share one go to one process. What takes longest is begun first: nobody waits for it in the end.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# Group → what belongs to it: folders and files below tests/, in the order in which they are handed out.
GROUPS: dict[str, Sequence[str]] = {
    "spark": (
        "integration/sync/",
        "integration/verify/",
        "integration/gc/",
        "integration/cli/",
        "integration/failover/",
        "integration/restore/",
        "integration/queries/",
        "integration/rest_catalog/",
        "integration/catalog/test_access.py",
        "integration/catalog/test_views_by_spark.py",
    ),
    "spark of the rooms": (
        "integration/changes/",
        "integration/maintenance/",
        "integration/publish/",
        "integration/transforms/",
        "integration/features/",
        "integration/cdc/",
        "integration/ingest/test_worker.py",
        "integration/ingest/test_adding.py",
        "integration/ingest/test_direct_topics.py",
        "integration/ingest/test_restored.py",
        "integration/test_written_2026_11_spark.py",
        "integration/ingest/test_exact_on_main.py",
    ),
    "demo": ("integration/demo/",),
    "guides": ("integration/demo/test_guides.py",),
    "airflow": (
        "airflow/test_dag.py",
        "airflow/test_hands.py",
        "airflow/test_large.py",
        "airflow/test_linger.py",
        "airflow/test_pages.py",
        "airflow/test_pages_locked.py",
        "airflow/test_ingest.py",
        "airflow/test_layers.py",
    ),
    "pair": ("faults/",),
    "two sites": ("ha/",),
    "regions": ("ha/failover/",),
    "masters": ("integration/spark/test_spark.py",),
    "emulators": ("integration/storage/test_schemes.py", "integration/sync/test_schemes_table.py"),
    "odd keys": ("integration/sync/test_tables_odd_keys.py", "integration/rest_catalog/test_vended_keys.py"),
    "nessie": ("integration/catalog/",),
    "outlets": ("integration/sinks/",),
    "ingest": ("integration/ingest/",),
    "airflow's database": ("unit/airflow/",),  # made once, and Airflow is imported once
}
SPARK = frozenset(name for name in GROUPS if name.startswith("spark"))
"""The groups that share a Spark: two, for one would be the longest of all by far."""
# Each test alone: they are long, and share nothing.
_ALONE = ("simulation/",)


def group_of(test: str) -> str:
    """Return what a test's process is chosen by: its group, its file, or the test itself.

    Args:
        test: the test's id, or the path of its file, below tests/.
    """
    path = test.partition("::")[0].removeprefix("tests/")
    if path.startswith(_ALONE):
        return test
    # The longest name that fits: a file may be taken out of its folder's group.
    matches = [(len(name), group) for group, names in GROUPS.items() for name in names if path.startswith(name)]
    return max(matches)[1] if matches else path


def turn_of(test: str) -> int:
    """Return when a test is begun: groups in their order, then everything else as it was collected."""
    group = group_of(test)
    return list(GROUPS).index(group) if group in GROUPS else len(GROUPS)


class BySharedServers(LoadScopeScheduling):
    """Hands the tests of a group to one process, group by group in the order of their collection."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
