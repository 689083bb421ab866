"""How much a warm process takes upon itself: a plan that is larger is left to who has the time and the machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sterna.replication.execution.executor import plan_placements
from sterna.replication.replica import file_list as listing
from sterna.replication.replica.model import Plan
from sterna.replication.replica.region import RegionContext

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class FollowerLimits:
    """The largest plan that is small.

    Args:
        max_bytes: what is to be copied.
        max_files: what is to be copied or localized.
    """

    max_bytes: int = 256 << 20
    max_files: int = 1_000

    def exceeded_by(self, context: RegionContext, plan: Plan, files: pa.Table | None) -> str:
        """Return why a plan is not small, "" where it is.

        Args:
            context: the region.
            plan: the plan.
            files: its list of files.
        """
        size = sum(batch.bytes for batch in plan.batches)
        if size > self.max_bytes:
            return f"{size} bytes to copy, more than {self.max_bytes}"
        localized = 0 if files is None else listing.files_to_localize(files).num_rows
        count = sum(batch.files for batch in plan.batches) + localized
        if count > self.max_files:
            return f"{count} files to copy and localize, more than {self.max_files}"
        on_spark = (
            placement
            for placement in (() if files is None else plan_placements(context.region, files))
            if placement.where == "spark"
        )
        first = next(on_spark, None)
        return f"{first.files} {first.role} files are for Spark: {first.why}" if first else ""
