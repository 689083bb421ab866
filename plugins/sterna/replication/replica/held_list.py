"""All held keys of a replica commit: in its property while they are few, else in an object beside the replica.

Each commit repeats what is held, and a catalog rejects commits of many megabytes. So a long list is written once, below
`<replica root>/_sterna/held/`, named by the digest of its content; the commit has the digest, the count, a few names,
and since when the oldest is held. The object is written before the commit that names it, and its content is a function
of its URI. One that is lost or damaged costs time only: the next sync compares all keys and writes it again.
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

from sterna.codec import INTEGER, TEXT, Field, Record, UnknownFields, parse_json, tuple_of
from sterna.config.registry.folders import HELD as HELD_FOLDER
from sterna.config.registry.folders import state_folder
from sterna.errors import ObjectMissing, Unsupported
from sterna.replication.replica.codecs import HELD
from sterna.replication.replica.held import Held, held_since

if TYPE_CHECKING:
    from sterna.storage.objects import Objects

MAX_INLINE_BYTES = 4_000  # a longer list is kept in an object
_MAX_SHOWN_NAMES = 10
_MAX_SHOWN_NAME_BYTES = 1_000
_LIST = tuple_of(HELD.codec)
_HEX = re.compile(r"[0-9a-f]+")


@dataclass(frozen=True)
class HeldList:
    """The held keys of a replica commit, as its property or the object beside the replica lists them.

    Args:
        count: how many there are.
        entries: the keys; None where they are in an object that isn't loaded yet.
        digest: names the object, by the SHA-256 of its text; "" where the commit has all of them.
        size: length of that text in bytes.
        oldest: the oldest `since` of all; "" where there is none, or one is unknown.
        sample_names: a few of their names.
        read_error: why the object can't be used, for messages; then `entries` is empty, and means nothing.
    """

    count: int = 0
    entries: tuple[Held, ...] | None = ()
    digest: str = ""
    size: int = 0
    oldest: str = ""
    sample_names: tuple[str, ...] = ()
    read_error: str = ""

    @property
    def property_text(self) -> str:
        """The value of the commit's property."""
        if not self.digest:
            return _encode_entries(self.entries or ())
        return _dump_json(DIGEST_FORM.encode(self))


EMPTY_HELD_LIST = HeldList()
DIGEST_FORM: Final = Record(
    partial(HeldList, entries=None),
    (
        Field("sha256", TEXT, attribute="digest"),
        Field("bytes", INTEGER, attribute="size"),
        Field("count", INTEGER),
        Field("oldest", TEXT),
        Field("first", tuple_of(TEXT), (), attribute="sample_names"),
    ),
    UnknownFields.IGNORE,
)
"""The digest form of a list that is too long for a commit; each commit derives it from its list."""


def build_held_list(held: Sequence[Held]) -> HeldList:
    """Return a list of held keys, with a digest where it is too long for a commit."""
    entries, text = tuple(held), _encode_entries(held)
    if len(text) <= MAX_INLINE_BYTES:
        return HeldList(len(entries), entries)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return HeldList(len(entries), entries, digest, len(text), _oldest_since(entries), _sample_names(entries))


def parse_held_list(text: str) -> HeldList:
    """Parse a commit's property.

    Raises:
        ValueError: sterna writes no such thing.
    """
    document = parse_json(text)
    if isinstance(document, list):
        entries = _LIST.decode(document, "")
        return HeldList(len(entries), entries)
    held_list = DIGEST_FORM.decode(document)
    if not _HEX.fullmatch(held_list.digest):  # it becomes part of a URI
        raise ValueError(f"no list of held keys: {held_list.digest[:80]!r} is no digest")
    return held_list


def held_list_uri(root: str, digest: str) -> str:
    """Return the URI of a list below a replica root."""
    return f"{state_folder(root, HELD_FOLDER)}/{digest}.json.gz"


def read_held_list(objects: Objects, held_list: HeldList, root: str = "") -> HeldList:
    """Return a list with its entries, which are read where they are in an object.

    Args:
        held_list: the list, as its commit has it.
        root: the replica root of its object; "": that of the stores' own region.

    Raises:
        StoreUnreachable, StoreDenied, CredentialError: the store can't be used.
    """
    if held_list.entries is not None:
        return held_list
    try:
        text = _read_text(objects, held_list, root)
        return replace(held_list, entries=_LIST.decode(parse_json(text), ""))
    except (ObjectMissing, ValueError) as error:
        uri = held_list_uri(root or objects.mapping.region.replica_root, held_list.digest)
        return replace(held_list, entries=(), read_error=f"the list of held tables can't be read: {uri}: {error}")


def write_held_list(objects: Objects, held_list: HeldList) -> None:
    """Write a list beside the replica, where its commit has only its digest; one that is there and right stays.

    Raises:
        StoreUnreachable, StoreDenied, CredentialError: the store can't be used.
    """
    if not held_list.digest or held_list.read_error:
        return
    uri = held_list_uri(objects.mapping.region.replica_root, held_list.digest)
    data = gzip.compress(_encode_entries(held_list.entries or ()).encode(), mtime=0)
    try:
        _read_text(objects, held_list)
    except ObjectMissing:
        objects.write_new(uri, data, assume_absent=True)
    except ValueError:
        objects.overwrite(uri, data)  # it was damaged: this has the digest in its name


def _read_text(objects: Objects, held_list: HeldList, root: str = "") -> bytes:
    """Return a list's text.

    Raises:
        ObjectMissing: the object is gone.
        ValueError: it doesn't have the digest in its name.
        StoreUnreachable, StoreDenied, CredentialError: the store can't be used.
    """
    decompressor = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        data = objects.read(held_list_uri(root or objects.mapping.region.replica_root, held_list.digest))
        text = decompressor.decompress(data, held_list.size + 1)
    except (Unsupported, zlib.error) as error:
        raise ValueError(f"it is damaged: {error}") from error
    if hashlib.sha256(text).hexdigest() != held_list.digest:
        raise ValueError("it is damaged: its digest differs from its name")
    return text


def _encode_entries(held: Sequence[Held]) -> str:
    # Rare fields are left out where they are empty: each commit has the list.
    return _dump_json([{k: v for k, v in HELD.encode(held_key).items() if v or k != "until"} for held_key in held])


def _dump_json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _oldest_since(held: Sequence[Held]) -> str:
    times = [(held_since(held_key), held_key.since) for held_key in held]
    dated = [(since, text) for since, text in times if since is not None]
    return min(dated)[1] if dated and len(dated) == len(times) else ""


def _sample_names(held: Sequence[Held]) -> tuple[str, ...]:
    """Return the names that are shown: not many, and no more text than a commit should have."""
    names = [held_key.key for held_key in held[:_MAX_SHOWN_NAMES]]
    while len(json.dumps(names)) > _MAX_SHOWN_NAME_BYTES:
        names.pop()
    return tuple(names)
