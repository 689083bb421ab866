"""Syncs through a forced promotion.

They find the new primary, and replicas that were ahead come back to what `main` is.
"""

from __future__ import annotations

import threading
from uuid import uuid4

from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.head import read_head
from sterna.replication.replica.model import StageReport
from sterna.replication.sync import stages
from tests.ha.failover.cluster import Cluster, silent, until


def watermark(cluster: Cluster, region: str, through: str) -> str:
    with cluster.catalog(through) as catalog:
        return read_head(catalog, f"main_replica_{region}").watermark


def test_whenever_a_primary_dies_its_copies_have_of_main_what_their_replicas_stand_for(cluster: Cluster) -> None:
    """`main` and the replica branches arrive in one order, so that no watermark is ahead of the `main` that comes
    with it.
    """
    table, ended = f"t{uuid4().hex[:8]}", threading.Event()
    cluster.append(table)
    cluster.sync("eu")

    def work() -> None:
        while not ended.is_set():
            try:
                cluster.append(table)
                cluster.sync("eu")
            except Exception:  # noqa: BLE001 - PyIceberg's clients and ours, while the primary dies
                ended.wait(0.1)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        before = watermark(cluster, "eu", "us")
        while watermark(cluster, "eu", "us") == before:
            ended.wait(0.05)
        cluster.kill_catalog("us")
        primary = cluster.promote_furthest()
    finally:
        ended.set()
        worker.join()
    for region in ("eu", "ap"):
        assert watermark(cluster, "eu", region) in cluster.history(region)
    cluster.append(table, through=primary)
    assert cluster.sync("eu").outcome == "published", "a new context finds the new primary by itself"
    cluster.assert_closed("eu")
    cluster.sync("ap")
    cluster.assert_closed("ap")


def test_a_replica_that_was_ahead_goes_back_with_main_and_on_again(cluster: Cluster) -> None:
    table = f"t{uuid4().hex[:8]}"
    cluster.append(table)
    cluster.sync("ap")
    cluster.stop_applying("eu")
    cluster.append(table)
    cluster.sync("ap")
    ahead = watermark(cluster, "ap", "us")
    cluster.wait_until_replicated(ahead, "ap")
    cluster.kill_catalog("us")
    cluster.promote("eu", registry=cluster.without("us", "ap"))
    # Nobody knew of what ap has: it keeps that when it comes back.
    kept = cluster.rejoin("ap").lost
    assert [lost.branch for lost in kept] == ["main"]
    assert ahead in cluster.history("eu", kept[0].kept)
    assert watermark(cluster, "ap", "eu") in cluster.history("eu")
    cluster.append(table, through="eu")
    assert cluster.sync("ap").outcome == "published"
    cluster.assert_closed("ap")


def test_a_plan_made_for_a_main_that_was_lost_is_not_published(cluster: Cluster) -> None:
    table = f"t{uuid4().hex[:8]}"
    cluster.append(table)
    cluster.sync("ap")
    branch = "main_replica_ap"
    before = cluster.head("us", branch)
    for region in ("eu", "ap"):  # the branch comes behind `main`, and who lacks it would not be promoted
        until(f"{region} serves it", lambda at=region: cluster.references(at).get(branch) == before)
    cluster.stop_applying("eu", "ap")
    cluster.append(table)
    with cluster.context("ap") as context:
        planned = stages.plan(context, SyncOptions(), silent)
        copied = StageReport()
        for batch in planned.batches:
            copied += stages.copy(context, planned.run, batch.number, silent)
        localized = stages.localize(context, planned.run, copied, silent)
    cluster.kill_catalog("us")
    cluster.promote("eu")
    cluster.start_database("us")
    assert cluster.rejoin("us").lost, "the commit is known again, on a branch of its own"
    with cluster.context("ap") as context:
        report = stages.publish(context, planned.run, copied, localized, silent)
    assert report.outcome == "superseded"
    assert cluster.head("eu", branch) == before
    cluster.sync("ap")
    cluster.assert_closed("ap")


def test_a_sync_does_not_take_an_old_primary_for_the_new_one(cluster: Cluster) -> None:
    cluster.kill_catalog("us")
    cluster.promote("eu")
    cluster.start_database("us")
    assert cluster.read_sites()["us"].writable
    with cluster.context("us") as context:
        assert context.primary.reference("main").hash == cluster.head("eu")
        commit = cluster.commit("eu")
        assert context.primary.reference("main").hash == commit
