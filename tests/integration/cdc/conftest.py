"""What all tests of sources share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def quick_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start engines that compile little: each lives for seconds, and there are fifty of them."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", prepend=" ")
