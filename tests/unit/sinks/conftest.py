"""What tests of outlets share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.http_server import Branch


@pytest.fixture
def branch(tmp_path: Path) -> Branch:
    return Branch(tmp_path)
