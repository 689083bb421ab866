"""Section [sterna] of Airflow's configuration: what can be set there, and reading it.

The table is here and not in the provider's description, because a folder dropped into `plugins/` has no provider.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from sterna.config.durations import duration_seconds
from sterna.config.renamed import AIRFLOW_OPTIONS
from sterna.errors import UsageError

SECTION = "sterna"
_MAX_FOLLOW_SECONDS = 3_600


@dataclass(frozen=True)
class Option:
    """One option of the section.

    Args:
        description: what it is for.
        kind: its type, as Airflow names it.
        default: what holds when it is not set; None: it has to be set.
        example: a value that one would write.
    """

    description: str
    kind: Literal["string", "integer", "float"] = "string"
    default: str | None = None
    example: str | None = None


OPTIONS = {
    "region": Option("The region that this Airflow serves, by its name in the registry.", example="eu"),
    "registry": Option(
        "Path of the storage registry, the same file in every region.", example="/opt/airflow/storage_registry.yaml"
    ),
    "services": Option(
        "Path of the services file, the same file in every region; empty: sterna_services.yaml in the current folder, "
        "where there is one.",
        default="",
        example="/opt/airflow/sterna_services.yaml",
    ),
    "poll_interval": Option("Seconds between two polls of the head of main.", "float", "1"),
    "schedule": Option(
        "Cron expression (UTC) of the runs that catch what the commits' events missed; empty: only commits start a "
        "run.",
        default="*/15 * * * *",
    ),
    "copy_slots": Option("How many copy tasks of one run work at once.", "integer", "4"),
    "retries": Option("How often a task is repeated after an error that repeating can cure.", "integer", "5"),
    "plan_timeout": Option("Deadline of the plan task, in seconds.", "integer", "3600"),
    "copy_timeout": Option("Deadline of one copy task, in seconds.", "integer", "21600"),
    "localize_timeout": Option("Deadline of the localize task, in seconds.", "integer", "21600"),
    "publish_timeout": Option("Deadline of the publish task and of the announce task, in seconds.", "integer", "1800"),
    "follow_for": Option(
        "For how long a run that published follows main, so that commits in quick succession need no run "
        "each; empty: not at all.",
        default="",
        example="60s",
    ),
    "lag_limit": Option(
        "Seconds of lag, of the region or of a table that it holds, from which on sterna_lag_alert fails.",
        "integer",
        "3600",
    ),
    "ignore_held": Option(
        "Tables that may be held without an alarm: patterns as in the registry's policies, with commas between them.",
        default="",
        example="scratch.**, shop.old_orders",
    ),
    "gc_limit": Option(
        "Seconds that evidence of a run may stay before sterna_lag_alert fails, since no gc gets ahead; 0: no "
        "gc is run here.",
        "integer",
        "1296000",
    ),
    "slot_limit": Option(
        "Share of max_slot_wal_keep_size from which on a replication slot that needs so much makes sterna_lag_alert "
        "fail.",
        "float",
        "0.8",
    ),
    "gc_schedule": Option(
        "Cron expression (UTC) of the runs of the DAG sterna_gc; empty: by hand alone.", default="30 3 * * *"
    ),
    "gc_keep": Option("What heads of the replica branch that are no older than this reach stays.", default="7d"),
    "gc_grace": Option("How long a file has to be unreachable before gc deletes it.", default="24h"),
    "gc_timeout": Option("Deadline of one run of gc, in seconds.", "integer", "21600"),
    "maintenance_schedule": Option(
        "Cron expression (UTC) of the runs of the DAG sterna_upkeep; empty: by hand alone.", default="20 * * * *"
    ),
    "maintenance_timeout": Option("Deadline of one run of maintenance, in seconds.", "integer", "21600"),
    "verify_schedule": Option(
        "Cron expression (UTC) of the runs of the DAG sterna_verify; empty: by hand alone.", default="40 5 * * *"
    ),
    "verify_sample": Option(
        "Share of the files that a verification compares with main, another one each day; empty: none, only the "
        "structure is checked.",
        default="",
        example="1/30",
    ),
    "verify_timeout": Option("Deadline of one verification, in seconds.", "integer", "21600"),
    "repair_timeout": Option("Deadline of one repair, in seconds.", "integer", "21600"),
    "ingest_schedule": Option(
        "Cron expression (UTC) of the runs of the DAG sterna_ingest, whose workers continue in between; empty: by hand "
        "alone.",
        default="*/10 * * * *",
    ),
    "ingest_follow_for": Option("For how long a worker of ingestion continues to publish batches.", default="9m"),
    "ingest_workers": Option("How many workers of ingestion work at once.", "integer", "1"),
    "ingest_timeout": Option("Seconds that a worker of ingestion may take beyond that.", "integer", "3600"),
    "cdc_schedule": Option(
        "Cron expression (UTC) of the runs of the DAG sterna_cdc, which follow in between; empty: by hand alone.",
        default="*/10 * * * *",
    ),
    "cdc_follow_for": Option("For how long a run of sterna_cdc follows databases.", default="9m"),
    "cdc_timeout": Option("Seconds that a run of sterna_cdc may take beyond that.", "integer", "3600"),
    "transforms_sources": Option(
        "Tables whose changes start the DAG sterna_flows, separated by commas; empty: all that become fresh in the "
        "region.",
        default="",
        example="acme.ods, acme.dwd",
    ),
    "transforms_follow_for": Option(
        "For how long a run of sterna_flows continues with its Spark warm; empty: each transform once.", default="9m"
    ),
    "transforms_timeout": Option("Seconds that a run of sterna_flows may take beyond that.", "integer", "3600"),
    "features_schedule": Option(
        "Cron expression (UTC) of the runs of the DAG sterna_features that catch what events missed; empty: none.",
        default="*/10 * * * *",
    ),
    "features_follow_for": Option("For how long a run of sterna_features continues; empty: not at all.", default="5m"),
    "features_timeout": Option("Seconds that a run of sterna_features may take beyond that.", "integer", "3600"),
    "feature_service_url": Option(
        "Address of the feature service, for the inspector among the pages; empty: there is none.",
        default="",
        example="http://features.example:8000",
    ),
    "feature_service_credential_id": Option(
        "Connection whose password is a token of that service's; empty: none is sent.", default="", example="gateway"
    ),
    "gateway_url": Option(
        "Address of this region's gateway, whose default query gives the figure among the pages' events; empty: none.",
        default="",
        example="https://eu.example",
    ),
    "gateway_credential_id": Option(
        "Connection whose password is a token of that gateway's; empty: none is sent.", default="", example="gateway"
    ),
    "owner": Option("Owner shown on the DAGs.", default="sterna"),
    "owner_link": Option(
        "Where a click on the owner leads, such as a run book; empty: nowhere.",
        default="",
        example="https://example.com/run-book",
    ),
}


def get_option(name: str) -> str:
    """Return an option's value.

    Raises:
        UsageError: it is not set and has no default, or is set by the name that it had in version 0.1.
    """
    from airflow.sdk import conf

    for old_name in (old for old, new in AIRFLOW_OPTIONS.items() if new == name):
        if conf.get(SECTION, old_name, fallback=None) is not None:
            raise UsageError(
                f"[{SECTION}] {old_name} in Airflow's configuration: no such option", hint=f"did you mean {name}?"
            )
    value = conf.get(SECTION, name, fallback=OPTIONS[name].default)
    if value is None or (not value and OPTIONS[name].default is None):
        variable = f"AIRFLOW__{SECTION.upper()}__{name.upper()}"
        raise UsageError(
            f"[{SECTION}] {name} is not set in Airflow's configuration", hint=f"set it there, or {variable}"
        )
    return str(value)


def get_float(name: str) -> float:
    """Return an option's value as a number.

    Raises:
        UsageError: it is none.
    """
    value = get_option(name)
    try:
        return float(value)
    except ValueError:
        raise UsageError(f"[{SECTION}] {name} in Airflow's configuration is {value!r}: expected a number") from None


def max_map_length() -> int:
    """Return over how many items Airflow maps a task, at most."""
    from airflow.sdk import conf

    return max(1, conf.getint("core", "max_map_length", fallback=1024))


def get_timedelta(name: str) -> timedelta:
    """Return an option's value, a number of seconds.

    Raises:
        UsageError: it is no number.
    """
    return timedelta(seconds=get_float(name))


def parse_follow_duration(value: str) -> timedelta:
    """Return for how long a run follows; nothing for an empty text.

    Raises:
        UsageError: it is no duration such as 60s, or longer than an hour: asset events wait for its end.
    """
    text = value.strip()
    seconds = 0 if text in ("", "0s") else duration_seconds(text)
    if seconds is None or seconds > _MAX_FOLLOW_SECONDS:
        raise UsageError(f"follow_for {value!r}: expected a duration such as 60s or 5m, of an hour at most")
    return timedelta(seconds=seconds)


def get_patterns(name: str) -> tuple[str, ...]:
    """Return an option's value, patterns with commas between them."""
    return tuple(part.strip() for part in get_option(name).split(",") if part.strip())
