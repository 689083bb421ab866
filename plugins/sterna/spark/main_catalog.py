"""Tables of `main` as Iceberg's own code in Spark's driver has them.

No catalog is set on the session, and so no secret either: the catalog and its files' credentials live in objects of
the driver. Iceberg hands the credentials to the workers with the table, as it does for every table.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from sterna.catalog.model import Key
from sterna.errors import CatalogStateUnknown, EngineError, Unsupported
from sterna.spark.application import SparkApplication
from sterna.spark.errors import causes, permanent_error
from sterna.spark.java import activate_session, java_array, java_map, open_file_io
from sterna.spark.start import address, cancel, job_tag, run_in_thread, spark_errors, summarize_error
from sterna.spark.worker import redact

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Java = Any
"""An object in Spark's driver."""
_T = TypeVar("_T")
_SPARK_SETTINGS = {"spark.sql.adaptive.enabled": "false"}  # it would change what Iceberg has planned of files' sizes


class TableChanged(Exception):
    """The table has changed in what was being rewritten: nothing was committed, and it has to be planned again."""


class CommitConflict(Exception):
    """Others were faster to commit to the table, again and again: nothing was committed, and the same may be tried."""


@dataclass(frozen=True)
class MainCatalog:
    """How `main` is reached from Spark's driver.

    Args:
        uri: Nessie's API v2.
        login: properties of Iceberg's NessieCatalog that log in; secret.
        warehouse: a URI prefix; nothing is made below it.
        stores: URI prefix of each location → properties of its FileIO; secret.
        app_id: the commits' property `app-id`; "": they have none, and the author that Iceberg gives them.
    """

    uri: str
    login: Mapping[str, str] = field(repr=False)
    warehouse: str
    stores: Mapping[str, Mapping[str, str]] = field(repr=False)
    app_id: str


class MainTables:
    """Opens tables of `main` in a Spark that runs in this process.

    Args:
        master: a Spark master, whose driver has Iceberg's runtime; no Spark Connect server, for rewrites choose single
            files, which its protocol can't express.
        catalog: how `main` is reached.

    Raises:
        NeedsClassicSpark: it is a Spark Connect server.
        EngineError: Spark doesn't start.
        NoIceberg: it lacks Iceberg's runtime.
    """

    def __init__(self, master: str, catalog: MainCatalog) -> None:
        self._secrets = {
            **catalog.login,
            **{name: text for properties in catalog.stores.values() for name, text in properties.items()},
        }
        self.address = address(master)
        self.spark = SparkApplication(
            "sterna-upkeep",
            "maintenance commits to main in Spark's JVM",
            "name a Spark master in the services file: maintenance.spark, such as local[4]",
            _SPARK_SETTINGS,
        ).open_session(master)
        # One name for all jobs: several threads share the session, and Ctrl-C is for all of them.
        self._tag = f"sterna-{uuid.uuid4().hex}"
        self._tag_scope = ExitStack()
        self._tag_scope.enter_context(job_tag(self.spark, self._tag))
        self._catalog = self.call(lambda: DriverCatalog(self.spark, catalog))

    @property
    def jvm(self) -> Java:
        """The driver."""
        jvm: Any = self.spark._jvm
        return jvm

    def table(self, key: Key) -> Java:
        """Load a table, as an `org.apache.iceberg.Table`.

        Raises:
            Unsupported: Iceberg's catalog can't name it.
            EngineError: it can't be loaded.
        """
        if any({"@", "#", "`"} & set(part) for part in key):
            raise Unsupported("Iceberg's catalog for Nessie can't name a table with @, # or ` in its key")
        return self.call(lambda: self.load_table(key))

    def load_table(self, key: Key) -> Java:
        """Load a table within `call`; raises what py4j does."""
        return self._catalog.load_table(key)

    def check_executors(self) -> None:
        """Let Spark's executors count a row.

        Raises:
            EngineError: they don't.
        """
        self.call(lambda: self.spark.range(1).count())

    def call(self, work: Callable[[], _T], table: str = "") -> _T:
        """Return what a piece of work in the driver returns; Ctrl-C cancels all jobs, and leaves the driver usable.

        Args:
            table: what errors call the table.

        Raises:
            TableChanged, CommitConflict: another commit came first.
            CatalogStateUnknown: the answer to a commit was lost.
            EngineRefused, StoreDenied: no later run will do better.
            EngineError: anything else.
        """

        def run() -> _T:
            # Iceberg uses the session of the calling thread, and this thread is new.
            activate_session(self.spark)
            return work()

        try:
            return run_in_thread(run, self.cancel)
        except spark_errors() as error:
            raise translate_error(error, self.address, self._secrets, table) from None

    def cancel(self) -> None:
        """Cancel all jobs; what waits for them fails."""
        with suppress(*spark_errors()):
            cancel(self.spark, self._tag)

    def array(self, kind: Java, values: Sequence[Any]) -> Java:
        """Return a Java array."""
        return java_array(self.spark.sparkContext._gateway, kind, values)

    def hash_map(self, values: Mapping[str, str]) -> Java:
        """Return a Java map."""
        return java_map(self.jvm, values)

    def close(self) -> None:
        """Close the catalog. The application ends with the process."""
        self._catalog.close()
        self._tag_scope.close()


def translate_error(error: BaseException, address: str, secrets: Mapping[str, str], table: str = "") -> Exception:
    """Return our error for one of Spark's in a rewrite.

    Args:
        error: what py4j or PySpark raised.
        address: Spark's address.
        secrets: properties that no message may show.
        table: what it calls the table.
    """
    names = [name for name, _ in causes(error)]
    text = redact(summarize_error(error), secrets)
    if any(name.endswith("CommitStateUnknownException") for name in names):
        return CatalogStateUnknown(f"the answer to a commit of Spark's was lost: {text}", table=table)
    # A reserved name is a ValidationException, too, and no retry cures it.
    if permanent := permanent_error(error, table, clean=lambda message: redact(message, secrets)):
        return permanent
    if any(name.endswith((".ValidationException", ".MissingFileException")) for name in names):
        return TableChanged(text)
    if any(name.endswith("CommitFailedException") for name in names):
        return CommitConflict(text)
    return EngineError(f"Spark at {address} failed: {text}", table=table)


class DriverCatalog:
    """Iceberg's catalog of `main` in Spark's driver, with one FileIO for the stores of all locations.

    Args:
        spark: a classic session of its own.
        main: how `main` is reached.

    Attributes:
        java: Iceberg's own object.
    """

    def __init__(self, spark: SparkSession, main: MainCatalog) -> None:
        spark.conf.set("spark.sql.catalog.default_rewrite_catalog", "org.apache.iceberg.spark.SparkRewriteTableCatalog")
        self._spark: Any = spark
        self.java: Java = self._open(main)

    def identifier(self, key: Key) -> Java:
        """Return what Iceberg names a table by."""
        jvm = self._spark._jvm
        names = java_array(self._spark.sparkContext._gateway, jvm.java.lang.String, key)
        return jvm.org.apache.iceberg.catalog.TableIdentifier.of(names)

    def load_table(self, key: Key) -> Java:
        """Load a table, as an `org.apache.iceberg.Table`; raises what py4j does."""
        return self.java.loadTable(self.identifier(key))

    def register_in_sql(self, name: str) -> None:
        """Let the session's SQL name the tables; no setting holds a secret.

        Args:
            name: what SQL calls the catalog; not used in the session before.
        """
        # Spark makes catalogs of settings alone. So this one is made of nothing, and gets what it is to show.
        prefix = f"spark.sql.catalog.{name}"
        self._spark.conf.set(prefix, "org.apache.iceberg.spark.SparkCatalog")
        self._spark.conf.set(f"{prefix}.catalog-impl", "org.apache.iceberg.inmemory.InMemoryCatalog")
        self._spark.conf.set(f"{prefix}.cache-enabled", "false")
        activate_session(self._spark)
        spark_catalog = self._spark._jsparkSession.sessionState().catalogManager().catalog(name)
        for field_name in ("icebergCatalog", "asNamespaceCatalog"):
            java_field = spark_catalog.getClass().getDeclaredField(field_name)
            java_field.setAccessible(True)
            java_field.set(spark_catalog, self.java)

    def close(self) -> None:
        """Close its connections."""
        with suppress(*spark_errors()):
            self.java.close()

    def _open(self, main: MainCatalog) -> Java:
        java = self._spark._jvm
        login = {f"nessie.{name}": value for name, value in main.login.items()}
        settings = java_map(java, {"nessie.uri": main.uri, **login})
        source = java.org.projectnessie.client.config.NessieClientConfigSources.mapConfigSource(settings)
        builder = java.org.projectnessie.client.NessieClientBuilder.createClientBuilderFromSystemSettings(source)
        loader = java.java.lang.Thread.currentThread().getContextClassLoader()
        api = builder.build(java.java.lang.Class.forName("org.projectnessie.client.api.NessieApiV2", True, loader))
        author = {"app-id": main.app_id, "user": "sterna"} if main.app_id else {}
        options = java_map(java, {"uri": main.uri, "warehouse": main.warehouse, **author})
        client = java.org.apache.iceberg.nessie.NessieIcebergClient(api, "main", None, options)
        catalog = java.org.apache.iceberg.nessie.NessieCatalog()
        # Without the catalog's login: it would go to the executors.
        catalog.initialize("sterna_main", client, open_file_io(self._spark, main.stores, {}), options)
        return catalog
