"""Where a pass of localizing is done: on the region's Spark, or here, in the process that runs the stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sterna.registry.model import Region
from sterna.replica import file_list as listing
from sterna.replica.file_list import LOCALIZE_ORDER

if TYPE_CHECKING:
    import pyarrow as pa

# Measured on two cores (bench/README.md, "place"): this process is done with 64 manifests in a sixth of the time that a
# warm Spark takes. Not higher, since a stage's process has one core's worth of Python, and manifests take some tens of
# times their size in memory.
HERE_FILES = 64
HERE_BYTES = 16 << 20


@dataclass(frozen=True)
class Placement:
    """Where the files of one role are localized, and why.

    Args:
        role: their role.
        files: how many.
        bytes: their size as far as their parents tell it.
        where: `spark` or `here`.
        why: the reason, for people.
    """

    role: str
    files: int
    bytes: int
    where: str
    why: str

    @property
    def line(self) -> str:
        """The place in one line."""
        return (
            f"localizing {self.files} {self.role} files, {self.bytes} bytes, "
            f"{'on Spark' if self.where == 'spark' else 'here'}: {self.why}"
        )


def placement_of(region: Region, role: str, sizes: Sequence[int]) -> Placement:
    """Decide where the files of one role are localized.

    Args:
        region: its setting `localize` decides, if it isn't `auto`.
        role: their role.
        sizes: the bytes of each, -1 where nobody tells: a list or metadata.json, which the plan has read already.
    """
    files, size = len(sizes), sum(max(each, 0) for each in sizes)
    if region.localize != "auto":
        return Placement(role, files, size, region.localize, f"the registry says localize: {region.localize}")
    if files <= HERE_FILES and size <= HERE_BYTES:
        return Placement(
            role,
            files,
            size,
            "here",
            f"up to {HERE_FILES} files and {HERE_BYTES >> 20} MiB take less time than reaching Spark",
        )
    return Placement(role, files, size, "spark", f"more than {HERE_FILES} files or {HERE_BYTES >> 20} MiB")


def placements(region: Region, files: pa.Table) -> list[Placement]:
    """Return the place of each role that a plan has something to localize of, in the order of the passes.

    Args:
        region: the region.
        files: the plan's list of files (`sterna.replica.file_list`).
    """
    sizes = {role: listing.to_localize(files, role).column("size").to_pylist() for role in LOCALIZE_ORDER}
    return [placement_of(region, role, found) for role, found in sizes.items() if found]
