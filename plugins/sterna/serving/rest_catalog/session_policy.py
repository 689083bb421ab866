"""What keys may do that are vended to a client: a policy of S3's for one session, within the rights of a role.

It says what `FolderAccess` says, as far as such a policy can. Where it can't, there is none.

Source: AWS Identity and Access Management, "Policies and permissions", "Session policies"; MinIO, "AssumeRole".
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from sterna.config.registry.folders import state_root
from sterna.config.registry.model import is_inside
from sterna.config.registry.s3 import S3
from sterna.errors import Forbidden
from sterna.serving.rest_catalog.table_folders import MANIFEST_ENDING, FolderAccess, TableFolders

_MAX_CHARACTERS: Final = 2048  # as STS has it
_WILDCARDS: Final = re.compile(r"[*?$]")
_READ: Final = ["s3:GetObject"]
_WRITE: Final = ["s3:PutObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"]
_CHANGE: Final = ["s3:Put*", "s3:Delete*", "s3:Restore*", "s3:Replicate*", "s3:Abort*", "s3:Bypass*"]


def session_policy(access: FolderAccess, others: Collection[TableFolders] = (), partition: str = "aws") -> str:
    """Return the policy of keys for one client and table.

    Args:
        access: what the client may do.
        others: the folders of all other tables.
        partition: of AWS, in names of resources.

    Raises:
        Forbidden: no policy can say that.
    """
    if access.is_restricted:
        raise Forbidden("keys can't be kept from tables that are hidden from the client", hint="use remote signing")
    root = access.mapping.region.replica_root
    kept = [root, *(state_root(near.rpartition("/")[0]).rstrip("/") for near in access.folders.near)]
    read = [folder for folder in access.folders.origins if access.mapping.is_local(folder)]
    written = access.folders.written if access.may_write else ()
    _reject_wide_folders(access, [*read, *written], kept)
    _reject_shared_folders(written, others)
    statements = [_allow(_READ, _resources(partition, [root, *read]))]
    if written:
        own = _resources(partition, written)
        statements.append(_allow(_WRITE, own))
        if scratch := access.folders.scratch:
            statements.append(_allow(["s3:DeleteObject"], _resources(partition, [scratch], f"*{MANIFEST_ENDING}")))
    local = [folder for folder in kept if access.mapping.is_local(folder)]
    statements.append(_deny(_CHANGE, _resources(partition, local)))
    statements.append(_deny(["s3:*"], _resources(partition, [state_root(root).rstrip("/")])))
    document = {"Version": "2012-10-17", "Statement": statements}
    text = json.dumps(document, separators=(",", ":"))
    if len(text) > _MAX_CHARACTERS:
        raise Forbidden("the table has more folders than the policy of a session can name", hint="use remote signing")
    return text


def _allow(actions: Sequence[str], resources: Sequence[str]) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": actions, "Resource": resources}


def _deny(actions: Sequence[str], resources: Sequence[str]) -> dict[str, Any]:
    return {"Effect": "Deny", "Action": actions, "Resource": resources}


def _resources(partition: str, folders: Iterable[str], names: str = "*") -> list[str]:
    outermost = list(dict.fromkeys(folders))
    outermost = [one for one in outermost if not any(is_inside(one, other) for other in outermost if one != other)]
    return [f"arn:{partition}:s3:::{folder.partition('://')[2]}/{names}" for folder in outermost]


def _reject_shared_folders(written: Iterable[str], others: Collection[TableFolders]) -> None:
    """Refuse folders to write to in which another table may have files: keys would write over them.

    Raises:
        Forbidden: there is one.
    """
    for folder in written:
        if any(other.contains(f"{folder}/") or other.overlaps(f"{folder}/") for other in others):
            raise Forbidden("the table's place overlaps with another table's", file=folder, hint="use remote signing")


def _reject_wide_folders(access: FolderAccess, folders: Iterable[str], kept: Iterable[str]) -> None:
    """Refuse folders around those that no client writes, and names that a policy would take for patterns.

    Raises:
        Forbidden: there is one.
    """
    for folder in folders:
        if any(is_inside(place, folder) for place in (*kept, *access.folders.near)):
            raise Forbidden("the table's place is around folders of others", file=folder)
        if any(is_inside(folder, inbox) or is_inside(inbox, folder) for inbox in access.inboxes):
            raise Forbidden("the table's place overlaps with an inbox of ingestion", file=folder)
        if _WILDCARDS.search(folder):
            raise Forbidden("the name of the table's place is a pattern in a policy", file=folder)
        if access.mapping.locate(folder).location.store_type is not S3:
            raise Forbidden("the table's place is in no S3 store", file=folder)
