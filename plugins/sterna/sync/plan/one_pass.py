"""A table's new manifests, each read, inflated and walked once: the rows of its live entries, and what it becomes here.

What a manifest of data files becomes depends on its URI and the mapping alone. So it is written by whoever reads it,
before its data arrives: no head names it, and the localize stage finds it there. One with position deletes needs what
these have become. It is kept beside the plan, as other foreign metadata is, and localized later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from sterna.edges.stores.fetched import fetched_uri
from sterna.errors import SizeDiffers, SourceGone, SternaError, TableError, Unsupported, without_secrets
from sterna.registry.edition import Edition
from sterna.registry.model import inside
from sterna.replica import file_list as listing
from sterna.replica.file_list import CONTENT, POSITION_DELETE
from sterna.replica.named_by import named_by, namer, naming
from sterna.replica.region import RegionContext
from sterna.sync.plan.reading import parsed, read_files
from sterna.sync.sizes import MANY

if TYPE_CHECKING:
    import pyarrow as pa

    from sterna.edges.stores.objects import Objects

DELETED = 2
"""Status of a manifest's entry."""
_POSITION_DELETES = 1  # content of a data_file
_WRITTEN_AT_ONCE = 8
_WAITING_BYTES = 16 << 20
WAITING_OBJECTS = 16


def read_manifests(
    context: RegionContext, table: str, lengths: dict[str, int], local: dict[str, int], edition: Edition
) -> list[pa.Table]:
    """Read manifests; localize those that the mapping alone decides, where the region is opened for a run.

    Args:
        context: the region.
        table: key name.
        lengths: by URI, what a list says of each manifest's length, -1 where nobody does.
        local: takes the content files that are local, with their sizes.
        edition: of the localized files.

    Returns:
        Rows of the live entries: content files that are foreign, and position deletes.

    Raises:
        TableError: one is gone, broken or unsupported.
    """
    from sterna.iceberg.avro.locate import expect

    rows: list[pa.Table] = []
    expect(sum(size for size in lengths.values() if size > 0))  # compressed, so that they are more
    if not context.run:
        for path, data in _sized(context, lengths, context.objects):
            with named_by("the manifest", path):
                rows += _read(context, table, path, data, local, edition)
        return rows
    targets = {path: context.mapping.localized(path, edition) for path in lengths}
    there = _written_before(context, targets.values())
    with _Writing(context) as writing:
        for path, data in _sized(context, lengths, context.objects.passing()):
            with named_by("the manifest", path):
                if targets[path] in there:
                    rows += _read(context, table, path, data, local, edition)
                else:
                    rows += _read_and_localize(context, table, path, data, local, edition, targets[path], writing)
    return rows


def _sized(context: RegionContext, lengths: dict[str, int], objects: Objects) -> Iterator[tuple[str, bytes]]:
    for path, data in read_files(context, lengths, objects):
        if lengths[path] not in (-1, len(data)):
            raise SizeDiffers(f"the manifest has {len(data)} bytes, its list says {lengths[path]}", file=path)
        yield path, data


def _written_before(context: RegionContext, targets: Iterable[str]) -> set[str]:
    """Return those of many localized manifests that an earlier run wrote; few are looked for one by one, when they
    are written.
    """
    listed = set(targets)
    sizes = context.objects.sizes(listed) if len(listed) > MANY else {}
    return {target for target, size in sizes.items() if size is not None}


class _Writing:
    """Objects that are written beside the reading, a few at once; at the end all of them are there.

    Args:
        context: the region.
    """

    def __init__(self, context: RegionContext) -> None:
        self._write: Callable[[tuple[str, bytes]], int] = lambda item: context.objects.write_new(*item)
        self._waiting: list[tuple[str, bytes]] = []

    def __enter__(self) -> _Writing:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._all()

    def add(self, uri: str, data: bytes) -> None:
        self._waiting.append((uri, data))
        if len(self._waiting) >= WAITING_OBJECTS or sum(len(data) for _, data in self._waiting) >= _WAITING_BYTES:
            self._all()

    def _all(self) -> None:
        if len(self._waiting) == 1:
            self._write(self._waiting[0])
        elif self._waiting:
            with ThreadPoolExecutor(_WRITTEN_AT_ONCE, thread_name_prefix="sterna-manifests") as pool:
                list(pool.map(self._write, self._waiting))
        self._waiting.clear()


def _read(
    context: RegionContext, table: str, uri: str, data: bytes, local: dict[str, int], edition: Edition
) -> list[pa.Table]:
    from sterna.iceberg.manifests.manifest import read_entries

    return _rows(context, table, parsed(context, uri, data, read_entries), local, edition)


def _read_and_localize(
    context: RegionContext,
    table: str,
    uri: str,
    data: bytes,
    local: dict[str, int],
    edition: Edition,
    target: str,
    writing: _Writing,
) -> list[pa.Table]:
    from sterna.iceberg.manifests.manifest import scan_manifest

    mapping = context.mapping
    scanned = parsed(context, uri, data, partial(scan_manifest, content=mapping.content, deleted=mapping.unfollowed))
    local_one = mapping.is_local(uri)
    if scanned is None:
        if not local_one:
            writing.add(fetched_uri(context.run, uri), data)
        return _read(context, table, uri, data, local, edition)
    if scanned.localized is not None:
        writing.add(target, scanned.localized)
    elif not local_one:
        writing.add(target, data)  # nothing inside changes, but the file itself is foreign
    return _rows(context, table, scanned.entries, local, edition)


def _rows(
    context: RegionContext, table: str, entries: pa.Table, local: dict[str, int], edition: Edition
) -> list[pa.Table]:
    """Return the rows of one manifest's live entries; content files that are local go into `local` with their sizes."""
    import pyarrow.compute as pc

    live = entries.filter(pc.not_equal(entries.column("status"), DELETED))
    deletes = pc.equal(live.column("content"), _POSITION_DELETES)
    position = live.filter(deletes).select(["file_path", "file_size"]).to_pylist()
    named = [
        (row["file_path"], context.mapping.localized(row["file_path"], edition), row["file_size"]) for row in position
    ]
    return [
        content_rows(context, table, live.filter(pc.invert(deletes)), local),
        listing.rows(table, POSITION_DELETE, named),
    ]


def content_rows(context: RegionContext, table: str, files: pa.Table, local: dict[str, int]) -> pa.Table:
    """Return rows of the foreign ones among some content files.

    Args:
        context: the region.
        table: key name.
        files: columns file_path, file_size and, where it is known, target.
        local: takes the others, which stay where they are, with their sizes.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    known = "target" in files.column_names
    parts = []
    for some in files.to_batches():
        paths, sizes = some.column("file_path"), some.column("file_size")
        targets = (
            some.column("target")
            if known
            else pa.array([context.mapping.content(path) for path in paths.to_pylist()], pa.string())
        )
        foreign = pc.not_equal(paths, targets)
        if not pc.all(foreign).as_py():
            stay = pc.invert(foreign)
            local.update(zip(paths.filter(stay).to_pylist(), sizes.filter(stay).to_pylist(), strict=True))
            paths, targets, sizes = (each.filter(foreign) for each in (paths, targets, sizes))
        parts.append(listing.columns(table, CONTENT, paths, targets, sizes, batch=0))
    return listing.joined(parts)


@contextmanager
def named_by_manifest(context: RegionContext, manifests: Iterable[str]) -> Iterator[None]:
    """Let refusals of a content file say which manifest names it; for that the manifests are read once more.

    Args:
        context: the region.
        manifests: those that may name it.
    """
    try:
        yield
    except TableError as error:
        raise naming(error, _manifest_of(context, error.file, manifests)) from error


def _manifest_of(context: RegionContext, file: str, manifests: Iterable[str]) -> dict[str, str]:
    """Return a file with what names it; nothing where that can't be told any more."""
    from sterna.iceberg.manifests.manifest import read_entries

    with suppress(SternaError):
        for uri, data in read_files(context, dict.fromkeys(manifests, -1)):
            for path in parsed(context, uri, data, read_entries).column("file_path").to_pylist():
                if path == file or without_secrets(path) == file:
                    return {file: namer("the manifest", uri)}
    return {}


def none_below(context: RegionContext, metadata: str, files: pa.Table, local: Iterable[str]) -> None:
    """See that a table names nothing below a replica root, unless its metadata.json lies there, too (after a
    promotion with tables).

    That region's `gc` could not tell who needs the file, and here it would be one with its origin, which the table
    may name as well.

    Raises:
        Unsupported: it does.
    """
    import pyarrow.compute as pc

    roots = [
        f"{region.replica_root}/" for region in context.registry.regions if not inside(metadata, region.replica_root)
    ]
    sources = files.column("source")
    for root in roots:
        below = pc.min(sources.filter(pc.starts_with(sources, root))).as_py() or next(
            (path for path in local if path.startswith(root)), None
        )
        if below is not None:
            raise Unsupported(
                "the table names a file below a replica root, and its own metadata lies outside: rewrite it", file=below
            )


def prove_local(context: RegionContext, local: dict[str, int]) -> None:
    """See that files which writers own in this region are there: a head may name nothing that isn't.

    Raises:
        SourceGone, SizeDiffers: one is gone, or isn't what its metadata says.
    """
    sizes = context.objects.sizes(local) if local else {}
    for path, size in local.items():
        found = sizes[path]
        if found is None:
            raise SourceGone(
                "a file of this region is gone", file=path, hint="restore it, or expire the snapshots that need it"
            )
        if found != size:
            raise SizeDiffers(f"a file of this region has {found} bytes, its metadata says {size}", file=path)
