"""Which of the source's columns a flow reads, and of nested ones which fields, by Spark's analysis of its SQL.

A column counts as a whole wherever the plan doesn't show that fields of it alone are read. What only hands it on reads
nothing of it: a projection under its own name, and what its rows pass through.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sterna.flows.columns import ELEMENT, VALUE, Path
from sterna.flows.expressions import class_of, id_of, items
from sterna.flows.plan_of_sql import VIEW, java_plan, plan_nodes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

# Of their children's columns they read what their expressions name, and others as they read their own.
_HAND_ON = frozenset({"Project", "Filter", "SubqueryAlias", "Join", "Window", "Sort", "Aggregate", "Generate"})


@dataclass(frozen=True)
class Reads:
    """Which of the source's columns some queries read.

    Args:
        named: by expressions, in their order: a `*` in one stands for what the source has.
        passed: as they are, by the result or by a DISTINCT.
    """

    named: tuple[Path, ...]
    passed: frozenset[Path]

    @property
    def paths(self) -> frozenset[Path]:
        """All of them."""
        return self.passed.union(self.named)

    def changed_since(self, old: Reads) -> str:
        """Return, for people, what a `*` stands for now that it didn't, "" where a rebuild would give the same rows.

        A column that only passes, and was NULL in all rows from before, changes none of them.
        """
        gone = sorted(old.paths - self.paths)
        if gone:
            return f"{_list(gone)} went"
        if self.named != old.named:
            return f"`*` stands for {_list(self.named)}, and stood for {_list(old.named)}"
        return ""


def columns_read(spark: SparkSession, queries: Sequence[str], source: StructType) -> Reads:
    """Return which of the source's columns some queries over the view read, by Spark's analysis of them.

    Args:
        spark: a session of its own; the view is made in it.
        queries: they can be analyzed.
        source: the source's columns.
    """
    spark.createDataFrame([], source).createOrReplaceTempView(VIEW)
    named, passed = list[Path](), set[Path]()
    for query in queries:
        _read(java_plan(spark.sql(query)), named, passed)
    return Reads(tuple(dict.fromkeys(named)), frozenset(passed))


def _list(paths: Iterable[Path]) -> str:
    return ", ".join(".".join(path) for path in paths)


def _read(plan: Any, named: list[Path], passed: set[Path]) -> None:
    names: dict[int, str] = {}
    used: list[tuple[int, Path]] = []
    through = [id_of(each) for each in items(plan.output())]
    for node in plan_nodes(plan):
        kind = str(node.nodeName())
        if kind == "View":
            names |= {id_of(each): str(each.name()) for each in items(node.output())}
            continue
        for each in items(node.expressions()):
            if kind != "Project" or class_of(each) != "AttributeReference":
                used += _paths(each)
        if kind not in _HAND_ON:
            through += [id_of(each) for child in items(node.children()) for each in items(child.output())]
    named += [(names[id], *path) for id, path in used if id in names]
    passed |= {(names[id],) for id in through if id in names}


def _paths(expression: Any) -> Iterator[tuple[int, Path]]:
    """Yield what an expression reads: ids of columns, each with the way to a field."""
    steps: Path = ()
    while class_of(expression) != "AttributeReference":
        below, step, beside = _step(expression)
        if below is None:
            for each in items(expression.children()):
                yield from _paths(each)
            return
        for each in beside:
            yield from _paths(each)
        expression, steps = below, (*step, *steps)
    yield id_of(expression), steps


def _step(expression: Any) -> tuple[Any, Path, tuple[Any, ...]]:
    """Return what an expression takes something out of, which that is, and what else it reads; None for others."""
    name = class_of(expression)
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
