"""Types of the registry's fields: URIs, names and hosts, and which of them are refused.

What would make a prefix ambiguous is refused here, and what would put a secret into a file that regions share.
"""

from __future__ import annotations

import re
from typing import Annotated, Final
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, StringConstraints

# rclone and the object stores call a credential by many names; none of them belongs into a file that regions share.
SECRET_OPTION: Final = re.compile(
    r"(secret|password|^pass$|token|access_key|account_key|api_key|customer_key|^key$|sas_url|connection_string|credentials|client_id|_pass$)",
    re.IGNORECASE,
)


def _validate_uri(value: str) -> str:
    """Refuse what would make a prefix ambiguous or carry a secret; drop trailing slashes."""
    scheme, separator, rest = value.partition("://")
    if not separator or not scheme or not rest.strip("/"):
        raise ValueError("expected a URI such as s3://bucket/path")
    authority = rest.partition("/")[0]
    # Azure's URIs name the container before the "@"; a ":" there would make it user-info.
    if "@" in authority and (not scheme.startswith(("abfs", "wasb")) or ":" in authority.partition("@")[0]):
        raise ValueError(
            "user-info in a URI is refused: put the credential into an Airflow connection and name it in credential_id"
        )
    parts = {decoded for part in rest.split("/") for decoded in unquote(part).split("/")}
    if "?" in rest or "//" in rest.rstrip("/").removeprefix("/") or {".", ".."} & parts:
        raise ValueError("a prefix can't have a query, an empty path part, '.' or '..'")
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in value):
        raise ValueError("a prefix can't have a control character")
    return value.rstrip("/")


def _has_server(uri: str) -> bool:
    """Return whether a URI has a host, and a port that there is, if any."""
    try:
        parts = urlsplit(uri)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:  # its text quotes the URI, which may hold a password
        return False


def _validate_http_uri(value: str) -> str:
    scheme, separator, rest = value.partition("://")
    if not separator or scheme not in ("http", "https") or not _has_server(value):
        raise ValueError("expected http://… or https://…, with a host, and a port from 1 to 65535 if any")
    if "?" in rest or "#" in rest:
        raise ValueError("expected a URI without query and fragment")
    if "@" in rest.partition("/")[0]:
        raise ValueError(
            "user-info in a URI is refused: put the credential into an Airflow connection and name it in credential_id"
        )
    return value.rstrip("/")


def _validate_spark(value: str) -> str:
    parameters = value.split(";")[1:] if value.startswith("sc://") else []
    if any(SECRET_OPTION.search(parameter.partition("=")[0]) for parameter in parameters):
        raise ValueError("a token is refused here: put it into the variable SPARK_CONNECT_AUTHENTICATE_TOKEN")
    if "@" in value.partition("://")[2].partition("/")[0]:
        raise ValueError("user-info in a URI is refused")
    return value


Uri = Annotated[str, AfterValidator(_validate_uri)]
HttpUri = Annotated[str, AfterValidator(_validate_http_uri)]
SparkMaster = Annotated[str, AfterValidator(_validate_spark)]
# No "~" (it separates an id from an alias's scheme) and no leading "_" (sterna's own folders below a replica root).
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]
Identifier = Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_]{0,62}$")]
Host = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]+:[0-9]{1,5}$")]
# Source: Airflow, `RE_SANITIZE_CONN_ID`, in ASCII: it has no connection of another name.
CredentialId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_#!().:/\\-]{1,250}$")]
# "" stands for the default. Source: Nessie, `Validation.REF_NAME_RAW_REGEX`: no "..", and no "." or "/" at the end.
BranchName = Annotated[str, StringConstraints(pattern=r"^([A-Za-z]((\.?/)*\.?[A-Za-z0-9_-])*)?$")]
