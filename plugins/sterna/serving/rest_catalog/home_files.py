"""Files that `main` names, read from this region's verbatim copies where it has them.

They never change, so a copy is as good as the file. It is nearer, and it is here while the store of the table's home
does not answer. A copy that isn't whole is not used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TypeVar

from sterna.config.mapping import Mapping as RegionMapping
from sterna.config.verbatim_copies import verbatim_uri
from sterna.errors import (
    OUTAGES,
    BrokenMetadata,
    HomeUnavailable,
    ObjectMissing,
    OverLimit,
    SizeDiffers,
    SourceGone,
    SternaError,
    TableError,
    TableUnusable,
    Unsupported,
)
from sterna.storage.objects import Objects

TABLE_FAULTS = (BrokenMetadata, ObjectMissing, OverLimit, SizeDiffers, SourceGone, Unsupported)
"""What is wrong with the table where no client's file is at fault: those are checked before, and their places are
refused by other errors."""

_T = TypeVar("_T")


def read_home_file(objects: Objects, uri: str, parse: Callable[[bytes], _T]) -> _T:
    """Return what is parsed of a file that `main` names.

    Args:
        objects: the stores.
        parse: raises a `TableError` where the content isn't whole, or isn't what it has to be.

    Raises:
        ObjectMissing: it is gone.
        HomeUnavailable: another region's store can't be used, and there is no whole copy here.
        StoreUnreachable, StoreDenied: this region's own store can't be used.
    """
    damage = ""
    if copy := verbatim_uri(objects.mapping, uri):
        try:
            with suppress(ObjectMissing):
                return parse(objects.read(copy))
        except TableError as error:
            damage = f"{copy}: {error.message}"
    try:
        data = objects.read(uri)
    except OUTAGES as error:
        raise _with_home(objects, uri, error, damage) from error
    return parse(data)


def read_home_files(
    objects: Objects, lengths: Mapping[str, int], parse: Callable[[bytes, str], object]
) -> Iterator[tuple[str, bytes]]:
    """Yield the URI and the content of each of some files, in their order, as `Objects.read_bounded` reads them.

    Args:
        objects: the stores.
        lengths: the bytes that each file has by what names it: a copy of another size isn't whole.
        parse: takes the content of a copy and the file's URI; raises a `TableError` where it isn't whole.

    Raises:
        ObjectMissing, HomeUnavailable, StoreUnreachable, StoreDenied: as `read_home_file`.
    """
    copies = {uri: copy for uri in lengths if (copy := verbatim_uri(objects.mapping, uri))}
    present = objects.sizes(copies.values()) if copies else {}
    whole = {uri: copy for uri, copy in copies.items() if present[copy] == lengths[uri]}
    sizes = {whole.get(uri, uri): length for uri, length in lengths.items()}
    for uri, (_, content) in zip(lengths, objects.read_bounded(sizes), strict=True):
        if isinstance(content, OUTAGES):
            short = copies.get(uri, "") if uri not in whole else ""
            damage = f"{short} has {present[short]} bytes, not {lengths[uri]}" if short and present[short] else ""
            raise _with_home(objects, uri, content, damage) from content
        if isinstance(content, SternaError):
            raise content
        yield uri, _read_unless_whole(objects, uri, content, parse) if uri in whole else content


def _read_unless_whole(objects: Objects, uri: str, content: bytes, parse: Callable[[bytes, str], object]) -> bytes:
    """Return the content of a file: that of its copy where it can be parsed, else what is at its home."""
    try:
        parse(content, uri)
    except TableError as error:
        try:
            return objects.read(uri)
        except OUTAGES as outage:
            damage = f"{verbatim_uri(objects.mapping, uri)}: {error.message}"
            raise _with_home(objects, uri, outage, damage) from outage
    return content


def _with_home(objects: Objects, uri: str, error: SternaError, damage: str) -> SternaError:
    """Return the error of a file that can't be read: another one where it is in another region's store.

    Args:
        damage: why the copy of it isn't used; "" where there is none.
    """
    mapping = objects.mapping
    if mapping.is_local(uri):
        return error
    lacks = f"the verbatim copy of the file isn't whole: {damage}" if damage else "no verbatim copy of the file is here"
    return home_unavailable(mapping, uri, error, lacks)


def home_unavailable(mapping: RegionMapping, uri: str, error: SternaError, lacks: str) -> HomeUnavailable:
    """Return the error of a commit that needs a file in another region's store, which can't be used.

    Args:
        uri: the file.
        error: what the store's client said: its kind is shown, since the text is for operators.
        lacks: what this region lacks, for people.
    """
    try:
        place = f"the store of {mapping.locate(uri).location.region}"
    except TableError:
        place = "a store"
    return HomeUnavailable(
        f"{place} can't be used ({type(error).__name__}), and {lacks}",
        file=uri,
        hint="nothing was committed; a later try is taken once the store answers",
    )


@contextmanager
def naming_table(
    mapping: RegionMapping, name: str, faults: tuple[type[SternaError], ...] = (TableError, ObjectMissing)
) -> Iterator[None]:
    """Add a table's name to an error of the files that `main` and this region have of it, which is no client's fault.

    Args:
        mapping: of the region.
        name: key name.
        faults: what is the table's fault.

    Raises:
        HomeUnavailable: such a file can't be read now.
        TableUnusable: one is broken, gone or not supported.
    """
    try:
        yield
    except HomeUnavailable as error:
        raise HomeUnavailable(error.message, table=name, file=error.file, hint=error.hint) from error
    except faults as error:
        copy = verbatim_uri(mapping, error.file) if error.file else ""
        lost = f"; if it is its verbatim copy that isn't whole, delete that: {copy}" if copy else ""
        hint = f"nothing was committed; `sterna verify` compares the replica's files with main{lost}"
        message = f"a file of the table can't be used: {type(error).__name__}: {error.message}"
        raise TableUnusable(message, table=name, file=error.file, hint=hint) from error
