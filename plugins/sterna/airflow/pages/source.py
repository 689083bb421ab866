"""What the pages read: regions of the registry, the services file, and the limits of alarms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sterna.airflow.settings import get_option, get_timedelta

if TYPE_CHECKING:
    from sterna.config.registry.model import Registry
    from sterna.config.secrets import Secrets
    from sterna.config.sections.model import Services
    from sterna.operations.alarms import AlarmLimits
    from sterna.replication.replica.region import RegionContext


@dataclass(frozen=True)
class Source:
    """The source of the pages' facts; each call reads the files again.

    Args:
        region: gives the name of this Airflow's own region.
        services: reads the services file.
        limits: gives from where on something is an alarm.
        setting: gives an option of Airflow's section `[sterna]`.
    """

    region: Callable[[], str]
    registry: Callable[[], Registry]
    open: Callable[[Registry, str], RegionContext]
    services: Callable[[], Services]
    limits: Callable[[], AlarmLimits]
    secrets: Secrets
    setting: Callable[[str], str]

    def open_own(self) -> RegionContext:
        """Open this Airflow's own region; the caller closes it.

        Raises:
            RegistryError, UsageError: the registry is missing or wrong, or has no such region.
        """
        return self.open_region(self.region())

    def open_region(self, name: str) -> RegionContext:
        """Open a region; the caller closes it.

        Raises:
            RegistryError, UsageError: the registry is missing or wrong, or has no such region.
        """
        from sterna.errors import UsageError

        registry = self.registry()
        if name not in registry.region_names:
            raise UsageError(f"the registry has no region {name!r}")
        return self.open(registry, name)


@dataclass(frozen=True)
class FeatureView:
    """A view of features.

    Args:
        key: the columns by which its rows are found.
        features: the other columns.
    """

    name: str
    key: tuple[str, ...]
    features: tuple[str, ...]


def feature_views(source: Source) -> list[FeatureView]:
    """Return the views of features that the services file has."""
    features = source.services().features
    if features is None:
        return []
    return [
        FeatureView(view.name, tuple(features.entity_of(view).key), tuple(view.features)) for view in features.views
    ]


def airflow_source() -> Source:
    """Return the source that Airflow's configuration and connections make."""
    from sterna.airflow.alert import read_limits
    from sterna.airflow.secrets import command_secrets
    from sterna.config.services_file import read_services
    from sterna.replication.replica.region import RegionContext, read_registry

    return Source(
        region=lambda: get_option("region"),
        registry=lambda: read_registry(get_option("registry")),
        open=lambda registry, name: RegionContext.of(registry, registry.region(name), command_secrets),
        services=lambda: read_services(get_option("services")),
        limits=lambda: read_limits(get_timedelta("lag_limit"), None, None, None),
        secrets=command_secrets,
        setting=get_option,
    )
