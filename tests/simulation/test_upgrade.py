"""A wrong localizer is planted before an upgrade; from the first sync after it on, all holds that must."""

from __future__ import annotations

import pytest

from tests.simulation.store import Violation
from tests.simulation.upgrade import Upgraded, editions_share_their_places

SEEDS = 12
MENDS = pytest.mark.parametrize("relocalize", [False, True], ids=["upgraded", "relocalized"])


@MENDS
def test_the_first_sync_after_it_puts_right_what_a_wrong_localizer_wrote(relocalize: bool) -> None:
    for seed in range(SEEDS):
        world = Upgraded(seed, relocalize=relocalize)
        try:
            world.play()
        except Exception as error:
            trace = "\n".join(world.trace)
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}\n{trace}") from error


@MENDS
def test_without_a_place_of_its_own_it_would_stay(relocalize: bool) -> None:
    for seed in range(SEEDS):
        try:
            with editions_share_their_places():
                Upgraded(seed, relocalize=relocalize).play()
        except Violation as error:
            if "closure: in another region" in str(error):
                return
    pytest.fail(f"{SEEDS} seeds did not show what a wrong localizer left")
