"""Local disk, for what memory has no room for."""
