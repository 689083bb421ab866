"""The tracker, the journal and slot of a source, and the store of features that commit b5071db wrote: this version
reads where each of them stands. Nothing is carried on here, for that takes a Spark.
"""

from __future__ import annotations

from pathlib import Path

from sterna.pipelines.cdc.sources import open_sources
from sterna.pipelines.cdc.status import read_sources
from sterna.pipelines.features.region import open_feature_store
from sterna.pipelines.features.status import read_status
from sterna.pipelines.ingest.region import open_ingest
from sterna.pipelines.ingest.status import read_ingest_status
from tests.support.written import ANSWERS, written


def test_where_services_stand_is_understood(tmp_path: Path) -> None:
    with written(tmp_path, services=True) as restored, restored.context() as context:
        services = restored.services
        ingest = open_ingest(context, services)
        ingest.prepare()
        batches = {batch.id: (batch.number, batch.state.value) for batch in ingest.tracker.list_batches()}
        assert batches == {batch["id"]: (batch["number"], batch["state"]) for batch in ANSWERS["batches"]}
        (waiting,) = read_ingest_status(ingest).tables
        assert (waiting.name, waiting.details["buffered"], waiting.details["waiting"]) == ("web.events", 2, 2)
        ingest.close()

        source, *tables = read_sources(open_sources(context, services))
        assert (source.blocked, source.position) == (None, f"1/{ANSWERS['journal']['number']}")
        assert {table.details["into"]: (table.position, table.lag) for table in tables} == {
            "crm.accounts": ("1/1", 0),
            "crm.customers": ("1/2", 1),
        }

        assert services.features is not None
        with open_feature_store(context, services.features) as store:
            views = {view.name: view for view in read_status(context, services.features, store)}
        assert {name: view.position for name, view in views.items()} == {
            name: str(view["snapshot"]) for name, view in ANSWERS["features"].items()
        }
        assert all(view.details["ready"] for view in views.values())
        assert views["user"].lag == 0.0
