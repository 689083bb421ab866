"""Avro files: their container, a walk over raw records, and splicing of rewritten spans.

Reading (`container`, `program`, `locate`, `records`) doesn't depend on rewriting (`splice`, `rewrite`).
"""
