"""Which tables of a region a reader may see: the registry's rules for the region, and the services file's for roles."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sterna.config.registry.model import Registry
from sterna.config.registry.policy import matching_pattern
from sterna.config.sections.readers import ReaderRule

READER_ROLES = frozenset({"reader", "writer", "admin"})
"""Roles of the catalog's own rules (nessie/access.properties) that may read replica branches."""


@dataclass(frozen=True)
class TableAccess:
    """The visibility rules of one region.

    Args:
        registry: its policies and residency keep tables off the region, whatever its branch showed before.
        region: the region's name.
        rules: tables that only some roles may see.
    """

    registry: Registry
    region: str
    rules: tuple[ReaderRule, ...] = ()

    def may_read(self, table: str, roles: Collection[str]) -> bool:
        """Return whether a reader with some roles may see a table, by its dotted key name."""
        return not self.registry.exclusion_reason(table, self.region) and self.rules_allow(table, roles)

    def shows_all(self, roles: Collection[str]) -> bool:
        """Return whether a reader with some roles may see every table that there is, or may be one day."""
        return not self.registry.has_exclusions and all(_has_role(rule, roles) for rule in self.rules)

    def rules_allow(self, table: str, roles: Collection[str]) -> bool:
        """Return whether the rules for roles alone let a reader see a table."""
        return _is_allowed(self.rules, table, roles)


def _is_allowed(rules: Iterable[ReaderRule], table: str, roles: Collection[str]) -> bool:
    """Every rule that matches counts: each requires one of its roles."""
    return all(matching_pattern(rule.tables, table) is None or _has_role(rule, roles) for rule in rules)


def _has_role(rule: ReaderRule, roles: Collection[str]) -> bool:
    return any(role in roles for role in rule.roles)
