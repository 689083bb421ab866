"""Whose certificates are believed: the system's, or what `SSL_CERT_FILE` and `SSL_CERT_DIR` name."""

from __future__ import annotations

import ssl


def trusted_ca_path() -> str:
    """Return the file or folder of the authorities that this machine believes; "" where there is none."""
    paths = ssl.get_default_verify_paths()
    return paths.cafile or paths.capath or ""
