"""Which of the source's columns a transform reads, and of nested ones which fields, by Spark's analysis of its SQL.

A column counts as a whole wherever the plan doesn't show that fields of it alone are read. What only hands it on reads
nothing of it: a projection under its own name, and what its rows pass through.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sterna.pipelines.transforms.columns import ELEMENT, VALUE, Path
from sterna.pipelines.transforms.expressions import class_name, expression_id, iter_seq
from sterna.pipelines.transforms.sql_plan import VIEW, java_plan, plan_nodes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

# Of their children's columns they read what their expressions name, and others as they read their own.
_PASS_THROUGH = frozenset({"Project", "Filter", "SubqueryAlias", "Join", "Window", "Sort", "Aggregate", "Generate"})


@dataclass(frozen=True)
class ColumnUsage:
    """Which of the source's columns some queries read.

    Args:
        named: by expressions, in their order: a `*` in one means all that the source has.
        passed: as they are, by the result or by a DISTINCT.
    """

    named: tuple[Path, ...]
    passed: frozenset[Path]

    @property
    def paths(self) -> frozenset[Path]:
        """All of them."""
        return self.passed.union(self.named)

    def changed_since(self, old: ColumnUsage) -> str:
        """Return, for people, what a `*` means now that it didn't, "" where a rebuild would give the same rows.

        A column that only passes, and was NULL in all rows from before, changes none of them.
        """
        removed = sorted(old.paths - self.paths)
        if removed:
            return f"{_format_paths(removed)} went"
        if self.named != old.named:
            return f"`*` means {_format_paths(self.named)}, and meant {_format_paths(old.named)}"
        return ""


def read_columns(spark: SparkSession, queries: Sequence[str], source: StructType) -> ColumnUsage:
    """Return which of the source's columns some queries over the view read, by Spark's analysis of them.

    Args:
        spark: a session of its own; the view is made in it.
        queries: they can be analyzed.
        source: the source's columns.
    """
    spark.createDataFrame([], source).createOrReplaceTempView(VIEW)
    named, passed = list[Path](), set[Path]()
    for query in queries:
        _collect_columns(java_plan(spark.sql(query)), named, passed)
    return ColumnUsage(tuple(dict.fromkeys(named)), frozenset(passed))


def _format_paths(paths: Iterable[Path]) -> str:
    return ", ".join(".".join(path) for path in paths)


def _collect_columns(plan: Any, named: list[Path], passed: set[Path]) -> None:
    names: dict[int, str] = {}
    used: list[tuple[int, Path]] = []
    passed_ids = [expression_id(attribute) for attribute in iter_seq(plan.output())]
    for node in plan_nodes(plan):
        kind = str(node.nodeName())
        if kind == "View":
            names |= {expression_id(attribute): str(attribute.name()) for attribute in iter_seq(node.output())}
            continue
        for expression in iter_seq(node.expressions()):
            if kind != "Project" or class_name(expression) != "AttributeReference":
                used += _field_paths(expression)
        if kind not in _PASS_THROUGH:
            passed_ids += [
                expression_id(attribute)
                for child in iter_seq(node.children())
                for attribute in iter_seq(child.output())
            ]
    named += [(names[id], *path) for id, path in used if id in names]
    passed |= {(names[id],) for id in passed_ids if id in names}


def _field_paths(expression: Any) -> Iterator[tuple[int, Path]]:
    """Yield what an expression reads: ids of columns, each with the way to a field."""
    steps: Path = ()
    while class_name(expression) != "AttributeReference":
        below, step, others = _field_step(expression)
        if below is None:
            for child in iter_seq(expression.children()):
                yield from _field_paths(child)
            return
        for other in others:
            yield from _field_paths(other)
        expression, steps = below, (*step, *steps)
    yield expression_id(expression), steps


def _field_step(expression: Any) -> tuple[Any, Path, tuple[Any, ...]]:
    """Return what an expression takes something out of, which that is, and what else it reads; None for others."""
    name = class_name(expression)
    if name == "GetStructField":
        below = expression.child()
        return below, (str(below.dataType().fields()[expression.ordinal()].name()),), ()
    if name == "GetArrayStructFields":
        return expression.child(), (ELEMENT, str(expression.field().name())), ()
    if name == "GetArrayItem":
        return expression.child(), (ELEMENT,), (expression.ordinal(),)
    if name == "GetMapValue":
        return expression.child(), (VALUE,), (expression.key(),)
    if name == "ElementAt":
        below = expression.left()
        step = ELEMENT if str(below.dataType().typeName()) == "array" else VALUE
        return below, (step,), (expression.right(),)
    return None, (), ()
