"""Data larger than memory, on local disk."""
