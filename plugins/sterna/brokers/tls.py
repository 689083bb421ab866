"""Trusted certificate authorities: the system's, or those of `SSL_CERT_FILE` and `SSL_CERT_DIR`."""

from __future__ import annotations

import ssl


def trusted_ca_path() -> str:
    """Return the file or folder of this machine's trusted authorities; "" if there is none."""
    paths = ssl.get_default_verify_paths()
    return paths.cafile or paths.capath or ""
