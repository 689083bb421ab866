"""What must hold of a staged batch before it is published: conditions in SQL over the rows that it brings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sterna.edges.spark.start import failures, summary
from sterna.errors import BatchRejected, ServicesError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def audit(rows: DataFrame, rules: Sequence[str], table: str) -> None:
    """See that rows are as they must be, in one pass.

    Args:
        rows: what is staged.
        rules: conditions over all of the rows, such as `count(*) > 0`, `count(id) = count(*)`, `min(amount) >= 0`,
            `count(DISTINCT id) = count(*)`. What is neither true nor false, as the smallest of no values, does not
            hold.
        table: whose they are.

    Raises:
        BatchRejected: a rule doesn't hold; the message names all that don't.
        ServicesError: a rule is no condition over these columns.
    """
    if not rules:
        return
    try:
        answer = rows.selectExpr(*(f"({rule}) AS rule_{number}" for number, rule in enumerate(rules))).first()
    except failures() as error:
        raise ServicesError(f"audit: {summary(error, 2)}", table=table, hint="correct the table's audit") from None
    if broken := broken_rules(rules, list(answer or [])):
        raise BatchRejected(f"the audit says no: {'; '.join(broken)}", table=table, hint="see BatchRejected")


def broken_rules(rules: Sequence[str], answers: Sequence[object]) -> list[str]:
    """Return the rules that were not answered with true.

    Args:
        rules: the rules.
        answers: the answer to each; too few: the others have none.
    """
    told = [*answers, *[None] * (len(rules) - len(answers))]
    return [rule for rule, answer in zip(rules, told, strict=False) if answer is not True]
