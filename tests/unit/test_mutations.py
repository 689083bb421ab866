"""Faults that `tests.mutations` plants fit the code: one that no longer does would go unjudged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutations.hunt import planted
from tests.mutations.model import Mutation
from tests.mutations.planted import MUTATIONS

_SOURCES = Path(__file__).parents[2] / "plugins" / "sterna"


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_fault_can_be_planted(mutation: Mutation, tmp_path: Path):
    source = _SOURCES / mutation.file
    file = tmp_path / "plugins" / "sterna" / mutation.file
    file.parent.mkdir(parents=True)
    file.write_text(source.read_text())
    with planted(tmp_path, mutation):
        assert file.read_text() != source.read_text()
    assert file.read_text() == source.read_text()
