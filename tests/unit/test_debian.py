"""What a machine has installed already is fetched for the tests all the same."""

from __future__ import annotations

from tests.support.debian import as_if_absent


def _stanza(name: str, needs: str = "", source: str = "", provides: str = "") -> str:
    lines = [f"Package: {name}", "Status: install ok installed", *([f"Source: {source}"] if source else [])]
    lines += [f"Provides: {provides}"] if provides else []
    return "\n".join([*lines, *([f"Depends: {needs}"] if needs else []), "Description: one", " more of it"]) + "\n\n"


def test_what_is_asked_for_and_what_needs_it_counts_as_absent() -> None:
    stanzas = {
        "libc6": _stanza("libc6"),
        "libx": _stanza("libx", "libc6 (>= 2.36)"),
        "browser": _stanza("browser", "libx (>= 1), browser-common (= 1:2.0)", "browser (1:2.0)"),
        "browser-common": _stanza("browser-common", "libx", "browser"),
        "extension": _stanza("extension", "other | browser (>= 1), libc6"),
        "extension-data": _stanza("extension-data", "extension", provides="data (= 1), www-data"),
        "user": _stanza("user", "none | www-data"),
        "browserless": _stanza("browserless", "libc6, libbrowser"),
    }
    left = as_if_absent("".join(stanzas.values()), ["browser", "libaio1"])
    assert left == "".join(stanzas[package] for package in ("libc6", "libx", "browserless"))
    assert as_if_absent(left, ["libaio1"]) == left
