"""Work items: a function over JSON items, in Spark's Python workers or in this process.

Failures are attributed by the caller, which has the region's own store.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sterna import errors
from sterna.config.mapping import Mapping
from sterna.config.registry.model import Registry
from sterna.config.secrets import environment_secrets
from sterna.errors import SternaError, StoreDenied
from sterna.replication.execution.fault_attribution import unexpected_fault
from sterna.replication.execution.spark_executor import Engine

if TYPE_CHECKING:
    from sterna.storage.objects import Objects

_DENIED_PREFIX = f'{{"error": ["{StoreDenied.__name__}"'  # how such an answer begins


def worker_objects(registry: str, region: str) -> Objects:
    """Return the stores of a region, with the credentials that are in the environment now.

    Args:
        registry: the registry as JSON.
    """
    # Workers live on while credentials change: clients are kept for as long as the variables that they were made from.
    credentials = hash(
        frozenset((name, value) for name, value in os.environ.items() if name.startswith("AIRFLOW_CONN_"))
    )
    return _objects(registry, region, credentials)


@lru_cache(maxsize=4)
def _objects(registry: str, region: str, credentials: int) -> Objects:
    from sterna.storage.objects import Objects

    parsed = Registry.model_validate_json(registry)
    return Objects(Mapping(parsed, parsed.region(region)), environment_secrets()).with_verbatim_copies()


def run_as_json(work: Callable[[], dict[str, Any]], activity: str, file: str, table: str) -> str:
    """Return the result of a work item as JSON; where it fails, `error`: class name, message and file."""
    try:
        return json.dumps(work())
    except Exception as error:  # noqa: BLE001 - judged by `attribute_fault`
        fault = error if isinstance(error, SternaError) else unexpected_fault(error, activity, file, table)
        return json.dumps({"error": [type(fault).__name__, fault.message, fault.file]})


def parse_error(answer: dict[str, Any], table: str) -> SternaError | None:
    """Return the error in a work item's answer, None where it has none."""
    if "error" not in answer:
        return None
    kind, message, file = answer["error"]
    error: SternaError = getattr(errors, kind)(message, table=table, file=file)
    return error


def run_on_engine(engine: Engine, function: Callable[[str], str], requests: Sequence[str], label: str) -> list[str]:
    """Run items on the engine.

    Items whose store denied a credential run a second time, for it may have expired meanwhile.
    """
    answers = list(engine(function, requests, label))
    denied = [number for number, answer in enumerate(answers) if answer.startswith(_DENIED_PREFIX)]
    retried = engine(function, [requests[number] for number in denied], label) if denied else ()
    replacements = dict(zip(denied, retried, strict=True))
    return [replacements.get(number, answer) for number, answer in enumerate(answers)]
