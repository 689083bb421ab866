"""The section `features` of the services file: rows of tables that are kept for online reads (docs/features.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from sterna.config.sections.types import Duration, DurationText, EmptyAs
from sterna.config.yaml import StrictModel

KeyType = Literal["int", "long", "string"]
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_TABLE = re.compile(r"[^\s.]{1,255}(\.[^\s.]{1,255}){1,7}")
_SCHEMES = ("valkey", "valkeys", "redis", "rediss", "valkey+sentinel", "valkeys+sentinel")
_MAX_URL_CHARACTERS = 1_000
_MAX_KEY_COLUMNS = 4


def _validate_name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError("expected a name: small letters, digits and _, beginning with a letter")
    return value


def _validate_url(value: str) -> str:
    try:
        parts = urlsplit(value)
        user, sentinel = parts.username or parts.password, parts.scheme.endswith("+sentinel")
    except ValueError:
        raise ValueError("this is no URL") from None
    if parts.scheme not in _SCHEMES or not parts.netloc or len(value) > _MAX_URL_CHARACTERS:
        raise ValueError(f"expected a URL such as valkeys://host:6379/0 ({', '.join(_SCHEMES)})")
    if user or "@" in parts.netloc:
        raise ValueError("a URL has no login here: name a credential_id")
    if parts.query or parts.fragment:
        raise ValueError("a URL has no query here")
    path = parts.path.strip("/")
    if sentinel and not re.fullmatch(r"[A-Za-z0-9._-]{1,100}(/[0-9]{1,3})?", path):
        raise ValueError("expected the master's name behind the sentinels: valkey+sentinel://a:26379,b:26379/mymaster")
    if not sentinel and not re.fullmatch(r"[0-9]{0,3}", path):
        raise ValueError("expected the database's number behind the host, or nothing")
    return value


def _normalize_seconds(value: Any) -> Any:
    # Caches are spoken of in seconds elsewhere: both are taken.
    return f"{value}s" if type(value) is int and value > 0 else value


Name = Annotated[str, AfterValidator(_validate_name)]
Ttl = Annotated[
    Duration,
    BeforeValidator(_normalize_seconds, json_schema_input_type=DurationText | Annotated[int, Field(gt=0)]),
]


class OnlineConfig(StrictModel):
    """A region's store.

    Args:
        url: `valkey://`, `valkeys://` for TLS, `redis://`, `rediss://`, or `valkey+sentinel://a,b/master`.
        credential_id: Airflow connection id of login and password; none: it needs none.
    """

    url: Annotated[str, AfterValidator(_validate_url)]
    credential_id: str | None = None


class Entity(StrictModel):
    """What features are about.

    Args:
        name: its name in responses, with a capital letter.
        key: the columns that identify its rows, in the order that ids have them, and their types.
    """

    name: Name
    key: dict[str, KeyType]

    @field_validator("key")
    @classmethod
    def _validate_key(cls, value: dict[str, KeyType]) -> dict[str, KeyType]:
        if not 1 <= len(value) <= _MAX_KEY_COLUMNS:
            raise ValueError(f"expected 1 to {_MAX_KEY_COLUMNS} columns and their types, such as {{user_id: long}}")
        return value

    @property
    def columns(self) -> tuple[str, ...]:
        """The key's columns."""
        return tuple(self.key)


class FeatureView(StrictModel):
    """Columns of a table that are kept for online reads.

    Args:
        name: the name in requests.
        entity: that has the features.
        table: the table, as the catalog names it.
        features: the columns.
        event_time: the column with the time from which on a row is valid.
        unique: the key identifies the table's rows; else the newest row of a key counts, by `event_time`.
        serve: `complete`: the store holds all rows; `cache`: those that were requested, for `ttl`.
        ttl: seconds that the cache keeps a row.
        max_age: seconds after which a row is too old to be served; none: never.
        time_travel: seconds for which maintenance keeps the history for point-in-time reads.
        max_staleness: seconds that the store may be behind the replica, before that is an alarm.
    """

    name: Name
    entity: str
    table: str
    features: list[str] = Field(min_length=1)
    event_time: str | None = None
    unique: bool = False
    serve: Literal["complete", "cache"] = "complete"
    ttl: Ttl | None = None
    max_age: Duration | None = None
    time_travel: Duration | None = None
    max_staleness: Duration = 900

    @field_validator("table")
    @classmethod
    def _validate_table(cls, value: str) -> str:
        if not _TABLE.fullmatch(value):
            raise ValueError("expected a table's full name, such as default.user_feature_store")
        return value

    @model_validator(mode="after")
    def _validate_fields(self) -> FeatureView:
        if len(set(self.features)) < len(self.features):
            raise ValueError(f"view {self.name}: a feature appears twice")
        if self.ttl is not None and self.serve == "complete":
            raise ValueError(f"view {self.name}: ttl is for serve: cache; a complete view's rows stay")
        if self.event_time is None and not self.unique:
            raise ValueError(f"view {self.name}: name an event_time, or set unique: true")
        if self.event_time is None and self.max_age is not None:
            raise ValueError(f"view {self.name}: max_age needs an event_time")
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """What is kept of a row: the features, and the event time where that is none of them."""
        extra_columns = () if self.event_time is None or self.event_time in self.features else (self.event_time,)
        return (*self.features, *extra_columns)

    @property
    def retention_seconds(self) -> int | None:
        """Seconds that the store keeps a row; None: until it is deleted."""
        return (self.ttl or 3_600) if self.serve == "cache" else None


class FeatureService(StrictModel):
    """Features that are requested together.

    Args:
        name: its name.
        features: each as `view.column`.
    """

    name: Name
    features: list[str] = Field(min_length=1)


class Features(StrictModel):
    """All of the section.

    Args:
        online: each region's store, by the region's name.
        entities: what features are about.
        views: what is kept of which table.
        services: features that are requested together.
    """

    online: dict[str, OnlineConfig] = Field(default_factory=dict)
    entities: list[Entity] = Field(min_length=1)
    views: list[FeatureView] = Field(min_length=1)
    services: list[FeatureService] = Field(default_factory=list)

    @model_validator(mode="after")
    def _validate_consistency(self) -> Features:
        for section_name, names in (
            ("entities", [entity.name for entity in self.entities]),
            ("views", [feature_view.name for feature_view in self.views]),
            ("services", [feature_service.name for feature_service in self.services]),
        ):
            if duplicates := sorted({name for name in names if names.count(name) > 1}):
                raise ValueError(f"{section_name}: {duplicates[0]} appears twice")
        for view in self.views:
            self._validate_view(view)
        for service in self.services:
            self._validate_service(service)
        return self

    def _validate_view(self, view: FeatureView) -> None:
        if view.entity not in self.entities_by_name:
            raise ValueError(
                f"view {view.name}: no entity {view.entity!r}: there are {', '.join(self.entities_by_name)}"
            )
        if set(self.entities_by_name[view.entity].columns) & set(view.columns):
            raise ValueError(f"view {view.name}: the key is no feature")

    def _validate_service(self, service: FeatureService) -> None:
        feature_names = {f"{view.name}.{column}" for view in self.views for column in view.features}
        if missing := [name for name in service.features if name not in feature_names]:
            raise ValueError(f"service {service.name}: no feature {missing[0]}: features are written as view.column")
        if len(set(service.features)) < len(service.features):
            raise ValueError(f"service {service.name}: a feature appears twice")
        if len({self.views_by_name[name.partition(".")[0]].entity for name in service.features}) > 1:
            raise ValueError(f"service {service.name}: its features are of several entities")

    @property
    def entities_by_name(self) -> Mapping[str, Entity]:
        """The entities by name."""
        return {entity.name: entity for entity in self.entities}

    @property
    def views_by_name(self) -> Mapping[str, FeatureView]:
        """The views by name."""
        return {view.name: view for view in self.views}

    def entity_of(self, view: FeatureView) -> Entity:
        """Return the entity whose features a view has."""
        return self.entities_by_name[view.entity]

    def time_travel_seconds(self) -> Mapping[str, int]:
        """Return the seconds of history to keep, by table, where it is set."""
        seconds_by_table: dict[str, int] = {}
        for view in self.views:
            if view.time_travel is not None:
                seconds_by_table[view.table] = max(seconds_by_table.get(view.table, 0), view.time_travel)
        return seconds_by_table


FeaturesSection = Annotated[Features | None, EmptyAs(None)]
