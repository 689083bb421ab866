"""All held keys of a replica commit: in its property while they are few, else in an object beside the replica.

Each commit repeats what is held, and a catalog takes no commit of many megabytes. So a long list is written once, below
`<replica root>/_sterna/held/`, under the digest of what it says; the commit has the digest, how many there are, a few
names, and since when the oldest is held. The object is written before the commit that names it, and what it contains is
a function of its URI. One that is lost or damaged costs time: the next sync compares all keys, and makes it anew.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from sterna.errors import ObjectMissing, Unsupported
from sterna.json_record import INTEGER, TEXT, Field, Record, Unknown, many, parse_json
from sterna.registry.folders import HELD as HELD_FOLDER
from sterna.registry.folders import own_folder
from sterna.replica.codecs import HELD
from sterna.replica.held import Held, held_since

if TYPE_CHECKING:
    from sterna.edges.stores.objects import Objects

INLINE_BYTES = 4_000  # a longer list stands in an object
_NAMED = 10
_NAMED_BYTES = 1_000
_LIST = many(HELD.kind)
_HEX = re.compile(r"[0-9a-f]+")


@dataclass(frozen=True)
class HeldList:
    """What a replica commit says of the keys that stay behind.

    Args:
        count: how many there are.
        entries: the keys; None where they stand in an object that nobody has read yet.
        digest: names the object, by the SHA-256 of its text; "" where the commit has all of them.
        size: length of that text in bytes.
        oldest: the oldest `since` of all; "" where there is none, or one of them says nothing.
        first: a few of their names.
        lost: why the object can't be used, for people; then `entries` is empty, and says nothing.
    """

    count: int = 0
    entries: tuple[Held, ...] | None = ()
    digest: str = ""
    size: int = 0
    oldest: str = ""
    first: tuple[str, ...] = ()
    lost: str = ""

    @property
    def property(self) -> str:
        """What stands in the commit."""
        if not self.digest:
            return _encoded(self.entries or ())
        return _json(DIGEST_FORM.encode(self))


NOTHING_HELD = HeldList()
DIGEST_FORM: Final = Record(
    partial(HeldList, entries=None),
    (
        Field("sha256", TEXT, attribute="digest"),
        Field("bytes", INTEGER, attribute="size"),
        Field("count", INTEGER),
        Field("oldest", TEXT),
        Field("first", many(TEXT), ()),
    ),
    Unknown.IGNORE,
)
"""What a commit says of a list that is too long for it. Each commit makes it anew, of what the list has."""


def held_list(held: Sequence[Held]) -> HeldList:
    """Return a list of held keys, with a digest where it is too long for a commit."""
    entries, text = tuple(held), _encoded(held)
    if len(text) <= INLINE_BYTES:
        return HeldList(len(entries), entries)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return HeldList(len(entries), entries, digest, len(text), _oldest(entries), _first(entries))


def parse_list(text: str) -> HeldList:
    """Return what a commit's property says.

    Raises:
        ValueError: sterna writes no such thing.
    """
    said = parse_json(text)
    if isinstance(said, list):
        entries = _LIST.decode(said, "")
        return HeldList(len(entries), entries)
    found = DIGEST_FORM.decode(said)
    if not _HEX.fullmatch(found.digest):  # it becomes part of a URI
        raise ValueError(f"no list of held keys: {found.digest[:80]!r} is no digest")
    return found


def list_uri(root: str, digest: str) -> str:
    """Return where a list lies below a replica root."""
    return f"{own_folder(root, HELD_FOLDER)}/{digest}.json.gz"


def read_list(objects: Objects, listed: HeldList, root: str = "") -> HeldList:
    """Return a list with its entries, which are read where they stand in an object.

    Args:
        objects: the stores.
        listed: the list, as its commit has it.
        root: the replica root beside which it stands; "": that of the stores' own region.

    Raises:
        StoreUnreachable, StoreDenied, CredentialError: the store can't be used.
    """
    if listed.entries is not None:
        return listed
    try:
        text = _text(objects, listed, root)
        return replace(listed, entries=_LIST.decode(parse_json(text), ""))
    except (ObjectMissing, ValueError) as error:
        uri = list_uri(root or objects.mapping.region.replica_root, listed.digest)
        return replace(listed, entries=(), lost=f"the list of held tables can't be read: {uri}: {error}")


def write_list(objects: Objects, listed: HeldList) -> None:
    """Write a list beside the replica, where its commit has only its digest; one that is there and right stays.

    Raises:
        StoreUnreachable, StoreDenied, CredentialError: the store can't be used.
    """
    if not listed.digest or listed.lost:
        return
    uri = list_uri(objects.mapping.region.replica_root, listed.digest)
    data = gzip.compress(_encoded(listed.entries or ()).encode(), mtime=0)
    try:
        _text(objects, listed)
    except ObjectMissing:
        objects.write_new(uri, data, looked=True)
    except ValueError:
        objects.overwrite(uri, data)  # it was damaged: this is what its name says


def _text(objects: Objects, listed: HeldList, root: str = "") -> bytes:
    """Return a list's text.

    Raises:
        ObjectMissing: the object is gone.
        ValueError: it isn't what its name says.
        StoreUnreachable, StoreDenied, CredentialError: the store can't be used.
    """
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        data = objects.read(list_uri(root or objects.mapping.region.replica_root, listed.digest))
        text = unpacker.decompress(data, listed.size + 1)
    except (Unsupported, zlib.error) as error:
        raise ValueError(f"it is damaged: {error}") from error
    if hashlib.sha256(text).hexdigest() != listed.digest:
        raise ValueError("it is damaged: it says something else than its name")
    return text


def _encoded(held: Sequence[Held]) -> str:
    # What is seldom said is left out where it isn't: the list stands in each commit.
    return _json([{k: v for k, v in HELD.encode(item).items() if v or k != "until"} for item in held])


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _oldest(held: Sequence[Held]) -> str:
    times = [(held_since(item), item.since) for item in held]
    known = [(since, text) for since, text in times if since is not None]
    return min(known)[1] if known and len(known) == len(times) else ""


def _first(held: Sequence[Held]) -> tuple[str, ...]:
    """Return the names that are shown: not many, and no more text than a commit should have."""
    names = [item.key for item in held[:_NAMED]]
    while len(json.dumps(names)) > _NAMED_BYTES:
        names.pop()
    return tuple(names)
