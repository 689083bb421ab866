"""The section `features` of the services file: rows of tables that are kept for online reads (docs/features.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from sterna.services.values import Duration
from sterna.strict_yaml import StrictModel

KeyType = Literal["int", "long", "string"]
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_TABLE = re.compile(r"[^\s.]{1,255}(\.[^\s.]{1,255}){1,7}")
_SCHEMES = ("valkey", "valkeys", "redis", "rediss", "valkey+sentinel", "valkeys+sentinel")
_LONGEST_URL = 1_000
_MOST_KEY_COLUMNS = 4


def _name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError("expected a name: small letters, digits and _, beginning with a letter")
    return value


def _url(value: str) -> str:
    try:
        parts = urlsplit(value)
        user, sentinel = parts.username or parts.password, parts.scheme.endswith("+sentinel")
    except ValueError:
        raise ValueError("this is no URL") from None
    if parts.scheme not in _SCHEMES or not parts.netloc or len(value) > _LONGEST_URL:
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


def _seconds(value: Any) -> Any:
    # Caches are spoken of in seconds elsewhere: both are taken.
    return f"{value}s" if type(value) is int and value > 0 else value


Name = Annotated[str, AfterValidator(_name)]
Ttl = Annotated[Duration, BeforeValidator(_seconds)]


class Online(StrictModel):
    """A region's store.

    Args:
        url: `valkey://`, `valkeys://` for TLS, `redis://`, `rediss://`, or `valkey+sentinel://a,b/master`.
        credential_id: Airflow connection id of login and password; none: it asks for none.
    """

    url: Annotated[str, AfterValidator(_url)]
    credential_id: str | None = None


class Entity(StrictModel):
    """What features are about.

    Args:
        name: what answers call it, with a capital letter.
        key: the columns that tell its rows apart, in the order that ids have them, and their types.
    """

    name: Name
    key: dict[str, KeyType]

    @field_validator("key")
    @classmethod
    def _few(cls, value: dict[str, KeyType]) -> dict[str, KeyType]:
        if not 1 <= len(value) <= _MOST_KEY_COLUMNS:
            raise ValueError(f"expected 1 to {_MOST_KEY_COLUMNS} columns and their types, such as {{user_id: long}}")
        return value

    @property
    def columns(self) -> tuple[str, ...]:
        """The key's columns."""
        return tuple(self.key)


class View(StrictModel):
    """Columns of a table that are kept for online reads.

    Args:
        name: the name under which they are asked for.
        entity: whose features they are.
        table: the table, as the catalog names it.
        features: the columns.
        event_time: the column that says since when a row is true.
        unique: the key tells the table's rows apart; else the newest row of a key counts, by `event_time`.
        serve: `complete`: the store holds all rows; `cache`: those that were asked for, for `ttl`.
        ttl: seconds that the cache keeps a row.
        max_age: seconds after which a row is too old to be told; none: never.
        reproduce: seconds for which upkeep keeps the history that past answers are read from.
        late: seconds that the store may be behind the replica, before that is an alarm.
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
    reproduce: Duration | None = None
    late: Duration = 900

    @field_validator("table")
    @classmethod
    def _named(cls, value: str) -> str:
        if not _TABLE.fullmatch(value):
            raise ValueError("expected a table's whole name, such as default.user_feature_store")
        return value

    @model_validator(mode="after")
    def _sound(self) -> View:
        if len(set(self.features)) < len(self.features):
            raise ValueError(f"view {self.name}: a feature stands twice")
        if self.ttl is not None and self.serve == "complete":
            raise ValueError(f"view {self.name}: ttl is for serve: cache; a complete view's rows stay")
        if self.event_time is None and not self.unique:
            raise ValueError(f"view {self.name}: name an event_time, or say unique: true: else nobody knows which row")
        if self.event_time is None and self.max_age is not None:
            raise ValueError(f"view {self.name}: max_age needs an event_time")
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """What is kept of a row: the features, and the event time where that is none of them."""
        more = () if self.event_time is None or self.event_time in self.features else (self.event_time,)
        return (*self.features, *more)

    @property
    def kept(self) -> int | None:
        """Seconds that the store keeps a row; None: until it is deleted."""
        return (self.ttl or 3_600) if self.serve == "cache" else None


class FeatureService(StrictModel):
    """Features that are asked for together.

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
        services: features that are asked for together.
    """

    online: dict[str, Online] = Field(default_factory=dict)
    entities: list[Entity] = Field(min_length=1)
    views: list[View] = Field(min_length=1)
    services: list[FeatureService] = Field(default_factory=list)

    @model_validator(mode="after")
    def _sound(self) -> Features:
        for what, names in (
            ("entities", [each.name for each in self.entities]),
            ("views", [each.name for each in self.views]),
            ("services", [each.name for each in self.services]),
        ):
            if double := sorted({name for name in names if names.count(name) > 1}):
                raise ValueError(f"{what}: {double[0]} stands twice")
        for view in self.views:
            self._refuse_view(view)
        for service in self.services:
            self._refuse_service(service)
        return self

    def _refuse_view(self, view: View) -> None:
        if view.entity not in self.by_entity:
            raise ValueError(f"view {view.name}: no entity {view.entity!r}: there are {', '.join(self.by_entity)}")
        if set(self.by_entity[view.entity].columns) & set(view.columns):
            raise ValueError(f"view {view.name}: the key is no feature")

    def _refuse_service(self, service: FeatureService) -> None:
        known = {f"{view.name}.{column}" for view in self.views for column in view.features}
        if missing := [name for name in service.features if name not in known]:
            raise ValueError(f"service {service.name}: no feature {missing[0]}: features are written as view.column")
        if len(set(service.features)) < len(service.features):
            raise ValueError(f"service {service.name}: a feature stands twice")
        if len({self.by_name[name.partition(".")[0]].entity for name in service.features}) > 1:
            raise ValueError(f"service {service.name}: its features are of several entities")

    @property
    def by_entity(self) -> Mapping[str, Entity]:
        """The entities by name."""
        return {each.name: each for each in self.entities}

    @property
    def by_name(self) -> Mapping[str, View]:
        """The views by name."""
        return {each.name: each for each in self.views}

    def entity_of(self, view: View) -> Entity:
        """Return the entity whose features a view has."""
        return self.by_entity[view.entity]

    def reproduced(self) -> Mapping[str, int]:
        """Return for how many seconds the history of each table is kept that says so."""
        found: dict[str, int] = {}
        for view in self.views:
            if view.reproduce is not None:
                found[view.table] = max(found.get(view.table, 0), view.reproduce)
        return found


def section(value: Any) -> Any:
    """Return None for a section that says nothing."""
    return value or None


FeaturesSection = Annotated[Features | None, BeforeValidator(section)]
