"""Tables that follow others, on real servers: a real catalog, real syncs, Spark."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sterna.cli.main import main
from sterna.config.sections.transforms import Transform
from sterna.errors import FlowStopped, Gap, NotAnAncestor, NotOnlyAdded, Remedy, Rewound, ServicesError
from sterna.pipelines.publish.model import transform_channel
from sterna.pipelines.transforms.rebuild import rebuild
from sterna.pipelines.transforms.status import read_transform_statuses
from sterna.pipelines.transforms.step import StepSummary, TransformReconciler
from sterna.pipelines.transforms.step_context import TransformSpark
from sterna.runtime.reconciler import Idle, reconcile
from sterna.runtime.status import ReconcilerStatus
from sterna.text.reconcilers import status_text
from tests.support.iceberg_java import data_file, items, load_table
from tests.support.often import often
from tests.support.world import MERGE_ON_READ, World

WAP = "'write.wap.enabled'='true'"
DWD = "SELECT id, day, lower(user) AS user, amount * 100 AS cents FROM changes WHERE user IS NOT NULL"
DWS = "SELECT day, count(*) AS pv, count(DISTINCT user) AS uv FROM changes GROUP BY day"


@dataclass
class Layers:
    """ODS, and two layers above it, each in a flow of its own."""

    world: World
    namespace: str

    def flow(self, name: str, source: str, mode: str, sql: str, **more: str) -> tuple[Transform, str]:
        section = {"name": name, "from": f"{self.namespace}.{source}", "into": f"{self.namespace}.{name}", **more}
        return Transform.model_validate({**section, "mode": mode, "sql": sql}), sql

    def create(self, name: str, columns: str, more: str = "", properties: str = WAP) -> None:
        table = f"main_us.{self.namespace}.{name}"
        self.world.sql(f"CREATE TABLE {table} ({columns}) USING iceberg {more} TBLPROPERTIES ({properties})")

    def insert(self, values: str, name: str = "ods") -> None:
        self.world.sql(f"INSERT INTO main_us.{self.namespace}.{name} VALUES {values}")

    def sql(self, text: str, name: str = "ods") -> list[tuple[Any, ...]]:
        return self.world.sql(text.format(f"main_us.{self.namespace}.{name}"))

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        return sorted(self.sql("SELECT * FROM {}", name), key=str)

    def step(self, flow: tuple[Transform, str], region: str = "eu", before: Any = lambda moment: None) -> Any:
        with self.world.context(region) as context:
            transform, sql = flow
            return reconcile(TransformReconciler(lambda: context, transform, lambda: sql, TransformSpark(), before))

    def sync_and_step(self, flow: tuple[Transform, str], region: str = "eu") -> Any:
        self.world.sync(region)
        return self.step(flow, region)

    def rebuild(self, flow: tuple[Transform, str]) -> None:
        with self.world.context("eu") as context:
            assert rebuild(context, *flow, TransformSpark(), act=True).done


@pytest.fixture
def layers(world: World) -> Iterator[Layers]:
    with world.namespace(f"flows_{uuid.uuid4().hex[:8]}") as name:
        opened = Layers(world, name)
        _, _, modes = MERGE_ON_READ.partition("(")
        opened.create("ods", "id BIGINT, day DATE, user STRING, amount BIGINT", properties=modes.rstrip(")"))
        yield opened


def ods(id: int, day: int, user: str, amount: int = 1) -> str:
    return f"({id}, DATE'2026-01-0{day}', '{user}', {amount})"


def test_three_layers_equal_their_rebuild_with_late_rows_and_deletes(layers: Layers) -> None:
    layers.create("dwd", "id BIGINT, day DATE, user STRING, cents BIGINT")
    layers.create("dws", "day DATE, pv BIGINT, uv BIGINT", "PARTITIONED BY (day)")
    dwd = layers.flow("dwd", "ods", "merge(id)", DWD)
    dws = layers.flow("dws", "dwd", "replace(day)", DWS)
    layers.insert(", ".join([ods(1, 1, "A"), ods(2, 1, "a"), ods(3, 2, "B")]))

    def follow() -> None:
        layers.sync_and_step(dwd)
        layers.sync_and_step(dws)

    follow()
    assert [row[1:] for row in layers.rows("dws")] == [(2, 1), (1, 1)]
    layers.insert(f"{ods(4, 1, 'c')}, {ods(5, 3, 'd')}, {ods(6, 3, 'x')}")  # one of them late
    follow()
    layers.sql("DELETE FROM {} WHERE id = 3")  # a day without rows
    layers.sql("UPDATE {} SET user = 'B', day = DATE'2026-01-04' WHERE id = 1")
    layers.sql("UPDATE {} SET user = NULL WHERE id = 6")  # the SQL doesn't take it any more
    layers.insert("(7, NULL, 'n', 1)")
    follow()
    increments = {name: layers.rows(name) for name in ("dwd", "dws")}
    assert [(str(day), pv, uv) for day, pv, uv in increments["dws"]] == [
        ("None", 1, 1),
        ("2026-01-01", 2, 2),
        ("2026-01-03", 1, 1),
        ("2026-01-04", 1, 1),
    ]
    # A compaction moves the mark and no row; then there is nothing to do.
    options = "options => map('rewrite-all', 'true')"
    layers.world.sql(f"CALL main_us.system.rewrite_data_files(table => '{layers.namespace}.ods', {options})")
    compacted = layers.sync_and_step(dwd)
    assert isinstance(compacted, StepSummary)
    assert compacted.snapshot is None
    assert layers.step(dwd).reason == "up to date"
    for flow in (dwd, dws):
        layers.rebuild(flow)
        layers.world.sync("eu")
    assert {name: layers.rows(name) for name in ("dwd", "dws")} == increments
    # And the increments go on behind a rebuild.
    layers.insert(ods(8, 4, "b"))
    follow()
    assert [row[1:] for row in layers.rows("dws")][-1] == (2, 1)


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A worker whose own clock has an hour twice."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize("kind", often(["TIMESTAMP", "TIMESTAMP_NTZ"], ["TIMESTAMP_NTZ"]))
def test_hours_are_told_apart_whatever_the_workers_clock_says(layers: Layers, kind: str) -> None:
    layers.create("hours", f"at {kind}, n BIGINT", "PARTITIONED BY (at)")
    at = f"CAST(timestamp_seconds(amount) AS {kind})"
    sql = f"SELECT {at} AS at, count(*) AS n FROM changes GROUP BY 1"
    flow = layers.flow("hours", "ods", "replace(at)", sql, partition=at)
    first = int(datetime(2026, 10, 25, 0, 30, tzinfo=UTC).timestamp())
    layers.insert(", ".join([ods(1, 1, "a", first), ods(2, 1, "a", first + 3600)]))
    layers.sync_and_step(flow)
    layers.insert(ods(3, 1, "a", first + 3600))  # in the second of two hours with one name
    layers.sync_and_step(flow)
    layers.insert(ods(4, 1, "a", first))
    layers.sync_and_step(flow)
    assert layers.sql("SELECT date_format(at, 'HH:mm'), n FROM {} ORDER BY at", "hours") == [("00:30", 2), ("01:30", 2)]


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP_NTZ"])
def test_a_partition_beyond_pythons_calendar(layers: Layers, kind: str) -> None:
    """Python's years end with 9999 and begin with 1; Spark's and Iceberg's don't."""
    layers.create("src", f"at {kind}, n BIGINT")
    layers.create("far", f"at {kind}, n BIGINT", "PARTITIONED BY (at)")
    flow = layers.flow("far", "src", "replace(at)", "SELECT at, sum(n) AS n FROM changes GROUP BY at")
    values = ", ".join(f"({kind}'{at}', 1)" for at in ("+12000-01-01", "0001-01-01", "-0044-03-15", "2026-01-01"))
    for _ in range(2):
        layers.insert(f"{values}, (NULL, 1)", "src")
        layers.sync_and_step(flow)
    numbers = "SELECT CAST(at AS STRING), n FROM {} ORDER BY at"
    summed = layers.sql("SELECT CAST(at AS STRING), sum(n) FROM {} GROUP BY at ORDER BY at", "src")
    assert layers.sql(numbers, "far") == summed
    assert [n for _, n in summed] == [2] * 5


def test_status_says_why_a_step_failed_until_the_flow_has_come_further(layers: Layers) -> None:
    """What the SQL does with the source's rows is for somebody to mend: no later run comes to another end."""
    layers.create("dwd", "id BIGINT, share DOUBLE")
    layers.insert(ods(1, 1, "a", 0))
    failing = layers.flow("dwd", "ods", "append", "SELECT id, id / amount AS share FROM changes")

    flow = failing[0]

    def status() -> ReconcilerStatus:
        with layers.world.context("eu") as context:
            return read_transform_statuses(context, [flow], Path())[0]

    layers.world.sync("eu")
    assert (status().message, status().exit_code) == ("behind", 0)
    with pytest.raises(ServicesError, match="DIVIDE_BY_ZERO") as failed:
        layers.step(failing)
    assert failed.value.remedy is Remedy.STOP
    flow_status = status()
    assert (flow_status.lag, flow_status.exit_code) == (1, ServicesError.exit_code)
    assert "ServicesError: transform dwd, its SQL fails" in flow_status.message
    assert "1 snapshots behind, ALARM: failed at" in status_text([flow_status])
    corrected = layers.flow("dwd", "ods", "append", "SELECT id, try_divide(id, amount) AS share FROM changes")
    layers.step(corrected)
    assert status().message.startswith("up to date; its SQL was changed since its last rows")
    flow = corrected[0]
    assert (status().message, status().exit_code) == ("up to date", 0)


class Killed(BaseException):
    """A worker dies here."""


@pytest.mark.parametrize("mode", often(["append", "merge(id)"], ["append"]))
def test_one_that_is_killed_anywhere_costs_nothing(layers: Layers, mode: str) -> None:
    layers.create("dwd", "id BIGINT, day DATE, user STRING, cents BIGINT")
    flow = layers.flow("dwd", "ods", mode, DWD)
    for number, moment in enumerate(("stage", "publish", "after")):
        layers.insert(ods(number, 1, "a"))
        layers.world.sync("eu")

        def die(now: str, at: str = moment) -> None:
            if now == at:
                raise Killed

        try:
            layers.step(flow, before=die)
        except Killed:
            # It goes on with what came meanwhile, or with the very step that is staged.
            if moment == "stage":
                layers.insert(ods(100, 1, "b"))
                layers.world.sync("eu")
            layers.step(flow)
        assert isinstance(layers.step(flow), Idle)
    assert sorted(row[0] for row in layers.rows("dwd")) == [0, 1, 2, 100]


@pytest.mark.parametrize("mode", ["append", "merge(id)"])
def test_sql_that_was_corrected_is_what_is_published(layers: Layers, mode: str) -> None:
    layers.create("dwd", "id BIGINT, day DATE, user STRING, cents BIGINT")
    layers.insert(ods(1, 1, "a"))
    layers.world.sync("eu")

    def die(now: str) -> None:
        if now == "publish":
            raise Killed

    with pytest.raises(Killed):
        layers.step(layers.flow("dwd", "ods", mode, DWD), before=die)
    corrected = layers.flow("dwd", "ods", mode, DWD.replace(" AS cents", " + 7 AS cents"))
    layers.step(corrected)
    right = layers.sql("SELECT id, amount * 100 + 7 FROM {}")
    assert [(row[0], row[3]) for row in layers.rows("dwd")] == right


def test_two_regions_at_once_bring_each_row_once(layers: Layers) -> None:
    layers.create("dwd", "id BIGINT, day DATE, user STRING, cents BIGINT")
    flow = layers.flow("dwd", "ods", "append", DWD)
    layers.insert(ods(1, 1, "a"))
    layers.world.sync("us")
    layers.sync_and_step(flow)
    layers.insert(ods(2, 1, "a"))
    layers.world.sync("us")  # us has one snapshot more, eu two
    layers.insert(ods(3, 1, "a"))
    layers.world.sync("eu")
    overtaken: list[StepSummary] = []

    def overtake(moment: str) -> None:
        if moment == "publish" and not overtaken:
            overtaken.append(layers.step(flow, "us"))

    stale = layers.step(flow, "eu", overtake)
    assert overtaken[0].commit
    assert stale.start == overtaken[0].end
    assert sorted(row[0] for row in layers.rows("dwd")) == [1, 2, 3]
    assert "another region is ahead" in layers.step(flow, "us").reason
    layers.insert(ods(4, 1, "a"))
    for region in ("us", "eu"):
        layers.world.sync(region)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda region: layers.step(flow, region), ("us", "eu")))
    assert sorted(row[0] for row in layers.rows("dwd")) == [1, 2, 3, 4]


def test_what_can_t_be_followed_any_more_stops_until_it_is_rebuilt(layers: Layers) -> None:
    layers.create("dwd", "id BIGINT, day DATE, user STRING, cents BIGINT")
    flow = layers.flow("dwd", "ods", "append", DWD)
    layers.insert(ods(1, 1, "a"))
    layers.insert(ods(2, 1, "a"))
    layers.sync_and_step(flow)
    ids = lambda: sorted(row[0] for row in layers.rows("dwd"))  # noqa: E731

    def mended(*expected: int) -> None:
        layers.rebuild(flow)
        assert ids() == list(expected)
        assert isinstance(layers.step(flow), Idle)

    # The source took rows away.
    layers.sql("DELETE FROM {} WHERE id = 2")
    with pytest.raises(NotOnlyAdded):
        layers.sync_and_step(flow)
    mended(1)
    # The source was rolled back.
    first = layers.world.snapshots(f"main_us.{layers.namespace}.ods")[0]
    layers.world.sql(f"CALL main_us.system.rollback_to_snapshot('{layers.namespace}.ods', {first})")
    layers.insert(ods(3, 1, "a"))
    with pytest.raises(NotAnAncestor):
        layers.sync_and_step(flow)
    mended(1, 3)
    # The source has expired what the flow goes on from.
    layers.insert(ods(4, 1, "a"))
    layers.insert(ods(5, 1, "a"))
    call = "CALL main_us.system.expire_snapshots(table => '{}.ods', older_than => now(), retain_last => 1)"
    layers.world.sql(f"ALTER TABLE main_us.{layers.namespace}.ods SET TBLPROPERTIES ('gc.enabled'='true')")
    layers.world.sql(call.format(layers.namespace))
    with pytest.raises(Gap):
        layers.sync_and_step(flow)
    mended(1, 3, 4, 5)
    # The target was rolled back.
    layers.insert(ods(6, 1, "a"))
    layers.sync_and_step(flow)
    before = layers.world.snapshots(f"main_us.{layers.namespace}.dwd")[0]
    layers.world.sql(f"CALL main_us.system.rollback_to_snapshot('{layers.namespace}.dwd', {before})")
    with pytest.raises(Rewound):
        layers.step(flow)
    mended(1, 3, 4, 5, 6)
    # The target was made anew, with rows.
    layers.world.sql(f"DROP TABLE main_us.{layers.namespace}.dwd")
    layers.create("dwd", "id BIGINT, day DATE, user STRING, cents BIGINT")
    layers.insert("(9, NULL, 'z', 1)", "dwd")
    with pytest.raises(FlowStopped):
        layers.step(flow)
    mended(1, 3, 4, 5, 6)


def test_a_restored_target_or_source_stops_a_transform_until_it_is_rebuilt(layers: Layers) -> None:
    layers.create("dwd", "id BIGINT, day DATE, user STRING, cents BIGINT")
    flow = layers.flow("dwd", "ods", "append", DWD)
    commits = []
    for number in (1, 2):
        layers.insert(ods(number, 1, "a"))
        layers.sync_and_step(flow)
        commits.append(layers.world.catalog.reference("main").hash)
    ids = lambda: sorted(row[0] for row in layers.rows("dwd"))  # noqa: E731
    # The target brings an older mark back.
    report = layers.world.restore(commits[0], f"{layers.namespace}.dwd", over=True)
    assert report.tables[0].rewinds == (str(transform_channel("dwd")),)
    for _ in range(2):
        with pytest.raises(Rewound):
            layers.step(flow)
    assert ids() == [1]
    layers.rebuild(flow)
    assert ids() == [1, 2]
    layers.insert(ods(3, 1, "a"))
    layers.sync_and_step(flow)
    assert ids() == [1, 2, 3]
    # The source loses what the target has.
    report = layers.world.restore(commits[1], f"{layers.namespace}.ods", over=True)
    assert report.tables[0].rewinds == ()
    layers.insert(ods(4, 1, "a"))
    with pytest.raises(Gap):
        layers.sync_and_step(flow)
    layers.rebuild(flow)
    assert ids() == [1, 2, 4]


def test_an_append_stops_where_a_compaction_lost_rows_whatever_its_label_says(layers: Layers) -> None:
    layers.create("dwd", "id BIGINT, day DATE, user STRING, cents BIGINT")
    flow = layers.flow("dwd", "ods", "append", DWD)
    layers.insert(f"{ods(1, 1, 'a')}, {ods(2, 1, 'a')}")
    layers.sync_and_step(flow)
    lose_rows(layers, "ods", [{"id": 1, "user": "a", "amount": 1}])
    layers.insert(ods(3, 1, "a"))
    assert sorted(row[0] for row in layers.rows("ods")) == [1, 3]
    with pytest.raises(NotOnlyAdded):
        layers.sync_and_step(flow)
    layers.rebuild(flow)
    assert sorted(row[0] for row in layers.rows("dwd")) == [1, 3]


def lose_rows(layers: Layers, name: str, kept: list[dict[str, Any]]) -> None:
    """Replace all files by one of some rows, under the label of a compaction."""
    table = f"main_us.{layers.namespace}.{name}"
    loaded = load_table(layers.world.spark, table)
    rewrite = loaded.newRewrite().addFile(data_file(layers.world.spark, loaded, kept))
    for task in items(loaded.newScan().planFiles()):
        rewrite = rewrite.deleteFile(task.file())
    rewrite.commit()
    layers.sql("REFRESH TABLE {}", name)


def test_the_commands(layers: Layers, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    services = tmp_path / "sterna_services.yaml"
    name = layers.namespace
    services.write_text(
        "transforms:\n"
        f"- {{name: dwd, from: {name}.ods, into: {name}.dwd, mode: append, sql: dwd.sql}}\n"
        f"- {{name: dws, from: {name}.ods, into: {name}.dws, mode: replace(day), sql: '{DWS}'}}\n"
    )
    (tmp_path / "dwd.sql").write_text(DWD)
    layers.insert(ods(1, 1, "a"))
    layers.world.sync("eu")

    def sterna(*arguments: str) -> tuple[int, Any]:
        with pytest.raises(SystemExit) as ended:
            registry = str(layers.world.stage.registry)
            main(
                [
                    "transforms",
                    *arguments,
                    "--region",
                    "eu",
                    "--registry",
                    registry,
                    "--services",
                    str(services),
                    "--json",
                ]
            )
        output = capsys.readouterr()
        return int(ended.value.code or 0), json.loads((output.out or output.err).splitlines()[-1])

    # What is missing is told as a statement that makes it.
    code, answer = sterna("check")
    assert code != 0
    for flow_status in answer["transforms"]:
        layers.world.sql(flow_status["create"].replace("CREATE TABLE ", "CREATE TABLE main_us."))
    assert sterna("check") == (
        0,
        {
            "region": "eu",
            "transforms": [{"flow": flow, "fault": "", "create": "", "exit_code": 0} for flow in ("dwd", "dws")],
        },
    )
    for wrong, why in (
        ("SELECT * FROM changes", "it gives the columns"),
        ("SELECT max(id) AS id FROM changes", "aggregate"),
        ("SELECT id, uuid() AS u FROM changes", "other rows each time"),
        (f"SELECT * FROM sterna_main.{name}.dws", "nothing else"),
        ("SELECT", "its SQL"),
    ):
        (tmp_path / "dwd.sql").write_text(wrong)
        code, answer = sterna("check", "dwd")
        assert code == 2
        assert why in answer["transforms"][0]["fault"]
    (tmp_path / "dwd.sql").write_text(DWD)
    assert [flow_status["lag"] for flow_status in sterna("status")[1]["transforms"]] == [1, 1]
    code, answer = sterna("run")
    assert (code, [step_report["flow"] for step_report in answer["steps"]], answer["failed"]) == (0, ["dwd", "dws"], {})
    assert [flow_status["conditions"][0]["message"] for flow_status in sterna("status")[1]["transforms"]] == [
        "up to date"
    ] * 2
    code, answer = sterna("rebuild", "dws")
    assert (code, answer["done"]) == (0, False)
    before = layers.rows("dws")
    code, answer = sterna("rebuild", "dws", "--yes")
    assert (code, answer["done"], layers.rows("dws")) == (0, True, before)
    layers.sql("DELETE FROM {}")
    layers.world.sync("eu")
    code, answer = sterna("run")
    assert (code, answer["stopped"], [step_report["flow"] for step_report in answer["steps"]]) == (6, ["dwd"], ["dws"])
    assert layers.rows("dws") == []
    assert sterna("run", "none")[0] == 2
