"""Operations of a history that write rows, and those that put the same rows into other files."""

from __future__ import annotations

from collections.abc import Mapping

from tests.support.history_state import Operation, Turn, value


def append(turn: Turn) -> list[str]:
    return [f"INSERT INTO {_target(turn)} {turn.rows()}"]


def overwrite(turn: Turn) -> list[str]:
    """All rows, or those of the partitions that the new rows fall into."""
    statement = f"INSERT OVERWRITE {_target(turn)} {turn.rows()}"
    if turn.maybe(0.3):
        return [statement]
    mode = "spark.sql.sources.partitionOverwriteMode"
    return [f"SET {mode}=dynamic", statement, f"RESET {mode}"]


def delete(turn: Turn) -> list[str]:
    return [f"DELETE FROM {_target(turn)} WHERE {_condition(turn)}"]


def delete_all(turn: Turn) -> list[str]:
    return [turn.rng.choice([f"DELETE FROM {turn.name}", f"TRUNCATE TABLE {turn.name}"])]


def update(turn: Turn) -> list[str]:
    columns = turn.state.others
    if not columns:
        return []
    chosen = turn.rng.sample(columns, min(len(columns), turn.rng.randrange(1, 3)))
    salt = turn.rng.randrange(100)
    changes = ", ".join(f"{column.quoted} = {value(column, turn.state.key.quoted, salt)}" for column in chosen)
    return [f"UPDATE {_target(turn)} SET {changes} WHERE {_condition(turn)}"]


def merge(turn: Turn) -> list[str]:
    key = turn.state.key.quoted
    changes = [
        f"WHEN MATCHED AND s.{key} % {turn.rng.randrange(2, 5)} = 0 THEN DELETE" if turn.maybe(0.5) else "",
        "WHEN MATCHED THEN UPDATE SET *" if turn.maybe(0.8) else "",
        "WHEN NOT MATCHED THEN INSERT *",
        f"WHEN NOT MATCHED BY SOURCE AND t.{key} % 11 = {turn.rng.randrange(11)} THEN DELETE"
        if turn.maybe(0.3)
        else "",
    ]
    return [
        f"MERGE INTO {_target(turn)} t USING ({turn.rows()}) s ON t.{key} = s.{key} {' '.join(filter(None, changes))}"
    ]


def compact(turn: Turn) -> list[str]:
    arguments = {"options": _options(turn, _COMPACTION)}
    key = turn.state.key.quoted
    if turn.maybe(0.3):
        arguments |= {"strategy": "'sort'", "sort_order": f"'{key} DESC NULLS LAST'"}
    elif turn.maybe(0.2):
        arguments |= {"strategy": "'sort'", "sort_order": f"'zorder({key})'"}
    if turn.maybe(0.2):
        arguments["where"] = f"'{key} < {turn.rng.randrange(20, 150)}'"
    return [turn.call("rewrite_data_files", **arguments)]


def compact_deletes(turn: Turn) -> list[str]:
    return [turn.call("rewrite_position_delete_files", options=_options(turn, {"rewrite-all": ("true",)}))]


def rewrite_manifests(turn: Turn) -> list[str]:
    return [turn.call("rewrite_manifests", use_caching=turn.rng.choice(["true", "false"]))]


def upkeep(turn: Turn) -> list[str]:
    """Upkeep by sterna, of one region's files; sizes for which these small tables' files are small."""
    target = turn.rng.choice(["2KiB", "4KiB", "8KiB", "256MiB"])
    return [f"@upkeep {turn.rng.choice(sorted(turn.warehouses))} {target} {turn.table}"]


_COMPACTION: Mapping[str, tuple[str, ...]] = {
    "rewrite-all": ("true", "true", "false"),
    "delete-file-threshold": ("1",),
    "min-input-files": ("2",),
    "remove-dangling-deletes": ("true", "false"),
    "use-starting-sequence-number": ("true", "false"),
    "partial-progress.enabled": ("true", "false"),
}


def _options(turn: Turn, choices: Mapping[str, tuple[str, ...]]) -> str:
    chosen = [
        (name, turn.rng.choice(values)) for name, values in choices.items() if len(values) == 1 or turn.maybe(0.5)
    ]
    listed = ", ".join(f"'{name}', '{one}'" for name, one in chosen)
    return f"map({listed})"


def _target(turn: Turn) -> str:
    """The table, or now and then one of its branches."""
    branches = sorted(turn.state.branches)
    return f"{turn.name}.branch_{turn.rng.choice(branches)}" if branches and turn.maybe(0.2) else turn.name


def _condition(turn: Turn) -> str:
    key = turn.state.key.quoted
    kind = turn.rng.randrange(4)
    identity = [
        column
        for column in turn.state.columns
        if (column.id, "identity") in {(id, transform) for _, transform, id in turn.state.spec}
    ]
    if kind == 0 and identity:
        column = turn.rng.choice(identity)  # whole partitions: no file is read or rewritten
        return turn.rng.choice([f"{column.quoted} IS NULL", f"{column.quoted} = {value(column, '7', 1)}"])
    if kind == 1:
        return f"{key} < {turn.rng.randrange(1, 60)}"
    if kind == 2:
        return f"{key} IN ({', '.join(str(turn.rng.randrange(180)) for _ in range(4))})"
    modulus = turn.rng.randrange(2, 12)
    return f"{key} % {modulus} = {turn.rng.randrange(modulus)}"


ROWS: Mapping[str, tuple[float, Operation]] = {
    "append": (10, append),
    "overwrite": (4, overwrite),
    "delete": (12, delete),
    "delete all": (0.7, delete_all),
    "update": (7, update),
    "merge": (7, merge),
    "compact": (5, compact),
    "compact deletes": (4, compact_deletes),
    "upkeep": (5, upkeep),
    "rewrite manifests": (4, rewrite_manifests),
}
"""Each operation by name, with its weight."""
