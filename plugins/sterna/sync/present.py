"""What of the files that tables need is here already, and what is left to be copied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sterna.sync import files as listing
from sterna.sync.batches import cut
from sterna.sync.context import Context, Progress
from sterna.sync.copy import CopyFile
from sterna.sync.model import CONTENT, LOCALIZE_ORDER, PROVEN, Batch, Options

if TYPE_CHECKING:
    import pyarrow as pa

_LOOKED_UP_AT_ONCE = 50_000  # each takes about a KiB meanwhile


@dataclass(frozen=True)
class Listed:
    """The files of a plan, looked up.

    Args:
        localized: rows of path-bearing files (`sterna.sync.files`).
        content: rows of content files.
        sizes: for each of `content`, the size of what stands at its target (int64, null: nothing).
        targets: how many different targets there are.
    """

    localized: pa.Table
    content: pa.Table
    sizes: pa.ChunkedArray
    targets: int

    def wrong(self) -> list[CopyFile]:
        """Return the content files at whose targets something of another size stands."""
        import pyarrow.compute as pc

        differs = pc.fill_null(pc.not_equal(self.sizes, self.content.column("size")), False)
        return [CopyFile(**row) for row in self.content.filter(differs).select(["table", "source", "target", "size"]).to_pylist()]


def look_up(context: Context, files: pa.Table) -> Listed:
    """Find what is here of the content files among some files, asking with few requests.

    Raises:
        StoreUnreachable, StoreDenied: the region's store doesn't answer.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    content = listing.with_role(files, CONTENT)
    once = content.column("target").unique()
    once = once.take(pc.sort_indices(once))
    found = [pa.array([], pa.int64())]
    for start in range(0, len(once), _LOOKED_UP_AT_ONCE):
        names = once.slice(start, _LOOKED_UP_AT_ONCE).to_pylist()
        sizes = context.objects.sizes(names)
        found.append(pa.array([sizes[name] for name in names], pa.int64()))
    rows = pc.index_in(content.column("target"), once)
    return Listed(listing.with_role(files, *LOCALIZE_ORDER), content, pa.concat_arrays(found).take(rows), len(once))


def to_copy(listed: Listed, root: str, options: Options, progress: Progress) -> tuple[pa.Table, tuple[Batch, ...], int]:
    """Take out what is here already with its right size, and cut the rest into batches.

    Args:
        listed: the files.
        root: the replica root.
        options: how large a batch may be.
        progress: called with lines for people.

    Returns:
        All rows with their batches, the batches, and how many files are here.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    content = listed.content
    here = pc.fill_null(pc.equal(listed.sizes, content.column("size")), False)
    # One size can't be right for two tables that say different ones: the copy finds out which of them is.
    missing = content.filter(pc.invert(here)).column("target").unique()
    progress(f"{listed.targets} foreign files are not proven by the replica's head; {len(missing)} of them are not here")
    wanted = pc.is_in(content.column("target"), missing)
    numbers, batches = cut(content.filter(wanted), root, options)
    marks = pc.replace_with_mask(pa.repeat(pa.scalar(PROVEN, pa.int32()), content.num_rows), wanted.combine_chunks(), numbers)
    marked = content.set_column(content.schema.get_field_index("batch"), "batch", marks)
    return listing.joined([listed.localized, marked]), batches, listed.targets - len(missing)
