"""Signatures of requests to S3 stores, version 4, made by botocore.

Source: "Create a signed AWS API request" of the AWS General Reference.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final

from sterna.config.registry.connection import Credential
from sterna.config.registry.model import Location
from sterna.config.registry.s3 import s3_keys, s3_region
from sterna.serving.rest_catalog.sign_request import SignRequest

_SIGNED_HEADERS: Final = re.compile(r"host|content-type|content-md5|x-amz-.+")
# Made for each signature.
_OWN_HEADERS: Final = frozenset({"x-amz-date", "x-amz-content-sha256"})
_TRAILER: Final = "x-amz-trailer"
logging.getLogger("botocore.auth").setLevel(logging.INFO)  # at the level below it writes down session tokens


def sign_request(
    request: SignRequest,
    location: Location,
    credential: Credential,
    conditions: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, list[str]]:
    """Return the headers that make a request a signed one.

    The content of a request that changes objects by its body is signed with it; that of an upload is the client's.

    Args:
        request: as it was looked at.
        location: of the objects that it concerns.
        credential: of that location.
        conditions: headers that the client has to send, too, in place of its own.

    Raises:
        CredentialError: the credential is incomplete.
    """
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    sent = {
        name: value
        for name, value in request.headers.items()
        if _SIGNED_HEADERS.fullmatch(name) and name not in _OWN_HEADERS
    }
    signed: Any = AWSRequest(request.method, request.uri, {**sent, **conditions}, request.body)
    signed.context["client_config"] = _config(request.body is not None)
    if _TRAILER in sent and request.body is None:
        signed.context["checksum"] = {"request_algorithm": {"in": "trailer"}}
    S3SigV4Auth(Credentials(*s3_keys(location, credential)), "s3", s3_region(location)).add_auth(signed)
    return {name: [value] for name, value in signed.headers.items() if name.lower() not in sent}


@cache
def _config(signs_content: bool) -> Any:
    from botocore.config import Config

    return Config(s3={"payload_signing_enabled": signs_content})
