"""A client's request for a signature: what it is about to send to an object store, as the specification has it.

Source: the Iceberg REST Catalog specification, 1.12, `RemoteSignRequest`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from sterna.errors import BadUpdate, Forbidden

_PROVIDER = "s3"
_METHODS = frozenset({"GET", "HEAD", "PUT", "POST", "DELETE"})
_MAX_URI_CHARACTERS = 8192
_URI = re.compile(
    r"(?P<scheme>https?)://(?P<host>[a-z0-9.-]+(?::[0-9]{1,5})?)(?P<path>/[!->@-~]*)?(?:\?(?P<query>[!-~]*))?"
)
_FORBIDDEN_CHARACTERS = re.compile(r"[\\#@]")
_HEADER_NAME = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,200}")
_HEADER_VALUE = re.compile(r"[ -~]{0,8192}")


@dataclass(frozen=True)
class SignRequest:
    """A request to an object store that a client wants signed.

    Args:
        method: of HTTP.
        uri: all of it, as the client sent it.
        scheme: `http` or `https`.
        host: with the port, where the client names one.
        path: still encoded.
        query: its parameters, decoded.
        headers: by their names in lower case.
        body: None: the client doesn't show it.
    """

    method: str
    uri: str
    scheme: str = ""
    host: str = ""
    path: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


def read_sign_request(document: Mapping[str, Any]) -> SignRequest:
    """Return what a client wants signed.

    Args:
        document: a RemoteSignRequest.

    Raises:
        BadUpdate: it is none.
        Forbidden: its URI or headers can be read in more than one way, or it is for another kind of store.
    """
    method, uri, region, body = (document.get(name) for name in ("method", "uri", "region", "body"))
    if not isinstance(method, str) or not isinstance(uri, str) or not isinstance(region, str):
        raise BadUpdate("a request to be signed has a region, a uri and a method, which are texts")
    if body is not None and not isinstance(body, str):
        raise BadUpdate("the body of a request to be signed is a text")
    if document.get("provider") not in (None, _PROVIDER):
        raise Forbidden("only requests to S3 stores are signed")
    if method not in _METHODS:
        raise Forbidden(f"no request with the method {method[:20]} is signed")
    match = _URI.fullmatch(uri) if len(uri) <= _MAX_URI_CHARACTERS else None
    if match is None or _FORBIDDEN_CHARACTERS.search(uri):
        raise Forbidden("the URI of the request can't be understood: it has more than scheme, host, path and query")
    return SignRequest(
        method,
        uri,
        match["scheme"],
        match["host"],
        match["path"] or "",
        _read_query(match["query"] or ""),
        _read_headers(document.get("headers"), match["host"]),
        None if body is None else body.encode(errors="surrogatepass"),
    )


def decode_canonical(text: str) -> str:
    """Return a part of a URI, decoded.

    Only the one spelling is taken that signatures are made over: in another one, an encoded slash or dot among them, a
    store or a proxy on the way may read another key than is looked at here.

    Args:
        text: the part, encoded, but for its slashes.

    Raises:
        Forbidden: it is in another spelling.
    """
    try:
        decoded = unquote(text, errors="strict")
    except UnicodeDecodeError:
        decoded = ""
    if quote(decoded, safe="/") != text:
        raise Forbidden("the URI isn't encoded as signatures need it: all but A-Z, a-z, 0-9, '-', '.', '_', '~' once")
    return decoded


def _read_query(query: str) -> dict[str, str]:
    parameters: dict[str, str] = {}
    for part in query.split("&") if query else ():
        name, _, value = part.partition("=")
        if "/" in value:
            raise Forbidden("a slash in the query isn't encoded")
        name, value = decode_canonical(name), decode_canonical(value.replace("%2F", "/"))
        if name in parameters:
            raise Forbidden(f"the parameter {name} stands twice in the query")
        parameters[name] = value
    return parameters


def _read_headers(headers: object, host: str) -> dict[str, str]:
    if not isinstance(headers, dict):
        raise BadUpdate("the headers of a request to be signed are an object")
    read: dict[str, str] = {}
    for spelling, values in headers.items():
        name = spelling.lower()
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise BadUpdate("a header of a request to be signed is a list of texts")
        if name in read or len(values) != 1:
            raise Forbidden(f"the header {name[:100]} has not one value")
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(values[0]):
            raise Forbidden("a header has other characters than visible ones of ASCII")
        read[name] = values[0]
    if read.get("host", host) != host:
        raise Forbidden("the header host isn't the host of the URI")
    return read
