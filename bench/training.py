"""Training sets: point-in-time features of labels, against Feast's historical retrieval, with equal results."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.common import Result, alternate, report
from bench.feast import Feast, environment, repository
from bench.regions import MAIN, Regions, regions, report_progress
from bench.writer import NAMESPACE
from sterna.config.sections.load import parse_services
from sterna.pipelines.features import TrainingService, training_set
from sterna.replication.plan.options import SyncOptions
from sterna.replication.sync.run import sync
from sterna.servers.spark import add_catalog
from sterna.servers.valkey import start_valkey

GOAL = 1.0
_NAMES = ["f0", "f1", "d0", "s0"]
_KINDS = {"f": pa.int64(), "d": pa.float64(), "s": pa.string()}
_COMMITS = 5
_REPLICA = "replica_eu"
# Feast's own part, in its environment: everything is imported and warm before the clock starts.
_RETRIEVE = """\
import sys, time
import pandas as pd
from feast import FeatureStore

folder, labels, out, *features = sys.argv[1:]
store, asked = FeatureStore(folder), pd.read_parquet(labels)
store.get_historical_features(entity_df=asked.head(10), features=features).to_df()
started = time.monotonic()
store.get_historical_features(entity_df=pd.read_parquet(labels), features=features).to_df().to_parquet(out)
print(time.monotonic() - started)
"""


def bench(labels: int, rounds: int, work: Path | None, env: Path) -> None:
    """Measure so many labels about a tenth as many users, whose rows were added by a few commits."""
    with regions(work, memory="4g") as world:
        stage = world.stage
        add_catalog(
            world.spark, _REPLICA, stage.nessie.uri, "main_replica_eu", stage.warehouse("eu"), stage.endpoints["eu"]
        )
        history = _History.make(world, max(labels // 10, 10))
        labels_path = stage.work / "labels.parquet"
        pq.write_table(history.labels(labels), labels_path)
        valkey = start_valkey(stage.work / "valkey")  # Feast needs an online store, too
        try:
            feast = repository(stage.work / "feast", environment(env), history.parquet(stage.work), _NAMES, valkey)
            _measure(world, feast, labels_path, labels, rounds)
        finally:
            valkey.stop()


@dataclass(frozen=True)
class _History:
    """Rows of users by commit, and the moments in between, at which a label's answer is beyond doubt.

    Args:
        gaps: microseconds since 1970: from behind a commit until before the next one's rows are true.
    """

    rows: pa.Table
    gaps: tuple[tuple[int, int], ...]

    @classmethod
    def make(cls, world: Regions, users: int) -> _History:
        """Commit rows of half of the users, a few times, and sync eu."""
        rng, name = np.random.default_rng(1), f"{MAIN}.{NAMESPACE}.history"
        world.spark.sql(f"CREATE NAMESPACE {MAIN}.{NAMESPACE}")
        parts, ends = [], []
        for number in range(_COMMITS):
            rows = _rows(rng.choice(users, users // 2, replace=False), number)
            # By Spark: Nessie's Iceberg REST, which PyIceberg writes through, keeps no snapshot but the current one.
            arriving = world.spark.createDataFrame(rows).writeTo(name)
            arriving.append() if number else arriving.using("iceberg").create()
            parts.append(rows)
            ends.append(_now())
            time.sleep(0.2)  # room for labels
        with world.context() as context:
            sync(context, SyncOptions(), lambda line: None)
        begins = [part["ts"][0].value for part in parts[1:]] + [_now()]
        return cls(pa.concat_tables(parts), tuple(zip(ends, begins, strict=True)))

    def labels(self, count: int) -> pa.Table:
        """Return labels of random users at random moments; some users have no row by then, or none at all."""
        rng = np.random.default_rng(2)
        users = rng.integers(0, max(count // 10, 10) * 11 // 10, count)
        places = rng.integers(0, len(self.gaps), count)
        begins, ends = (np.array(side)[places] for side in zip(*self.gaps, strict=True))
        times = begins + (rng.random(count) * (ends - begins)).astype(np.int64)
        # Of two labels of the same user and time Feast returns one, and omits the other.
        users, times = np.unique(np.stack([users, times]), axis=1)
        count = len(users)
        moments = pa.array(times, pa.int64()).cast(pa.timestamp("us", "UTC"))
        return pa.table({"user_id": users, "event_timestamp": moments, "label": np.arange(count)})

    def parquet(self, folder: Path) -> Path:
        """Return the rows as Feast's offline store has them."""
        path = folder / "history.parquet"
        pq.write_table(self.rows, path)
        return path


def _rows(users: np.ndarray, number: int) -> pa.Table:
    """Return rows that are true from now on."""
    values = {"f0": users * 3 + number, "f1": users + 7 * number, "d0": users / 7 + number}
    columns = {name: pa.array(column, _KINDS[name[0]]) for name, column in values.items()}
    texts = pa.array([f"city {user % 1000} of {number}" for user in users])
    now = pa.array(np.full(len(users), _now()), pa.int64()).cast(pa.timestamp("us", "UTC"))
    return pa.table({"user_id": pa.array(users, pa.int64()), **columns, "s0": texts, "ts": now})


def _now() -> int:
    return int(datetime.now(UTC).timestamp() * 1e6)


def _measure(world: Regions, feast: Feast, labels_path: Path, labels: int, rounds: int) -> None:
    folder = world.stage.work
    service = _service()
    script = folder / "retrieve.py"
    script.write_text(_RETRIEVE)

    def ours() -> float:
        started = time.monotonic()
        frame = training_set(world.spark.read.parquet(str(labels_path)), service)
        frame.write.mode("overwrite").parquet(str(folder / "ours.parquet"))
        return time.monotonic() - started

    def theirs() -> float:
        python, out = feast.program.parent / "python", folder / "theirs.parquet"
        names = [f"user:{name}" for name in _NAMES]
        output = subprocess.run(
            [python, script, feast.folder, labels_path, out, *names], check=True, capture_output=True, text=True
        ).stdout
        return float(output.split()[-1])

    sides = alternate({"sterna": ours, "Feast's historical retrieval": theirs}, rounds, report_progress)
    matched, left = _same(folder, pq.read_metadata(labels_path).num_rows)
    details = {"labels with features": matched, "labels that Feast leaves out": left, "commits": _COMMITS}
    report(Result("training", f"{labels} labels", GOAL, "at least", "times", sides, details=details))


def _service() -> TrainingService:
    view = {"name": "user", "entity": "user", "table": f"{NAMESPACE}.history", "features": _NAMES, "event_time": "ts"}
    section = {
        "online": {},
        "entities": [{"name": "user", "key": {"user_id": "long"}}],
        "views": [view],
        "services": [{"name": "all", "features": [f"user.{name}" for name in _NAMES]}],
    }
    features = parse_services(json.dumps({"version": 1, "features": section}), "services").features
    assert features is not None
    return TrainingService(features, features.services[0], _REPLICA)


def _same(folder: Path, labels: int) -> tuple[int, int]:
    """Assert that both have the same for each label; return how many have features, and how many Feast omits.

    It omits labels of users that only have later rows: ours have to be without features.
    """
    mine = pq.read_table(folder / "ours.parquet").to_pandas().set_index("label").sort_index()
    other = pq.read_table(folder / "theirs.parquet").to_pandas().set_index("label").sort_index()
    assert len(mine) == labels and mine.index.is_unique and other.index.is_unique, (len(mine), len(other))
    other = other.reindex(mine.index)
    for name in _NAMES:
        ours, theirs = mine[f"user.{name}"], other[name]
        alike = (ours == theirs) | (ours.isna() & theirs.isna())
        assert alike.all(), (name, ours[~alike].head(3), theirs[~alike].head(3))
    return int(mine["user.f0"].notna().sum()), int(other["user_id"].isna().sum())
