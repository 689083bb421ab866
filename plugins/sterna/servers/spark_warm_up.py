"""What Spark does before its classes are archived (`python -m sterna.servers.spark_warm_up <folder>`).

It is what it will do: write, change and read a table through a catalog of its own. Its settings come with the
environment.
"""

from __future__ import annotations

import sys
from pathlib import Path

from sterna.servers.spark import add_catalog, start_session
from sterna.servers.stack import deployment

_STATEMENTS = (
    "CREATE NAMESPACE rehearsal.made",
    "CREATE TABLE rehearsal.made.t (id BIGINT, name STRING, at TIMESTAMP) USING iceberg PARTITIONED BY (days(at)) "
    "TBLPROPERTIES ('write.delete.mode'='merge-on-read')",
    "INSERT INTO rehearsal.made.t SELECT id, string(id), timestamp_seconds(id * 40000) FROM range(10)",
    "DELETE FROM rehearsal.made.t WHERE id = 3",
    "MERGE INTO rehearsal.made.t t USING (SELECT 4 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET name = 'x' "
    "WHEN NOT MATCHED THEN INSERT (id, name, at) VALUES (s.id, 'y', current_timestamp())",
    "SELECT name, count(*) FROM rehearsal.made.t GROUP BY name ORDER BY name",
    "SELECT * FROM rehearsal.made.t.snapshots",
)


def main() -> None:
    """Do it, and let the JVM end by itself: it writes the archive then."""
    with deployment(Path(sys.argv[1]), ("eu",), postgres=False) as stage:
        spark = start_session({})
        add_catalog(spark, "rehearsal", stage.nessie.uri, "main", stage.warehouse("eu"), stage.endpoints["eu"])
        for statement in _STATEMENTS:
            spark.sql(statement).collect()
        jvm = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
        spark.stop()
        jvm.stdin.close()
        sys.exit(jvm.wait())


if __name__ == "__main__":
    main()
