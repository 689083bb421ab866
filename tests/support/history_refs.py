"""Operations of a history that change which snapshots there are and who points at them, and those that count what
is in one.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.support.history_state import Operation, State, Turn


def expire(turn: Turn) -> list[str]:
    # Nessie's catalog makes tables with gc.enabled=false, which refuses to expire.
    keep = turn.rng.choice(["1", "1", "2", "3"])
    arguments = {"older_than": "now()", "retain_last": keep}
    if turn.maybe(0.3):
        arguments["clean_expired_metadata"] = "true"
    return [turn.alter("SET TBLPROPERTIES ('gc.enabled'='true')"), turn.call("expire_snapshots", **arguments)]


def rollback(turn: Turn) -> list[str]:
    ancestors = turn.state.line(turn.state.current)[1:]
    return [turn.call("rollback_to_snapshot", snapshot_id=str(turn.rng.choice(ancestors)))] if ancestors else []


def set_current(turn: Turn) -> list[str]:
    refs = sorted({*turn.state.branches, *turn.state.tags})
    if refs and turn.maybe(0.5):
        return [turn.call("set_current_snapshot", ref=f"'{turn.rng.choice(refs)}'")]
    return (
        [turn.call("set_current_snapshot", snapshot_id=str(turn.rng.choice(list(turn.state.snapshots))))]
        if turn.state.snapshots
        else []
    )


def cherry_pick(turn: Turn) -> list[str]:
    picks = [snapshot for snapshot in turn.state.snapshots if _pickable(turn.state, snapshot)]
    return [turn.call("cherrypick_snapshot", snapshot_id=str(turn.rng.choice(picks)))] if picks else []


def stage(turn: Turn) -> list[str]:
    """Write for an audit: a snapshot that no reader sees, or a branch of its own."""
    enable = turn.alter("SET TBLPROPERTIES ('write.wap.enabled'='true')")
    setting, name = turn.rng.choice(
        [("spark.wap.id", f"audit{turn.number}")] * 3 + [("spark.wap.branch", f"audit{turn.number}")]
    )
    return [enable, f"SET {setting}={name}", f"INSERT INTO {turn.name} {turn.rows()}", f"RESET {setting}"]


def publish(turn: Turn) -> list[str]:
    names = [name for name, snapshot in turn.state.staged().items() if _pickable(turn.state, snapshot)]
    return [turn.call("publish_changes", wap_id=f"'{turn.rng.choice(names)}'")] if names else []


def create_ref(turn: Turn) -> list[str]:
    """A new branch or tag, at a snapshot of its own choice or the current one."""
    if turn.state.current is None:
        return []
    kind = turn.rng.choice(["BRANCH", "TAG"])
    version = f" AS OF VERSION {turn.rng.choice(list(turn.state.snapshots))}" if turn.maybe(0.5) else ""
    retain = " RETAIN 7 DAYS" if turn.maybe(0.3) else ""
    kept = " WITH SNAPSHOT RETENTION 2 SNAPSHOTS" if kind == "BRANCH" and turn.maybe(0.3) else ""
    return [turn.alter(f"CREATE {kind} {kind[0].lower()}{turn.number}{version}{retain}{kept}")]


def replace_ref(turn: Turn) -> list[str]:
    ref = _pick_ref(turn)
    return (
        [turn.alter(f"REPLACE {ref[0]} {ref[1]} AS OF VERSION {turn.rng.choice(list(turn.state.snapshots))}")]
        if ref
        else []
    )


def drop_ref(turn: Turn) -> list[str]:
    ref = _pick_ref(turn)
    return [turn.alter(f"DROP {ref[0]} {ref[1]}")] if ref else []


def fast_forward(turn: Turn) -> list[str]:
    """Bring main to a branch that is ahead of it, or a branch to main."""
    state = turn.state
    moves = [("main", name) for name, at in sorted(state.branches.items()) if state.current in state.line(at)[1:]]
    moves += [(name, "main") for name, at in sorted(state.branches.items()) if at in state.line(state.current)[1:]]
    if not moves:
        return []
    branch, to = turn.rng.choice(moves)
    return [turn.call("fast_forward", branch=f"'{branch}'", to=f"'{to}'")]


def table_statistics(turn: Turn) -> list[str]:
    return [turn.call("compute_table_stats")] if turn.state.current is not None else []


def partition_statistics(turn: Turn) -> list[str]:
    # Iceberg writes them in the table's own format, but not in ORC.
    able = turn.state.spec and turn.state.properties.get("write.format.default") != "orc"
    return [turn.call("compute_partition_stats")] if turn.state.current is not None and able else []


def _pick_ref(turn: Turn) -> tuple[str, str] | None:
    refs = [("BRANCH", name) for name in turn.state.branches] + [("TAG", name) for name in turn.state.tags]
    return turn.rng.choice(sorted(refs)) if refs else None


def _pickable(state: State, snapshot: int) -> bool:
    """What Iceberg picks: an append, or anything right on top of the current snapshot; never the same change twice."""
    line = state.line(state.current)
    sources = {state.snapshots[id].summary.get("source-snapshot-id", str(id)) for id in line}
    one = state.snapshots[snapshot]
    if snapshot in line or one.summary.get("source-snapshot-id", str(snapshot)) in sources:
        return False
    return one.operation == "append" or one.parent == state.current


REFS: Mapping[str, tuple[float, Operation]] = {
    "expire": (4, expire),
    "rollback": (3, rollback),
    "set current": (2, set_current),
    "cherry-pick": (6, cherry_pick),
    "create ref": (5, create_ref),
    "replace ref": (2, replace_ref),
    "drop ref": (1.5, drop_ref),
    "fast forward": (5, fast_forward),
    "table statistics": (2, table_statistics),
    "partition statistics": (3, partition_statistics),
}
"""Each operation by name, with its weight."""

WAP: Mapping[str, tuple[float, Operation]] = {"stage": (4, stage), "publish": (6, publish)}
"""Write, audit, publish."""
