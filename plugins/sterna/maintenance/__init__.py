"""Garbage of replicas and the upkeep of tables on `main`."""
