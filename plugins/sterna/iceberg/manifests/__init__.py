"""Manifests and manifest lists: what they name, and their localized copies."""
