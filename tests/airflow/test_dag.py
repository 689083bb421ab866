"""The DAG in a real Airflow.

Triggered by commits on main, mapped copies, a failing copy repeated, published assets seen.
"""

from __future__ import annotations

from typing import Any

import psutil
import psycopg
import pytest
from psycopg import sql

from sterna.config.secrets import environment_secrets
from sterna.replication.replica.codecs import STAGE_REPORT
from sterna.replication.replica.head import read_head
from sterna.replication.replica.lag import measure_lag
from sterna.replication.replica.region import open_region
from tests.airflow.conftest import DAG, World


@pytest.fixture(scope="module", autouse=True)
def first(world: World) -> dict[str, Any]:
    """The first run: nobody asked for it, `main` was ahead of a replica that didn't exist."""
    world.airflow.wait_for_dag(DAG)
    return world.wait_for_publication(set())


def test_plugins_and_dags_have_no_import_errors(world: World) -> None:
    assert world.airflow.get("/importErrors")["import_errors"] == []
    assert world.airflow.get("/plugins/importErrors")["import_errors"] == []
    assert [plugin["name"] for plugin in world.airflow.get("/plugins")["plugins"] if plugin["name"] == "sterna"] == [
        "sterna"
    ]


def test_the_first_run_copies_from_both_regions_in_labelled_tasks_of_their_own(
    world: World, first: dict[str, Any]
) -> None:
    copies = world.tasks(first["dag_run_id"])["copy"]
    assert [task["state"] for task in copies] == ["success", "success"]
    assert {task["rendered_map_index"].split()[0] for task in copies} == {"ap-lake", "us-lake"}
    assert measure_lag(world.context) == 0.0
    for region, name in (("us", "orders"), ("ap", "items")):
        rows = f"SELECT * FROM dag_{{}}.shop.{name} ORDER BY id"
        assert world.sql(rows.format("replica")) == world.sql(rows.format(region))


def test_each_stage_has_a_span_below_its_task_s_in_the_trace_of_the_run(world: World, first: dict[str, Any]) -> None:
    replica = read_head(world.context.primary, "main_replica_eu")
    received = world.traces
    received.wait_until(lambda: received.named("sterna.publish") and received.named("worker.publish"))
    publish = received.named("sterna.publish")[0]
    assert publish.attributes["sterna.source_hash"] == replica.watermark
    parents = {span.id: span.name.partition("[")[0] for span in received.spans if span.trace == publish.trace}
    stages = [span for span in received.spans if span.trace == publish.trace and span.name.startswith("sterna.")]
    assert sorted((span.name, parents[span.parent]) for span in stages) == [
        ("sterna.copy", "worker.copy"),
        ("sterna.copy", "worker.copy"),
        ("sterna.localize", "worker.localize"),
        ("sterna.plan", "worker.plan"),
        ("sterna.publish", "worker.publish"),
    ]
    assert {span.attributes["sterna.run_id"] for span in stages} == {publish.attributes["sterna.run_id"]}


def test_the_log_of_the_plan_explains_it(world: World, first: dict[str, Any]) -> None:
    run = first["dag_run_id"]
    (plan,) = world.tasks(run)["plan"]
    log = str(world.airflow.get(f"/dags/{DAG}/dagRuns/{run}/taskInstances/plan/logs/{plan['try_number']}"))
    assert "put iceberg_table shop.orders: copy" in log
    assert "from us-lake" in log
    assert "XCom not found" not in log


def test_a_commit_starts_a_run_and_the_fresh_table_starts_a_user_s_dag(world: World) -> None:
    before, heard = world.wait_until_idle(), len(world.runs("consumer"))
    world.sql("INSERT INTO dag_us.shop.orders VALUES (1000, 'new')")
    run = world.wait_for_publication(before)
    assert run["run_type"] == "asset_triggered"
    assert world.sql("SELECT name FROM dag_replica.shop.orders WHERE id = 1000") == [("new",)]
    consumer = world.wait_until(
        "the user's DAG", lambda: len(world.runs("consumer")) > heard and world.runs("consumer")[0]
    )
    (event,) = world.airflow.get(f"/dags/consumer/dagRuns/{consumer['dag_run_id']}/upstreamAssetEvents")["asset_events"]
    assert event["uri"] == "sterna://eu/shop.orders"
    main, replica = (
        world.context.catalog.reference("main").hash,
        world.context.catalog.reference("main_replica_eu").hash,
    )
    (snapshot,) = world.sql("SELECT snapshot_id FROM dag_us.shop.orders.snapshots ORDER BY committed_at DESC LIMIT 1")
    assert event["extra"] == {"source_hash": main, "replica_hash": replica, "snapshot_id": snapshot[0]}


def test_a_failing_copy_is_repeated_until_it_succeeds(world: World) -> None:
    before = world.wait_until_idle()
    head = world.context.catalog.reference("main_replica_eu").hash
    world.rclone_is_broken.touch()
    try:
        world.sql("INSERT INTO dag_ap.shop.items VALUES (1001, 'late')")

        def repeated() -> bool:
            new = [run["dag_run_id"] for run in world.runs() if run["dag_run_id"] not in before]
            return any(task["state"] == "up_for_retry" for run in new for task in world.tasks(run).get("copy", ()))

        world.wait_until("a copy that waits for its next try", repeated)
        assert world.context.catalog.reference("main_replica_eu").hash == head
    finally:
        world.rclone_is_broken.unlink()
    run = world.wait_for_publication(before)
    (copy,) = world.tasks(run["dag_run_id"])["copy"]
    assert copy["try_number"] > 1
    assert world.sql("SELECT name FROM dag_replica.shop.items WHERE id = 1001") == [("late",)]


def test_a_task_that_is_killed_in_the_middle_of_its_copy_is_repeated_and_sends_nothing_twice(world: World) -> None:
    before = world.wait_until_idle()
    head = world.context.catalog.reference("main_replica_eu").hash
    world.sql("INSERT INTO dag_us.shop.orders VALUES (1002, 'killed')")
    with world.hanging_copy() as task:
        assert world.context.catalog.reference("main_replica_eu").hash == head
        task.kill()
        psutil.wait_procs([task], timeout=30)
    run = world.wait_for_publication(before)
    (copy,) = world.tasks(run["dag_run_id"])["copy"]
    assert copy["try_number"] > 1
    copied = world.airflow.get(
        f"/dags/{DAG}/dagRuns/{run['dag_run_id']}/taskInstances/copy/xcomEntries/return_value", map_index=0
    )
    assert STAGE_REPORT.loads(copied["value"]).sent == 0
    assert world.sql("SELECT name FROM dag_replica.shop.orders WHERE id = 1002") == [("killed",)]


def test_a_table_that_a_dark_store_held_is_taken_up_without_a_commit(world: World) -> None:
    before = world.wait_until_idle()
    world.airflow.patch(f"/dags/{DAG}", {"is_paused": True})
    world.sql("INSERT INTO dag_us.shop.orders VALUES (1003, 'dark')")
    world.sql("INSERT INTO dag_ap.shop.items VALUES (1003, 'light')")
    head = world.context.catalog.reference("main").hash
    world.stage.endpoints["us"].suspend()
    try:
        world.airflow.patch(f"/dags/{DAG}", {"is_paused": False})
        world.airflow.post(f"/dags/{DAG}/dagRuns", {"logical_date": None})
        world.wait_for_publication(before)
        (held,) = read_head(world.context.catalog, "main_replica_eu").held
        assert (held.key, held.kind) == ("shop.orders", "StoreUnreachable")
    finally:
        world.stage.endpoints["us"].start()
    world.wait_until("the held table", lambda: read_head(world.context.catalog, "main_replica_eu").held == ())
    assert world.context.catalog.reference("main").hash == head
    assert world.sql("SELECT name FROM dag_replica.shop.orders WHERE id = 1003") == [("dark",)]


def test_a_run_by_hand_with_nothing_to_do_ends_after_its_plan(world: World) -> None:
    world.wait_until_idle()
    run = world.airflow.post(f"/dags/{DAG}/dagRuns", {"logical_date": None})["dag_run_id"]
    world.wait_until_idle()
    states = {name: [task["state"] for task in tasks] for name, tasks in world.tasks(run).items()}
    assert states == {
        "plan": ["success"],
        "copy": ["skipped"],
        "localize": ["skipped"],
        "publish": ["skipped"],
        "announce": ["success"],
    }


def test_a_whole_run_that_is_cleared_counts_the_copies_of_its_new_plan_alone(
    world: World, first: dict[str, Any]
) -> None:
    world.wait_until_idle()
    run = first["dag_run_id"]
    assert len(world.tasks(run)["copy"]) == 2, "this test needs a run of more batches than it has when it is cleared"
    world.airflow.patch(f"/dags/{DAG}", {"is_paused": True})
    world.sql("INSERT INTO dag_us.shop.orders VALUES (1004, 'cleared')")
    head = world.context.catalog.reference("main").hash
    cleared = {"dry_run": False, "dag_run_id": run, "only_failed": False}
    world.airflow.post(f"/dags/{DAG}/clearTaskInstances", cleared)
    world.airflow.patch(f"/dags/{DAG}", {"is_paused": False})
    world.wait_until_idle()
    states = {name: sorted(task["state"] for task in tasks) for name, tasks in world.tasks(run).items()}
    assert states["copy"] == ["removed", "success"]
    assert states["publish"] == ["success"]
    assert read_head(world.context.catalog, "main_replica_eu").watermark == head
    assert world.sql("SELECT name FROM dag_replica.shop.orders WHERE id = 1004") == [("cleared",)]


def test_a_dry_run_explains_and_changes_nothing(world: World) -> None:
    world.wait_until_idle()
    head = world.context.catalog.reference("main_replica_eu").hash
    conf = {"everything": True, "dry_run": True}
    run = world.airflow.post(f"/dags/{DAG}/dagRuns", {"logical_date": None, "conf": conf})["dag_run_id"]
    world.wait_until_idle()
    assert {tasks[0]["state"] for name, tasks in world.tasks(run).items() if name != "plan"} == {"skipped"}
    assert world.context.catalog.reference("main_replica_eu").hash == head


def test_a_wrong_option_by_hand_fails_at_once_and_names_those_that_exist(world: World) -> None:
    world.wait_until_idle()
    run = world.airflow.post(f"/dags/{DAG}/dagRuns", {"logical_date": None, "conf": {"table": "x"}})["dag_run_id"]
    world.wait_until_idle()
    (plan,) = world.tasks(run)["plan"]
    assert (plan["state"], plan["try_number"]) == ("failed", 1)


def test_a_seed_in_groups_starts_its_next_run_itself(world: World) -> None:
    world.wait_until_idle()
    world.airflow.wait_for_dag("seed_us")
    world.airflow.patch("/dags/seed_us", {"is_paused": False})
    with open_region(world.stage.registry, "us", environment_secrets(world.stage.environment)) as us:
        head = world.context.catalog.reference("main").hash
        world.wait_until("us to be seeded", lambda: read_head(us.catalog, us.region.replica_branch).watermark == head)
    runs = world.runs("seed_us")
    assert len(runs) >= 2
    causes = [
        world.airflow.get(f"/dags/seed_us/dagRuns/{run['dag_run_id']}/upstreamAssetEvents")["asset_events"]
        for run in runs
    ]
    assert "the last sync left more to do" in {event["extra"].get("reason") for events in causes for event in events}
    world.airflow.patch("/dags/seed_us", {"is_paused": True})  # other tests' commits are not its business


def test_no_secret_is_in_any_row_of_airflows_database(world: World) -> None:
    """XComs, rendered templates, serialised DAGs, triggers: whatever Airflow keeps, it keeps here."""
    world.wait_until_idle()
    assert world.stage.postgres
    admin = world.stage.postgres.admin
    leaking_tables = []
    with psycopg.connect(
        host=admin.host, port=admin.port, user=admin.user, password=admin.password, dbname="airflow_eu"
    ) as database:
        tables = [row[0] for row in database.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]
        assert "xcom" in tables
        for table in tables:
            for endpoint in world.stage.endpoints.values():
                query = sql.SQL("SELECT count(*) FROM {} AS t WHERE strpos(t::text, %s) > 0").format(
                    sql.Identifier(table)
                )
                row = database.execute(query, (endpoint.secret_key,)).fetchone()
                leaking_tables += [table] if row and row[0] else []
    assert leaking_tables == []


def test_no_secret_is_in_any_log(world: World) -> None:
    world.wait_until_idle()
    secrets = [endpoint.secret_key for endpoint in world.stage.endpoints.values()]
    for log in world.airflow.home.rglob("*.log"):
        text = log.read_text(errors="replace")
        assert not [secret for secret in secrets if secret in text], log
