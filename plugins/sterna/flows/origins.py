"""What each column of a query's result is made of, and whether its rows keep to one partition of the source.

A step of mode `replace` gives the SQL the rows of some partitions, a rebuild gives it all rows. Both come to the same
where no row of the result is made of rows of two partitions, and a column of it says which partition that is: rows meet
in groups, windows, joins and DISTINCT. So each of these has to be by the partition's value. Here that is shown from
Spark's analysis alone; what can't be shown is refused.

An expression is known by a text of it, in which each column stands for what it is made of. Two equal texts are equal
values of the same row: the text has the class of each expression and all that it was made with, and constants stand in
quotes. Spark's own text of an expression has neither, and leaves out what is long.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sterna.flows.expressions import class_of, id_of, items

_EXPRESSION = "org.apache.spark.sql.catalyst.expressions.Expression"
Made = dict[int, str]
"""By the id of a column, what it is made of."""
_LEFT, _RIGHT = "\u2190", "\u2192"  # constants have no such letters in a text: JSON escapes them
_PLACE = re.compile(rf"\{{(\d+)([{_LEFT}{_RIGHT}]*)\}}")


class Unproven(Exception):
    """Rows of several partitions may meet.

    Args:
        why: where, for people.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def of_place(place: int) -> str:
    """Return what a column of the source is made of: itself.

    Args:
        place: its place among the source's columns.
    """
    return f"{{{place}}}"


@dataclass
class Origins:
    """Of a query's analyzed plan, what the columns are made of.

    Args:
        partition: what the partition's value is made of; "": rows may meet as they like.
    """

    partition: str = ""
    _defined: dict[int, list[str]] = field(default_factory=dict)

    def of_result(self, plan: Any) -> dict[str, str]:
        """Return what each column of the result is made of, by its name.

        Raises:
            Unproven: rows of several partitions may meet.
        """
        made = self._node(plan)
        return {str(each.name()): _of_one_row(made[id_of(each)]) for each in items(plan.output())}

    def _node(self, plan: Any) -> Made:
        name = str(plan.nodeName())
        if name == "View":
            return {id_of(each): of_place(place) for place, each in enumerate(items(plan.output()))}
        if name == "WithCTE":
            for each in items(plan.cteDefs()):
                made = self._node(each.child())
                self._defined[int(each.id())] = [made[id_of(column)] for column in items(each.child().output())]
            return self._node(plan.plan())
        if name == "CTERelationRef":
            texts = self._defined[int(plan.cteId())]
            return {id_of(each): text for each, text in zip(items(plan.output()), texts, strict=True)}
        below = [self._node(each) for each in items(plan.children())]
        if name == "Union":
            return self._union(plan, below)
        if name == "Join":
            return self._join(plan, *below)
        return self._of_one(name, plan, below[0])

    def _of_one(self, name: str, plan: Any, made: Made) -> Made:
        if name == "Project":
            return _named(plan.projectList(), made)
        if name == "Aggregate":
            self._by_partition("GROUP BY", plan.groupingExpressions(), made)
            return _named(plan.aggregateExpressions(), made)
        if name == "Window":
            self._by_partition("a window's PARTITION BY", plan.partitionSpec(), made)
        elif name == "Distinct":
            self._has_partition("DISTINCT", made.values())
        return {id_of(each): made.get(id_of(each), f"{name} {id_of(each)}") for each in items(plan.output())}

    def _union(self, plan: Any, below: list[Made]) -> Made:
        sides = [
            _of_one([made[id_of(each)] for each in items(child.output())])
            for made, child in zip(below, items(plan.children()), strict=True)
        ]
        return {
            id_of(each): texts[0] if len(set(texts)) == 1 else f"union {id_of(each)}"
            for each, texts in zip(items(plan.output()), zip(*sides, strict=True), strict=True)
        }

    def _join(self, plan: Any, left: Made, right: Made) -> Made:
        left, right = _of_side(left, _LEFT), _of_side(right, _RIGHT)
        condition = plan.condition()
        parts = list(_conjuncts(condition.get())) if condition.isDefined() else []
        if self.partition and not any(self._same_partition(each, left, right) for each in parts):
            raise Unproven("a join's condition")
        kind = str(plan.joinType().sql())
        one = {id: f"null or {text}" for id, text in left.items()} if kind in ("RIGHT OUTER", "FULL OUTER") else left
        other = {id: f"null or {text}" for id, text in right.items()} if kind in ("LEFT OUTER", "FULL OUTER") else right
        return {**one, **other}

    def _same_partition(self, condition: Any, left: Made, right: Made) -> bool:
        if str(condition.nodeName()) not in ("EqualTo", "EqualNullSafe"):
            return False
        sides = [(text_of(each, {**left, **right}), _ids(each)) for each in (condition.left(), condition.right())]
        if any(_of_one_row(text) != self.partition for text, _ in sides):
            return False
        (_, one), (_, other) = sides
        return (one <= left.keys() and other <= right.keys()) or (one <= right.keys() and other <= left.keys())

    def _by_partition(self, what: str, expressions: Any, made: Made) -> None:
        self._has_partition(what, [text_of(each, made) for each in items(expressions)])

    def _has_partition(self, what: str, texts: Any) -> None:
        if self.partition and self.partition not in map(_of_one_row, texts):
            raise Unproven(what)


def text_of(expression: Any, made: Made) -> str:
    """Return what an expression is made of.

    Args:
        expression: Spark's own object.
        made: what the columns are made of that it may name.
    """
    name = class_of(expression)
    if name == "AttributeReference":
        return made.get(id_of(expression), f"? {id_of(expression)}")
    if name == "NamedLambdaVariable":  # its id is a new one at each analysis; an inner name hides an outer one
        return f"lambda {json.dumps(str(expression.name()))}"
    if name == "CommonExpressionRef":
        return made.get(_common(expression.id()), f"? common {expression.id().id()}")
    if name == "With":  # what stands in it twice has a new id at each analysis, too
        common = {_common(each.id()): text_of(each.child(), made) for each in items(expression.defs())}
        return text_of(expression.child(), {**made, **common})
    if name == "GetStructField":  # its name is as somebody typed it
        return f"field({text_of(expression.child(), made)}, {expression.ordinal()})"
    if name == "Literal":
        return f"literal {json.dumps([str(expression.dataType().json()), str(expression.sql())])}"
    if name == "Cast":  # its time zone is the session's: UTC
        mode = "" if str(expression.evalMode()) == "ANSI" else f"{expression.evalMode()} "
        return mode + cast_text(text_of(expression.child(), made), str(expression.dataType().json()))
    parts = (expression.productElement(place) for place in range(expression.productArity()))
    return f"{expression.getClass().getName()}({', '.join(_part(expression, part, made) for part in parts)})"


def cast_text(text: str, kind: str) -> str:
    """Return what a cast is made of.

    Args:
        text: what is cast.
        kind: Spark's JSON of the type.
    """
    return f"cast({text} as {kind})"


def _part(whole: Any, part: Any, made: Made) -> str:
    """Return what one of the things is made of that an expression was made with."""
    if part is None or isinstance(part, str | int | float):
        return json.dumps(part)
    if isinstance(part, bytes | bytearray):
        return json.dumps(part.hex())
    kind, loader = str(part.getClass().getName()), whole.getClass().getClassLoader()

    def isa(name: str) -> bool:
        return bool(loader.loadClass(name).isInstance(part))

    if isa(_EXPRESSION):
        return text_of(part, made)
    if isa("org.apache.spark.sql.types.DataType"):
        return json.dumps([kind, str(part.json())])
    if isa("scala.collection.Seq"):
        return f"[{', '.join(_part(whole, each, made) for each in items(part))}]"
    if isa("scala.Product"):  # a tuple of CASE, an option
        inner = (part.productElement(place) for place in range(part.productArity()))
        return f"{json.dumps(kind)}({', '.join(_part(whole, each, made) for each in inner)})"
    return json.dumps([kind, str(part.toString())])


def _named(expressions: Any, made: Made) -> Made:
    """Return what the columns of a list of expressions are made of."""
    found: Made = {}
    for each in items(expressions):
        child = each.child() if str(each.nodeName()) == "Alias" else each
        found[id_of(each)] = text_of(child, made)
    return found


def _conjuncts(condition: Any) -> Iterator[Any]:
    if str(condition.nodeName()) == "And":
        yield from _conjuncts(condition.left())
        yield from _conjuncts(condition.right())
    else:
        yield condition


def _common(id: Any) -> int:
    """Return where `Made` has what an expression is made of that stands in another one more than once."""
    return -1 - int(id.id())


def _of_side(made: Made, side: str) -> Made:
    """Return what a join's columns are made of: those of a side are of one of its rows, and not of the other's."""
    return {id: _PLACE.sub(rf"{{\1\2{side}}}", text) for id, text in made.items()}


def _of_one(texts: list[str]) -> list[str]:
    """Return texts without the rows that their columns are of, where all are of one; else as they are."""
    return [_plain(text) for text in texts] if len(_rows(*texts)) < 2 else texts


def _of_one_row(text: str) -> str:
    """Return a text without the rows that its columns are of; "" where these are several."""
    return _plain(text) if len(_rows(text)) < 2 else ""


def _rows(*texts: str) -> set[str]:
    """Return which rows the columns in some texts are of."""
    return {match[2] for text in texts for match in _PLACE.finditer(text)}


def _plain(text: str) -> str:
    return _PLACE.sub(r"{\1}", text)


def _ids(expression: Any) -> set[int]:
    return {id_of(each) for each in items(expression.references().toSeq())}
