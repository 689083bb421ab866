"""Garbage of replicas and the maintenance of tables on `main`."""
