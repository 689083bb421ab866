"""Making and deleting branches and tags of a Nessie."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from urllib.parse import quote

from sterna.catalog.model import Reference
from sterna.edges.nessie.http import NessieHttp
from sterna.errors import CatalogConflict, ReferenceNotFound


def create_reference(
    http: NessieHttp, wanted: Reference, source: str | None, existing: Callable[[str], Reference]
) -> Reference:
    """Create a branch or tag, or return it when it exists at that very hash already.

    Args:
        http: the Nessie.
        wanted: the reference.
        source: the branch that has its commit; None: the commit may lie on none, which needs rights of its own.
        existing: looks a reference up.

    Raises:
        CatalogConflict: the name is taken.
        CatalogStateUnknown: the answer was lost; calling again is safe.
    """
    at = {"type": "BRANCH", "name": source} if source else {"type": "DETACHED"}
    try:
        http.write("trees", {"name": wanted.name, "type": wanted.kind}, {**at, "hash": wanted.hash})
    except CatalogConflict as error:
        there = existing(wanted.name)
        if there == wanted:
            return there
        raise CatalogConflict(
            f"{wanted.name!r} exists as a {there.kind.lower()} at {there.hash}, not as a {wanted.kind.lower()} at "
            f"{wanted.hash}"
        ) from error
    return wanted


def move_reference(http: NessieHttp, known: Reference, source: str, hash: str) -> Reference:
    """Point a branch or tag at another commit, if it stands at that very hash.

    Args:
        http: the Nessie.
        known: the reference, where the caller knows it.
        source: the branch that has the other commit.
        hash: that commit.

    Raises:
        CatalogConflict: it stands elsewhere by now.
        ReferenceNotFound: there is no such reference, or no such commit.
        CatalogStateUnknown: the answer was lost; look where it stands before moving it again.
    """
    path = f"trees/{quote(known.name, safe='')}@{quote(known.hash, safe='')}"
    http.write(path, {"type": known.kind}, {"type": "BRANCH", "name": source, "hash": hash}, method="PUT")
    return Reference(known.name, hash, known.kind)


def delete_reference(http: NessieHttp, gone: Reference) -> None:
    """Delete a branch or tag if it stands at that very hash; one that is gone already is no failure.

    Raises:
        CatalogConflict: it stands elsewhere by now.
        CatalogStateUnknown: the answer was lost; calling again is safe.
    """
    with suppress(ReferenceNotFound):
        path = f"trees/{quote(gone.name, safe='')}@{quote(gone.hash, safe='')}"
        http.write(path, {"type": gone.kind}, None, method="DELETE")
