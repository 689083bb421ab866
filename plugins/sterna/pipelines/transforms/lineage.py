"""What each column of a query's result is made of, and whether its rows keep to one partition of the source.

A step of mode `replace` gives the SQL the rows of some partitions, a rebuild gives it all rows. Both come to the same
where no row of the result is made of rows of two partitions, and a column of it says which partition that is: rows meet
in groups, windows, joins and DISTINCT. So each of these has to be by the partition's value. Here that is shown from
Spark's analysis alone; what can't be shown is refused.

An expression is identified by a text of it, in which each column is replaced by what it is made of. Two equal texts are
equal values of the same row: the text has the class of each expression and all that it was made with, and constants
stand in quotes. Spark's own text of an expression has neither, and leaves out what is long.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sterna.pipelines.transforms.expressions import class_name, expression_id, iter_seq

_EXPRESSION = "org.apache.spark.sql.catalyst.expressions.Expression"
Lineage = dict[int, str]
"""By the id of a column, what it is made of."""
_LEFT_SIDE, _RIGHT_SIDE = "\u2190", "\u2192"  # constants have no such letters in a text: JSON escapes them
_PLACE = re.compile(rf"\{{(\d+)([{_LEFT_SIDE}{_RIGHT_SIDE}]*)\}}")


class Unproven(Exception):
    """Rows of several partitions may meet.

    Args:
        reason: a description of the place.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def column_text(index: int) -> str:
    """Return what a column of the source is made of: itself.

    Args:
        index: its place among the source's columns.
    """
    return f"{{{index}}}"


@dataclass
class Origins:
    """Of a query's analyzed plan, what the columns are made of.

    Args:
        partition: what the partition's value is made of; "": rows may meet as they like.
    """

    partition: str = ""
    _defined: dict[int, list[str]] = field(default_factory=dict)

    def result_columns(self, plan: Any) -> dict[str, str]:
        """Return what each column of the result is made of, by its name.

        Raises:
            Unproven: rows of several partitions may meet.
        """
        lineage = self._plan_lineage(plan)
        return {
            str(attribute.name()): _single_row_text(lineage[expression_id(attribute)])
            for attribute in iter_seq(plan.output())
        }

    def _plan_lineage(self, plan: Any) -> Lineage:
        name = str(plan.nodeName())
        if name == "View":
            return {
                expression_id(attribute): column_text(index) for index, attribute in enumerate(iter_seq(plan.output()))
            }
        if name == "WithCTE":
            for definition in iter_seq(plan.cteDefs()):
                lineage = self._plan_lineage(definition.child())
                self._defined[int(definition.id())] = [
                    lineage[expression_id(column)] for column in iter_seq(definition.child().output())
                ]
            return self._plan_lineage(plan.plan())
        if name == "CTERelationRef":
            texts = self._defined[int(plan.cteId())]
            return {
                expression_id(attribute): text for attribute, text in zip(iter_seq(plan.output()), texts, strict=True)
            }
        children = [self._plan_lineage(child) for child in iter_seq(plan.children())]
        if name == "Union":
            return self._union(plan, children)
        if name == "Join":
            return self._join(plan, *children)
        return self._unary_lineage(name, plan, children[0])

    def _unary_lineage(self, name: str, plan: Any, lineage: Lineage) -> Lineage:
        if name == "Project":
            return _project(plan.projectList(), lineage)
        if name == "Aggregate":
            self._require_grouping("GROUP BY", plan.groupingExpressions(), lineage)
            return _project(plan.aggregateExpressions(), lineage)
        if name == "Window":
            self._require_grouping("a window's PARTITION BY", plan.partitionSpec(), lineage)
        elif name == "Distinct":
            self._require_partition("DISTINCT", lineage.values())
        return {
            expression_id(attribute): lineage.get(expression_id(attribute), f"{name} {expression_id(attribute)}")
            for attribute in iter_seq(plan.output())
        }

    def _union(self, plan: Any, lineages: list[Lineage]) -> Lineage:
        column_texts = [
            _strip_common_row([lineage[expression_id(attribute)] for attribute in iter_seq(child.output())])
            for lineage, child in zip(lineages, iter_seq(plan.children()), strict=True)
        ]
        return {
            expression_id(attribute): texts[0] if len(set(texts)) == 1 else f"union {expression_id(attribute)}"
            for attribute, texts in zip(iter_seq(plan.output()), zip(*column_texts, strict=True), strict=True)
        }

    def _join(self, plan: Any, left: Lineage, right: Lineage) -> Lineage:
        left, right = _tag_side(left, _LEFT_SIDE), _tag_side(right, _RIGHT_SIDE)
        condition = plan.condition()
        parts = list(_conjuncts(condition.get())) if condition.isDefined() else []
        if self.partition and not any(self._joins_partition(conjunct, left, right) for conjunct in parts):
            raise Unproven("a join's condition")
        kind = str(plan.joinType().sql())
        left_columns = (
            {id: f"null or {text}" for id, text in left.items()} if kind in ("RIGHT OUTER", "FULL OUTER") else left
        )
        right_columns = (
            {id: f"null or {text}" for id, text in right.items()} if kind in ("LEFT OUTER", "FULL OUTER") else right
        )
        return {**left_columns, **right_columns}

    def _joins_partition(self, condition: Any, left: Lineage, right: Lineage) -> bool:
        if str(condition.nodeName()) not in ("EqualTo", "EqualNullSafe"):
            return False
        operands = [
            (lineage_text(operand, {**left, **right}), _column_ids(operand))
            for operand in (condition.left(), condition.right())
        ]
        if any(_single_row_text(text) != self.partition for text, _ in operands):
            return False
        (_, left_ids), (_, right_ids) = operands
        return (left_ids <= left.keys() and right_ids <= right.keys()) or (
            left_ids <= right.keys() and right_ids <= left.keys()
        )

    def _require_grouping(self, clause: str, expressions: Any, lineage: Lineage) -> None:
        self._require_partition(clause, [lineage_text(expression, lineage) for expression in iter_seq(expressions)])

    def _require_partition(self, clause: str, texts: Any) -> None:
        if self.partition and self.partition not in map(_single_row_text, texts):
            raise Unproven(clause)


def lineage_text(expression: Any, lineage: Lineage) -> str:
    """Return what an expression is made of.

    Args:
        expression: Spark's own object.
        lineage: what the columns are made of that it may name.
    """
    name = class_name(expression)
    if name == "AttributeReference":
        return lineage.get(expression_id(expression), f"? {expression_id(expression)}")
    if name == "NamedLambdaVariable":  # its id is a new one at each analysis; an inner name hides an outer one
        return f"lambda {json.dumps(str(expression.name()))}"
    if name == "CommonExpressionRef":
        return lineage.get(_common_id(expression.id()), f"? common {expression.id().id()}")
    if name == "With":  # what stands in it twice has a new id at each analysis, too
        common = {
            _common_id(definition.id()): lineage_text(definition.child(), lineage)
            for definition in iter_seq(expression.defs())
        }
        return lineage_text(expression.child(), {**lineage, **common})
    if name == "GetStructField":  # its name is as in the SQL
        return f"field({lineage_text(expression.child(), lineage)}, {expression.ordinal()})"
    if name == "Literal":
        return f"literal {json.dumps([str(expression.dataType().json()), str(expression.sql())])}"
    if name == "Cast":  # its time zone is the session's: UTC
        mode = "" if str(expression.evalMode()) == "ANSI" else f"{expression.evalMode()} "
        return mode + cast_text(lineage_text(expression.child(), lineage), str(expression.dataType().json()))
    parts = (expression.productElement(index) for index in range(expression.productArity()))
    return (
        f"{expression.getClass().getName()}({', '.join(_argument_text(expression, part, lineage) for part in parts)})"
    )


def cast_text(text: str, kind: str) -> str:
    """Return what a cast is made of.

    Args:
        text: what is cast.
        kind: Spark's JSON of the type.
    """
    return f"cast({text} as {kind})"


def _argument_text(expression: Any, argument: Any, lineage: Lineage) -> str:
    """Return what one of the things is made of that an expression was made with."""
    if argument is None or isinstance(argument, str | int | float):
        return json.dumps(argument)
    if isinstance(argument, bytes | bytearray):
        return json.dumps(argument.hex())
    kind, loader = str(argument.getClass().getName()), expression.getClass().getClassLoader()

    def is_instance(name: str) -> bool:
        return bool(loader.loadClass(name).isInstance(argument))

    if is_instance(_EXPRESSION):
        return lineage_text(argument, lineage)
    if is_instance("org.apache.spark.sql.types.DataType"):
        return json.dumps([kind, str(argument.json())])
    if is_instance("scala.collection.Seq"):
        return f"[{', '.join(_argument_text(expression, element, lineage) for element in iter_seq(argument))}]"
    if is_instance("scala.Product"):  # a tuple of CASE, an option
        inner = (argument.productElement(index) for index in range(argument.productArity()))
        return f"{json.dumps(kind)}({', '.join(_argument_text(expression, element, lineage) for element in inner)})"
    return json.dumps([kind, str(argument.toString())])


def _project(expressions: Any, lineage: Lineage) -> Lineage:
    """Return what the columns of a list of expressions are made of."""
    projected: Lineage = {}
    for expression in iter_seq(expressions):
        child = expression.child() if str(expression.nodeName()) == "Alias" else expression
        projected[expression_id(expression)] = lineage_text(child, lineage)
    return projected


def _conjuncts(condition: Any) -> Iterator[Any]:
    if str(condition.nodeName()) == "And":
        yield from _conjuncts(condition.left())
        yield from _conjuncts(condition.right())
    else:
        yield condition


def _common_id(id: Any) -> int:
    """Return where `Lineage` has what an expression is made of that stands in another one more than once."""
    return -1 - int(id.id())


def _tag_side(lineage: Lineage, side: str) -> Lineage:
    """Return what a join's columns are made of: those of a side are of one of its rows, and not of the other's."""
    return {id: _PLACE.sub(rf"{{\1\2{side}}}", text) for id, text in lineage.items()}


def _strip_common_row(texts: list[str]) -> list[str]:
    """Return texts without the rows that their columns are of, where all are of one; else as they are."""
    return [_strip_rows(text) for text in texts] if len(_row_sides(*texts)) < 2 else texts


def _single_row_text(text: str) -> str:
    """Return a text without the rows that its columns are of; "" where these are several."""
    return _strip_rows(text) if len(_row_sides(text)) < 2 else ""


def _row_sides(*texts: str) -> set[str]:
    """Return which rows the columns in some texts are of."""
    return {match[2] for text in texts for match in _PLACE.finditer(text)}


def _strip_rows(text: str) -> str:
    return _PLACE.sub(r"{\1}", text)


def _column_ids(expression: Any) -> set[int]:
    return {expression_id(attribute) for attribute in iter_seq(expression.references().toSeq())}
