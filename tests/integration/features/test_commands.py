"""The commands, over a real store and a real replica."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from sterna.cli.main import main
from tests.integration.features.conftest import FeatureTestbed

TS = "TIMESTAMP_NTZ'2023-10-27 10:00:00'"


def test_the_commands(shop: FeatureTestbed, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    users = f"main_us.{shop.features.views_by_name['user'].table}"
    clicks = f"main_us.{shop.features.views_by_name['seen'].table}"
    shop.world.sql(f"INSERT INTO {users} VALUES (1, 10, '<b>', 1.10, {TS}), (2, 20, 'b', 2.20, {TS})")
    shop.world.sql(f"INSERT INTO {clicks} VALUES (1, 'a', current_timestamp())")
    shop.world.sync()
    file = tmp_path / "services.yaml"
    file.write_text(yaml.safe_dump({"version": 1, "features": shop.section}))

    def sterna(*words: str, code: int = 0) -> Any:
        where = ["--region", "eu", "--registry", str(shop.world.stage.registry), "--services", str(file)]
        with pytest.raises(SystemExit) as ended, shop.context() as context:
            main(["features", *words, *where, "--json"], context.secrets)
        output = capsys.readouterr()
        assert (ended.value.code or 0) == code, output.err
        assert shop.server.password not in output.err + output.out
        return json.loads((output.out if output.out else output.err).splitlines()[-1])

    started = sterna("status", code=5)["views"]
    assert {view["conditions"][0]["type"] for view in started} == {"Blocked"}
    assert sterna("verify", code=7)["views"][0]["problem"]
    materialized = {view["view"]: view for view in sterna("materialize")["views"]}
    assert {name: (view["how"], view["rows"]) for name, view in materialized.items()} == {
        "user": ("full", 2),
        "hot": ("full", 0),
        "seen": ("full", 1),
    }
    again = sterna("materialize")
    assert (again["views"], sorted(again["idle"])) == ([], ["hot", "seen", "user"])
    statuses = {view["name"]: view for view in sterna("status")["views"]}
    assert (
        statuses["user"]["lag"] == 0.0
        and statuses["user"]["ready"]
        and str(statuses["user"]["current"]) == statuses["user"]["position"]
    )
    assert sterna("verify", "user", "--sample", "1/2")["views"][0]["missing"] == 0
    client: Any = shop.client
    client.delete("features:user:1")
    verified = sterna("verify", "user", code=7)["views"][0]
    assert (verified["missing"], verified["examples"]) == (1, ["1: missing"])
    assert sterna("rebuild", "user") == {"views": ["user"], "done": False}
    assert client.get("features:user:1") is None
    assert sterna("rebuild", "user", "--yes")["views"][0]["why"] == "it was asked for"
    assert sterna("verify")["views"][0]["compared"] == 2
    assert "no view 'none'" in sterna("materialize", "none", code=2)["message"]
    assert "such as 1/30" in sterna("verify", "--sample", "30", code=2)["message"]

    # One view that fails keeps no other one.
    shop.world.sql(f"ALTER TABLE {users} RENAME COLUMN city TO town")
    shop.world.sql(f"INSERT INTO {users} VALUES (3, 30, 'c', 3.30, {TS})")
    shop.world.sql(f"INSERT INTO {clicks} VALUES (2, 'b', current_timestamp())")
    shop.world.sync()
    half = sterna("materialize", code=2)
    assert [failure["error"] for failure in half["failed"]] == ["UnfitView", "UnfitView"]
    assert next(view["rows"] for view in half["views"] if view["view"] == "seen") == 1
    shop.server.process.stop()
    assert {failure["error"] for failure in sterna("materialize", code=4)["failed"]} == {"FeatureStoreUnreachable"}
    assert "does not answer" in sterna("status", code=5)["views"][0]["conditions"][0]["message"]
    shop.server.__dict__.update(shop.server.restart().__dict__)
