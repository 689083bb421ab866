"""Parts of an object, each by a request of its own: none is open for long, however slowly the store may be read."""

from __future__ import annotations

from typing import Any

from sterna.config.registry.credential import Credential, describe_store, fileio_properties, store_address
from sterna.errors import StoreUnreachable
from sterna.storage.client import RESUME_HINT, OpenStore, call_store

_NOT_PARTIAL = "Received non-partial response"  # obstore's words


class RangeReader:
    """One object's parts; they are waited for at the pace of its location.

    Args:
        key: what it is called there.
        uri: what messages call it.
        tag: the ETag that it has, where all parts are to be of one version.
    """

    def __init__(self, store: OpenStore, key: str, uri: str, tag: str | None = None) -> None:
        self._store, self._key, self._uri, self._tag = store, key, uri, tag
        self._file: Any = None

    def read(self, start: int, length: int, *, throttled: bool = False) -> bytes:
        """Return one part.

        Args:
            start: offset of its first byte.
            length: in bytes.
            throttled: the bandwidth was waited for already.

        Raises:
            ObjectMissing, StoreUnreachable, StoreDenied, CredentialError: it can't be read.
        """
        if self._store.throttle is not None and not throttled:
            self._store.throttle(length)
        if self._file is None:
            try:
                if self._store.arrow_files is None:
                    return call_store(self._store, self._uri, lambda: self._get_range(start, length))
            except StoreUnreachable as error:
                if not self._store.location.store_type.may_ignore_ranges or _NOT_PARTIAL not in error.message:
                    raise
            self._file = call_store(self._store, self._uri, self._open_with_arrow)
        return call_store(self._store, self._uri, lambda: bytes(self._file.read_at(length, start)))

    def _get_range(self, start: int, length: int) -> bytes:
        import obstore

        response = obstore.get(self._store.client, self._key, options={"range": (start, start + length)})
        if self._tag is not None and response.meta["e_tag"] != self._tag:
            address = describe_store(self._store.location)
            raise StoreUnreachable(
                f"{address} has another version of it since it is read; {RESUME_HINT}", file=self._uri
            )
        return bytes(response.bytes())

    def _open_with_arrow(self) -> Any:
        """Open the object by Arrow's own client: it takes the part that a server sends as if it were the whole.

        `rclone serve s3` does that (1.75): the right bytes, and the status of a whole object. The client stays with the
        store, as do its connections.
        """
        store, credential = self._store, self._store.credential
        if store.arrow_files is None or store.arrow_files[0] is not credential:
            store.arrow_files = credential, _arrow_client(store, credential)
        return store.arrow_files[1].open_input_file(f"{store_address(store.location).bucket}/{self._key}")


def _arrow_client(store: OpenStore, credential: Credential | None) -> Any:
    from pyarrow.fs import S3FileSystem

    properties = fileio_properties(store.location, credential)
    keys = {
        "access_key": "s3.access-key-id",
        "secret_key": "s3.secret-access-key",
        "session_token": "s3.session-token",
    }
    return S3FileSystem(
        **{name: properties[key] for name, key in keys.items() if key in properties},
        endpoint_override=properties["s3.endpoint"],
        region=properties["s3.region"],
        force_virtual_addressing=properties["s3.path-style-access"] != "true",
    )
