"""Refusals of a URI say which file names it: that file, or its writer, is where the mistake is looked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from sterna.errors import (
    NotResident,
    SizeDiffers,
    SourceGone,
    TableError,
    UnregisteredUri,
    UnsafeUri,
    Unsupported,
    printable,
    without_secrets,
)

CATALOG_ENTRY: Final = "the catalog's entry"
# What these say of a file is as much the fault of whoever names it.
_OF_NAMES: Final = (NotResident, SizeDiffers, SourceGone, UnregisteredUri, UnsafeUri, Unsupported)


def naming(error: TableError, names: Mapping[str, str]) -> TableError:
    """Return a refusal with the file that names the refused one in its message.

    Args:
        error: the refusal.
        names: by URI, what names it, as `namer` says it.

    Returns:
        The same kind of error; the error itself where nothing is known to name its file.
    """
    if not isinstance(error, _OF_NAMES) or not error.file:
        return error
    by = names.get(error.file) or next((by for uri, by in names.items() if without_secrets(uri) == error.file), "")
    return _named(error, by) if by else error


@contextmanager
def named_by(what: str, uri: str = "") -> Iterator[None]:
    """Let refusals of other files than one say that this one names them.

    Args:
        what: its kind, such as `the manifest`.
        uri: the file; "" where it is none.
    """
    try:
        yield
    except _OF_NAMES as error:
        if not error.file or error.file == without_secrets(uri):
            raise
        raise _named(error, namer(what, uri) if uri else what) from error


def namer(what: str, uri: str) -> str:
    """Return a file that names others, as messages have it: its kind, such as `the manifest`, and its URI."""
    return f"{what} {printable(without_secrets(uri))}"


def _named(error: TableError, by: str) -> TableError:
    message = f"{error.message}; {by} names it"
    return type(error)(message, table=error.table, file=error.file, hint=error.hint)
