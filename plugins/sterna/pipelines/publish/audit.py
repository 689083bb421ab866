"""The audit of a staged batch before it is published: conditions in SQL over the rows that it adds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sterna.errors import BatchRejected, ServicesError
from sterna.spark.start import spark_errors, summarize_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def audit(rows: DataFrame, rules: Sequence[str], table: str, after_rule: Callable[[], object] | None = None) -> None:
    """See that rows are as they must be, in one pass; or rule by rule.

    Args:
        rows: what is staged.
        rules: conditions over all of the rows, such as `count(*) > 0`, `count(id) = count(*)`, `min(amount) >= 0`,
            `count(DISTINCT id) = count(*)`. What is neither true nor false, as the smallest of no values, does not
            hold.
        table: whose they are.
        after_rule: called after each rule, which is a pass of its own then; None: one pass for all.

    Raises:
        BatchRejected: a rule doesn't hold; the message names all that don't.
        ServicesError: a rule is no condition over these columns.
    """
    answers: list[object] = []
    groups = [[rule] for rule in rules] if after_rule is not None else [rules] if rules else []
    for group in groups:
        answers += _evaluate_rules(rows, group, table)
        if after_rule is not None:
            after_rule()
    if broken := broken_rules(rules, answers):
        raise BatchRejected(f"the audit failed: {'; '.join(broken)}", table=table, hint="see BatchRejected")


def _evaluate_rules(rows: DataFrame, rules: Sequence[str], table: str) -> list[object]:
    try:
        answer = rows.selectExpr(*(f"({rule}) AS rule_{number}" for number, rule in enumerate(rules))).first()
    except spark_errors() as error:
        raise ServicesError(
            f"audit: {summarize_error(error, 2)}", table=table, hint="correct the table's audit"
        ) from None
    return list(answer) if answer is not None else [None] * len(rules)


def broken_rules(rules: Sequence[str], answers: Sequence[object]) -> list[str]:
    """Return the rules that were not answered with true.

    Args:
        answers: the answer to each; too few: the others have none.
    """
    padded = [*answers, *[None] * (len(rules) - len(answers))]
    return [rule for rule, answer in zip(rules, padded, strict=False) if answer is not True]
