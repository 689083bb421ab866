"""A region that can't be reached holds its own tables, and nobody else's."""

from __future__ import annotations

import pytest

from sterna.errors import Remedy, StoreUnreachable
from sterna.operations.status.read import read_status
from tests.support.faults.pair import Pair


@pytest.fixture
def both(pair: Pair) -> tuple[str, str]:
    """A table of us and one of eu, both new: the one needs us's store, the other one none but eu's own."""
    return pair.create(), pair.create(region="eu")


def test_the_tables_of_others_go_on_and_the_held_one_catches_up(pair: Pair, both: tuple[str, str]) -> None:
    far, near = both
    pair.stage.endpoints["us"].suspend()
    try:
        report = pair.sync()
        assert near in report.published
        (held,) = report.held
        assert (held.key, held.kind) == (far, "StoreUnreachable")
        with pair.context() as context:
            (shown,) = read_status(context).held
        assert str(pair.stage.endpoints["us"].port) in shown.held.reason
        assert "make the named address reachable again" in shown.do
        # Now that there is nothing else to bring it is an error, which is tried again soon.
        with pytest.raises(StoreUnreachable) as caught:
            pair.sync()
        assert caught.value.remedy is Remedy.RETRY
    finally:
        pair.stage.endpoints["us"].start()
    assert pair.sync().held == ()
    pair.assert_equal()
