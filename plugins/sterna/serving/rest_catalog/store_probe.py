"""Whether a store checks what a signature covers: without that, a client changes a request after it was looked at.

Source: "Create a signed AWS API request" of the AWS General Reference: all `x-amz-` headers are signed, and the content
has the digest that is signed.
"""

from __future__ import annotations

import hashlib
import threading
import uuid
from base64 import b64encode
from collections.abc import Mapping
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

_OTHER_HEADER = {"x-amz-meta-probe": "1"}
_BODY = '<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Object><Key>{}</Key></Object></Delete>'
_REFUSALS = frozenset({400, 403})
_NOT_THERE, _FIRST_ERROR, _FIRST_SERVER_ERROR = 404, 400, 500
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
            StoreUnreachable: that can't be asked.
        """
        with self._lock:
            refuses = self._refuses.get((location.id, check))
            if refuses is None:
                refuses = self._refuses[location.id, check] = self._is_refusing(check, location, credential)
        if not refuses:
            raise Forbidden(f"the store takes {check.value}, so that no such request is safe", file=location.prefix)

    def _is_refusing(self, check: Check, location: Location, credential: Credential) -> bool:
        """Send requests that change nothing, whichever way they are answered; return whether the second is refused.

        The first is as it was signed: a store that refuses that one as well gives no answer to the question.
        """
        name = f"{store_address(location).path}/sterna-probe-{uuid.uuid4()}".lstrip("/")
        if check is Check.HEADERS:
            signed = SignRequest("HEAD", uri=f"{bucket_url(location)}/{quote(name)}")
            headers = _flat(sign_request(signed, location, credential))
            answers = [self._send(signed, {**headers, **more}, b"") for more in ({}, _OTHER_HEADER)]
            return answers[0] == _NOT_THERE and answers[1] in _REFUSALS
        bodies = [_BODY.format(escape(f"{name}-{number}")).encode() for number in range(2)]
        answers = [self._send_deletion(location, credential, bodies[0], sent) for sent in bodies]
        return answers[0] < _FIRST_ERROR and answers[1] in _REFUSALS

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
            raise StoreUnreachable(f"{_UNANSWERED}: status {answer.status_code}", file=signed.uri)
        return answer.status_code


def _flat(headers: Mapping[str, list[str]]) -> dict[str, str]:
    return {name: values[0] for name, values in headers.items()}
