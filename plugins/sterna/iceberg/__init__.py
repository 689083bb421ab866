"""Iceberg's own files and the paths inside them: bytes in, bytes out."""

LOCALIZER_VERSION = 2
"""Part of a localized metadata.json's name.

A change in what localizing writes counts it up, so that tables are written anew.
"""
