"""What comes in from outside: kept near, made few files of many, and put on `main` once (docs/ingest.md)."""
