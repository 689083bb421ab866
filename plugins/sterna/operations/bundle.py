"""A report for others: texts in a tar file, without what this machine's credentials have as secrets."""

from __future__ import annotations

import io
import os
import tarfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from sterna.config.registry.connection import Credential
from sterna.config.secrets import Secrets
from sterna.errors import CredentialError, UsageError

_FILE_MODE = 0o600
_NEW_FILE_HINT = "name a file that is not there yet"
_SHOWN_VARIABLES = ("AIRFLOW_CONN_", "AIRFLOW__STERNA__", "STERNA_", "JAVA_HOME", "SPARK_", "TMPDIR")
_PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


def readable_credentials(ids: Iterable[str], secrets: Secrets) -> Iterator[Credential]:
    """Yield the credentials that this machine has; one that it hasn't can't be in a text either."""
    for id in sorted(set(ids)):
        try:
            yield secrets(id)
        except CredentialError:
            continue


def variable_names(environment: Mapping[str, str]) -> str:
    """Return the names of the variables that sterna goes by, a line each; never what they are set to."""
    names = (name for name in environment if name.startswith(_SHOWN_VARIABLES) or name.lower() in _PROXY_VARIABLES)
    return "".join(f"{name}\n" for name in sorted(names))


def require_new_file(path: Path) -> None:
    """Refuse a report's path before the trials, which take their time.

    Raises:
        UsageError: a file is there already, or its folder isn't.
    """
    if not path.parent.is_dir():
        raise UsageError(f"can't write the report {path}: there is no folder {path.parent}", hint="create it first")
    if os.path.lexists(path):
        raise UsageError(f"can't write the report {path}: it is there already", hint=_NEW_FILE_HINT)


def write_bundle(path: Path, texts: Mapping[str, str], credentials: Iterable[Credential]) -> None:
    """Write a report, which only its owner may read; each secret of a credential is replaced in it.

    Args:
        path: a new file, `.tar.gz`.
        texts: by the name in the report.
        credentials: those whose secrets must not be in it.

    Raises:
        UsageError: the file is there already, or can't be written.
    """
    redacting = tuple(credentials)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE)
        with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as bundle:
            for name, text in texts.items():
                _add_text(bundle, name, _redacted(text, redacting))
    except OSError as error:
        raise UsageError(f"can't write the report {path}: {error.strerror}", hint=_NEW_FILE_HINT) from None


def _redacted(text: str, credentials: Iterable[Credential]) -> str:
    for credential in credentials:
        text = credential.redact(text)
    return text


def _add_text(bundle: tarfile.TarFile, name: str, text: str) -> None:
    content = text.encode("utf-8", "backslashreplace")
    header = tarfile.TarInfo(name)
    header.size, header.mode, header.mtime = len(content), _FILE_MODE, int(time.time())
    bundle.addfile(header, io.BytesIO(content))
