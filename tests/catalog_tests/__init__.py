"""Apache Iceberg's own tests of catalogs, run against an Iceberg REST address by a command."""
