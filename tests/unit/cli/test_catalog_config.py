"""`sterna catalog config`: what an engine is to be given for a region's REST address."""

from __future__ import annotations

from pathlib import Path

from tests.support.small_world import World
from tests.unit.cli.conftest import Sterna


def test_the_command_prints_it(world: World, sterna: Sterna, tmp_path: Path) -> None:
    file = tmp_path / "services.yaml"
    file.write_text(f"catalog: {{regions: {{eu: {{location: 'file://{world.folder}/eu/lake'}}}}}}")
    printed = sterna("catalog", "config", "--engine", "pyiceberg", "--uri", "http://x/", "--services", str(file))
    assert (printed.code, printed.out) == (
        0,
        'catalog:\n  lake:\n    type: "rest"\n    uri: "http://x"\n    token: "<token>"\n',
    )
