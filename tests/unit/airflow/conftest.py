"""An Airflow of these tests' own: its settings have to stand before anything imports Airflow."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

import pytest

_HOME = Path(tempfile.mkdtemp(prefix="sterna-airflow-"))
atexit.register(shutil.rmtree, _HOME, ignore_errors=True)
DAGS = Path(__file__).parents[3] / "dags"
for name in [name for name in os.environ if name.startswith("AIRFLOW_")]:
    del os.environ[name]
os.environ |= {
    "AIRFLOW_HOME": str(_HOME),
    "AIRFLOW__CORE__UNIT_TEST_MODE": "True",
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
    "AIRFLOW__CORE__PLUGINS_FOLDER": str(_HOME / "plugins"),
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{_HOME}/airflow.db",
    "AIRFLOW__STERNA__REGION": "eu",
    "AIRFLOW__STERNA__REGISTRY": str(_HOME / "storage_registry.yaml"),
}


@pytest.fixture(scope="session")
def database() -> None:
    """Airflow's own tables."""
    from airflow.utils import db

    db.initdb()


@pytest.fixture(scope="module")
def known_dags(database: None) -> None:
    """The DAGs of the folder, written down."""
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.session import create_session

    with create_session() as session:
        session.merge(DagBundleModel(name="tests"))
    sync_bag_to_db(DagBag(), "tests", None)


@pytest.fixture
def metrics(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """What is told to Airflow's statistics, by name."""
    recorded: dict[str, float] = {}
    for method in ("gauge", "incr"):
        monkeypatch.setattr(
            f"airflow.sdk.observability.stats.{method}", lambda name, value=1, **_: recorded.update({name: value})
        )
    return recorded
