"""Validates a transform's SQL by Spark's own analysis: steps and a rebuild must give the same rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sterna.config.sections.transforms import Transform
from sterna.errors import ServicesError
from sterna.iceberg.metadata.sql_tokens import Tokens
from sterna.pipelines.transforms.expressions import (
    FLOATS,
    class_name,
    expression_id,
    find_disallowed,
    iter_seq,
    leaf_types,
    subexpressions,
)
from sterna.pipelines.transforms.lineage import Origins, Unproven, cast_text, column_text
from sterna.spark.start import spark_errors, summarize_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

VIEW = "changes"
"""What a transform's SQL calls the rows of its step."""
_LEAF_NODES = frozenset({"View", "CTERelationRef"})  # the only view has the step's rows
_ROW_NODES = _LEAF_NODES | {"Project", "Filter", "SubqueryAlias", "WithCTE", "CTERelationDef"}
# Spark calls them deterministic, for within one query they are.
_CURRENT_FUNCTIONS = frozenset(
    {"CurrentDate", "CurrentTime", "CurrentTimestamp", "LocalTimestamp", "Now"}
    | {"CurrentUser", "CurrentCatalog", "CurrentDatabase"}
)
# Of rows that tie in their order they take any.
_ORDER_FUNCTIONS = frozenset(
    {"First", "Last", "AnyValue", "MaxBy", "MinBy", "Mode", "NthValue", "Lag", "Lead", "NTile", "RowNumber"}
    | {"CollectList", "CollectSet", "ListAgg", "ApproximatePercentile", "HistogramNumeric"}
)
# By the place of a row in its window: any of rows that are equal in all that they have may stand there.
_WINDOW_FUNCTIONS = frozenset({"First", "Last", "NthValue", "Lag", "Lead", "NTile", "RowNumber"})
_RANK_FUNCTIONS = frozenset({"Rank", "DenseRank", "PercentRank", "CumeDist"})
_APPEND_NODES = _ROW_NODES | {"Generate", "Union"}
_REPLACE_NODES = _APPEND_NODES | {"Aggregate", "Distinct", "Join", "Sort", "Window"}
_TIME_TYPES = frozenset({"date", "timestamp", "timestamp_ntz", "timestamp_ltz"})
# A time without its date is one of today.
_CONSTANT = re.compile(r"""[rR]?['"]\s*(?:[+-]?\d{4,}\s*(?:-|['"])|epoch\b)""", re.IGNORECASE)


def validate_sql(
    spark: SparkSession, transform: Transform, sql: str, source: StructType, target: StructType | None
) -> StructType:
    """See that a transform's SQL can be worked off in steps; return the columns that it gives.

    Args:
        spark: a session of its own; the view is made in it.
        source: the source's columns.
        target: the target's; None: there is none yet.

    Raises:
        ServicesError: it can't, for the reason in the message.
    """
    try:
        spark.createDataFrame([], source).createOrReplaceTempView(VIEW)
        frame = spark.sql(sql)
        fault = next(_find_faults(transform.mode.kind, java_plan(frame), sql), None)
    except spark_errors() as error:
        raise _sql_error(transform, summarize_error(error, 3)) from None
    if fault is not None:
        raise _sql_error(transform, fault)
    _validate_columns(transform, frame, source, target)
    try:
        fault = _find_unproven(spark, transform, java_plan(frame), source)
    except spark_errors() as error:
        raise _sql_error(transform, summarize_error(error, 3)) from None
    if fault:
        raise _sql_error(transform, fault)
    return frame.schema


def _find_unproven(spark: SparkSession, transform: Transform, plan: Any, source: StructType) -> str:
    """Return why it can't be shown that a step's rows are those of its keys or partitions; "" where it can."""
    mode = transform.mode
    if mode.kind == "merge":
        lineage = Origins().result_columns(plan)
        changed = [name for name in mode.columns if not _is_source_column(lineage[name], source, name)]
        return f"the key has to be the source's column as it is, and {', '.join(changed)} isn't" if changed else ""
    if mode.kind != "replace":
        return ""
    (column,), expression = mode.columns, transform.partition
    partition = column_text(source.names.index(column)) if not expression else ""
    if expression:
        partition_plan = java_plan(spark.sql(f"SELECT {expression} FROM {VIEW}"))  # noqa: S608 - an expression of the operator's
        fault = next(_find_faults("merge", partition_plan, expression), None)
        if fault is not None:
            return f"partition: {fault}"
        lineage = Origins().result_columns(partition_plan)
        if len(lineage) != 1:
            return "partition: expected one expression"
        (partition,) = lineage.values()
    partition_sql = expression or column
    try:
        lineage = Origins(partition).result_columns(plan)
    except Unproven as error:
        return (
            f"rows of several partitions may meet: {error.reason} has to be by `{partition_sql}`, written as in the "
            "services file"
        )
    if lineage[column] != partition:
        return (
            f"column {column} has to say which partition of the source a row is of: `{partition_sql}`, and nothing else"
        )
    return ""


def _is_source_column(lineage: str, source: StructType, name: str) -> bool:
    """Return whether a column of the result is one of the source's, or that as a longer integer."""
    column = column_text(source.names.index(name))
    wider = {"byte": ("short", "integer", "long"), "short": ("integer", "long"), "integer": ("long",)}
    kinds = wider.get(source[name].dataType.typeName(), ())
    return lineage in (column, *(cast_text(column, f'"{kind}"') for kind in kinds))


def _find_faults(mode: str, plan: Any, sql: str) -> Iterator[str]:
    """Yield reasons why a query's steps and a rebuild may give other rows."""
    nodes = list(plan_nodes(plan))
    names = {str(node.nodeName()) for node in nodes}
    leaves = {str(node.nodeName()) for node in nodes if not node.children().size()}
    if leaves - _LEAF_NODES:
        yield f"it may read the view `{VIEW}` and nothing else"
    total_orders = [_is_totally_ordered(node) for node in nodes]
    expressions = [
        (class_name(expression), expression)
        for node, is_total in zip(nodes, total_orders, strict=True)
        for expression in _expressions(node)
        if not (is_total and class_name(expression) in _WINDOW_FUNCTIONS)
    ]
    classes = {name for name, _ in expressions}
    frames = [
        _frame(expression)
        for node, is_total in zip(nodes, total_orders, strict=True)
        for expression in _expressions(node)
        if not is_total and class_name(expression) == "WindowExpression"
    ]
    is_repeatable = plan.deterministic() or (
        any(total_orders) and not any(_is_nondeterministic(expression) for _, expression in expressions)
    )
    if not is_repeatable or classes & _CURRENT_FUNCTIONS or has_time_literal(sql):
        yield "it gives other rows each time: rand, uuid, current_date and the like can't be repeated"
    # A frame of some rows by their number: of rows that tie in its order it takes any.
    if classes & _ORDER_FUNCTIONS or any("RowFrame" in frame and frame.count("unbounded") < 2 for frame in frames):
        yield (
            "it takes one of several rows by an order that may tie, as first, row_number and max_by do; a window may, "
            "where its PARTITION BY and ORDER BY name all columns that its rows have, and none has floats"
        )
    unsupported_nodes = names - {"append": _APPEND_NODES, "merge": _ROW_NODES}.get(mode, _REPLACE_NODES)
    if unsupported_nodes or any(not node.subqueries().isEmpty() for node in nodes):
        unsupported = ", ".join(sorted(name.lower() for name in unsupported_nodes)) or "a subquery"
        accepted = "one partition's rows" if mode == "replace" else "rows one by one"
        yield f"mode {mode} takes {accepted}, and this has {unsupported}: see docs/transforms.md"
    if any(_is_ungrouped(node) for node in nodes):
        yield "a window or an aggregate goes over all rows: name what they are grouped or partitioned by"
    yield from find_disallowed(expressions)


def has_time_literal(sql: str) -> bool:
    """Return whether SQL has a date or time by a word, such as `TIMESTAMP'now'`, or a comment that doesn't end.

    Spark replaces it by a value before the plan is available. Comments may be nested.
    """
    tokens, after_type = Tokens(sql, "spark"), False
    for kind, text, _ in tokens.tokens:
        if kind == "sign" and not text.isascii():
            continue  # a blank by another lexer's rules
        if after_type and kind == "text" and not _CONSTANT.match(text):
            return True
        after_type = kind == "word" and text.lower() in _TIME_TYPES
    return not tokens.comments_closed


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
        for node in iter_seq(below):
            yield from plan_nodes(node)


def _expressions(node: Any) -> Iterator[Any]:
    pending = list(iter_seq(node.expressions()))
    while pending:
        expression = pending.pop()
        yield expression
        pending += subexpressions(expression)


def _is_totally_ordered(node: Any) -> bool:
    """Return whether rows that tie in a window's order are equal in all that they have."""
    if str(node.nodeName()) != "Window":
        return False
    keys = [*iter_seq(node.partitionSpec()), *(order.child() for order in iter_seq(node.orderSpec()))]
    named = {expression_id(key) for key in keys if class_name(key) == "AttributeReference"}
    rows = [attribute for below in iter_seq(node.children()) for attribute in iter_seq(below.output())]
    return all(
        expression_id(attribute) in named and leaf_types(attribute.dataType()).isdisjoint(FLOATS) for attribute in rows
    )


def _is_nondeterministic(expression: Any) -> bool:
    """Return whether it is an expression itself that gives another value each time, and not a part of it."""
    return not expression.deterministic() and all(child.deterministic() for child in iter_seq(expression.children()))


def _frame(window: Any) -> str:
    """Return the frame of a window as text; "" of ranks, of which rows that tie have the same."""
    if class_name(window.windowFunction()) in _RANK_FUNCTIONS:
        return ""
    return str(window.windowSpec().frameSpecification().toString())


def _is_ungrouped(node: Any) -> bool:
    name = str(node.nodeName())
    if name == "Aggregate":
        return bool(node.groupingExpressions().isEmpty())
    return name == "Window" and bool(node.partitionSpec().isEmpty())


def _validate_columns(transform: Transform, frame: DataFrame, source: StructType, target: StructType | None) -> None:
    from sterna.pipelines.changes.rows import is_plain

    names = frame.schema.names
    if len(set(names)) < len(names):
        raise _sql_error(transform, f"a column stands twice: {', '.join(names)}")
    _require_columns(transform, "the SQL gives no", transform.mode.columns, names)
    if transform.mode.kind == "merge" or (transform.mode.kind == "replace" and not transform.partition):
        _require_columns(transform, "the source has no", transform.mode.columns, source.names)
    for name in transform.mode.columns:
        kinds = [schema[name].dataType for schema in (source, frame.schema) if name in schema.names]
        if not all(is_plain(kind) for kind in kinds):
            raise _sql_error(
                transform,
                f"column {name} is a {kinds[-1].simpleString()}, which identifies no rows: 0.0 and "
                "-0.0, NaN, a map's entries, and texts by a collation are equal by one rule and differ by another",
            )
    if target is not None and set(names) != set(target.names):
        raise _sql_error(
            transform, f"it gives the columns {', '.join(names)}, and {transform.into} has {', '.join(target.names)}"
        )


def _require_columns(transform: Transform, prefix: str, required: Sequence[str], names: Sequence[str]) -> None:
    if missing := [name for name in required if name not in names]:
        raise _sql_error(
            transform, f"{prefix} column {', '.join(missing)} for mode {transform.mode}: there are {', '.join(names)}"
        )


def _sql_error(transform: Transform, reason: str) -> ServicesError:
    return ServicesError(
        f"transform {transform.name}, its SQL: {reason}", hint="correct the services file, or the file of the SQL"
    )
