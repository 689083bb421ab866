"""Ingestion: uploads are stored in the writer's region, merged into few files, and published on `main` once
(docs/ingest.md)."""
