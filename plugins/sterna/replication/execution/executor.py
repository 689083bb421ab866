"""Where a pass of localizing is done: on the region's Spark, or here, in the process that runs the stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sterna.config.registry.model import Region
from sterna.libraries import pa
from sterna.replication.replica import file_list as listing
from sterna.replication.replica.file_list import LOCALIZE_ORDER

# Measured on two cores (bench/README.md, "place"): this process is done with 64 manifests in a sixth of the time that a
# warm Spark takes. Not higher, since a stage's process has one core's worth of Python, and manifests take some tens of
# times their size in memory.
MAX_LOCAL_FILES = 64
MAX_LOCAL_BYTES = 16 << 20


@dataclass(frozen=True)
class Placement:
    """Where the files of one role are localized, and why.

    Args:
        role: their role.
        bytes: their size as far as their parents list it.
        where: `spark` or `here`: in this process.
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


def choose_placement(region: Region, role: str, sizes: Sequence[int]) -> Placement:
    """Decide where the files of one role are localized.

    Args:
        region: its setting `localize` decides, if it isn't `auto`.
        role: their role.
        sizes: the bytes of each, -1 where unknown: a list or metadata.json, which the plan has read already.
    """
    files, size = len(sizes), sum(max(length, 0) for length in sizes)
    if region.localize != "auto":
        return Placement(role, files, size, region.localize, f"the registry says localize: {region.localize}")
    if files <= MAX_LOCAL_FILES and size <= MAX_LOCAL_BYTES:
        return Placement(
            role,
            files,
            size,
            "here",
            f"up to {MAX_LOCAL_FILES} files and {MAX_LOCAL_BYTES >> 20} MiB take less time than reaching Spark",
        )
    return Placement(role, files, size, "spark", f"more than {MAX_LOCAL_FILES} files or {MAX_LOCAL_BYTES >> 20} MiB")


def plan_placements(region: Region, files: pa.Table) -> list[Placement]:
    """Return the place of each role that a plan has something to localize of, in the order of the passes.

    Args:
        files: the plan's list of files (`sterna.replication.replica.file_list`).
    """
    sizes = {role: listing.files_to_localize(files, role).column("size").to_pylist() for role in LOCALIZE_ORDER}
    return [choose_placement(region, role, role_sizes) for role, role_sizes in sizes.items() if role_sizes]
