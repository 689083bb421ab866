"""metadata.json of tables and views: reading it, which history is retained, and its localized copy."""
