"""Avro files: their container, a walk over raw records, and rewriting what stands between.

Reading (`container`, `program`, `locate`, `records`) knows nothing of rewriting (`splice`, `rewrite`).
"""
