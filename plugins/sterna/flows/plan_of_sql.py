"""What a flow's SQL may be, by Spark's own analysis of it: so that steps and a rebuild come to the same rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sterna.changes.rows import is_plain
from sterna.edges.spark.start import failures, summary
from sterna.errors import ServicesError
from sterna.flows.expressions import FLOATS, class_of, id_of, items, leaf_types, not_allowed, parts_of
from sterna.flows.origins import Origins, Unproven, cast_text, of_place
from sterna.iceberg.metadata.sql_tokens import Tokens
from sterna.services.flows import Flow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

VIEW = "changes"
"""What a flow's SQL calls the rows of its step."""
_LEAVES = frozenset({"View", "CTERelationRef"})  # the one view that there is: what stands in it is the step's rows
_ONE_BY_ONE = _LEAVES | {"Project", "Filter", "SubqueryAlias", "WithCTE", "CTERelationDef"}
# Spark calls them deterministic, for within one query they are.
_OF_NOW = frozenset(
    {"CurrentDate", "CurrentTime", "CurrentTimestamp", "LocalTimestamp", "Now"}
    | {"CurrentUser", "CurrentCatalog", "CurrentDatabase"}
)
# Of rows that tie in their order they take whichever comes first.
_OF_ORDER = frozenset(
    {"First", "Last", "AnyValue", "MaxBy", "MinBy", "Mode", "NthValue", "Lag", "Lead", "NTile", "RowNumber"}
    | {"CollectList", "CollectSet", "ListAgg", "ApproximatePercentile", "HistogramNumeric"}
)
# By the place of a row in its window: any of rows that are equal in all that they have may stand there.
_OF_PLACE = frozenset({"First", "Last", "NthValue", "Lag", "Lead", "NTile", "RowNumber"})
_RANKS = frozenset({"Rank", "DenseRank", "PercentRank", "CumeDist"})
_SEVERAL = _ONE_BY_ONE | {"Generate", "Union"}
_GROUPED = _SEVERAL | {"Aggregate", "Distinct", "Join", "Sort", "Window"}
_TYPES_OF_TIME = frozenset({"date", "timestamp", "timestamp_ntz", "timestamp_ltz"})
# A time without its date is one of today.
_CONSTANT = re.compile(r"""[rR]?['"]\s*(?:[+-]?\d{4,}\s*(?:-|['"])|epoch\b)""", re.IGNORECASE)


def check_sql(spark: SparkSession, flow: Flow, sql: str, source: StructType, target: StructType | None) -> StructType:
    """See that a flow's SQL can be worked off in steps; return the columns that it gives.

    Args:
        spark: a session of its own; the view is made in it.
        flow: the flow.
        sql: its SQL.
        source: the source's columns.
        target: the target's; None: there is none yet.

    Raises:
        ServicesError: it can't; the message says why.
    """
    try:
        spark.createDataFrame([], source).createOrReplaceTempView(VIEW)
        found = spark.sql(sql)
        fault = next(_faults(flow.mode.kind, java_plan(found), sql), None)
    except failures() as error:
        raise _wrong(flow, summary(error, 3)) from None
    if fault is not None:
        raise _wrong(flow, fault)
    _refuse_columns(flow, found, source, target)
    try:
        fault = _unproven(spark, flow, java_plan(found), source)
    except failures() as error:
        raise _wrong(flow, summary(error, 3)) from None
    if fault:
        raise _wrong(flow, fault)
    return found.schema


def _unproven(spark: SparkSession, flow: Flow, plan: Any, source: StructType) -> str:
    """Return why it can't be shown that a step's rows are those of its keys or partitions; "" where it can."""
    mode = flow.mode
    if mode.kind == "merge":
        made = Origins().of_result(plan)
        changed = [name for name in mode.columns if not _is_source(made[name], source, name)]
        return f"the key has to be the source's column as it is, and {', '.join(changed)} isn't" if changed else ""
    if mode.kind != "replace":
        return ""
    (column,), said = mode.columns, flow.partition
    partition = of_place(source.names.index(column)) if not said else ""
    if said:
        told = java_plan(spark.sql(f"SELECT {said} FROM {VIEW}"))  # noqa: S608 - an expression of the operator's
        fault = next(_faults("merge", told, said), None)
        if fault is not None:
            return f"partition: {fault}"
        made = Origins().of_result(told)
        if len(made) != 1:
            return "partition: expected one expression"
        (partition,) = made.values()
    shown = said or column
    try:
        made = Origins(partition).of_result(plan)
    except Unproven as error:
        return (
            f"rows of several partitions may meet: {error.why} has to be by `{shown}`, written as in the services file"
        )
    if made[column] != partition:
        return f"column {column} has to say which partition of the source a row is of: `{shown}`, and nothing else"
    return ""


def _is_source(made: str, source: StructType, name: str) -> bool:
    """Tell whether a column of the result is one of the source's, or that as a longer integer."""
    place = of_place(source.names.index(name))
    longer = {"byte": ("short", "integer", "long"), "short": ("integer", "long"), "integer": ("long",)}
    kinds = longer.get(source[name].dataType.typeName(), ())
    return made in (place, *(cast_text(place, f'"{kind}"') for kind in kinds))


def _faults(mode: str, plan: Any, sql: str) -> Iterator[str]:
    """Yield why a query's steps and a rebuild may come to other rows."""
    nodes = list(plan_nodes(plan))
    names = {str(node.nodeName()) for node in nodes}
    leaves = {str(node.nodeName()) for node in nodes if not node.children().size()}
    if leaves - _LEAVES:
        yield f"it may read the view `{VIEW}` and nothing else"
    ordered = [_is_ordered(node) for node in nodes]
    expressions = [
        (class_of(each), each)
        for node, total in zip(nodes, ordered, strict=True)
        for each in _expressions(node)
        if not (total and class_of(each) in _OF_PLACE)
    ]
    classes = {name for name, _ in expressions}
    frames = [
        _frame(each)
        for node, total in zip(nodes, ordered, strict=True)
        for each in _expressions(node)
        if not total and class_of(each) == "WindowExpression"
    ]
    repeats = plan.deterministic() or (any(ordered) and not any(_is_undetermined(each) for _, each in expressions))
    if not repeats or classes & _OF_NOW or names_moment(sql):
        yield "it gives other rows each time: rand, uuid, current_date and the like can't be repeated"
    # A frame of some rows by their number: of rows that tie in its order it takes any.
    if classes & _OF_ORDER or any("RowFrame" in frame and frame.count("unbounded") < 2 for frame in frames):
        yield (
            "it takes one of several rows by an order that may tie, as first, row_number and max_by do; a window may, "
            "where its PARTITION BY and ORDER BY name all columns that its rows have, and none has floats"
        )
    strange = names - {"append": _SEVERAL, "merge": _ONE_BY_ONE}.get(mode, _GROUPED)
    if strange or any(not node.subqueries().isEmpty() for node in nodes):
        what = ", ".join(sorted(name.lower() for name in strange)) or "a subquery"
        takes = "one partition's rows" if mode == "replace" else "rows one by one"
        yield f"mode {mode} takes {takes}, and this has {what}: see docs/flows.md"
    if any(_over_all(node) for node in nodes):
        yield "a window or an aggregate goes over all rows: name what they are grouped or partitioned by"
    yield from not_allowed(expressions)


def names_moment(sql: str) -> bool:
    """Tell whether SQL has a date or time by a word, such as `TIMESTAMP'now'`, or a comment that doesn't end.

    Spark puts a value in its place before anybody sees a plan. Comments may stand in between, and nest.
    """
    tokens, after_type = Tokens(sql, "spark"), False
    for kind, text, _ in tokens.found:
        if kind == "sign" and not text.isascii():
            continue  # a blank by another lexer's rules
        if after_type and kind == "text" and not _CONSTANT.match(text):
            return True
        after_type = kind == "word" and text.lower() in _TYPES_OF_TIME
    return not tokens.closed


def java_plan(frame: DataFrame) -> Any:
    """Return the analyzed plan of a query, as Spark's own object in the JVM."""
    java: Any = frame
    return java._jdf.queryExecution().analyzed()


def plan_nodes(plan: Any) -> Iterator[Any]:
    """Yield the nodes of a plan and of its subqueries, down to the view."""
    yield plan
    if str(plan.nodeName()) == "View":
        return
    for below in (plan.children(), plan.subqueries()):
        for node in items(below):
            yield from plan_nodes(node)


def _expressions(node: Any) -> Iterator[Any]:
    waiting = list(items(node.expressions()))
    while waiting:
        each = waiting.pop()
        yield each
        waiting += parts_of(each)


def _is_ordered(node: Any) -> bool:
    """Tell whether rows that tie in a window's order are equal in all that they have."""
    if str(node.nodeName()) != "Window":
        return False
    told = [*items(node.partitionSpec()), *(each.child() for each in items(node.orderSpec()))]
    named = {id_of(each) for each in told if class_of(each) == "AttributeReference"}
    rows = [each for below in items(node.children()) for each in items(below.output())]
    return all(id_of(each) in named and leaf_types(each.dataType()).isdisjoint(FLOATS) for each in rows)


def _is_undetermined(expression: Any) -> bool:
    """Tell whether it is an expression itself that gives another value each time, and not a part of it."""
    return not expression.deterministic() and all(each.deterministic() for each in items(expression.children()))


def _frame(window: Any) -> str:
    """Return the frame of a window as text; "" of ranks, of which rows that tie have the same."""
    if class_of(window.windowFunction()) in _RANKS:
        return ""
    return str(window.windowSpec().frameSpecification().toString())


def _over_all(node: Any) -> bool:
    name = str(node.nodeName())
    if name == "Aggregate":
        return bool(node.groupingExpressions().isEmpty())
    return name == "Window" and bool(node.partitionSpec().isEmpty())


def _refuse_columns(flow: Flow, found: DataFrame, source: StructType, target: StructType | None) -> None:
    names = found.schema.names
    if len(set(names)) < len(names):
        raise _wrong(flow, f"a column stands twice: {', '.join(names)}")
    _refuse_missing(flow, "the SQL gives no", flow.mode.columns, names)
    if flow.mode.kind == "merge" or (flow.mode.kind == "replace" and not flow.partition):
        _refuse_missing(flow, "the source has no", flow.mode.columns, source.names)
    for name in flow.mode.columns:
        kinds = [schema[name].dataType for schema in (source, found.schema) if name in schema.names]
        if not all(is_plain(kind) for kind in kinds):
            raise _wrong(
                flow,
                f"column {name} is a {kinds[-1].simpleString()}, which tells no rows apart: 0.0 and "
                "-0.0, NaN, a map's entries, and texts by a collation are equal by one rule and differ by another",
            )
    if target is not None and set(names) != set(target.names):
        raise _wrong(flow, f"it gives the columns {', '.join(names)}, and {flow.into} has {', '.join(target.names)}")


def _refuse_missing(flow: Flow, said: str, wanted: Sequence[str], names: Sequence[str]) -> None:
    if missing := [name for name in wanted if name not in names]:
        raise _wrong(flow, f"{said} column {', '.join(missing)} for mode {flow.mode}: there are {', '.join(names)}")


def _wrong(flow: Flow, why: str) -> ServicesError:
    return ServicesError(f"flow {flow.name}, its SQL: {why}", hint="correct the services file, or the file of the SQL")
