"""What an operator approves of a promotion, as a value: the text that is shown may be worded differently. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sterna.codec import FLAG, TEXT, TIME, Field, Record, UnknownFields, nullable, tuple_of
from sterna.config.registry.model import digest
from sterna.replication.failover.promote import Promotion
from sterna.replication.failover.tables import MovePlan


@dataclass(frozen=True)
class Approval:
    """The facts by which one promotion is approved.

    Args:
        region: the primary to be.
        term: the term that begins.
        old: the primary until then; "" for none.
        planned: that one stops first.
        newest: time of the last commit that the region has; None where unknown.
        unknown: what can't be verified, and is accepted by the approval.
        tables: digest of the tables that move, and of what each loses; "" for a promotion without tables.
    """

    region: str
    term: str
    old: str
    planned: bool
    newest: datetime | None
    unknown: tuple[str, ...] = ()
    tables: str = ""


APPROVAL: Final = Record(
    Approval,
    (
        Field("region", TEXT),
        Field("epoch", TEXT, attribute="term"),
        Field("old", TEXT),
        Field("planned", FLAG),
        Field("newest", nullable(TIME)),
        Field("unknown", tuple_of(TEXT)),
        Field("tables", TEXT),
    ),
    UnknownFields.REJECT,
)


def approval_of(promotion: Promotion, moves: MovePlan | None) -> Approval:
    """Return the facts by which a promotion, with its moves of tables, is approved."""
    return Approval(
        region=promotion.region,
        term=str(promotion.term),
        old=promotion.old,
        planned=promotion.planned,
        newest=promotion.newest,
        unknown=tuple(_unverified(promotion)),
        tables="" if moves is None else _moves_digest(moves),
    )


def _unverified(promotion: Promotion) -> Iterator[str]:
    for name in promotion.silent:
        role = "primary" if name == promotion.old else "region"
        yield f"{role} {'gone' if name in promotion.gone else 'silent'}: {name}"
    if promotion.resumed:
        yield "resumed"


def _moves_digest(moves: MovePlan) -> str:
    return digest(
        {
            "region": moves.region,
            "lost": list(moves.lost),
            "moves": [
                [table_move.key, table_move.untold, [commit.hash for commit in table_move.lost]]
                for table_move in moves.moves
            ],
            "left": dict(moves.left),
        }
    )
