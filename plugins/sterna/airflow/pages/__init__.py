"""sterna's pages in Airflow: an app that Airflow mounts, and the files that a browser loads from it (docs/pages.md)."""
