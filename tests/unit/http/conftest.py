from pathlib import Path

import pytest

from tests.support.http_server import Branch


@pytest.fixture
def branch(tmp_path: Path) -> Branch:
    return Branch(tmp_path)
