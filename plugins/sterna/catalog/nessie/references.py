"""Making and deleting branches and tags of a Nessie."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from urllib.parse import quote

from sterna.catalog.model import Reference
from sterna.catalog.nessie.http import NessieHttp
from sterna.errors import CatalogConflict, ReferenceNotFound


def create_reference(
    http: NessieHttp, reference: Reference, source: str | None, read_reference: Callable[[str], Reference]
) -> Reference:
    """Create a branch or tag, or return it when it exists at that very hash already.

    Args:
        source: the branch that has its commit; None: the commit may be on no branch, which needs rights of its own.
        read_reference: looks a reference up.

    Raises:
        CatalogConflict: the name is taken.
        CatalogStateUnknown: the answer was lost; calling again is safe.
    """
    source_reference = {"type": "BRANCH", "name": source} if source else {"type": "DETACHED"}
    try:
        http.write(
            "trees", {"name": reference.name, "type": reference.kind}, {**source_reference, "hash": reference.hash}
        )
    except CatalogConflict as error:
        current = read_reference(reference.name)
        if current == reference:
            return current
        raise CatalogConflict(
            f"{reference.name!r} exists as a {current.kind.lower()} at {current.hash}, not as a "
            f"{reference.kind.lower()} at "
            f"{reference.hash}"
        ) from error
    return reference


def move_reference(http: NessieHttp, reference: Reference, source: str, hash: str) -> Reference:
    """Point a branch or tag at another commit, if it is at that very hash.

    Args:
        reference: the reference, where the caller has read it.
        source: the branch that has the other commit.
        hash: that commit.

    Raises:
        CatalogConflict: it is at another commit by now.
        ReferenceNotFound: there is no such reference, or no such commit.
        CatalogStateUnknown: the answer was lost; read the reference before moving it again.
    """
    path = f"trees/{quote(reference.name, safe='')}@{quote(reference.hash, safe='')}"
    http.write(path, {"type": reference.kind}, {"type": "BRANCH", "name": source, "hash": hash}, method="PUT")
    return Reference(reference.name, hash, reference.kind)


def delete_reference(http: NessieHttp, reference: Reference) -> None:
    """Delete a branch or tag if it is at that very hash; one that is gone already is no failure.

    Raises:
        CatalogConflict: it is at another commit by now.
        CatalogStateUnknown: the answer was lost; calling again is safe.
    """
    with suppress(ReferenceNotFound):
        path = f"trees/{quote(reference.name, safe='')}@{quote(reference.hash, safe='')}"
        http.write(path, {"type": reference.kind}, None, method="DELETE")
