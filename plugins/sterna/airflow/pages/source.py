"""What the pages read: regions of the registry, the services file, and the limits of alarms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
        of_users: it is the view `user`, by a number: the feature service has a route of its own for it.
    """

    name: str
    key: tuple[str, ...]
    features: tuple[str, ...]
    of_users: bool = False


def feature_views(source: Source) -> list[FeatureView]:
    """Return the views of features that the services file has."""
    features = source.services().features
    if features is None:
        return []
    keyed = [(view, features.entity_of(view).key) for view in features.views]
    return [
        FeatureView(view.name, tuple(key), tuple(view.features), view.name == "user" and _is_number(key))
        for view, key in keyed
    ]


def _is_number(key: Mapping[str, str]) -> bool:
    return len(key) == 1 and "string" not in key.values()


def configured_parts(source: Source) -> dict[str, Any]:
    """Return which views and figures have something behind them in this region, and the ids of DAGs that have nothing.

    Raises:
        ServicesError, RegistryError: a file can't be read.
    """
    from sterna.airflow.addons import ADDONS, PROMOTE_DAG_ID

    services, region = source.services(), source.region()
    idle = [addon.dag_id for addon in ADDONS.values() if not addon.is_on(services, region)]
    return {
        "ingest": ADDONS["ingest"].is_on(services, region),
        "inspector": services.features is not None or bool(source.setting("feature_service_url")),
        "figure": bool(source.setting("gateway_url")),
        "idle": idle if source.registry().has_regional_catalogs else [*idle, PROMOTE_DAG_ID],
    }


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
