"""Files that lie somewhere become a table's where they are, as an operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sterna.airflow.base import SternaOperator
from sterna.airflow.settings import text

if TYPE_CHECKING:
    from airflow.sdk import Context as TaskContext


class SternaIngestAddOperator(SternaOperator):
    """Add Parquet files to a table where they lie, in one commit, once; return the snapshot, or None: they were there.

    Args:
        table: the table's dotted key.
        uris: the files, which lie in any region.
        services: path of the services file; None for `[sterna] services`.
        kwargs: see `SternaOperator`.
    """

    template_fields = (*SternaOperator.template_fields, "table", "uris", "services")

    def __init__(self, *, table: str, uris: Sequence[str], services: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.uris = uris
        self.services = services

    def execute(self, context: TaskContext) -> int | None:
        """Prove the files, and add them."""
        from sterna.edges.services_file import read_services
        from sterna.ingest.adding import adding
        from sterna.ingest.region import open_ingest
        from sterna.ingest.shop import open_catalog
        from sterna.render.ingest_work import added_text

        region = self.open()
        ingest = open_ingest(region, read_services(self.services or text("services") or None))
        try:
            with open_catalog(region, ingest) as catalog:
                added = adding(ingest, region.mapping, catalog, self.table, self.uris).do(act=True)
        finally:
            ingest.close()
        self.say(added_text(added))
        return added.snapshot
