"""Sessions for work in the JVM of Spark's driver: the one way to them, for all that plans or commits there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sterna.errors import NeedsClassicSpark
from sterna.spark.start import address, is_connect, require_iceberg, require_pyspark, spark_errors, start_classic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UTC_SETTINGS: Mapping[str, str] = MappingProxyType({"spark.sql.session.timeZone": "UTC"})
"""For sessions whose times are the same in every region."""
BATCH_SETTINGS: Mapping[str, str] = MappingProxyType({**UTC_SETTINGS, "spark.sql.shuffle.partitions": "8"})
"""For sessions that write a batch at a time."""


class SparkApplication:
    """Opens sessions whose JVM has Iceberg, and keeps the application that it started until it is closed.

    Args:
        name: what an application calls itself that is started for it.
        need: why Spark Connect doesn't do, in messages.
        hint: where a master is named.
        settings: of each session.
        unset: prefixes of settings whose defaults in the application a session doesn't have.
    """

    def __init__(
        self,
        name: str,
        need: str,
        hint: str,
        settings: Mapping[str, str] = MappingProxyType({}),
        unset: Sequence[str] = (),
    ) -> None:
        self._name, self._need, self._hint = name, need, hint
        self._settings, self._unset = settings, tuple(unset)
        self._started: SparkSession | None = None

    def require_classic(self, master: str) -> None:
        """Refuse a Spark that doesn't show its JVM.

        Raises:
            NeedsClassicSpark: it is a Spark Connect server.
        """
        if is_connect(master):
            raise NeedsClassicSpark(
                f"the region's Spark, at {address(master)}, is a Spark Connect server, and {self._need}",
                hint=self._hint,
            )

    def open_session(self, master: str) -> SparkSession:
        """Return a new session, on the application that runs in this process, or on a new one.

        Args:
            master: a Spark master; ignored where an application runs.

        Raises:
            NeedsClassicSpark: it is a Spark Connect server.
            EngineError: Spark can't be started.
            NoIceberg: its driver lacks Iceberg's runtime.
        """
        self.require_classic(master)
        require_pyspark()
        spark, is_started = start_classic(master, self._name, {})
        if is_started:
            self._started = spark
        require_iceberg(spark)
        _unset_defaults(spark, self._unset)
        for name, value in self._settings.items():
            spark.conf.set(name, value)
        return spark

    def close(self) -> None:
        """Stop Spark if it was started here."""
        if self._started is not None:
            with suppress(*spark_errors()):
                self._started.stop()
            self._started = None

    def __enter__(self) -> SparkApplication:
        """Return itself; it is closed at the end."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


def _unset_defaults(spark: SparkSession, prefixes: tuple[str, ...]) -> None:
    if not prefixes:
        return
    java: Any = spark
    defaults = java._jsparkSession.sessionState().conf().getAllConfs().toSeq()
    for name in [str(defaults.apply(index)._1()) for index in range(defaults.size())]:
        if name.startswith(prefixes) and spark.conf.isModifiable(name):
            spark.conf.unset(name)
