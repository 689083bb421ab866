"""Errors on a URI name the file that refers to it: the mistake is in that file, or in its writer."""

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
    redact_uri,
)

CATALOG_ENTRY: Final = "the catalog's entry"
# The cause of these may be the file's referrer as well as the file itself.
_REFERENCE_ERRORS: Final = (NotResident, SizeDiffers, SourceGone, UnregisteredUri, UnsafeUri, Unsupported)


def add_referrer(error: TableError, referrers: Mapping[str, str]) -> TableError:
    """Return an error with the file that refers to the wrong one in its message.

    Args:
        error: of the wrong file.
        referrers: by URI, what refers to it, as `format_referrer` returns it.

    Returns:
        The same kind of error; the error itself where no referrer is known.
    """
    if not isinstance(error, _REFERENCE_ERRORS) or not error.file:
        return error
    referrer = referrers.get(error.file) or next(
        (referrer for uri, referrer in referrers.items() if redact_uri(uri) == error.file), ""
    )
    return _with_referrer(error, referrer) if referrer else error


@contextmanager
def referenced_by(kind: str, uri: str = "") -> Iterator[None]:
    """Add a file as the referrer to errors of other files.

    Args:
        kind: its kind, such as `the manifest`.
        uri: the file; "" where it is none.
    """
    try:
        yield
    except _REFERENCE_ERRORS as error:
        if not error.file or error.file == redact_uri(uri):
            raise
        raise _with_referrer(error, format_referrer(kind, uri) if uri else kind) from error


def format_referrer(kind: str, uri: str) -> str:
    """Return a file that names others, as messages have it: its kind, such as `the manifest`, and its URI."""
    return f"{kind} {printable(redact_uri(uri))}"


def _with_referrer(error: TableError, referrer: str) -> TableError:
    message = f"{error.message}; {referrer} names it"
    return type(error)(message, table=error.table, file=error.file, hint=error.hint)
