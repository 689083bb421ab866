"""The tracker, the journal and slot of a source, and the store of features that commit b5071db wrote: this version
reads where each of them stands. Nothing is carried on here, for that takes a Spark.
"""

from __future__ import annotations

from pathlib import Path

from sterna.cdc.run import open_sources
from sterna.cdc.status import read_sources
from sterna.features.region import opened_store
from sterna.features.status import status
from sterna.ingest.region import open_ingest
from sterna.ingest.status import read_ingest
from tests.support.written import ANSWERS, written


def test_where_services_stand_is_understood(tmp_path: Path) -> None:
    with written(tmp_path, services=True) as restored, restored.context() as context:
        services = restored.services
        ingest = open_ingest(context, services)
        ingest.prepare()
        batches = {each.id: (each.number, each.state.value) for each in ingest.tracker.batches()}
        assert batches == {each["id"]: (each["number"], each["state"]) for each in ANSWERS["batches"]}
        (waiting,) = read_ingest(ingest).tables
        assert (waiting.backlog.table, waiting.backlog.buffered, waiting.backlog.waiting) == ("web.events", 2, 2)
        ingest.close()

        (source,) = read_sources(open_sources(context, services))
        assert (source.problem, source.epoch, source.drops) == ("", 1, ANSWERS["journal"]["number"])
        assert {each.into: (each.mark, each.behind) for each in source.tables} == {
            "crm.accounts": ("1/1", 0),
            "crm.customers": ("1/2", 1),
        }

        assert services.features is not None
        with opened_store(context, services.features) as store:
            views = {each.view: each for each in status(context, services.features, store)}
        assert {name: each.snapshot for name, each in views.items()} == {
            name: each["snapshot"] for name, each in ANSWERS["features"].items()
        }
        assert all(each.ready for each in views.values())
        assert views["user"].behind == 0.0
