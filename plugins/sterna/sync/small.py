"""How much a warm process takes upon itself: a plan that is larger is left to who has the time and the machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sterna.replica import file_list as listing
from sterna.replica.records import Plan
from sterna.replica.region import RegionContext
from sterna.sync.placement import placements

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Small:
    """The largest plan that is small.

    Args:
        bytes: what is to be copied.
        files: what is to be copied or localized.
    """

    bytes: int = 256 << 20
    files: int = 1_000

    def refuses(self, context: RegionContext, plan: Plan, files: pa.Table | None) -> str:
        """Return why a plan is not small, "" where it is.

        Args:
            context: the region.
            plan: the plan.
            files: its list of files.
        """
        size = sum(batch.bytes for batch in plan.batches)
        if size > self.bytes:
            return f"{size} bytes to copy, more than {self.bytes}"
        localized = 0 if files is None else listing.to_localize(files).num_rows
        count = sum(batch.files for batch in plan.batches) + localized
        if count > self.files:
            return f"{count} files to copy and localize, more than {self.files}"
        there = (each for each in (() if files is None else placements(context.region, files)) if each.where == "spark")
        first = next(there, None)
        return f"{first.files} {first.role} files are for Spark: {first.why}" if first else ""
