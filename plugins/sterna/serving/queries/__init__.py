"""Named queries at exactly one snapshot: what operators wrote, pinned, guarded and answered (docs/queries.md)."""
