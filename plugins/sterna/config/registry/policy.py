"""Which tables are replicated where, and with how much history.

Policies and residency rules of the registry (docs/registry.md).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, WithJsonSchema, model_validator

from sterna.config.durations import DURATION_PATTERN, DURATION_UNITS, MAX_PAST_SECONDS, duration_seconds
from sterna.config.registry.types import Uri
from sterna.config.yaml import StrictModel

_ELEMENT = r"(?:\\.|[^.\\])"  # a letter of one name in a dotted key; `\.` is a dot inside a name
CatalogName = Annotated[str, Field(min_length=1, max_length=255)]
# Validators of the models refuse others, in words; an editor goes by the pattern.
_Duration = Annotated[str, WithJsonSchema({"type": "string", "pattern": f"^{DURATION_PATTERN}$"})]
_ELEMENTS = re.compile(f"{_ELEMENT}+")


def _allow_full(schema: dict[str, Any]) -> None:
    """Add the text `full` to what a schema allows."""
    settings = dict(schema)
    schema.clear()
    schema["anyOf"] = [{"const": "full"}, settings]


class History(StrictModel):
    """How much of a table's history a replica keeps; refs and their snapshots always stay.

    Args:
        latest: the current snapshot and the ancestors before it, this many together; None: no such limit.
        since: what is no older than this before the current snapshot, such as `7d` (s, m, h, d, w); None: no such
            limit.
    """

    model_config = ConfigDict(json_schema_extra=_allow_full)
    latest: Annotated[int, Field(ge=1)] | None = None
    since: _Duration | None = None

    @model_validator(mode="before")
    @classmethod
    def _parse_history(cls, value: Any) -> Any:
        if value == "full":
            return {}
        settings = (
            {name: setting for name, setting in value.items() if setting is not None}
            if isinstance(value, dict)
            else None
        )
        since = (settings or {}).get("since")
        if settings is None or len(settings) > 1 or (since is not None and duration_seconds(since) is None):
            raise ValueError(f"expected full, {{latest: 5}} or {{since: 7d}} ({DURATION_UNITS})")
        return settings

    def digest_fields(self) -> dict[str, Any]:
        """Return the fields that digests are made of, under stable names: the name of each metadata.json has one."""
        return {"latest": self.latest, "since": self.since}

    @property
    def since_ms(self) -> int | None:
        """`since` in milliseconds."""
        seconds = duration_seconds(self.since)
        return None if seconds is None else seconds * 1000


class AdmissionPolicy(StrictModel):
    """When a table's new version is copied to a replica.

    Args:
        after: how long the replica may wait for compaction, such as `15m` (s, m, h, d, w).
    """

    after: _Duration

    @model_validator(mode="after")
    def _validate_duration(self) -> AdmissionPolicy:
        if duration_seconds(self.after) is None:
            raise ValueError(f"after: expected a duration such as 15m ({DURATION_UNITS})")
        return self


class Objective(StrictModel):
    """How soon readers of a replica are to see new versions of tables.

    Args:
        lag: within which time a new version is to be visible, such as `60s` (s, m, h, d, w).
        share: of the versions of a week, how many are to be visible by then, such as 0.99; at most 0.999999.
    """

    lag: _Duration
    share: Annotated[float, Field(gt=0, le=0.999999)]

    @model_validator(mode="after")
    def _validate_lag(self) -> Objective:
        if duration_seconds(self.lag) is None:
            raise ValueError(f"lag: expected a duration such as 60s ({DURATION_UNITS})")
        return self

    @property
    def lag_seconds(self) -> int:
        """`lag` in seconds."""
        return duration_seconds(self.lag) or 0


class Policy(StrictModel):
    """Which tables are replicated, and how much of their history; the first policy that matches a table decides.

    Args:
        tables: patterns over the dotted key; `*` and `?` within one element, `**` over several.
        replicate: `false` keeps matching tables and views off every replica branch.
        history: how much history: `full`, `{latest: 5}` or `{since: 7d}`; default: `full`. That is every snapshot that
            `main` keeps.
        atomic: whether a table waits for others; `strict` is for every held one that a commit of `main` changed
            together with it, `relaxed` for none.
        ship: `{after: 15m}`: how long the replica may wait for compaction; default: at once.
        objective: `{lag: 60s, share: 0.99}`: how soon new versions are to be visible; default: none.
        keep_dropped: how long clean-ups keep files of dropped tables, such as `30d`; None: as any other file.
    """

    tables: list[str] = Field(min_length=1)
    replicate: bool = True
    history: History = History()
    atomic: Literal["strict", "relaxed"] = "strict"
    ship: AdmissionPolicy | None = None
    objective: Objective | None = None
    keep_dropped: _Duration | None = None

    @model_validator(mode="after")
    def _validate_keep_dropped(self) -> Policy:
        if self.keep_dropped is not None and duration_seconds(self.keep_dropped) is None:
            raise ValueError(f"keep_dropped: expected a duration such as 30d ({DURATION_UNITS})")
        if (self.keep_dropped_seconds or 0) > MAX_PAST_SECONDS:
            raise ValueError(f"keep_dropped: {self.keep_dropped} is longer than a century")
        return self

    def digest_fields(self) -> dict[str, Any]:
        """Return what decides which keys are replicated and how much of them, as JSON; see `Registry.digest`.

        `atomic` doesn't count: it decides which tables wait for each other. Each plan resolves that again, for all
        tables that were committed since and those that wait already; a published one can't be taken back by comparing
        it. Nor does `ship`: it decides when. `objective` decides nothing of a replica, and `keep_dropped` is for tables
        that no head shows any more.
        """
        history = {name: value for name, value in self.history.digest_fields().items() if value is not None}
        return {
            "tables": sorted(set(self.tables)),
            **({} if self.replicate else {"replicate": False}),
            **({"history": history} if history else {}),
        }

    @property
    def max_wait_seconds(self) -> int | None:
        """The seconds that a replica may wait for compaction; None: it doesn't."""
        return None if self.ship is None else duration_seconds(self.ship.after)

    @property
    def keep_dropped_seconds(self) -> int | None:
        """For how long clean-ups keep files of dropped tables; None: as any other file."""
        return duration_seconds(self.keep_dropped)

    def matches(self, name: str) -> bool:
        """Return whether a dotted key name matches one of the patterns."""
        return matching_pattern(self.tables, name) is not None


class ViewCatalogs(StrictModel):
    """Which catalogs views may name in their SQL or as their default.

    Args:
        own_catalogs: names that engines have for the catalog with `main`; a replica's views name it no more.
        other_catalogs: names of catalogs that are as good wherever the view is read.
    """

    own_catalogs: list[CatalogName] = Field(default_factory=list)
    other_catalogs: list[CatalogName] = Field(default_factory=list)

    @model_validator(mode="after")
    def _validate_disjoint(self) -> ViewCatalogs:
        both = sorted(set(self.own_catalogs) & set(self.other_catalogs))
        if both:
            raise ValueError(f"{both[0]!r} is in own_catalogs and in other_catalogs: remove one of them")
        return self

    def digest_fields(self) -> dict[str, list[str]]:
        """Return what decides how views are written, nothing where they stay as they are; see `Registry.digest`.

        The other catalogs count beside own ones: a name isn't shortened to one that begins with another catalog's.
        """
        if not self.own_catalogs:
            return {}
        return {"own_catalogs": sorted(set(self.own_catalogs)), "other_catalogs": sorted(set(self.other_catalogs))}


class Residency(StrictModel):
    """Where keys and files may be replicated to; every rule that matches counts. A rule that matches a namespace covers
    all that is in it.

    Args:
        tables: patterns as in a policy, over the keys of tables, views and namespaces.
        locations: ids of locations: the rule is for each file in them; whatever the key that names it.
        prefixes: URI prefixes inside locations: the rule is for each file below them.
        only: the regions that may have a replica: the keys never leave them; none: see `never`. An empty list: none
            may.
        never: the regions that may have none: the keys never enter them.
    """

    tables: list[str] = Field(default_factory=list)
    locations: list[str] = Field(default_factory=list)
    prefixes: list[Uri] = Field(default_factory=list)
    only: list[str] | None = None
    never: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _validate_complete(self) -> Residency:
        if (self.only is None) == (not self.never):
            raise ValueError(
                "expected either only (regions that may have a replica) or never (regions that may have none)"
            )
        if not (self.tables or self.locations or self.prefixes):
            raise ValueError("expected tables, locations or prefixes: what the rule is for")
        return self

    def digest_fields(self) -> dict[str, Any]:
        """Return what decides where keys are replicated to, as JSON; see `Registry.digest`."""
        return {
            "tables": sorted(set(self.tables)),
            "only": None if self.only is None else sorted(set(self.only)),
            "never": sorted(set(self.never)),
            **({"locations": sorted(set(self.locations))} if self.locations else {}),
            **({"prefixes": sorted(set(self.prefixes))} if self.prefixes else {}),
        }

    def allows(self, region: str) -> bool:
        """Return whether a region may have what the rule is for."""
        return region not in self.never and (self.only is None or region in self.only)

    @property
    def description(self) -> str:
        """The rule in words, such as `only in us`."""
        if self.never:
            return f"never in {', '.join(self.never)}"
        return f"only in {', '.join(self.only or ()) or 'no region'}"

    def exclusion_reason(self, name: str, region: str) -> str:
        """Return why a key has no replica in a region, "" when it may have one."""
        if self.allows(region):
            return ""
        pattern = next(
            (
                match
                for match in (matching_pattern(self.tables, part) for part in enclosing_names(name))
                if match is not None
            ),
            None,
        )
        if pattern is None:
            return ""
        return f"residency {pattern!r}: {self.description}"


DEFAULT_POLICY = Policy(tables=["**"])


def matching_pattern(patterns: list[str], name: str) -> str | None:
    """Return the first pattern that matches a dotted key name, or None."""
    return next((pattern for pattern in patterns if _compile_pattern(pattern).fullmatch(name)), None)


def enclosing_names(name: str) -> list[str]:
    r"""Return the names of the namespaces of a dotted key, outermost first, and its own.

    `a.b` gives `a` and `a.b`.
    """
    return [name[: match.end()] for match in _ELEMENTS.finditer(name)]


@lru_cache(maxsize=1024)
def _compile_pattern(pattern: str) -> re.Pattern[str]:
    wildcards = {"**": ".*", "*": f"{_ELEMENT}*", "?": _ELEMENT}
    return re.compile(
        "".join(wildcards.get(piece, re.escape(piece)) for piece in re.split(r"(\*\*|\*|\?)", pattern)), re.DOTALL
    )
