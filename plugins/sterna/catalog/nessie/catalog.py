"""The catalog port over a real Nessie, through its REST API v2.

pynessie speaks the deprecated API v1 only, opens a connection for every request and has neither retries, paged diffs
nor commit properties. So it is used for authentication only; references too come through v2, to share one connection,
one set of deadlines and one mapping of errors with everything else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import quote
from uuid import uuid4

from sterna.catalog.model import (
    Commit,
    Content,
    Delete,
    DiffEntry,
    Key,
    Operation,
    Put,
    Reference,
    Unchanged,
    key_name,
    parse_time,
)
from sterna.catalog.nessie.http import Deadlines, NessieAuth, NessieHttp
from sterna.config.secrets import Secrets
from sterna.errors import (
    BranchChanged,
    CatalogConflict,
    CatalogError,
    CatalogRefused,
    CatalogStateUnknown,
    ReferenceNotFound,
    list_some,
)

AUTHOR = "sterna"
_HASH = re.compile(r"[0-9a-f]{64}")
_FIRST_PAGE_COMMITS = 8
_T = TypeVar("_T")


class NessieCatalog:
    """The `Catalog` of one Nessie; safe to use from several threads.

    Args:
        uri: the base URI of its API v2, `https://host/api/v2`.
        auth: how to log in.
        deadlines: how long to wait for an answer.
        page_size: entries of a page; also the keys of one look-up.
        name: what messages call it.

    Raises:
        RegistryError: the URI is no http(s) URI, or carries user-info, a query or a fragment.
        CredentialError: the credential can't be sent.
    """

    def __init__(
        self,
        uri: str,
        auth: NessieAuth | None = None,
        *,
        deadlines: Deadlines | None = None,
        page_size: int = 500,
        name: str = "Nessie",
    ) -> None:
        self._http = NessieHttp(uri, auth or NessieAuth(), deadlines or Deadlines(), name)
        self._page_size = page_size

    def __enter__(self) -> NessieCatalog:
        """Return the catalog itself; leaving the block closes its connections."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    @cached_property
    def _config(self) -> dict[str, Any]:
        return self._http.read("config")

    @property
    def default_branch(self) -> str:
        """The name of the catalog's default branch, `main`."""
        return self._decode(lambda config: str(config["defaultBranch"]), self._config)

    def no_ancestor(self) -> str:
        """Return the hash of "before the first commit"."""
        return self._decode(lambda config: str(config["noAncestorHash"]), self._config)

    def reference(self, name: str) -> Reference:
        """See `Catalog.reference`.

        Raises:
            ReferenceNotFound: there is none; the message lists some that there are.
        """
        try:
            response = self._http.read(f"trees/{_path(name)}")
        except ReferenceNotFound as error:
            names = [reference.name for reference in self.references()]
            raise ReferenceNotFound(
                f"there is no branch or tag {name!r} at {self._http.address}; there are: {list_some(names)}"
            ) from error
        return self._decode(lambda body: _parse_reference(body["reference"]), response)

    def references(self) -> tuple[Reference, ...]:
        """See `Catalog.references`."""
        references = self._pages("trees", {}, "references", _parse_reference)
        return tuple(sorted(references, key=lambda reference: reference.name))

    def create_branch(self, name: str, at_hash: str | None = None, *, detached: bool = False) -> Reference:
        """See `Catalog.create_branch`; `detached`: the commit may be on no branch."""
        branch = Reference(name, at_hash or self.no_ancestor(), "BRANCH")
        # As a hash of the default branch where it can be: a detached one needs rights of its own.
        return self._create_reference(branch, None if detached else self.default_branch)

    def create_tag(self, name: str, branch: str, at_hash: str) -> Reference:
        """See `Catalog.create_tag`."""
        return self._create_reference(Reference(name, at_hash, "TAG"), branch)

    def move_tag(self, name: str, from_hash: str, branch: str, to_hash: str) -> Reference:
        """See `Catalog.move_tag`."""
        source = {"type": "BRANCH", "name": branch, "hash": to_hash}
        self._http.write(f"trees/{_path(name, from_hash)}", {"type": "TAG"}, source, method="PUT")
        return Reference(name, to_hash, "TAG")

    def delete_tag(self, name: str, at_hash: str) -> None:
        """See `Catalog.delete_tag`."""
        with suppress(ReferenceNotFound):
            self._http.write(f"trees/{_path(name, at_hash)}", {"type": "TAG"}, None, method="DELETE")

    def _create_reference(self, reference: Reference, source: str | None) -> Reference:
        """Create a branch or tag, or return it when it exists at that very hash already.

        Args:
            source: the branch that has its commit; None: the commit may be on no branch, which needs rights of its own.

        Raises:
            CatalogConflict: the name is taken.
        """
        source_reference = {"type": "BRANCH", "name": source} if source else {"type": "DETACHED"}
        body = {**source_reference, "hash": reference.hash}
        try:
            self._http.write("trees", {"name": reference.name, "type": reference.kind}, body)
        except CatalogConflict as error:
            current = self.reference(reference.name)
            if current == reference:
                return current
            raise CatalogConflict(
                f"{reference.name!r} exists as a {current.kind.lower()} at {current.hash}, not as a "
                f"{reference.kind.lower()} at {reference.hash}"
            ) from error
        return reference

    def history(self, ref_or_hash: str, *, operations: bool, until: str | None = None) -> Iterator[Commit]:
        """See `Catalog.history`."""
        reference, _, at_hash = ref_or_hash.partition("@")
        if _HASH.fullmatch(reference):
            reference, at_hash = self.default_branch, reference
        fetch = {"fetch": "ALL"} if operations else {}
        path = f"trees/{_path(reference, at_hash)}/history"
        # Readers of history mostly need its newest part, and a commit may have thousands of operations.
        for commit in self._pages(
            path, fetch, "logEntries", lambda wire: _parse_commit(wire, operations), first_page_size=_FIRST_PAGE_COMMITS
        ):
            if commit.hash == until:
                return
            yield commit

    def diff(self, ref: str, old_hash: str | None, new_hash: str) -> Iterator[DiffEntry]:
        """See `Catalog.diff`."""
        if old_hash is None:
            for key, content in self.entries(ref, new_hash):
                yield DiffEntry(key, None, content)
            return
        # `ref@hash` on both sides, because bare hashes need rights on DETACHED.
        yield from self._pages(
            f"trees/{_path(ref, old_hash)}/diff/{_path(ref, new_hash)}", {}, "diffs", _parse_diff_entry
        )

    def entries(self, ref: str, hash: str) -> Iterator[tuple[Key, Content]]:
        """See `Catalog.entries`."""
        return self._pages(f"trees/{_path(ref, hash)}/entries", {"content": "true"}, "entries", _parse_entry)

    def contents(self, ref: str, hash: str, keys: Collection[Key]) -> Mapping[Key, Content]:
        """See `Catalog.contents`."""
        wanted = list(keys)
        contents: dict[Key, Content] = {}
        for start in range(0, len(wanted), self._page_size):
            contents |= self._contents_page(_path(ref, hash), wanted[start : start + self._page_size])[1]
        return contents

    def read_current(self, ref: str, keys: Collection[Key]) -> tuple[str, Mapping[Key, Content]]:
        """See `Catalog.read_current`."""
        wanted = list(keys)
        if not wanted:
            return self.reference(ref).hash, {}
        hash, contents = self._contents_page(_path(ref), wanted[: self._page_size])
        return hash, {**contents, **self.contents(ref, hash, wanted[self._page_size :])}

    def _contents_page(self, path: str, keys: Sequence[Key]) -> tuple[str, dict[Key, Content]]:
        """Return the commit that was read, and which of some keys it has."""
        body = {"requestedKeys": [_wire_key(key) for key in keys]}
        return self._decode(
            lambda body: (
                str(body["effectiveReference"]["hash"]),
                {_parse_key(wire["key"]): Content.of(wire["content"]) for wire in body["contents"]},
            ),
            self._http.read(f"trees/{path}/contents", body=body),
        )

    def commit(
        self,
        branch: str,
        expected_hash: str,
        operations: Sequence[Operation],
        message: str,
        properties: Mapping[str, str] | None = None,
        *,
        existing: Mapping[Key, Content | None] | None = None,
    ) -> str:
        """See `Catalog.commit`.

        Nessie checks an expected hash key by key: a commit with a stale one is accepted as long as no other commit
        touched the same keys. But `UNCHANGED` of a key that never existed conflicts as soon as the head is another
        commit, and passes when it is not (`CommitImpl.commitAddUnchanged`, `CommitLogicImpl.checkForConflict`; the same
        in 0.99.0 and in 0.108.4, measured in 0.99.0). So each commit carries one such operation on a random key: it
        makes the whole commit a compare-and-swap on the head, and the server keeps nothing of it. Should a server ever
        check less, the new commit's parent gives it away. It isn't read back where the caller says what the keys had:
        such a commit depends on these alone, and the server compares them whatever became of the head.

        Raises:
            CatalogRefused: there is no operation, or a key has content of another kind.
            CatalogConflict: the branch is at another commit.
            CatalogStateUnknown: the commit was accepted, and can't be read back.
        """
        if not operations:
            raise CatalogRefused(f"a commit to {branch} needs at least one operation")
        self._validate_content_kinds(branch, expected_hash, operations, existing)
        fence = Unchanged(("sterna", "fence", uuid4().hex))
        body = {
            "commitMeta": {
                "message": message,
                "authors": [AUTHOR],
                "allProperties": {name: [value] for name, value in (properties or {}).items()},
            },
            "operations": [_wire_operation(operation) for operation in (*operations, fence)],
        }
        try:
            response = self._http.write(f"trees/{_path(branch, expected_hash)}/history/commit", {}, body)
        except CatalogConflict as error:
            raise self._classify_conflict(branch, expected_hash, error) from error
        new_hash = _committed_hash(branch, response)
        if existing is None:
            self._verify_parent(branch, expected_hash, new_hash)
        return new_hash

    def exists(self, hash: str) -> bool:
        """See `Catalog.exists`."""
        try:
            self._http.read(f"trees/{_path(self.default_branch, hash)}/history", {"max-records": 1})
        except ReferenceNotFound:
            self.reference(self.default_branch)  # raises when it is the branch that is missing
            return False
        return True

    def _validate_content_kinds(
        self,
        branch: str,
        hash: str,
        operations: Sequence[Operation],
        existing: Mapping[Key, Content | None] | None,
    ) -> None:
        """Refuse a put of another kind than what it replaces.

        Nessie up to at least 0.108.4 stores such a value under the old kind's tag, answers 400, *and commits*: from
        then on the branch's history and that key can't be read any more (measured in 0.99.0; `CommitImpl.commitAddPut`
        reads the same after 0.108.4).
        """
        deleted = {operation.key for operation in operations if isinstance(operation, Delete)}
        puts = [operation for operation in operations if isinstance(operation, Put)]
        replacing = [put for put in puts if put.content.id is not None or put.key in deleted]
        if not replacing:
            return
        keys = deleted | {put.key for put in replacing}
        if existing is None or not keys <= existing.keys():
            existing = self.contents(branch, hash, keys)
        by_id = {content.id: content for key, content in existing.items() if content is not None and key in deleted}
        for put in replacing:
            replaced = existing.get(put.key) or by_id.get(put.content.id)
            if replaced is not None and replaced.kind != put.content.kind:
                raise CatalogRefused(
                    f"{key_name(put.key)} on {branch} can't turn from {replaced.kind} into {put.content.kind} within "
                    "one commit",
                    hint="delete it in one commit and put it in the next",
                )

    def _classify_conflict(self, branch: str, expected_hash: str, conflict: CatalogConflict) -> CatalogError:
        """Distinguish a moved head from operations that contradict the head they were made for.

        Nessie answers 409 to both.
        """
        try:
            head = self.reference(branch).hash
        except CatalogError:
            return conflict
        if head == expected_hash:
            return CatalogRefused(conflict.message)
        return CatalogConflict(
            f"{branch} is at {head}, no more at {expected_hash}: another writer committed first, and nothing was "
            "committed"
        )

    def _verify_parent(self, branch: str, expected_hash: str, new_hash: str) -> None:
        try:
            parent = next(self.history(f"{branch}@{new_hash}", operations=False)).parent
        except (CatalogError, StopIteration) as error:
            raise _unreadable_commit(branch) from error
        if parent != expected_hash:
            raise BranchChanged(
                f"commit {new_hash} on {branch} follows {parent}, which is not {expected_hash} as expected: another "
                "writer commits there"
            )

    def _pages(
        self, path: str, params: Mapping[str, str], field: str, decode: Callable[[Any], _T], first_page_size: int = 0
    ) -> Iterator[_T]:
        """Yield the entries of all pages.

        `first_page_size`: entries on the first one, each further one has four times as many.
        """
        token: dict[str, str] = {}
        size = min(first_page_size or self._page_size, self._page_size)
        while True:
            response = self._http.read(path, {**params, **token, "max-records": size})
            size = min(4 * size, self._page_size)
            yield from self._decode(lambda body: [decode(wire) for wire in body[field]], response)
            if not response.get("hasMore"):
                return
            token = {"page-token": self._decode(lambda body: str(body["token"]), response)}

    def _decode(self, decode: Callable[[Any], _T], response: Any) -> _T:
        try:
            return decode(response)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CatalogRefused(
                f"{self._http.address} answers in a form that is not Nessie's API v2: {error!r}"
            ) from error


def _committed_hash(branch: str, response: Mapping[str, Any]) -> str:
    try:
        return str(response["targetBranch"]["hash"])
    except (KeyError, TypeError) as error:
        raise _unreadable_commit(branch) from error


def _unreadable_commit(branch: str) -> CatalogStateUnknown:
    return CatalogStateUnknown(f"a commit to {branch} was accepted, but can't be read back")


def open_nessie(
    uri: str, credential_id: str | None, secrets: Secrets, *, deadlines: Deadlines | None = None, name: str = "Nessie"
) -> NessieCatalog:
    """Return the catalog at an address, with the login of a credential.

    Args:
        uri: the address of its API v2.
        credential_id: the credential; None: no login.
        deadlines: how long to wait for an answer.
        name: what messages call it.

    Raises:
        CredentialError: the credential is missing.
    """
    auth = None
    if credential_id is not None:
        credential = secrets(credential_id)
        auth = NessieAuth("basic" if credential.login else "bearer", credential.login, credential.password)
    return NessieCatalog(uri, auth, deadlines=deadlines, name=name)


def _path(reference: str, hash: str = "") -> str:
    return quote(reference, safe="") + (f"@{quote(hash, safe='')}" if hash else "")


def _wire_key(key: Key) -> dict[str, list[str]]:
    return {"elements": list(key)}


def _parse_key(wire: Mapping[str, Any]) -> Key:
    return tuple(wire["elements"])


def _wire_operation(operation: Operation) -> dict[str, Any]:
    match operation:
        case Put(key, content):
            return {"type": "PUT", "key": _wire_key(key), "content": content.payload}
        case Delete(key):
            return {"type": "DELETE", "key": _wire_key(key)}
        case Unchanged(key):
            return {"type": "UNCHANGED", "key": _wire_key(key)}


def _parse_operation(wire: Mapping[str, Any]) -> Operation:
    key = _parse_key(wire["key"])
    match wire["type"]:
        case "PUT":
            return Put(key, Content.of(wire["content"]))
        case "DELETE":
            return Delete(key)
        case "UNCHANGED":
            return Unchanged(key)
        case other:
            raise ValueError(f"operation type {other!r}")


def _parse_reference(wire: Mapping[str, Any]) -> Reference:
    kind = wire["type"]
    if kind not in ("BRANCH", "TAG"):
        raise ValueError(f"reference type {kind!r}")
    return Reference(wire["name"], wire["hash"], kind)


def _parse_commit(wire: Mapping[str, Any], operations: bool) -> Commit:
    meta = wire["commitMeta"]
    return Commit(
        hash=meta["hash"],
        parent=wire["parentCommitHash"],
        commit_time=parse_time(meta["commitTime"]),
        author=next(iter(meta.get("authors") or ()), ""),
        message=meta["message"],
        properties={name: values[0] for name, values in (meta.get("allProperties") or {}).items() if values},
        operations=tuple(_parse_operation(operation) for operation in wire.get("operations") or ())
        if operations
        else None,
    )


def _parse_diff_entry(wire: Mapping[str, Any]) -> DiffEntry:
    return DiffEntry(_parse_key(wire["key"]), _parse_content(wire.get("from")), _parse_content(wire.get("to")))


def _parse_content(wire: Mapping[str, Any] | None) -> Content | None:
    return None if wire is None else Content.of(wire)


def _parse_entry(wire: Mapping[str, Any]) -> tuple[Key, Content]:
    return _parse_key(wire["name"]), Content.of(wire["content"])
