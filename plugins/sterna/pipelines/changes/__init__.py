"""What changed: the rows that were inserted, deleted and updated between two snapshots of a table."""

from sterna.pipelines.changes.between import CHANGE, between

__all__ = ("CHANGE", "between")
