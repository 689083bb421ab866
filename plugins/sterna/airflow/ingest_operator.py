"""Adding existing files to a table in place, as an operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sterna.airflow.base import SternaServicesOperator
from sterna.airflow.lineage import ingest_lineage

if TYPE_CHECKING:
    from airflow.sdk import Context as TaskContext


class SternaIngestAddOperator(SternaServicesOperator):
    """Add Parquet files to a table in place, in one commit, once; return the snapshot, or None: they were there.

    Args:
        table: the table's dotted key.
        uris: the files, in any region.
        kwargs: see `SternaServicesOperator`.
    """

    template_fields = (*SternaServicesOperator.template_fields, "table", "uris")

    def __init__(self, *, table: str, uris: Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.uris = uris

    def execute(self, context: TaskContext) -> int | None:
        """Prove the files, and add them."""
        from sterna.pipelines.ingest.add_files import build_addition
        from sterna.pipelines.ingest.region import open_ingest
        from sterna.pipelines.ingest.step_context import open_catalog
        from sterna.text.ingest_worker import added_text

        region = self.open()
        ingest = open_ingest(region, self.read_services())
        try:
            with open_catalog(region, ingest) as catalog:
                added = build_addition(ingest, region.mapping, catalog, self.table, self.uris).run(apply=True)
        finally:
            ingest.close()
        self.log_progress(added_text(added))
        folders = {file.uri.rpartition("/")[0] for file in added.files}
        self.record_lineage(lambda: ingest_lineage(region, folders, [added.table] if folders else []))
        return added.snapshot
