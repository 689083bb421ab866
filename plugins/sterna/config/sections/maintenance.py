"""The section `maintenance` of the services file: how tables on `main` are kept in shape (docs/maintenance.md)."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field, PrivateAttr

from sterna.config.registry.policy import matching_pattern
from sterna.config.sections.features import Features
from sterna.config.sections.readers import Pattern
from sterna.config.sections.transforms import Transform
from sterna.config.sections.types import Duration, EmptyAs, Size
from sterna.config.yaml import StrictModel

_SORT = re.compile(
    r"(?i)zorder\s*\(\s*[^\s,()]+(\s*,\s*[^\s,()]+)+\s*\)"
    r"|[^\s,()]+( asc| desc)?( nulls (first|last))?(\s*,\s*[^\s,()]+( asc| desc)?( nulls (first|last))?)*"
)


def _validate_sort(value: str) -> str:
    if value and not _SORT.fullmatch(value):
        raise ValueError("expected columns such as `a, b desc nulls last`, or `zorder(a, b)`")
    return value


class MaintenanceRule(StrictModel):
    """How some tables are kept in shape; the first rule that matches a table decides.

    Args:
        match: patterns over the dotted key, as in the registry's policies.
        target: the size that rewritten data files aim at, in bytes.
        sort: columns that rewritten files are sorted by, such as `a, b desc` or `zorder(a, b)`; "": as they are.
        keep: seconds of history that expiry leaves, whatever else would let it go. A floor above which the horizon
            still keeps more.
        min_age: seconds without a write before a partition is rewritten.
        egress_per_day: what shipping rewritten files to other regions may cost a day, in the registry's currency;
            None: no limit.
    """

    match: list[Pattern] = Field(min_length=1)
    target: Size = 256 << 20
    sort: Annotated[str, AfterValidator(_validate_sort)] = ""
    keep: Duration = 3_600
    min_age: Duration = 600
    egress_per_day: Annotated[float, Field(ge=0)] | None = None


class Maintenance(StrictModel):
    """All of the section.

    Args:
        tables: rules; a table that none matches is left alone.
        max_wait: seconds for which an unreachable region is waited for without an alarm.
        exclude_regions: names of regions that have no replica to wait for: what only their watermark and held tables
            need is not kept. Their replica branch counts as any other reference. Their catalogs still have to be
            reachable.
        gone: names of retired regions: as `exclude_regions`, and their unreachable catalogs are not waited for.
        grace: seconds between the two passes of a sweep.
        credential_id: Airflow connection id of a login that may commit to `main` at the catalog; none: the region's own
            `catalog.credential_id`.
        keep_heads: seconds for which heads of replica branches stay readable: the longest `--keep` of any region's gc.
        time_travel: tables whose snapshots stay readable for some seconds, by their names: what was current then, too.
            Views of features add theirs.
        spark: the Spark master of compaction; "": the region's.
    """

    tables: list[MaintenanceRule] = Field(min_length=1)
    max_wait: Duration = 604_800
    exclude_regions: list[str] = Field(default_factory=list)
    gone: list[str] = Field(default_factory=list)
    grace: Duration = 86_400
    keep_heads: Duration = 604_800
    time_travel: dict[str, Duration] = Field(default_factory=dict)
    spark: str = ""
    credential_id: str | None = None
    # The sections `transforms` and `features` of the same file: expiry has to know the snapshots' consumers.
    _transforms: tuple[Transform, ...] = PrivateAttr(())
    _features: Features | None = PrivateAttr(None)

    @property
    def excluded_regions(self) -> frozenset[str]:
        """The regions whose replicas don't count, by name."""
        return frozenset((*self.exclude_regions, *self.gone))

    def rule_index(self, table: str) -> int | None:
        """Return the index of the first rule that matches a table, by its key name; None: no rule does."""
        return next(
            (index for index, rule in enumerate(self.tables) if matching_pattern(rule.match, table) is not None), None
        )

    @property
    def transforms(self) -> tuple[Transform, ...]:
        """The transforms of the same file."""
        return self._transforms

    @property
    def features(self) -> Features | None:
        """The section `features` of the same file."""
        return self._features

    def with_dependents(self, transforms: tuple[Transform, ...], features: Features | None = None) -> Maintenance:
        """Return the section combined with these transforms and features."""
        copy = self.model_copy()
        copy._transforms, copy._features = transforms, features
        return copy


MaintenanceSection = Annotated[Maintenance | None, EmptyAs(None)]
