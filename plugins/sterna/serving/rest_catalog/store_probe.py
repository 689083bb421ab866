"""Whether a store checks what a signature covers: without that, a client changes a request after it was looked at.

Source: "Create a signed AWS API request" of the AWS General Reference: all `x-amz-` headers are signed, and the content
has the digest that is signed.
"""

from __future__ import annotations

import hashlib
import threading
import uuid
from base64 import b64encode
from collections.abc import Collection, Mapping
from enum import Enum
from html import escape
from urllib.parse import quote

import httpx

from sterna.config.registry.connection import Credential, store_address
from sterna.config.registry.model import Location
from sterna.config.registry.s3 import bucket_url
from sterna.errors import Forbidden, StoreUnreachable
from sterna.serving.rest_catalog.sign_request import SignRequest
from sterna.serving.rest_catalog.signature import sign_request

_METADATA = {"x-amz-meta-probe": "1"}
_BODY = '<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Object><Key>{}</Key></Object></Delete>'
_REFUSALS = frozenset({400, 403})
_SUCCESSES = frozenset({200, 204})
_NOT_THERE, _FIRST_SERVER_ERROR = 404, 500
_UNANSWERED = "whether the store checks signatures can't be asked"


class Check(Enum):
    """What a store has to refuse."""

    HEADERS = "x-amz- headers that aren't signed"
    CONTENT = "other content than what is signed"


class StoreProbe:
    """Looks once whether stores check signatures in full; may be used by any number of threads.

    Args:
        timeout: seconds that a store may stay silent.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._refuses: dict[tuple[str, Check], bool] = {}
        self._lock = threading.Lock()

    def require_check(self, check: Check, location: Location, credential: Credential) -> None:
        """See that a location's store checks signatures.

        Args:
            check: what it has to refuse.
            location: the store's.
            credential: of that location.

        Raises:
            Forbidden: it doesn't.
            StoreUnreachable: that can't be asked now.
        """
        with self._lock:
            refuses = self._refuses.get((location.id, check))
        if refuses is None:  # several may ask at once, and get the same answer
            refuses = self._is_refusing(check, location, credential)
            with self._lock:
                self._refuses[location.id, check] = refuses
        if not refuses:
            raise Forbidden(f"the store takes {check.value}, so that no such request is safe", file=location.prefix)

    def _is_refusing(self, check: Check, location: Location, credential: Credential) -> bool:
        """Send requests that change nothing, whichever way they are answered.

        The first is as it was signed: a store that answers that one in another way than expected says nothing by the
        others. They are changed, and each is one that a store may not look at as closely as at the others.

        Returns:
            Whether all that were changed are refused.

        Raises:
            StoreUnreachable: the store gives no answer to the question.
        """
        name = f"{store_address(location).path}/sterna-probe-{uuid.uuid4()}".lstrip("/")
        if check is Check.HEADERS:
            signed = SignRequest("HEAD", uri=f"{bucket_url(location)}/{quote(name)}")
            headers = _flat(sign_request(signed, location, credential))
            _require_status(self._send(signed, headers, b""), {_NOT_THERE}, signed)
            copied = {"x-amz-copy-source": f"/{store_address(location).bucket}/{quote(name)}-source"}
            answers = [self._send(signed, {**headers, **more}, b"") for more in (_METADATA, copied)]
        else:
            bodies = [_BODY.format(escape(f"{name}-{number}")).encode() for number in range(2)]
            signed = SignRequest("POST", uri=f"{bucket_url(location)}/?delete")
            _require_status(self._send_deletion(location, credential, bodies[0], bodies[0]), _SUCCESSES, signed)
            answers = [self._send_deletion(location, credential, *bodies)]
        return all(answer in _REFUSALS for answer in answers)

    def _send_deletion(self, location: Location, credential: Credential, looked_at: bytes, sent: bytes) -> int:
        digest = b64encode(hashlib.md5(sent, usedforsecurity=False).digest()).decode()  # which S3 wants for deletions
        headers = {"content-md5": digest}
        signed = SignRequest("POST", uri=f"{bucket_url(location)}/?delete", headers=headers, body=looked_at)
        return self._send(signed, {**headers, **_flat(sign_request(signed, location, credential))}, sent)

    def _send(self, signed: SignRequest, headers: Mapping[str, str], content: bytes) -> int:
        """Send a request, and return the status of its answer."""
        try:
            answer = httpx.request(
                signed.method, signed.uri, headers=dict(headers), content=content, timeout=self._timeout
            )
        except httpx.HTTPError as error:
            raise StoreUnreachable(f"{_UNANSWERED}: {type(error).__name__}", file=signed.uri) from None
        if answer.status_code >= _FIRST_SERVER_ERROR:
            raise _unanswered(answer.status_code, signed)
        return answer.status_code


def _require_status(status: int, expected: Collection[int], signed: SignRequest) -> None:
    """See that a store takes a request as it was signed.

    Raises:
        StoreUnreachable: it doesn't.
    """
    if status not in expected:
        raise _unanswered(status, signed)


def _unanswered(status: int, signed: SignRequest) -> StoreUnreachable:
    return StoreUnreachable(f"{_UNANSWERED}: status {status}", file=signed.uri)


def _flat(headers: Mapping[str, list[str]]) -> dict[str, str]:
    return {name: values[0] for name, values in headers.items()}
